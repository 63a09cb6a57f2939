"""The risk map against a plain loop over cells, its streaming, and what stays internal."""

import numpy as np
import pytest
from tests.conftest import TINY_PLAN
from tests.postprocess.conftest import PLAN as SMALL

from countveil import Release, Seeded, open_engine, pipeline
from countveil.assess import Intruder, attacks
from countveil.assess.decision import sigmoid
from countveil.assess.risk_map import internal_map, public_map
from countveil.assess.simulated_release import top_down_risk
from countveil.errors import InputError
from countveil.measure import boundary
from countveil.schema.plan import Plan


@pytest.fixture
def released(tiny, monkeypatch):
    monkeypatch.setattr(boundary, "_VALUES", 15)  # several row groups
    plan = Plan.load(tiny)
    pipeline.release(plan, to=tiny.parent / "out", rng=Seeded(4))
    return Release.read(tiny.parent / "out"), open_engine("local").tabulate(plan), plan


def by_hand(release, counts, plan, level, prior):
    """R' of a person in each non-empty cell, query by query."""
    rows = []
    for unit in range(counts.geography.units(level)):
        _, cells, numbers = counts.entries(level, unit, unit + 1)
        for cell, number in zip(cells, numbers, strict=True):
            log_odds = np.log(prior / (1 - prior))
            for item in plan.at(level):
                measured = release.measurements.read(level, item.query.name)
                place = item.query.cell_of[cell]
                exact = sum(
                    n for c, n in zip(cells, numbers, strict=True) if item.query.cell_of[c] == place
                )
                noise = float(measured.values[unit, place] - exact)
                log_odds += float(measured.mechanism.loss_at(noise))
            rows.append((unit, int(cell), int(number), float(sigmoid(log_odds)) / prior))
    return rows


@pytest.mark.parametrize("level", ["area", "region"])
def test_the_internal_map_is_a_loop_over_cells(released, level):
    release, counts, plan = released
    found = internal_map(
        release.measurements, counts, prior=0.1, level=level, thresholds=(1.0, 1.5), worst=3
    )
    rows = by_hand(release, counts, plan, level, 0.1)
    groups = found.groups.to_pandas().set_index(["by", "group"])
    people = sum(number for _, _, number, _ in rows)
    everyone = groups.loc[("all", "all")]
    assert everyone["cells"] == len(rows)
    assert everyone["people"] == people
    mean = sum(number * risk for _, _, number, risk in rows) / people
    assert everyone["mean_risk"] == pytest.approx(mean, rel=1e-12)
    assert everyone["largest_risk"] == pytest.approx(max(risk for *_, risk in rows), rel=1e-12)
    assert everyone["above_1.5"] == sum(n for _, _, n, risk in rows if risk > 1.5)
    young = [(n, risk) for _, cell, n, risk in rows if cell < 3]
    assert groups.loc[("AGE", "young")]["people"] == sum(n for n, _ in young)
    ones = [risk for _, _, n, risk in rows if n == 1]
    assert groups.loc[("size", "1")]["cells"] == len(ones)
    worst = found.worst.to_pandas()["risk"].tolist()
    assert worst == pytest.approx(sorted((risk for *_, risk in rows), reverse=True)[:3])
    assert found.audience == "internal"
    assert repr(found) == f"<internal: risk map of level {level}>"


def test_the_public_map_reads_no_count(released):
    release, _, _plan = released
    found = public_map(release.measurements, release.geography, prior=0.1, level="area")
    values = release.measurements.read("area", "AGE*SEX").values
    law = release.measurements.mechanisms["area", "AGE*SEX"]
    seen = values[values >= 1].astype(float)
    risks = sigmoid(np.log(0.1 / 0.9) + law.loss_at(seen - 1)) / 0.1
    everyone = found.groups.to_pandas().set_index(["by", "group"]).loc[("all", "all")]
    assert everyone["cells"] == len(seen)
    assert everyone["mean_risk"] == pytest.approx(risks.mean(), rel=1e-12)
    assert found.audience == "public"
    assert "size" not in found.groups["by"].to_pylist()
    with pytest.raises(InputError, match="query: AGE is not measured at level area"):
        public_map(release.measurements, release.geography, prior=0.1, level="area", query="AGE")


def test_the_mean_of_the_map_is_the_marginal_risk(tiny):
    """Over many releases of the same records the realised risk averages to R of the plan."""
    tiny.write_text(TINY_PLAN)
    plan = Plan.load(tiny)
    counts = open_engine("local").tabulate(plan)
    from countveil import measure

    means = []
    for seed in range(40):
        to = tiny.parent / f"out-{seed}"
        measured = measure.take(counts, plan, rng=Seeded(seed), ledger=None, to=to)
        groups = internal_map(measured, counts, prior=0.2, level="area").groups.to_pandas()
        means.append(float(groups["mean_risk"][0]))
    expected = attacks.marginal_risk(plan, attack="presence", prior=0.2, level="area").value
    error = np.std(means, ddof=1) / np.sqrt(len(means))
    assert abs(np.mean(means) - expected) < 4 * error
    assert error < 0.1


def test_counts_of_another_plan_are_refused(released, tiny):
    release, _, _ = released
    tiny.write_text(TINY_PLAN.replace('"x"', '"y"'))
    people = tiny.parent / "people.csv"
    people.write_text(people.read_text().replace(",x", ",y"))
    other = open_engine("local").tabulate(Plan.load(tiny))
    with pytest.raises(InputError, match="the counts were tabulated for another plan"):
        internal_map(release.measurements, other, prior=0.1)


@pytest.mark.parametrize("density", [0.0, 4.0])
def test_the_risk_of_the_real_output_is_below_that_of_the_measurements(density):
    plan = Plan.parse(SMALL.replace('rho = "1"', 'rho = "8"'))
    rng = np.random.default_rng(1)
    counts = rng.poisson(density, (5, plan.schema.cells))
    counts[0, 5] += 1
    found = top_down_risk(plan, counts=counts, cell=5, prior=0.2, draws=600, rng=Seeded(2))
    low, high = found.interval
    assert low < found.released.value < high
    assert found.released.value > 1.05  # he does learn from it
    assert low < found.measured.value * 1.05  # the parent's own count adds a little
    share = found.retained[0]
    assert share == pytest.approx((found.released.value - 1) / (found.measured.value - 1), rel=1e-9)
    again = top_down_risk(plan, counts=counts, cell=5, prior=0.2, draws=600, rng=Seeded(2))
    assert again.interval == found.interval


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"counts": np.zeros((2, 3), int)}, "counts: they must be units × 24 cells"),
        ({"counts": np.zeros((2, 24), int)}, "the target counted in his cell of the first"),
        ({"draws": 5}, "draws: 5 is not allowed; at least 100 are needed"),
        ({"level": "state"}, "level: state has no measured level above it"),
        ({"prior": 1.5, "draws": 100}, "prior: 1.5 is not allowed"),
    ],
)
def test_bad_simulations_are_named(change, message):
    counts = np.ones((2, 24), int)
    given = {"counts": counts, "cell": 0, "prior": 0.2, "draws": 100, "rng": Seeded(1)}
    with pytest.raises(InputError, match=message):
        top_down_risk(Plan.parse(SMALL), **{**given, **change})


def test_intruders_of_several_rows_are_judged_by_their_own():
    assert Intruder(prior=0.5, rows=3).counts(there=True).tolist() == [3.0]
