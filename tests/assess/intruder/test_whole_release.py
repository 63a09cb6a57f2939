"""The risk to someone who sees the whole release: printed truths, simulation, laws and limits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.whole_release import random_case

from countveil import Plan
from countveil.assess import attacks
from countveil.assess.intruder import whole_release
from countveil.assess.intruder.ladder import plan_risk, risk_by_level
from countveil.assess.intruder.whole_release import evidence, whole_release_risk

TRUTHS = {
    item["id"]: item
    for item in json.loads(
        (Path(__file__).parents[2] / "golden" / "published_risk.json").read_text()
    )
}
RECODES = """B = ["p", "q", "r", "s"]
[recodes]
ONE = { of = "B", groups = { p = ["p"], rest = ["q", "r", "s"] } }
TWO = { of = "B", groups = { pq = ["p", "q"], r = ["r"] }, omit = ["s"] }
"""
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
[attributes]
A = ["x", "y"]
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


@pytest.mark.parametrize("seed", range(1, 25))
def test_it_is_what_simulated_releases_give(seed, tmp_path):
    """Dense least squares on simulated noise; every unit and target is tried.

    `python -m benchmarks whole_release` does the same with 200,000 releases of each tree.
    """
    case = random_case(seed, tmp_path)
    assert case.simulated(20_000, seed).agrees_with(case.if_real())
    assert case.if_real().bounded_by(case.stated())


def test_the_simulated_trees_are_of_every_kind(tmp_path):
    """Only children, exact totals that settle it or add to it, both relations, both attacks."""
    kinds = set()
    for seed in range(1, 25):
        case = random_case(seed, tmp_path)
        stated = case.stated()
        settled = "settled" if stated.effective_rho is None else "open"
        kinds |= {case.attack, case.plan.neighbors, case.level, settled}
        kinds |= {f"exact, {settled}"} if case.plan.invariants else set()
        kinds |= {"only child"} if "all of its" in stated.unit_kind else set()
    assert kinds >= {"presence", "unknown attribute", "add-remove", "change-one", "block", "county"}
    assert kinds >= {"only child", "exact, settled", "exact, open"}


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


@pytest.mark.parametrize("siblings", [1, 9])
def test_a_public_table_of_the_parent_lets_siblings_speak(tmp_path, siblings):
    """All cells of the parent known: the siblings count as much as the unit, divided by them."""
    places = "state,county,block\n" + "".join(f"s,c1,b{i}\n" for i in range(siblings + 1))
    shares = {"state": "0", "county": "0", "block": "1"}
    plan = plan_of(tmp_path, places, shares, neighbors="change-one", more="")
    known = '[[invariants]]\nlevel = "county"\nquery = "A"\nreason = "known"\n'
    public = Plan.parse("\n".join([*_lines(plan), known]), folder=tmp_path)
    alone = attacks.effective_rho(plan, attack="presence", level="block").value
    (seen,) = evidence(public, "block")
    assert seen.outside / 2 == pytest.approx(alone / siblings, rel=1e-6)
    informed = whole_release_risk(public, level="block", prior=0.02).effective_rho
    assert 1 <= informed / (alone * (1 + 1 / siblings)) < 1.0005  # the counts are whole


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


def test_small_noise_and_missing_places_give_upper_bounds(tmp_path):
    shares = dict.fromkeys(("state", "county", "block"), "1/3")
    loud = plan_of(tmp_path, TWO, shares, rho="9")
    found = whole_release_risk(loud, level="block", prior=0.02)
    top = whole_release_risk(loud, level="state", prior=0.02)
    assert found.upper_bound
    assert 0.95 * top.value < found.value <= top.value
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


@pytest.mark.parametrize("attack", ["presence", "whole record", "unknown attribute"])
def test_targets_are_looked_at_some_at_a_time(tmp_path, monkeypatch, attack):
    places = "state,county,block\ns,c1,b1\ns,c1,b2\ns,c1,b3\ns,c2,b4\ns,c3,b5\ns,c3,b6\n"
    shares = dict.fromkeys(("state", "county", "block"), "1/3")
    queries = 'A = "1/4"\n"A*B" = "1/4"\nONE = "1/4"\n"A*TWO" = "1/4"'
    plan = plan_of(
        *(tmp_path, places, shares),
        rho="1/2",
        queries=queries,
        neighbors="change-one",
        more=RECODES,
    )
    attribute = "B" if attack == "unknown attribute" else None
    for level in plan.levels:
        every = evidence(plan, level, attack=attack, attribute=attribute)
        with monkeypatch.context() as few:
            few.setattr(whole_release, "_TOGETHER", 1)
            whole_release._evidence_about.cache_clear()
            some = evidence(plan, level, attack=attack, attribute=attribute)
        assert len(some) == len(every) > 0
        for one, other in zip(some, every, strict=True):
            assert one.outside == pytest.approx(other.outside, rel=1e-12)
            assert replace(one, outside=0.0) == replace(other, outside=0.0)
    whole_release._evidence_about.cache_clear()
    bound = whole_release_risk(plan, level="block", prior=0.1, attack=attack, attribute=attribute)
    monkeypatch.setattr(whole_release, "_MOST_WORK", 0)
    whole_release._evidence_about.cache_clear()
    risk = whole_release_risk(plan, level="block", prior=0.1, attack=attack, attribute=attribute)
    whole_release._evidence_about.cache_clear()
    assert risk.upper_bound
    assert not bound.upper_bound
    assert risk.value >= bound.value


def test_a_figure_is_computed_once(tmp_path, monkeypatch):
    """The verdict, its ladder and every section of a page ask for the same ones."""
    plan = plan_of(tmp_path, TWO, {"state": "1/2", "county": "1/4", "block": "1/4"})
    first = risk_by_level(plan, [0.1])
    for name in ("expected_posterior", "guesses_right", "guesses_right_at_most"):
        monkeypatch.setattr(whole_release, name, None)
    assert risk_by_level(plan, [0.1]) == first
