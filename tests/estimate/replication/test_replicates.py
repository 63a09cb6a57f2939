"""Replicates are releases of the released estimates; their intervals are plain quantiles."""

import csv
from itertools import product

import numpy as np
import pytest
from tests.conftest import TINY_PLACES, TINY_PLAN, write_people

from countveil import DiscreteGaussian, DiscreteLaplace, Plan, Seeded, estimate, pipeline
from countveil.base.intervals import count_interval
from countveil.errors import InputError
from countveil.estimate.one_cell import cell_posterior
from countveil.estimate.replication.replicate_intervals import (
    METHODS,
    ReplicateSummary,
    bias_correction,
)
from countveil.estimate.replication.replicate_release import Remeasured, replicates

ESTIMATED = '[postprocess]\nmethod = "top-down"\n'
PUBLIC = '[[invariants]]\nlevel = "region"\nquery = "TOTAL"\nreason = "known"\n'
UNMEASURED = TINY_PLAN.replace(
    'levels = ["region", "area"]', 'levels = ["region", "middle", "area"]'
).replace('area = "1/2"', 'middle = "0"\narea = "1/2"')


def released(tiny, text=TINY_PLAN, seed=3):
    tiny.write_text(text + ESTIMATED)
    return pipeline.release(Plan.load(tiny), to=tiny.parent / "out", rng=Seeded(seed))


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """A release that no test changes."""
    folder = tmp_path_factory.mktemp("release")
    (folder / "places.csv").write_text(TINY_PLACES)
    write_people(folder / "people.csv")
    return released(folder / "plan.toml")


@pytest.fixture(scope="module")
def made(release):
    """Its replicates."""
    return replicates(release, count=25, workers=1)


def people_of(release):
    """Rows that count to the estimates of the lowest level."""
    lowest = release.plan.levels[-1]
    rows = release.estimates.table(lowest, "AGE*SEX").to_pylist()
    return [(r["geocode"], r["AGE"], r["SEX"]) for r in rows for _ in range(r["estimate"])]


@pytest.mark.parametrize("text", [TINY_PLAN, TINY_PLAN + PUBLIC])
def test_a_replicate_is_what_releasing_the_estimates_as_records_would_give(tiny, text):
    release = released(tiny, text)
    made = replicates(release, count=20, seed=5, workers=1)
    with (tiny.parent / "people.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("area", "AGE", "SEX"), *people_of(release)])
    for number in (0, 1, 19):
        again = pipeline.release(
            Plan.load(tiny), to=tiny.parent / f"again{number}", rng=Seeded(5 * 1_000_003 + number)
        )
        for level, name in product(("region", "area"), ("TOTAL", "AGE*SEX", "AGE")):
            query = release.plan.schema.query(name)
            units = release.geography.units(level)
            expected = again.estimates.counts(level, query)
            assert (made.values(level, query, 0, units)[number] == expected).all()
    different = {made.values("area", query, 0, 5)[n].tobytes() for n in range(20)}
    assert len(different) > 5


def test_noise_of_a_replicate_has_its_law_and_does_not_depend_on_how_it_is_asked(tiny):
    release = released(tiny)
    again = Remeasured(release.measurements, release.estimates, Seeded(1))
    whole = again.units("area", 0, 5)
    assert (np.concatenate([again.units("area", 0, 2), again.units("area", 2, 5)]) == whole).all()
    residuals = []
    for seed in range(400):
        drawn = Remeasured(release.measurements, release.estimates, Seeded(seed)).units(
            "area", 0, 5
        )
        exact = [release.estimates.counts("area", item.query) for item in release.plan.at("area")]
        residuals.append(drawn - np.concatenate(exact, axis=1))
    found = np.array(residuals)
    for column, law in ((0, release.measurements.mechanisms["area", "TOTAL"]), (3, None)):
        law = law or release.measurements.mechanisms["area", "AGE*SEX"]
        noise = found[:, :, column].ravel()
        error = np.sqrt(law.variance / len(noise))
        assert abs(noise.mean()) < 4 * error
        assert noise.var() == pytest.approx(law.variance, rel=0.15)


def test_intervals_are_quantiles_of_the_replicates(tiny):
    made = replicates(released(tiny), count=40, workers=1)
    query = made.plan.schema.query("AGE")
    drawn, own = made.values("area", query, 0, 5), made.estimates.counts("area", query)
    for method in ("basic", "percentile"):
        table = made.interval("area", "AGE", confidence=0.8, method=method)
        assert table.column_names[:3] == ["geocode", "AGE", "estimate"]
        for row, values, published in zip(
            table.to_pylist(), drawn.reshape(40, -1).T, own.ravel(), strict=True
        ):
            ordered = sorted(values)
            low, high = ordered[3], ordered[36]  # the 10 % and 90 % points of 40, rounded outwards
            if method == "basic":
                low, high = 2 * published - high, 2 * published - low
            assert (row["lower"], row["upper"]) == (max(low, 0), max(high, 0))
            assert row["bias"] == pytest.approx(np.mean(values) - published)
            assert row["standard_error"] == pytest.approx(np.std(values, ddof=1))


def test_the_bias_taken_off_is_that_against_unbiased_estimates(release, made):
    query = made.plan.schema.query("SEX")
    drawn, own = made.values("area", query, 0, 5), made.estimates.counts("area", query)
    (part,) = estimate.least_squares(release.measurements, made.plan).batches("area", "SEX")
    drift, spread = drawn.mean(axis=0) - own, drawn.std(axis=0, ddof=1)
    found = bias_correction(own, drift, spread, part.value, part.standard_error, 25)
    lower, upper = count_interval(own - found.bias, found.standard_error, 0.8)
    table = made.interval("area", "SEX", confidence=0.8)
    assert table["estimate"].to_pylist() == own.ravel().tolist()
    assert np.allclose(table["bias"], found.bias.ravel())
    assert np.allclose(table["standard_error"], found.standard_error.ravel())
    assert table["lower"].to_pylist() == lower.ravel().tolist()
    assert table["upper"].to_pylist() == upper.ravel().tolist()


def test_what_measurements_do_not_determine_has_no_interval(tiny):
    """Nor has one cell of a query of which others are known; replicates alone give one if asked."""
    text = TINY_PLAN + '[budget.queries.area]\nTOTAL = "1"\n'
    made = replicates(released(tiny, text), count=25, workers=1)
    table = made.interval("area", "AGE")
    for name in ("bias", "standard_error", "lower", "upper"):
        assert set(table[name].to_pylist()) == {None}
    assert None not in made.interval("area", "AGE", method="basic")["lower"].to_pylist()
    assert None not in made.interval("area", "TOTAL")["lower"].to_pylist()
    summary = ReplicateSummary(0.9, "bias-corrected", 25)
    rng = np.random.default_rng(1)
    summary.add(np.array([[40, 7], [50, 9]]), rng.integers(35, 45, (25, 2, 2)))
    value = np.array([[41.0, np.nan], [52.0, np.nan]])
    error = np.array([[2.0, np.inf], [2.0, np.inf]])
    columns = summary.columns((value, error)).columns
    assert [end is None for end in columns["upper"].to_pylist()] == [False, True, False, True]
    assert columns["standard_error"].to_pylist() == [2.0, None, 2.0, None]


def test_areas_that_overlap_stand_for_themselves(made):
    units = ["A1", "A4"]
    copies = made.areas({f"copy {n}": units for n in range(12)}, "TOTAL")
    least = made.unbiased.area(units, "TOTAL")
    assert copies["standard_error"].to_pylist() == pytest.approx([least.standard_error[0]] * 12)
    assert set(copies["lower"].to_pylist()) == {made.area(units, "TOTAL")["lower"][0].as_py()}


def test_the_confidence_is_the_plan_s_unless_another_is_asked_for(tiny):
    tiny.write_text(TINY_PLAN + ESTIMATED + "confidence = 0.5\n")
    release = pipeline.release(Plan.load(tiny), to=tiny.parent / "half", rng=Seeded(3))
    made = replicates(release, count=20, workers=1)
    own, half, most = (
        made.interval("area", "TOTAL", confidence=each) for each in (None, 0.5, 0.99)
    )
    assert own.equals(half)
    assert not own.equals(most)
    gls = estimate.least_squares(release.measurements, release.plan)
    assert gls.estimate("area", "TOTAL").equals(gls.estimate("area", "TOTAL", confidence=0.5))


@pytest.mark.parametrize("method", METHODS)
def test_areas_are_sums_of_units_and_their_replicates(made, method):
    query = made.plan.schema.query("SEX")
    drawn, own = made.values("area", query, 0, 5), made.estimates.counts("area", query)
    summary = ReplicateSummary(0.9, method, 25)
    for units in ([0, 3], [1, 2, 3]):
        summary.add(own[units].sum(axis=0)[None], drawn[:, units].sum(axis=1)[:, None])
    areas = {"one": ["A4", "A1"], "other": ["A2", "A3", "A4"]}
    least = made.unbiased.areas(areas, "SEX")
    expected = summary.columns((least.value, least.standard_error))
    found = made.areas(areas, "SEX", method=method)
    assert found["area"].to_pylist() == ["one"] * 3 + ["other"] * 3
    assert found["estimate"].to_pylist() == expected.released.ravel().tolist()
    for name, column in expected.columns.items():
        assert np.allclose(found[name], column), name
    alone = made.area(["A1", "A4"], "SEX", method=method)
    for name in ("estimate", "bias", "standard_error", "lower", "upper"):
        assert alone[name].to_pylist() == pytest.approx(found[name].to_pylist()[:3])
    with pytest.raises(InputError, match="unknown area 'B9'"):
        made.area(["A1", "B9"], "SEX")
    with pytest.raises(InputError, match="listed twice"):
        made.area(["A1", "A1"], "SEX")
    with pytest.raises(InputError, match="areas: there are none"):
        made.areas({}, "SEX")


def test_errors_by_size_class_are_means_over_units_of_what_their_intervals_say(made, tiny):
    query = made.plan.schema.query("TOTAL")
    rows = [row for row in made.errors("AGE").to_pylist() if row["level"] == "area"]
    own = np.repeat(made.estimates.counts("area", query)[:, 0], 2)
    table = made.interval("area", "AGE")
    bias, error = (table[name].to_numpy() for name in ("bias", "standard_error"))
    assert sum(row["cells"] for row in rows) == 10
    for row in rows:
        low, high = {"0": (0, 0), "1-9": (1, 9), "10-99": (10, 99)}[row["size_class"]]
        inside = (own >= low) & (own <= high)
        assert row["cells"] == inside.sum()
        assert row["bias"] == pytest.approx(bias[inside].mean())
        square = (error[inside] ** 2 + bias[inside] ** 2).mean()
        assert row["root_mean_squared_error"] == pytest.approx(np.sqrt(square))
    text = TINY_PLAN + '[budget.queries.area]\nTOTAL = "1"\n'
    (tiny.parent / "less").mkdir()
    tiny.write_text(text + ESTIMATED)
    less = pipeline.release(Plan.load(tiny), to=tiny.parent / "less" / "out", rng=Seeded(3))
    levels = replicates(less, count=20, workers=1).errors("AGE")["level"].to_pylist()
    assert set(levels) == {"region"}  # of areas nothing tells


def test_quantiles_are_rounded_outwards():
    rng = np.random.default_rng(6)
    made = rng.integers(0, 1_000, (40, 3, 2))
    released = rng.integers(400, 600, (3, 2))
    ordered = np.sort(made, axis=0)
    for method, low, high in (
        ("percentile", ordered[3], ordered[36]),
        ("basic", 2 * released - ordered[36], 2 * released - ordered[3]),
    ):
        summary = ReplicateSummary(0.8, method, 40)
        summary.add(released, made)
        columns = summary.columns(None).columns
        assert columns["lower"].to_pylist() == np.maximum(low, 0).ravel().tolist()
        assert columns["upper"].to_pylist() == np.maximum(high, 0).ravel().tolist()


def test_areas_of_a_level_above_lean_on_that_level(made):
    found = made.area(["R1", "R2"], "TOTAL", level="region")
    least = made.unbiased.area(["R1", "R2"], "TOTAL", level="region")
    assert found["standard_error"][0].as_py() == pytest.approx(least.standard_error[0])
    assert found["estimate"][0].as_py() - found["bias"][0].as_py() == pytest.approx(least.value[0])


def test_a_half_made_replicate_is_finished_and_a_damaged_one_is_named(tiny):
    release, work = released(tiny), tiny.parent / "work"
    query = release.plan.schema.query("TOTAL")
    first = replicates(release, count=20, workers=1, work=work).values("area", query, 0, 5)
    (work / "0004" / "done").unlink()
    for path in (work / "0004").glob("area*"):
        path.unlink()
    again = replicates(release, count=20, workers=1, work=work).values("area", query, 0, 5)
    assert (again == first).all()
    for path in (work / "0005").glob("area*"):
        path.write_bytes(path.read_bytes()[:3])
    with pytest.raises(InputError, match="contains a damaged replicate .*; delete the folder"):
        replicates(release, count=20, workers=1, work=work).interval("area", "TOTAL")
    (work / "replicates.json").write_text("{")
    with pytest.raises(
        InputError, match="contains something other than replicates of this release"
    ):
        replicates(release, count=20, workers=1, work=work)


def test_an_attribute_called_as_a_column_is_refused(tiny):
    people = tiny.parent / "people.csv"
    people.write_text(people.read_text().replace("AGE", "bias"))
    made = replicates(released(tiny, TINY_PLAN.replace("AGE", "bias")), count=20, workers=1)
    for ask in (made.interval, lambda *given: made.area(["A1"], given[1])):
        with pytest.raises(InputError, match="the result already has a column named bias"):
            ask("area", "bias")


def test_a_level_that_is_not_measured_is_the_sum_of_the_one_below(tiny):
    (tiny.parent / "places.csv").write_text(
        "region,middle,area\nR1,M1,A1\nR1,M1,A2\nR2,M2,A3\nR2,M3,A4\nR2,M3,A5\n"
    )
    made = replicates(released(tiny, UNMEASURED), count=20, workers=1)
    query = made.plan.schema.query("TOTAL")
    low, middle = made.values("area", query, 0, 5), made.values("middle", query, 0, 3)
    sums = np.stack([low[:, :2].sum(axis=1), low[:, 2], low[:, 3:].sum(axis=1)], axis=1)
    assert (middle == sums).all()


def test_finished_replicates_are_kept_and_more_are_added(tiny):
    release, work = released(tiny), tiny.parent / "work"
    first = replicates(release, count=20, workers=1, work=work)
    before = {p: p.stat().st_mtime_ns for p in work.rglob("*") if p.is_file()}
    more = replicates(release, count=24, workers=1, work=work)
    assert all(path.stat().st_mtime_ns == at for path, at in before.items())
    query = release.plan.schema.query("TOTAL")
    assert (more.values("area", query, 0, 5)[:20] == first.values("area", query, 0, 5)).all()
    with pytest.raises(InputError, match="name another folder"):
        replicates(release, count=20, seed=2, work=work)


def test_what_cannot_be_replicated_is_refused(tiny):
    release = released(tiny)
    with pytest.raises(InputError, match="20 replicates or more"):
        replicates(release, count=19)
    with pytest.raises(InputError, match="makes no estimates to replicate"):
        replicates(release, Plan.parse(TINY_PLAN), count=20)
    made = replicates(release, count=20, workers=1)
    with pytest.raises(InputError, match="choose from region, area"):
        made.interval("block", "TOTAL")
    with pytest.raises(InputError, match="it must be between 0 and 1"):
        made.interval("area", "TOTAL", confidence=90)
    with pytest.raises(InputError, match="bias-corrected, basic, percentile"):
        made.interval("area", "TOTAL", method="best")


LAWS = [DiscreteGaussian("5"), DiscreteGaussian("0.4"), DiscreteLaplace(epsilon="1")]


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize("value", [-30, -2, 0, 3, 40])
@pytest.mark.parametrize("bounds", [(0, None), (0, 6), (2, 2)])
def test_one_count_by_enumerating_what_it_may_have_been(law, value, bounds):
    lowest, highest = bounds
    found = cell_posterior(value, law, lowest=lowest, highest=highest)
    counts = np.arange(lowest, 400 if highest is None else highest + 1)
    log_weights = law.log_pmf(value - counts)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    exact = dict(zip(counts.tolist(), weights.tolist(), strict=True))
    for count, probability in zip(found.counts, found.probabilities, strict=True):
        assert probability == pytest.approx(exact[count], abs=1e-12)
    assert found.mean == pytest.approx(float(counts @ weights), abs=1e-9)
    for confidence in (0.5, 0.9, 0.99):
        low, high = found.interval(confidence)
        assert sum(exact[k] for k in range(low, high + 1)) >= confidence - 1e-9
        shorter = high - low - 1
        runs = [
            sum(exact.get(k, 0.0) for k in range(start, start + shorter + 1))
            for start in range(lowest, min(int(counts[-1]), 120) + 1)
        ]
        assert shorter < 0 or max(runs) < confidence + 1e-9


def test_a_wrong_range_of_counts_is_refused():
    with pytest.raises(InputError, match="3.5 is not a whole number"):
        cell_posterior(3.5, DiscreteGaussian.from_rho("1"))
    with pytest.raises(InputError, match="below lowest"):
        cell_posterior(3, LAWS[0], lowest=4, highest=2)
    with pytest.raises(InputError, match="between 0 and 1"):
        cell_posterior(3, LAWS[0]).interval(1.0)


def test_the_names_are_in_infer():
    assert estimate.replicates is replicates
    assert estimate.cell_posterior is cell_posterior


def test_another_release_at_the_same_path_is_another_release(tiny, monkeypatch):
    """A path that is relative, or whose folder was replaced, names nothing for long."""
    import shutil

    monkeypatch.chdir(tiny.parent)
    query = Plan.load(tiny).schema.query("TOTAL")
    tiny.write_text(TINY_PLAN + ESTIMATED)
    found = []
    for seed in (3, 8):
        for folder in ("out", "out-internal"):
            shutil.rmtree(folder, ignore_errors=True)
        release = pipeline.release(Plan.load("plan.toml"), to="out", rng=Seeded(seed))
        made = replicates(release, count=20, seed=5, workers=1)
        found.append(np.median(made.values("area", query, 0, 5), axis=0)[:, 0])
        error = np.sqrt(release.measurements.mechanisms["area", "TOTAL"].variance)
        assert (abs(found[-1] - release.estimates.counts("area", query)[:, 0]) < 3 * error).all()
    assert (found[0] != found[1]).any()
