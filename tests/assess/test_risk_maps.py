"""The risk map against a plain loop over cells, its streaming, and what stays internal."""

import numpy as np
import pytest
from tests.conftest import TINY_PEOPLE, TINY_PLAN

from countveil import Release, Seeded, open_engine, pipeline
from countveil.assess import Intruder
from countveil.assess.intruder import attacks
from countveil.assess.intruder.decision import sigmoid
from countveil.assess.risk_maps import internal_map, public_map
from countveil.errors import InputError
from countveil.measure.batch_sizes import BatchSizes
from countveil.plan.plans import Plan

SEVERAL_ROWS = TINY_PLAN.replace("one_row_per_person = true", 'person_id = "id"\nmax_rows = 3')


@pytest.fixture(
    params=[TINY_PLAN, SEVERAL_ROWS, SEVERAL_ROWS.replace('rho = "2"', 'epsilon = "9"')],
    ids=["one row", "several rows", "several rows, Laplace noise"],
)
def released(request, tiny):
    tiny.write_text(request.param)
    people = [*TINY_PEOPLE, *[("A5", "old", "f")] * 2]  # cells of 1, 2 and 4
    rows = [",".join((*row, str(number % 4 + 1))) + "\n" for number, row in enumerate(people)]
    (tiny.parent / "people.csv").write_text("area,AGE,SEX,id\n" + "".join(rows))
    plan = Plan.load(tiny)
    small = BatchSizes(values_to_draw=15)  # several row groups
    pipeline.release(plan, to=tiny.parent / "out", rng=Seeded(4), sizes=small)
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


def test_intruders_of_several_rows_are_judged_by_their_own():
    assert Intruder(prior=0.5, rows=3).counts(there=True).tolist() == [3.0]
