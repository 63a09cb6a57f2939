"""The risk to someone who sees the whole release: printed truths, simulation, laws and limits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit

from countveil import Plan, Seeded
from countveil.assess.intruder.plan_risk import plan_risk, risk_by_level
from countveil.assess.intruder.whole_release import evidence, whole_release_risk

TRUTHS = {
    item["id"]: item
    for item in json.loads(
        (Path(__file__).parents[2] / "golden" / "published_risk.json").read_text()
    )
}
TWO = "state,county,block\ns,c1,b1\ns,c2,b2\n"


def plan_of(folder, places, shares, *, rho="1", queries='A = "1"', neighbors="add-remove", more=""):
    (folder / "places.csv").write_text(places)
    levels = places.splitlines()[0].split(",")
    named = ", ".join(f'"{level}"' for level in levels)
    parts = ", ".join(f'{level} = "{share}"' for level, share in shares.items())
    return Plan.parse(
        f"""
release = {{ title = "Tree", unit = "person", neighbors = "{neighbors}" }}
geography = {{ path = "places.csv", levels = [{named}] }}
attributes = {{ A = ["x", "y"] }}
{more}
[budget]
rho = "{rho}"
levels = {{ {parts} }}
[budget.queries."*"]
{queries}
""",
        folder=folder,
    )


@pytest.fixture
def equal(tmp_path):
    shares = dict.fromkeys(("state", "county", "block"), "1/3")
    return plan_of(tmp_path, TWO, shares, rho="0.2588586")


@pytest.mark.parametrize(("level", "name"), [("block", "block"), ("state", "state")])
def test_two_counties(equal, level, name):
    truth = TRUTHS[f"whole_release.two_counties.{name}"]
    found = whole_release_risk(equal, level=level, prior=truth["prior"])
    assert found.value == pytest.approx(truth["R"], abs=truth["tol"])


def test_levels_with_unequal_budgets(tmp_path):
    truth = TRUTHS["whole_release.unequal"]
    shares = {"state": "100/111", "county": "1/111", "block": "10/111"}
    found = whole_release_risk(
        plan_of(tmp_path, TWO, shares, rho="1.11"), level="block", prior=truth["prior"]
    )
    assert found.value == pytest.approx(truth["R"], abs=truth["tol"])
    assert found.effective_rho == pytest.approx(truth["effective_rho"], abs=1e-4)
    assert found.unit_kind == "a block that is all of its county"


def simulated(plan, unit, draws, prior):
    """R of whoever knows everyone else in a lowest unit, from dense least squares on simulated noise.

    The release is simulated for a true count of 1 in the target's cell, everyone else counting 0; what
    they believe about other units is flat, so their counts are estimated.
    """
    geography = plan.geography()
    lowest = plan.levels[-1]
    cells, units = plan.schema.cells, geography.units(lowest)
    rows, variances, noises = [], [], []
    rng = Seeded(5)
    for level in plan.levels:
        above = geography.ancestors(lowest, level)
        for item in plan.at(level):
            where = item.query.cells_at(np.arange(cells))
            for one in range(geography.units(level)):
                for cell in range(item.query.cells):
                    row = np.zeros((units, cells))
                    row[np.ix_(above == one, where == cell)] = 1
                    rows.append(row.reshape(-1))
                    variances.append(item.mechanism.variance)
                    noises.append(item.mechanism.sample(draws, rng=rng))
    X, w = np.array(rows), 1 / np.array(variances)
    signal = X[:, unit * cells]
    others = np.delete(X, np.arange(unit * cells, (unit + 1) * cells), axis=1)
    root = np.sqrt(w)
    basis, _ = np.linalg.qr((root[:, None] * others)[:, np.abs(others).sum(0) > 0])
    left = root * signal - basis @ (basis.T @ (root * signal))
    precision = float(left @ left)
    estimate = 1 + (left @ (root[:, None] * np.array(noises))) / precision
    posterior = expit(np.log(prior / (1 - prior)) + precision * (estimate - 0.5))
    return posterior.mean() / prior, posterior.std() / prior / np.sqrt(draws), precision / 2


@pytest.mark.parametrize("neighbors", ["add-remove", "change-one"])
@pytest.mark.parametrize(
    "places",
    [
        TWO,
        "state,county,block\ns,c1,b1\ns,c1,b2\ns,c2,b3\n",
        "state,county,block\ns,c1,b1\ns,c1,b2\ns,c1,b3\ns,c2,b4\ns,c3,b5\n",
    ],
)
def test_it_is_what_simulated_releases_give(places, neighbors, tmp_path):
    """40,000 releases of each tree; the worst unit is found by trying them all."""
    shares = {"state": "1/2", "county": "1/6", "block": "1/3"}
    plan = plan_of(
        tmp_path, places, shares, rho="0.6", queries='A = "3/4"\nTOTAL = "1/4"', neighbors=neighbors
    )
    found = whole_release_risk(plan, level="block", prior=0.1)
    units = plan.geography().units("block")
    tried = [simulated(plan, unit, 40_000, 0.1) for unit in range(units)]
    worst = max(tried, key=lambda item: item[2])
    assert found.effective_rho == pytest.approx(worst[2], rel=1e-6)
    assert abs(found.value - worst[0]) < 4 * worst[1]


def test_knowing_more_never_means_learning_less(equal):
    ladder = [
        risk.marginal_risk for risk in risk_by_level(equal, [0.02], levels=("block", "county"))
    ]
    assert ladder[0] <= ladder[1] + 1e-12
    whole = plan_risk(equal, prior=0.02)
    values = whole.ladder["marginal_risk"].to_pylist()
    assert values == sorted(values)
    assert whole.ladder["level"].to_pylist() == ["block", "county", "state"]


def test_the_top_of_the_ladder_is_the_whole_path(equal):
    (top,) = evidence(equal, "state")
    assert top.outside == 0
    assert top.effective_rho(1) == pytest.approx(float(equal.cost.rho))


def test_an_exact_total_makes_them_certain_from_its_level_up(tmp_path):
    more = '[[invariants]]\nlevel = "county"\nquery = "TOTAL"\nreason = "known"\n'
    places = "state,county,block\ns,c1,b1\ns,c1,b2\ns,c2,b3\ns,c2,b4\n"
    shares = dict.fromkeys(("state", "county", "block"), "1/3")
    plan = plan_of(tmp_path, places, shares, neighbors="change-one", more="")
    known = Plan.parse("\n".join([*_lines(plan), more]), folder=tmp_path)
    assert whole_release_risk(known, level="county", prior=0.02).value == pytest.approx(50)
    block = whole_release_risk(known, level="block", prior=0.02)
    assert 1 < block.value < 50
    without = whole_release_risk(known, level="block", prior=0.02, invariants=False)
    assert without.value < block.value


def _lines(plan):
    document = plan.document
    yield (
        f'release = {{ title = "Tree", unit = "person", neighbors = "{plan.neighbors}" }}\n'
        'geography = { path = "places.csv", levels = ["state", "county", "block"] }\n'
        'attributes = { A = ["x", "y"] }'
    )
    budget = document["budget"]
    shares = ", ".join(f'{k} = "{v}"' for k, v in budget["levels"].items())
    yield f'[budget]\nrho = "{budget["rho"]}"\nlevels = {{ {shares} }}'
    yield '[budget.queries."*"]\nA = "1"'


def test_small_noise_and_missing_places_count_as_knowing_everyone(tmp_path):
    shares = dict.fromkeys(("state", "county", "block"), "1/3")
    loud = plan_of(tmp_path, TWO, shares, rho="9")
    found = whole_release_risk(loud, level="block", prior=0.02)
    top = whole_release_risk(loud, level="state", prior=0.02)
    assert found.upper_bound
    assert found.value == pytest.approx(top.value)
    nowhere = plan_of(tmp_path, TWO, shares, rho="0.3")
    (tmp_path / "places.csv").unlink()
    assert whole_release_risk(nowhere, level="block", prior=0.02).upper_bound


def test_a_plan_answers_by_itself_for_the_worst_attack(equal):
    risk = equal.risk(prior=0.02)
    alone = {
        name: whole_release_risk(equal, attack=attack, attribute=attribute, prior=0.02).value
        for name, attack, attribute in (
            ("presence", "presence", None),
            ("unknown attribute: A", "unknown attribute", "A"),
            ("whole record", "whole record", None),
        )
    }
    assert risk.value == max(alone.values())
    assert risk.attack == "unknown attribute: A"
    assert (risk.level, risk.unit_kind) == ("block", "a block that is all of its county")
    assert risk.ladder.num_rows == 3
