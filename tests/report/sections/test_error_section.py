"""The expected error: every table, sentence and chart by hand."""

import pytest
from tests.conftest import TINY_PLAN
from tests.report import hand_plan
from tests.report import sections_of_hand as made
from tests.report.reading import chart_rows, table_rows

from countveil.base import words
from countveil.plan.plans import Plan

LISTED = [
    *(("region", query) for query in ("TOTAL", "AGE*SEX")),
    *(("area", query) for query in ("TOTAL", "AGE", "AGE*SEX")),
]


@pytest.fixture(scope="module")
def plan():
    return Plan.parse(hand_plan.PLAN)


def test_errors_are_listed_in_their_columns(plan):
    section = made.error(plan)
    rows = table_rows(section, "Error of one cell")
    assert [(row["Level"], row["Query"]) for row in rows] == LISTED
    for row in rows:
        of = row["Level"], row["Query"]
        assert row["Cells"] == len(hand_plan.QUERIES[row["Query"]])
        assert row["Mean absolute noise"] == pytest.approx(hand_plan.absolute(*of))
        assert row["Standard deviation"] == pytest.approx(hand_plan.spread(*of))
        assert row["Estimate"] == pytest.approx(hand_plan.standard_error(*of))


def test_its_sentences_tell_the_noise_of_totals(plan):
    section = made.error(plan)
    region, area = (words.brief(hand_plan.absolute(level, "TOTAL")) for level in ("region", "area"))
    assert section.sentences[1:] == (
        f"On average, noise moves a region total by {region} and an area total by {area}.",
    )


def test_a_total_published_as_counted_is_no_error(plan):
    public = Plan.parse(hand_plan.PLAN + hand_plan.SETTLING)
    section = made.error(public)
    rows = table_rows(section, "Error of one cell")
    assert [(row["Level"], row["Query"]) for row in rows] == [p for p in LISTED if p[1] != "TOTAL"]
    assert len(section.sentences) == 1


def test_the_charts_of_error_and_budget(plan):
    section = made.error(plan)
    for row in chart_rows(section, "expected-error"):
        of = row["level"], row["query"]
        assert row["standard_error"] == pytest.approx(hand_plan.standard_error(*of))
        assert row["noise_standard_deviation"] == pytest.approx(hand_plan.spread(*of))
    shares = {(row["level"], row["query"]): row for row in chart_rows(section, "budget-allocation")}
    for level, query in LISTED:
        assert shares[level, query]["rho"] == pytest.approx(hand_plan.RHO[level][query])
        assert shares[level, query]["share_of_all"] == pytest.approx(
            hand_plan.RHO[level][query] / 0.9
        )
    assert shares["area", "all queries"]["share_of_all"] == pytest.approx(4 / 5)


def test_queries_that_determine_nothing_leave_an_error_section():
    omitting = (
        '[recodes.GROUP]\nof = "AGE"\nomit = ["young"]\n[recodes.GROUP.groups]\nold = ["old"]\n'
    )
    text = TINY_PLAN.replace('TOTAL = "1/4"\n"AGE*SEX" = "3/4"', 'GROUP = "1"') + omitting
    plan = Plan.parse(text)
    section = made.error(plan)
    assert {row["Query"] for row in table_rows(section, "Error of one cell")} == {"TOTAL", "GROUP"}
