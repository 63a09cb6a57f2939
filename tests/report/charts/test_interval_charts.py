"""Charts and words of how sure counts are: the library's numbers, for plans of every kind."""

import pyarrow as pa
import pytest
from tests.conftest import TINY_PLAN
from tests.estimate import released_trees
from tests.estimate.released_trees import plan_text
from tests.report import sections_of_hand as made
from tests.report.chart_cases import area_estimates, covered, level_errors
from tests.report.test_report_page import INVARIANT, numbers_without_a_source

from countveil import Plan, Release, Seeded, estimate, pipeline
from countveil.errors import InputError
from countveil.estimate import errors_by_level as errors_of
from countveil.report import charts
from countveil.report.report_page import public_report
from countveil.tree import query_errors

EVERYTHING = {"TOTAL": 1, "AGE": 2}


@pytest.fixture
def release(tiny):
    tiny.write_text(TINY_PLAN + INVARIANT)
    pipeline.release(Plan.load(tiny), to=tiny.parent / "out", rng=Seeded(4))
    return Release.read(tiny.parent / "out")


def estimates(release):
    return estimate.least_squares(release.measurements, release.plan)


def test_errors_are_drawn_as_they_are(release):
    found = errors_of.level_errors(estimates(release), "AGE*SEX")
    rows = charts.error_by_level(found).table.to_pylist()
    assert [row["median_standard_error"] for row in rows] == [item.median for item in found]
    assert [row["largest_standard_error"] for row in rows] == [item.largest for item in found]
    assert [row["own_noise"] for row in rows] == [item.noise for item in found]
    drawn = charts.error_by_level(errors_of.level_errors(estimates(release)))
    assert "At level region, all counts are exact." in drawn.alt
    assert ">exact</text>" in drawn.svg()


def test_a_wide_range_of_errors_is_drawn_on_a_logarithmic_axis():
    narrow, wide = charts.error_by_level(level_errors()[1:2]), charts.error_by_level(level_errors())
    assert '"type": "log"' not in str(narrow.spec()).replace("'", '"')
    assert '"type": "log"' in str(wide.spec()).replace("'", '"')


def test_areas_are_drawn_with_the_librarys_intervals_largest_first(release):
    areas = {"one": ["A1"], "all": ["A1", "A2", "A3", "A4", "A5"], "two": ["A2", "A5"]}
    found = estimates(release).areas(areas, "AGE", confidence=0.8)
    chart = charts.areas_with_intervals(found, cell="old")
    rows = {row["area"]: row for row in chart.table.to_pylist()}
    for number, name in enumerate(found.names):
        assert rows[name]["estimate"] == found.value[number, 1]
        assert (rows[name]["lower"], rows[name]["upper"]) == (
            found.lower[number, 1],
            found.upper[number, 1],
        )
    values = [row["estimate"] for row in chart.table.to_pylist()]
    assert values == sorted(values, reverse=True)
    assert "80 % interval" in chart.alt


def test_exact_areas_and_those_not_determined_say_so():
    chart = charts.areas_with_intervals(area_estimates())
    rows = chart.table.to_pylist()
    assert (rows[-1]["area"], rows[-1]["estimate"]) == ("district 2", None)
    assert "Areas whose count the release does not determine are not drawn." in chart.caption
    exact = next(row for row in rows if row["area"] == "district 1")
    assert exact["lower"] == exact["upper"] == exact["estimate"]
    assert "district 1: 137.5, exact." in chart.alt
    many = charts.areas_with_intervals(area_estimates(120), most=30)
    assert many.table.num_rows == 120
    assert "The table also lists those not drawn." in many.caption
    assert many.svg().count("district") < 60


def test_coverage_is_drawn_with_its_own_error():
    chart = charts.coverage(covered(), confidence=0.9, audience="public")
    rows = chart.table.to_pylist()
    assert [row["of"] for row in rows] == ["county, 10,000+", "tract, 100-999", "tract, 0"]
    assert [row["covered"] for row in rows] == covered()["covered"].to_pylist()
    assert {row["nominal"] for row in rows} == {0.9}
    assert "should be 90 %" in chart.svg()
    drawn = next(rows for rows in chart.spec()["datasets"].values() if "high" in rows[0])
    assert drawn[0]["low"] == pytest.approx(0.905 - 2 * 0.0125)
    assert drawn[2]["high"] <= 1
    methods = covered(method=["percentile", "percentile", "bias-corrected"])
    named = charts.coverage(methods, confidence=0.9, audience="public").table["of"].to_pylist()
    assert named[2] == "tract, 0, bias-corrected"


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: charts.error_by_level([]), "errors: got none"),
        (lambda: charts.error_by_level([0.5]), "got float; pass LevelError"),
        (lambda: charts.error_by_level(level_errors()[:1]), "exact or not determined"),
        (
            lambda: charts.error_by_level([*level_errors(), errors("AGE")]),
            "pass the errors of one query",
        ),
        (lambda: charts.areas_with_intervals(pa.table({})), "got Table; pass AreaEstimates"),
        (lambda: charts.areas_with_intervals(area_estimates(query="AGE")), "AGE has 2 cells"),
        (
            lambda: charts.areas_with_intervals(area_estimates(query="AGE"), cell="x"),
            "choose from young, old",
        ),
        (lambda: charts.areas_with_intervals(area_estimates(), most=0), "most: got 0"),
        (
            lambda: charts.areas_with_intervals(area_estimates(1, error=float("inf"))),
            "determines TOTAL in none of these areas",
        ),
        (lambda: coverage(pa.table({"level": ["a"]})), "column 'intervals' is missing"),
        (lambda: coverage(covered().slice(0, 0)), "got 0 rows"),
        (lambda: coverage(covered(covered=[90.5, 88.0, 99.0])), "pass shares, not percent"),
        (
            lambda: coverage(covered(covered=[0.9, None, 0.9])),
            "covered: got list; pass a list of numbers",
        ),
        (lambda: coverage(covered(intervals=[0, 1, 2])), "all must be above 0"),
        (lambda: coverage(covered(size_class=["0", "0", "0"])), "pass each once"),
        (lambda: charts.coverage(covered(), confidence=90, audience="public"), "between 0 and 1"),
        (lambda: charts.coverage(covered(), confidence=0.9, audience="all"), "choose 'public'"),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_a_reason(draw, message):
    with pytest.raises(InputError, match=message):
        draw()


def coverage(table):
    return charts.coverage(table, confidence=0.9, audience="public")


def errors(query):
    return errors_of.LevelError("area", query, 1, 1, 0, 0, 1.0, 1.0, 1.0, None)


def test_the_section_lists_what_the_library_says(release):
    section = made.margin(release)
    found = estimates(release)
    for table, query in zip(section.tables, ("TOTAL", "AGE*SEX"), strict=True):
        assert query == "TOTAL" or query in table.caption
        for row, item in zip(table.rows, errors_of.level_errors(found, query), strict=True):
            expected = (item.smallest, item.median, item.largest)
            assert row[:4] == (item.level, item.units, item.counts, item.exact)
            assert row[4:7] == (expected if item.median is not None else (0.0, 0.0, 0.0))
            assert row[7] == item.noise
    assert (
        "Totals at level region are exact because they are public or follow" in section.sentences[1]
    )
    assert "1.6 standard errors" in " ".join(section.sentences)
    assert "published tables" not in section.sentences[-1]  # this plan publishes none
    assert len(section.charts) == 1
    assert "Margin of error" in public_report(release)


def tree(folder, plan, places):
    released_trees.release(folder, plan, places)
    return Release.read(folder / "out")


AWKWARD = {
    "nothing but totals": plan_text({"AGE": ["a", "b"]}, {"l0": {"TOTAL": 1}, "l1": {"TOTAL": 1}}),
    "all totals public": plan_text(
        *({"AGE": ["a", "b"]}, {"l0": EVERYTHING, "l1": EVERYTHING}), invariants=[("l1", "TOTAL")]
    ),
    "the top is not measured": plan_text({"AGE": ["a", "b"]}, {"l0": {}, "l1": EVERYTHING}),
    "some exact": plan_text(
        *({"AGE": ["a", "b"]}, {"l0": EVERYTHING, "l1": EVERYTHING}), invariants=[("l0", "TOTAL")]
    ),
    "the lowest is not measured": plan_text({"AGE": ["a", "b"]}, {"l0": EVERYTHING, "l1": {}}),
    "totals known from cells": plan_text({"AGE": ["a", "b"]}, {"l0": {"AGE": 1}, "l1": {"AGE": 1}}),
}
TOLD = {
    "nothing but totals": "The total of a l0 has a median standard error of",
    "all totals public": "Totals at level l0 and l1 are exact",
    "the top is not measured": "The total of a l0 has a median standard error of",
    "some exact": ", where it is not known exactly.",
    "the lowest is not measured": "The total of a l1 has a standard error of",
    "totals known from cells": "The total of a l1 has a median standard error of",
}


@pytest.mark.parametrize("case", AWKWARD)
def test_the_section_of_awkward_plans_says_what_is_known(tmp_path, case):
    release = tree(tmp_path, AWKWARD[case], released_trees.places([3], [1, 2, 3]))
    section = made.margin(release)
    for sentence in section.sentences:
        assert numbers_without_a_source(section, sentence) == [], sentence
    assert TOLD[case] in " ".join(section.sentences)
    assert bool(section.charts) is (case != "all totals public")
    cells = {row[0]: row for row in section.tables[1].rows}
    if case == "nothing but totals":
        assert cells["l1"][4:7] == ("not determined",) * 3
    if case == "the lowest is not measured":
        # The only child of a place is known as that place; others are not known at all.
        assert cells["l1"][6] == "not determined"
        assert cells["l1"][4] == cells["l0"][4]


def test_what_least_squares_cannot_do_is_said_with_its_reason(release, monkeypatch):
    monkeypatch.setattr(query_errors, "_MOST_COVARIANCES", 5)
    section = made.margin(release)
    assert len(section.charts) == 1  # of totals, which are few enough
    assert section.tables[1].columns == ("Query", "Reason")
    assert "5 is the limit" in section.tables[1].rows[0][1]
    monkeypatch.setattr(query_errors, "_MOST_COVARIANCES", 0)
    section = made.margin(release)
    assert [table.columns for table in section.tables] == [("Query", "Reason")] * 2
    assert section.sentences == ("Least squares cannot estimate the totals of this release.",)
    assert section.charts == ()
    assert public_report(release)


def test_a_plan_without_attributes_has_totals_alone(tmp_path):
    release = tree(
        tmp_path, plan_text({}, {"l0": {"TOTAL": 1}, "l1": {"TOTAL": 1}}), "l0,l1\na,a1\na,a2\n"
    )
    assert len(made.margin(release).tables) == 1
