import math

import pytest
from tests.conftest import TINY_PLAN

from countveil.assess.intruder import attacks
from countveil.assess.intruder.ladder import risk_by_level
from countveil.assess.pricing import price
from countveil.plan.plans import Plan

# As in the papers, which round the preset's rho of (542/339)².
ADD_REMOVE = (
    'invariants = []\n[release]\ntitle = "t"\npreset = "pl94-2020"\nneighbors = "add-remove"\n'
    '[budget]\nrho = "2.56"\n'
)


def test_the_intruder_at_block_level_sees_all_eleven_queries():
    plan = Plan.parse(ADD_REMOVE)
    at = {"attack": "presence", "level": "block"}
    # truth mq_presence: effective rho .10304952, R(.5) = 1.049072, R(.02) = 1.21671
    risk = {prior: attacks.marginal_risk(plan, prior=prior, **at).value for prior in (0.5, 0.02)}
    assert risk[0.5] == pytest.approx(1.049072, abs=5e-7)
    assert risk[0.02] == pytest.approx(1.21671, abs=5e-6)
    # All queries together: more than the most detailed one alone, near the normal law's value.
    right = attacks.correct_decision(plan, prior=0.5, **at).value
    normal = 0.5 * (1 + math.erf(math.sqrt(0.10304952 / 4)))
    assert right == pytest.approx(normal, abs=1e-4)
    assert right > 0.588860465787581


def test_without_places_a_plan_is_judged_as_if_everyone_were_known():
    """An only child at every level: the whole path's rho, 2.56, at each rung, as an upper bound."""
    risks = risk_by_level(Plan.parse(ADD_REMOVE), attack="presence")
    assert all(risk.effective_rho == pytest.approx(2.56) for risk in risks)
    assert {risk.upper_bound for risk in risks if risk.level != "nation"} == {True}
    assert {risk.upper_bound for risk in risks if risk.level == "nation"} == {False}
    # One normal count with that rho guesses right with probability Phi(sqrt(rho / 2)).
    normal = 0.5 * (1 + math.erf(math.sqrt(2.56 / 4)))
    assert next(risk.correct_decision for risk in risks if risk.prior == 0.5) == pytest.approx(
        normal, abs=2e-3
    )


def test_the_bound_without_places_says_where_exact_totals_pass_it():
    plan = Plan.parse('[release]\ntitle = "t"\npreset = "pl94-2020"\n')
    kinds = {risk.level: risk.unit_kind for risk in risk_by_level(plan, [0.1], invariants=True)}
    assert kinds["block"] == "any block that is not all of its state"
    assert kinds["state"] == "any state"


def test_change_one_neighbours_lower_the_risk():
    loose = {(r.level, r.prior): r.marginal_risk for r in risk_by_level(Plan.parse(ADD_REMOVE))}
    tight = Plan.parse('[release]\ntitle = "t"\npreset = "pl94-2020"\n')
    for risk in risk_by_level(tight):
        assert risk.marginal_risk < loose[risk.level, risk.prior]


def test_prices_hold_cost_noise_risk_and_error():
    priced = price(Plan.parse('[release]\ntitle = "t"\npreset = "pl94-2020"\n'))
    assert len(priced.noises) == 65
    assert len(priced.errors) == 66  # TOTAL of the nation is not measured, and has an error
    assert priced.tight_epsilon == pytest.approx(16.4652, abs=0.0005)
    assert priced.tight_epsilon < priced.cost.epsilon("1e-10")
    block = next(
        noise for item, noise in priced.noises if item.level == "block" and item.query.cells == 2016
    )
    assert block.variance == pytest.approx(10.093, abs=0.0005)
    rounded = price(Plan.parse(ADD_REMOVE.replace("add-remove", "change-one")))
    assert rounded.tight_epsilon == pytest.approx(16.476, abs=0.01)
    papers = next(
        noise
        for item, noise in rounded.noises
        if item.level == "block" and item.query.cells == 2016
    )
    assert papers.variance == pytest.approx(10.08, abs=0.005)  # ERRATA 002.1


def test_pure_plans_use_discrete_laplace_noise():
    priced = price(Plan.parse(TINY_PLAN.replace('rho = "2"', 'epsilon = "2"')))
    assert {noise.name for _, noise in priced.noises} == {"discrete-laplace"}
    assert priced.tight_epsilon is None
    item, noise = priced.noises[0]
    assert noise.cost(item.sensitivity) == item.cost


def test_the_noise_costs_exactly_what_the_plan_allots():
    for text in (ADD_REMOVE, TINY_PLAN, TINY_PLAN.replace("change-one", "add-remove")):
        for item, noise in price(Plan.parse(text)).noises:
            assert noise.cost(item.sensitivity) == item.cost


def test_the_limit_is_judged_at_the_intruders_level():
    low = Plan.parse(TINY_PLAN + "[intruder]\npriors = [0.5]\nlimit = 1.01\n")
    assert {risk.level for risk in price(low).verdict.above} == {"area"}
    high = Plan.parse(TINY_PLAN + '[intruder]\npriors = [0.5]\nlimit = 1.01\nlevel = "region"\n')
    assert {risk.level for risk in price(high).verdict.above} == {"region"}
    assert (
        price(Plan.parse(TINY_PLAN + "[intruder]\npriors = [0.5]\nlimit = 1.99\n")).verdict.above
        == ()
    )


def test_the_limit_counts_in_what_is_published_as_counted():
    text = TINY_PLAN + "[intruder]\npriors = [0.5, 0.25]\nlimit = 1.99\n"
    known = '[[invariants]]\nlevel = "area"\nquery = "TOTAL"\nreason = "known"\n'
    above = price(Plan.parse(text + known)).verdict.above
    assert [(risk.prior, risk.marginal_risk, risk.settled) for risk in above] == [
        (0.5, 2.0, True),
        (0.25, 4.0, True),
    ]
    assert not any(risk.settled for risk in price(Plan.parse(text)).verdict.above)
