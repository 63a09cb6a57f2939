"""The summary of a plan on its places: typical siblings, the levels above, what invariants add."""

import pytest
from tests.assess.intruder.test_attacks import SMALL

from countveil.assess import Intruder, exceedance
from countveil.assess.intruder import attacks
from countveil.assess.intruder.plan_risk import risk_by_level
from countveil.assess.intruder.siblings import typical_siblings
from countveil.assess.intruder.summary import summarise
from countveil.plan.geography import read_crosswalk
from countveil.plan.plans import Plan


@pytest.fixture
def places(tmp_path):
    """Two states, of five blocks and of one: a block has 5 × 4 / 6 siblings on average."""
    rows = [f"S1,B{number}" for number in range(5)] + ["S2,B5"]
    (tmp_path / "places.csv").write_text("state,block\n" + "\n".join(rows) + "\n")
    return read_crosswalk(tmp_path / "places.csv", ("state", "block"))


def test_siblings_are_those_of_an_average_unit(places):
    assert typical_siblings(places) == {"block": 3}


@pytest.mark.parametrize("known", [True, False])
def test_levels_above_and_invariants_add_to_what_a_unit_tells(places, known):
    fact = '[[invariants]]\nlevel = "state"\nquery = "AGE*KIND"\nreason = "known"\n'
    plan = Plan.parse(SMALL + fact if known else SMALL)
    summary = summarise(plan, places, priors=[0.1, 0.5, 0.1])
    assert summary.siblings == {"block": 3}
    assert [(item.attack, item.prior) for item in summary.attacks] == [
        (attack, prior)
        for attack in (
            "presence",
            "unknown attribute: AGE",
            "unknown attribute: KIND",
            "whole record",
        )
        for prior in (0.1, 0.5)
    ]
    for item in summary.attacks:
        # All cells of the state known: three siblings tell a third as much as the block.
        if known:
            assert item.with_invariants == pytest.approx(item.effective_rho * (1 + 1 / 3), rel=1e-6)
        else:
            assert item.with_invariants == item.with_levels_above
        attack, _, attribute = item.attack.partition(": ")
        given = {"attack": attack, "attribute": attribute or None}
        noisy = attacks.effective_rho(Plan.parse(SMALL), siblings={"block": 3}, **given).value
        assert item.effective_rho < item.with_levels_above == pytest.approx(noisy, rel=1e-12)
        given["prior"] = item.prior
        assert item.marginal_risk == attacks.marginal_risk(plan, **given).value
        assert item.correct_decision == attacks.correct_decision(plan, **given).value
        assert item.posterior == pytest.approx(item.marginal_risk * item.prior)


def test_a_summary_without_places_is_that_of_the_unit_alone():
    plan = Plan.parse(SMALL)
    summary = summarise(plan, level="state", priors=[0.1])
    assert (summary.level, summary.siblings) == ("state", {})
    assert {(item.with_levels_above, item.with_invariants) for item in summary.attacks} == {
        (None, None)
    }
    assert list(summary.levels) == risk_by_level(plan, priors=[0.1])
    noise = max(plan.at("state"), key=lambda item: item.query.cells).mechanism
    for item in summary.exceedances:
        share = exceedance(noise, above=item.above, intruder=Intruder(prior=0.1)).value
        assert item.share == share


def test_pure_plans_have_no_effective_rho(places):
    plan = Plan.parse(SMALL.replace('rho = "2"', 'epsilon = "2"'))
    for item in summarise(plan, places, priors=[0.1]).attacks:
        assert (item.effective_rho, item.with_levels_above, item.with_invariants) == (None,) * 3
        assert item.marginal_risk > 1
