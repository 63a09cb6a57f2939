"""Error, loss, homogeneity and what is public: every table, sentence and chart by hand."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest
from tests.conftest import TINY_PLAN
from tests.report import hand_plan
from tests.report import sections_of_hand as made
from tests.report.reading import chart_rows, table_rows

from countveil.assess.protections.cell_suppression import kept_secret, posterior_under_suppression
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


def edge_and_loss(level, query):
    """Return the least reach of 95 % of the noise, and log P(e)/P(e + rows) there."""
    k, chance = hand_plan.law(hand_plan.variance(level, query))
    at = dict(zip(k.tolist(), chance.tolist(), strict=True))
    edge = next(h for h in range(200) if chance[np.abs(k) <= h].sum() >= 0.95)
    return edge, math.log(at[edge] / at[edge + hand_plan.ROWS])


def test_losses_are_listed_at_the_edge_of_the_noise(plan):
    section = made.loss(plan)
    rows = table_rows(section, "Privacy loss of one count, at the 95th percentile of its noise")
    assert [(row["Level"], row["Query"]) for row in rows] == [p for p in LISTED if p[1] != "AGE"]
    for row in rows:
        of = row["Level"], row["Query"]
        edge, loss = edge_and_loss(*of)
        assert row["Standard deviation"] == pytest.approx(hand_plan.spread(*of))
        assert (row["Size of the noise"], row["Privacy loss"]) == (edge, pytest.approx(loss))


def test_the_sentence_is_about_the_largest_loss(plan):
    edge, loss = edge_and_loss("area", "AGE*SEX")
    section = made.loss(plan)
    assert all(row["Privacy loss"] <= loss for row in table_rows(section, "Privacy loss of one"))
    assert section.sentences[1] == (
        f"Of these queries, AGE*SEX of an area has the largest loss: {words.brief(loss)} at a noise "
        f"of {edge}, the 95th percentile of its size."
    )
    assert "with all 3 rows of a person in the count" in section.sentences[0]
    one = made.loss(Plan.parse(TINY_PLAN))
    assert "with a person in the count" in one.sentences[0]


def test_the_sum_of_losses_keeps_to_the_budget_as_the_sentence_says(plan):
    """Zero-concentrated: the mean of all losses is at most rho, and none is the largest."""
    told = made.loss(plan).sentences[-1]
    assert "at or below rho on average" in told
    assert "sets no maximum" in told
    mean, far = 0.0, 0.0
    for level in hand_plan.RHO:
        points, chances = hand_plan.presence(level)
        mean += float(points @ chances)
        far += float(points.max())
    assert mean <= 0.9 < far
    pure = Plan.parse(TINY_PLAN.replace('rho = "2"', 'epsilon = "2"'))
    assert "never exceeds the budget" in made.loss(pure).sentences[-1]
    largest = sum(
        max(abs(abs(k + 1) - abs(k)) * epsilon / 2 for k in range(-40, 40))
        for epsilon in (1 / 4, 3 / 4) * 2
    )
    assert largest <= 2


def test_groups_that_are_alike_are_listed_and_drawn(plan):
    section = made.homogeneity(plan)
    k, chance = hand_plan.law(hand_plan.variance("area", "AGE*SEX"))
    rows = {
        row["Attribute"]: row for row in table_rows(section, "How often noisy counts of an area")
    }
    drawn = {
        (row["attribute"], row["people"]): row for row in chart_rows(section, "uniform-groups")
    }
    for name, values in (("AGE", 2), ("SEX", 3)):
        assert rows[name]["Values"] == values
        for people in (1, 2, 3, 5, 10, 20):
            seen = float(chance[k + people >= 0.5].sum())
            unseen = float(chance[k < 0.5].sum())
            only = seen * unseen ** (values - 1)
            assert rows[name][f"Group of {people}"] == words.brief_percent(only)
            assert drawn[name, people]["disclosed"] == pytest.approx(only)
    assert "they also share an area and all other attributes" in section.charts[0].caption


def test_more_attributes_than_a_chart_can_show_are_all_listed():
    more = "".join(f'B{n} = ["a", "b"]\n' for n in range(8))
    names = ["AGE", "SEX", *(f"B{n}" for n in range(8))]
    text = TINY_PLAN.replace('"m", "x"]\n', f'"m", "x"]\n{more}')
    plan = Plan.parse(text.replace("AGE*SEX", "*".join(names)))
    section = made.homogeneity(plan)
    assert [row["Attribute"] for row in table_rows(section, "How often")] == names
    drawn = dict.fromkeys(row["attribute"] for row in chart_rows(section, "uniform-groups"))
    assert list(drawn) == names[:8]
    assert "first 8 of 10 attributes" in section.sentences[1]


def test_a_plan_without_attributes_has_no_groups():
    text = TINY_PLAN.replace('AGE = ["young", "old"]\nSEX = ["f", "m", "x"]\n', "")
    plan = Plan.parse(text.replace('TOTAL = "1/4"\n"AGE*SEX" = "3/4"', 'TOTAL = "1"'))
    assert made.homogeneity(plan) is None


def test_what_remains_beside_public_counts(settled):
    """Where another must make up for a change, four people's rows differ: rho is 16 times as large."""
    section = made.public(settled)
    rows = {row["Secret"]: row for row in table_rows(section, "What is protected")}
    assert section.sentences[0] == ("Public: TOTAL of every area, exactly (known).")
    moved = rows["in which area a person is counted"]
    assert moved["People who must differ"] == 1 + hand_plan.ROWS
    assert moved["Guarantee"].startswith(f"rho = {Fraction(9, 10) * 16}")
    assert rows["SEX of a person"]["People who must differ"] == 1
    assert rows["SEX of a person"]["Guarantee"].startswith("rho = 9/10")
    assert {row["Odds, at most"] for row in rows.values()} == {"no bound"}


def test_nothing_public_is_said_to_be_nothing(hand):
    assert made.public(hand).sentences[0] == "Public: nothing."


@pytest.mark.parametrize(
    ("word", "expected"),
    [("area", "an area"), ("region", "a region"), ("Unit", "a Unit"), ("Island", "an Island")],
)
def test_articles(word, expected):
    assert words.article(word) == expected
    assert words.article("") == "a "


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.0, "0 %"),
        (1e-9, "fewer than 1 in 1,000,000"),
        (0.6239, "62 %"),
        (0.99996, "more than 9,999 in 10,000"),
        (0.9991, "more than 999 in 1,000"),
        (1.0, "100 %"),
    ],
)
def test_a_share_is_not_rounded_to_none_or_all(share, expected):
    assert words.brief_percent(share) == expected


@pytest.mark.parametrize(
    ("share", "expected", "often"),
    [
        (0.0, "0 %", "never"),
        (1e-9, "fewer than 1 in 1,000,000", "fewer than 1 time in 1,000,000"),
        (1.606e-5, "fewer than 1 in 10,000", "fewer than 1 time in 10,000"),
        (0.0009, "fewer than 1 in 1,000", "fewer than 1 time in 1,000"),
        (0.0022, "0.22 %", "22 times out of 10,000"),
        (0.0221, "2.2 %", "22 times out of 1,000"),
        (0.6238, "62 %", "62 times out of 100"),
        (0.996, "99.6 %", "996 times out of 1,000"),
        (0.99995, "more than 9,999 in 10,000", "more than 9,999 times in 10,000"),
        (1.0, "100 %", "always"),
    ],
)
def test_a_share_in_a_sentence_is_brief_and_never_rounded_to_none_or_all(share, expected, often):
    assert words.brief_percent(share) == expected
    assert words.times_out_of(share) == often


def test_numbers_in_a_sentence_have_two_significant_digits():
    numbers = (1.102, 0.0221, 9.96, 49.3, 1234.6, 2.0, 0.0, -3.456)
    assert [words.brief(value) for value in numbers] == (
        ["1.1", "0.022", "10", "49", "1,235", "2", "0", "-3.5"]
    )
    ratios = (1.102, 1.94, 1.038, 1.0004, 1.0, 0.99, 50.0)
    assert [words.multiple(value) for value in ratios] == (
        ["1.1", "1.9", "1.04", "1.0004", "1", "0.99", "50"]
    )
    assert words.brief_percent(0.104, other=0.1) == "10.4 %"
    assert words.brief_percent(0.12, other=0.1) == "12 %"
    assert [words.prior_percent(value) for value in (0.07, 0.1000000001)] == [
        "7 %",
        "10.00000001 %",
    ]


def test_guarantees_are_rounded_up_and_priors_not_at_all():
    assert [words.upwards(value) for value in (10.034, 10.04, 0.001)] == ["10.04", "10.04", "0.01"]
    assert [words.prior(value) for value in (0.5, 0.1 + 0.2, 1e-9)] == ["0.5", "0.3", "1e-09"]
    assert words.prior(0.1000000001) != words.prior(0.1)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
def test_suppression_with_several_rows_by_enumeration(rows):
    def shown(count):
        return "*" if 1 <= count <= 4 else count

    alike = [k for k in range(30) if shown(k) == shown(k + rows)]
    assert kept_secret(rows=rows) == alike
    for others in range(30):
        expected = 0.1 if others in alike else 1.0
        assert posterior_under_suppression(others, 0.1, rows=rows) == expected


def test_no_sentence_of_a_lens_has_a_wrong_article(hand, settled):
    for release in (hand, settled):
        plan = release.plan
        for section in (
            made.error(plan),
            made.loss(plan),
            made.homogeneity(plan),
            made.public(release),
        ):
            text = " ".join(
                [*section.sentences, *(p.caption + p.alt for p in section.charts)]
                + [item.caption for item in section.tables]
            )
            assert not re.findall(r"\ba [aeio]\w+", text)
            assert not re.findall(r"\ban [^aeioAEIO]\w+", text)
