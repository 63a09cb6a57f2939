"""The risk map against a plain loop over cells, its streaming, and what stays internal."""

import numpy as np
import pytest
from tests.conftest import TINY_PEOPLE, TINY_PLAN
from tests.postprocess.conftest import PLAN as SMALL

from countveil import DiscreteGaussian, Release, Seeded, open_engine, pipeline
from countveil.assess import Intruder, marginal_risk
from countveil.assess.intruder import attacks
from countveil.assess.intruder.decision import sigmoid
from countveil.assess.intruder.simulated_release import _cross_fitted, top_down_risk
from countveil.assess.risk_maps import internal_map, public_map
from countveil.errors import InputError
from countveil.measure import door
from countveil.plan.plans import Plan

SEVERAL_ROWS = TINY_PLAN.replace("one_row_per_person = true", 'person_id = "id"\nmax_rows = 3')


@pytest.fixture(
    params=[TINY_PLAN, SEVERAL_ROWS, SEVERAL_ROWS.replace('rho = "2"', 'epsilon = "9"')],
    ids=["one row", "several rows", "several rows, Laplace noise"],
)
def released(request, tiny, monkeypatch):
    monkeypatch.setattr(door, "_VALUES", 15)  # several row groups
    tiny.write_text(request.param)
    people = [*TINY_PEOPLE, *[("A5", "old", "f")] * 2]  # cells of 1, 2 and 4
    rows = [",".join((*row, str(number % 4 + 1))) + "\n" for number, row in enumerate(people)]
    (tiny.parent / "people.csv").write_text("area,AGE,SEX,id\n" + "".join(rows))
    plan = Plan.load(tiny)
    pipeline.release(plan, to=tiny.parent / "out", rng=Seeded(4))
    return Release.read(tiny.parent / "out"), open_engine("local").tabulate(plan), plan


def by_hand(release, counts, plan, level, prior):
    """R' of a person in each non-empty cell, who has as many rows there as can be."""
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
                shift = min(plan.rows_per_person, number)
                log_odds += float(measured.mechanism.loss_at(noise, shift))
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
    release, _, plan = released
    found = public_map(release.measurements, release.geography, prior=0.1, level="area")
    values = release.measurements.read("area", "AGE*SEX").values
    law = release.measurements.mechanisms["area", "AGE*SEX"]
    seen = values[values >= 1].astype(float)
    rows = plan.rows_per_person
    risks = sigmoid(np.log(0.1 / 0.9) + law.loss_at(seen - rows, rows)) / 0.1
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


def target_among(plan, density):
    """Five units under one parent, the target in cell 5 of the first, with all his rows."""
    counts = np.random.default_rng(1).poisson(density, (5, plan.schema.cells))
    counts[0, 5] += plan.rows_per_person
    return {"counts": counts, "cell": 5, "prior": 0.2, "draws": 600}


def small_plan(rho, rows):
    text = SMALL.replace("one_row_per_person = true", f'person_id = "id"\nmax_rows = {rows}')
    return Plan.parse(text.replace('rho = "1"', f'rho = "{rho}"'))


@pytest.mark.parametrize(("density", "rows"), [(0.0, 1), (4.0, 3)])
def test_the_risk_of_the_real_output_is_below_that_of_the_measurements(density, rows):
    plan = small_plan(8, rows)
    given = target_among(plan, density)
    found, other = (top_down_risk(plan, **given, rng=Seeded(seed)) for seed in (2, 3))
    value, error = found.released.value, found.released.standard_error
    assert abs(value - other.released.value) < 4 * np.hypot(error, other.released.standard_error)
    # He sees two levels, and knows the other units: no more than all their queries tell.
    rhos = [attacks.effective_rho(plan, attack="presence", level=x).value for x in plan.levels[-2:]]
    law = DiscreteGaussian.from_rho(str(sum(rhos)))
    most = marginal_risk(law, intruder=Intruder(prior=0.2)).value
    assert 1.4 < value < most - 4 * error
    alone = attacks.marginal_risk(plan, attack="presence", prior=0.2, level="block").value
    assert found.measured.value == pytest.approx(alone, rel=1e-12)
    ends = value - 1.96 * error, value + 1.96 * error
    assert found.interval == pytest.approx(ends, rel=1e-4)
    shares = [(x - 1) / (alone - 1) for x in (value, *ends)]
    assert found.retained == pytest.approx(shares, rel=1e-3)
    again = top_down_risk(plan, **given, rng=Seeded(2))
    assert again.interval == found.interval


def test_the_interval_reaches_down_to_what_the_measurements_tell():
    plan = small_plan("0.1", 1)
    given = {**target_among(plan, 4.0), "draws": 2_000}
    found = top_down_risk(plan, **given, rng=Seeded(2))
    rhos = [attacks.effective_rho(plan, attack="presence", level=x).value for x in plan.levels[-2:]]
    law = DiscreteGaussian.from_rho(str(sum(rhos)))
    assert found.interval[0] < marginal_risk(law, intruder=Intruder(prior=0.2)).value


@pytest.mark.parametrize(("density", "rows"), [(0.0, 1), (4.0, 3)])
def test_without_noise_the_output_gives_him_away(density, rows):
    """All draws show one outcome with the target, and another without."""
    plan = small_plan(10_000, rows)
    found = top_down_risk(plan, **target_among(plan, density), rng=Seeded(2))
    assert found.released.value == pytest.approx(1 / 0.2, rel=1e-12)
    assert found.released.standard_error < 1e-12


def test_what_he_learns_from_draws_comes_to_the_exact_posterior():
    laws = np.array([[0.5, 0.3, 0.15, 0.05], [0.2, 0.3, 0.1, 0.4]])
    drawn = [np.random.default_rng(4).choice(4, 40_000, p=law) for law in laws]
    value, error = _cross_fitted(np.stack([np.array(drawn)] * 2, axis=2), Intruder(prior=0.2))
    exact = laws[0] @ (0.2 * laws[0] / (0.2 * laws[0] + 0.8 * laws[1]))
    assert value == pytest.approx(exact, abs=4 * error)
    assert error < 1e-3


def test_where_nothing_is_told_nothing_is_learned():
    """Two equal laws: the average over many data sets is his prior, and the error is right."""
    who = Intruder(prior=0.2)
    found = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        drawn = np.stack([rng.integers(0, 12, (2, 400))] * 2, axis=2)
        found.append(_cross_fitted(drawn, who))
    values, errors = np.array(found).T
    assert values.mean() == pytest.approx(0.2, abs=4 * values.std() / np.sqrt(60))
    assert 0.5 < errors.mean() / values.std() < 2


def test_an_average_of_few_draws_stays_a_probability():
    """Removing the bias of rare outcomes extrapolates, here to less than nothing."""
    for seed in (5, 25, 39):
        drawn = np.random.default_rng(seed).random((2, 100)) < [[0.99], [0.01]]
        seen = np.stack([drawn.astype(int)] * 2, axis=2)
        assert 0 <= _cross_fitted(seen, Intruder(prior=0.01))[0] <= 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"counts": np.zeros((2, 3), int)}, "counts: they must be units × 24 cells"),
        ({"counts": np.zeros((2, 24), int)}, "the target counted in `cell` of the first"),
        ({"draws": 5}, "draws: 5 is not allowed; use at least 100"),
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
