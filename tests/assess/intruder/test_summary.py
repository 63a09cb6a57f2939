"""The summary of a plan on its places: every attack, with the whole release."""

import pytest
from tests.assess.intruder.test_attacks import SMALL

from countveil.assess import Intruder, exceedance
from countveil.assess.intruder.ladder import risk_by_level
from countveil.assess.intruder.summary import summarise
from countveil.assess.intruder.whole_release import whole_release_risk
from countveil.plan.geography import read_crosswalk
from countveil.plan.plans import Plan


@pytest.fixture
def places(tmp_path):
    """Two states, of five blocks and of one."""
    rows = [f"S1,B{number}" for number in range(5)] + ["S2,B5"]
    (tmp_path / "places.csv").write_text("state,block\n" + "\n".join(rows) + "\n")
    return read_crosswalk(tmp_path / "places.csv", ("state", "block"))


@pytest.mark.parametrize("known", [True, False])
def test_each_attack_is_that_of_someone_who_sees_the_whole_release(places, known):
    fact = '[[invariants]]\nlevel = "state"\nquery = "AGE*KIND"\nreason = "known"\n'
    plan = Plan.parse(SMALL + fact if known else SMALL)
    summary = summarise(plan, places, priors=[0.1, 0.5, 0.1])
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
        attack, _, attribute = item.attack.partition(": ")
        found = whole_release_risk(
            plan,
            geography=places,
            level="block",
            attack=attack,
            attribute=attribute or None,
            prior=item.prior,
        )
        assert item.marginal_risk == found.value
        assert item.effective_rho == found.effective_rho
        assert item.unit_kind == found.unit_kind
        # The only block of a state is told all that its state is, and with `known` exactly that.
        assert item.settled == known


def test_a_summary_without_places_counts_as_knowing_everyone():
    plan = Plan.parse(SMALL)
    summary = summarise(plan, level="block", priors=[0.1])
    assert all(item.upper_bound for item in summary.attacks)
    assert list(summary.levels) == risk_by_level(plan, priors=[0.1])
    noise = max(plan.at("block"), key=lambda item: item.query.cells).mechanism
    for item in summary.exceedances:
        share = exceedance(noise, above=item.above, intruder=Intruder(prior=0.1)).value
        assert item.share == share


def test_pure_plans_have_no_effective_rho(places):
    plan = Plan.parse(SMALL.replace('rho = "2"', 'epsilon = "2"'))
    summary = summarise(plan, places, priors=[0.1])
    assert set(summary.own_rho.values()) == {None}
    for item in summary.attacks:
        assert item.effective_rho is None
        assert item.upper_bound
        assert item.marginal_risk > 1
