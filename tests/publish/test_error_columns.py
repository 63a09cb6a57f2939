"""Standard errors and intervals beside estimates: of whole counts, and those of least squares."""

import csv

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.conftest import TINY_PEOPLE, TINY_PLAN

from countveil import (
    Plan,
    Release,
    Seeded,
    estimate,
    measure,
    open_engine,
    pipeline,
    published_estimates,
)
from countveil.base.intervals import count_interval
from countveil.errors import PlanError
from countveil.publish.columns import Errors

ESTIMATED = '[postprocess]\nmethod = "top-down"\n'
Z90 = 1.6448536269514722


def released(tiny, more="", seed=3, text=TINY_PLAN):
    tiny.write_text(text + ESTIMATED + more)
    out = tiny.parent / f"out{seed}"
    return pipeline.release(Plan.load(tiny), to=out, rng=Seeded(seed))


def rows_of(release, level):
    return pq.read_table(release.folder / "estimates" / f"{level}.parquet").to_pylist()


def test_what_is_not_determined_has_none_and_what_is_exact_has_itself():
    found = Errors(0.9, lambda level: None).columns(
        np.array([3, 7, 0]), np.array([np.nan, 7.0, -4.0]), np.array([np.inf, 0.0, 1.0])
    )
    assert [column.to_pylist() for column in found] == [
        [None, 0.0, 1.0],
        [None, 7, 0],
        [None, 7, 0],
    ]


def test_columns_are_those_of_least_squares(tiny):
    release = released(tiny)
    gls = estimate.least_squares(release.measurements, release.plan)
    for level in ("region", "area"):
        table = gls.estimate(level, "AGE*SEX").to_pylist()
        own = {(r["geocode"], r["AGE"], r["SEX"]): r for r in table}
        for row in rows_of(release, level):
            found = own[row["geocode"], row["AGE"], row["SEX"]]
            assert row["standard_error"] == pytest.approx(found["standard_error"])
            value, error = (np.array([found[name]]) for name in ("value", "standard_error"))
            low, high = (end[0] for end in count_interval(value, error, 0.9))
            # What is listed may have been lifted by noise, so that 0 is inside unless it is clear.
            low = 0 if row["estimate"] <= 2 * error else low
            assert (row["lower"], row["upper"]) == (low, high)
            if min(value, row["estimate"]) > 2 * Z90 * error:  # far from 0 it is the plain interval
                assert row["lower"] == np.ceil(value - Z90 * error)
                assert row["upper"] == np.floor(value + Z90 * error)
    assert release.manifest["estimates"]["errors"] == {"confidence": 0.9}
    assert release.verify(simulation=True)
    assert release.estimates.consistency_gap() == 0


def test_intervals_hold_the_counts_as_often_as_they_say(tiny):
    """Over all cells, listed or not, before anything is known of what is listed."""
    exact = np.zeros((5, 6))
    for area, age, sex in TINY_PEOPLE:
        exact[int(area[1]) - 1, 3 * ("young", "old").index(age) + "fmx".index(sex)] += 1
    plan, held = Plan.load(tiny), []
    counts = open_engine("local").tabulate(plan)
    for seed in range(25):
        to = tiny.parent / f"out{seed}"
        measurements = measure.take(counts, plan, rng=Seeded(seed), ledger=None, to=to)
        gls = estimate.least_squares(measurements, plan)
        (part,) = gls.batches("area", "AGE*SEX")
        low, high = count_interval(part.value, part.standard_error, 0.9)
        held.append(((exact >= low) & (exact <= high)).mean())
    error = np.std(held, ddof=1) / np.sqrt(len(held))
    assert abs(np.mean(held) - 0.9) < 4 * error + 0.02


def test_intervals_of_what_is_listed_hold_at_least_as_often_as_they_say(tiny):
    """Noise decides what is listed: a zero that it lifted is, one that it lowered is not."""
    exact = {}
    for area, age, sex in TINY_PEOPLE:
        exact[area, age, sex] = exact.get((area, age, sex), 0) + 1
    held = {True: [], False: []}  # by whether anybody is there
    for seed in range(40):
        for row in rows_of(released(tiny, seed=seed), "area"):
            count = exact.get((row["geocode"], row["AGE"], row["SEX"]), 0)
            held[count > 0].append(row["lower"] <= count <= row["upper"])
    assert len(held[False]) > 100
    assert np.mean(held[False]) > 0.85
    assert np.mean(held[True] + held[False]) > 0.87


def test_the_plan_sets_the_confidence_or_leaves_them_out(tiny):
    wide = released(tiny, "confidence = 0.99\n", seed=1)
    narrow = released(tiny, "confidence = 0.5\n", seed=2)
    assert wide.manifest["estimates"]["errors"] == {"confidence": 0.99}
    for a, b in ((wide, narrow),):
        widths = [
            np.mean([r["upper"] - r["lower"] for r in rows_of(release, "area")])
            for release in (a, b)
        ]
        assert widths[0] > widths[1]
    none = released(tiny, "confidence = 0\n", seed=4)
    assert "standard_error" not in rows_of(none, "area")[0]
    assert none.manifest["estimates"]["errors"] == {"none": "the plan asks for none"}
    assert none.verify(simulation=True)
    with pytest.raises(PlanError, match="confidence"):
        released(tiny, "confidence = 1\n")


def test_cells_that_nothing_determines_have_no_error(tiny):
    text = TINY_PLAN + '[budget.queries.area]\nTOTAL = "1"\n'
    release = released(tiny, text=text)
    assert {row["standard_error"] for row in rows_of(release, "area")} == {None}
    assert None not in {row["standard_error"] for row in rows_of(release, "region")}
    assert release.verify(simulation=True)


def test_a_plan_that_least_squares_cannot_do_is_released_without_errors_and_says_why(
    tiny, monkeypatch
):
    from countveil.errors import InputError

    def refused(*given, **named):
        raise InputError("too many kinds of cells")

    monkeypatch.setattr(published_estimates, "least_squares", refused)
    release = released(tiny)
    assert release.manifest["estimates"]["errors"] == {"none": "too many kinds of cells"}
    assert "standard_error" not in rows_of(release, "area")[0]
    assert Release.read(release.folder).verify(simulation=True)


def test_attributes_may_not_take_the_names_of_the_columns(tiny):
    text = TINY_PLAN.replace("SEX", "upper")
    with (tiny.parent / "people.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("area", "AGE", "upper"), *TINY_PEOPLE])
    with pytest.raises(PlanError, match="a column of the estimates has the same name"):
        released(tiny, text=text)
