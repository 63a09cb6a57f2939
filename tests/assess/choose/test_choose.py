"""Choosing a budget: that what is chosen keeps its limit and no more would."""

import math
import tomllib
from fractions import Fraction

import pytest
from tests.assess.intruder.test_attacks import SMALL
from tests.laws.test_one_verdict import PLANS, random_plan

from countveil import DiscreteGaussian, DiscreteLaplace, Intruder, assess
from countveil.assess.choose import budget_for_risk
from countveil.assess.choose.plan_budget import (
    AccuracyTarget,
    within_accuracy,
    within_risk,
)
from countveil.assess.intruder.composition import sequential_risk
from countveil.assess.intruder.ladder import risk_by_level
from countveil.assess.intruder.targets import targets_of
from countveil.assess.intruder.whole_release import attacks_on, evidence_in
from countveil.base.numerics import decimal
from countveil.errors import InputError
from countveil.estimate.plan_error import expected_error
from countveil.plan.geography import read_crosswalk
from countveil.plan.plans import Plan
from countveil.report.terminal.risk_terminal import budget_lines


@pytest.mark.parametrize(("limit", "expected"), [(1.5, 0.511), (3, 1.299), (6, 2.037)])
def test_a_profile_over_all_priors(limit, expected):
    epsilon = budget_for_risk.epsilon_for_profile(lambda p: max(0.25 / p, limit))
    assert float(epsilon) == pytest.approx(expected, abs=5e-4)
    # Whatever the prior and the value, R' of that epsilon keeps the profile.
    noise = DiscreteLaplace(1 / epsilon)
    for prior in (0.01, 0.1, 0.17, 0.3, 0.5, 0.9):
        risk = assess.disclosure_risk(noise, observed=50, intruder=Intruder(prior=prior)).value
        assert risk <= max(0.25 / prior, limit) * (1 + 1e-9)


@pytest.mark.parametrize("prior", [0.5, 0.2, 0.02])
def test_what_is_chosen_keeps_the_limit_and_a_little_more_does_not(prior):
    who = Intruder(prior=prior)
    rho = budget_for_risk.largest_rho(risk=1.3, prior=prior)
    keeps = assess.marginal_risk(DiscreteGaussian.from_rho(rho), intruder=who).value
    passes = assess.marginal_risk(
        DiscreteGaussian.from_rho(rho * Fraction(1001, 1000)), intruder=who
    ).value
    assert keeps <= 1.3 < passes
    epsilon = budget_for_risk.largest_epsilon(posterior=1.3 * prior, prior=prior)
    keeps = assess.marginal_risk(DiscreteLaplace(1 / epsilon), intruder=who).value
    more = DiscreteLaplace(1 / (epsilon * Fraction(1001, 1000)))
    assert keeps <= 1.3 < assess.marginal_risk(more, intruder=who).value


def test_several_priors_must_all_keep_it():
    every = budget_for_risk.largest_rho(risk=1.25, prior=[0.5, 0.2, 0.1])
    assert every == min(budget_for_risk.largest_rho(risk=1.25, prior=p) for p in (0.5, 0.2, 0.1))


@pytest.mark.parametrize("prior", [0.2, 0.1, 0.4])
@pytest.mark.parametrize(("limit", "rows"), [(0.05, 1), (0.05, 3), (0.8, 1), (0.6, 3), (0.8, 4)])
def test_the_sawtooth_is_scanned(prior, limit, rows):
    """Up to the chosen rho no smaller one passes the limit either, and just beyond one does."""
    who = Intruder(prior=prior, rows=rows)
    rho = budget_for_risk.largest_rho(correct=limit, prior=prior, rows=rows)

    def correct(value: Fraction) -> float:
        noise = DiscreteGaussian.from_rho(value)
        return float(assess.correct_decision(noise, intruder=who).value)

    assert all(correct(rho * Fraction(k, 60)) <= limit for k in range(1, 61))
    assert correct(rho * (1 + Fraction(1, 10**6))) > limit


@pytest.mark.parametrize(("limit", "prior"), [(0.3, 0.4999), (0.1, 0.499), (0.0005, 0.49)])
def test_priors_near_one_half_keep_their_limit(limit, prior):
    rho = budget_for_risk.largest_rho(correct=limit, prior=prior)
    noise = DiscreteGaussian.from_rho(rho)
    assert assess.correct_decision(noise, intruder=Intruder(prior=prior)).value <= limit


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize(("limit", "prior"), [(0.3, 0.2), (0.7, 0.2), (0.95, 0.1), (0.6, 0.45)])
def test_epsilon_keeps_a_limit_on_decisions(limit, prior, rows):
    """Below the first loss that persuades an intruder they never say yes; beyond it the limit holds."""
    who = Intruder(prior=prior, rows=rows)
    epsilon = budget_for_risk.largest_epsilon(correct=limit, prior=prior, rows=rows)

    def correct(value: Fraction) -> float:
        return float(assess.correct_decision(DiscreteLaplace(1 / value), intruder=who).value)

    assert all(correct(epsilon * Fraction(k, 40)) <= limit for k in range(1, 41))
    assert correct(epsilon * (1 + Fraction(1, 10**6))) > limit


def test_a_profile_is_rounded_down():
    assert float(budget_for_risk.epsilon_for_profile(lambda p: max(0.25 / p, 3))) <= math.log(
        11 / 3
    )
    assert float(budget_for_risk.epsilon_for_profile(lambda p: 1.5)) <= math.log(1.5)


def test_the_closed_form_is_safe_and_below():
    for risk, prior in ((1.5, 0.02), (1.1, 0.5), (3, 0.1)):
        safe = budget_for_risk.safe_rho(risk=risk, prior=prior)
        assert float(safe) == pytest.approx(0.5 * math.log((risk - prior) / (1 - prior)), abs=1e-9)
        assert safe <= budget_for_risk.largest_rho(risk=risk, prior=prior)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"prior": 0.5}, "give a limit: risk, posterior or correct"),
        (
            {"prior": 0.5, "risk": 2},
            "risk: 2 is not allowed with prior 0.5; it must be above 1 and",
        ),
        ({"prior": 0.5, "risk": 1}, "risk: 1 is not allowed"),
        ({"prior": 0.5, "posterior": 0.4}, "posterior: 0.4 is not allowed; it must be above the"),
        ({"prior": 0.5, "correct": 0.5}, "correct: 0.5 is not allowed with prior 0.5"),
        ({"prior": [], "risk": 1.2}, "prior: give at least one"),
        ({"prior": 2.0, "risk": 1.2}, "prior: 2.0 is not allowed; it must be between 0 and 1"),
    ],
)
def test_limits_that_cannot_be_kept_are_named(given, message):
    with pytest.raises(InputError, match=message):
        budget_for_risk.largest_rho(**given)


THREE = SMALL.replace('["state", "block"]', '["state", "town", "block"]').replace(
    'block = "1/2"\n', 'town = "1/4"\nblock = "1/4"\n', 1
)
CHILDREN = {("s", "t1"): 1, ("s", "t2"): 5, ("s", "t3"): 2, ("u", "t4"): 3, ("u", "t5"): 3}
KNOWN = '[[invariants]]\nlevel = "state"\nquery = "TOTAL"\nreason = "known"\n'


@pytest.fixture
def places(tmp_path):
    rows = [f"{state},{town},{town}b{k}" for (state, town), n in CHILDREN.items() for k in range(n)]
    (tmp_path / "places.csv").write_text("\n".join(["state,town,block", *rows]))
    return read_crosswalk(tmp_path / "places.csv", ("state", "town", "block"))


@pytest.mark.parametrize(
    ("limit", "knows", "more"),
    [
        *(({"risk": 1.5}, knows, more) for knows in ("block", "town") for more in ("", KNOWN)),
        ({"posterior": 0.05}, "block", ""),
        ({"posterior": 0.05}, "town", KNOWN),
        ({"correct": 0.1}, "block", KNOWN),
        ({"correct": 0.1}, "town", ""),
    ],
)
def test_the_limit_is_kept_in_every_unit_and_used_up(more, knows, limit, places):
    """One per cent more for any level breaks it somewhere."""
    plan = Plan.parse(f'{THREE}{more}[intruder]\nknows = "{knows}"\npriors = [0.02, 0.04]\n')
    chosen = within_risk(plan, **limit, geography=places)
    ((name, value),) = limit.items()
    measure = {"risk": "marginal_risk", "posterior": "posterior", "correct": "correct_decision"}

    def largest(other):
        rungs = risk_by_level(other, invariants=True, levels=(knows,), geography=places)
        return max(getattr(rung, measure[name]) for rung in rungs)

    assert largest(chosen.plan) <= value
    assert largest(chosen.plan) == max(getattr(rung, measure[name]) for rung in chosen.risks)
    assert chosen.used_up
    if name != "correct":
        assert largest(chosen.plan) > 0.998 * value
    for level in set(chosen.costs) - set(chosen.free):
        assert largest(one_per_cent_more(chosen, level)) > value


def one_per_cent_more(chosen, level):
    costs = {k: v * Fraction(101 if k == level else 100, 100) for k, v in chosen.costs.items()}
    return chosen.plan.with_level_budgets(costs)


@pytest.mark.parametrize(
    ("measure", "number"),
    [("risk", number) for number in PLANS]
    + [("posterior", number) for number in PLANS[::2]]
    + [("correct", number) for number in PLANS[1::2]],
)
def test_random_plans_keep_the_limit_and_use_it_up(number, measure, tmp_path):
    """Of both currencies and neighbours; in every kind of unit, for every attack, prior and target."""
    text, crosswalk = random_plan(number)
    (tmp_path / "places.csv").write_text(crosswalk)
    plan = Plan.parse(text, folder=tmp_path)
    most = max(plan.intruder.priors)
    value = {"risk": (1 + 1 / most) / 2, "posterior": (1 + most) / 2, "correct": (1 + most) / 2}
    limit = {measure: value[measure]}
    chosen = within_risk(plan, **limit)
    name = {"risk": "marginal_risk", "posterior": "posterior", "correct": "correct_decision"}

    def largest(other):
        """Unit by unit of the crosswalk: none may hide behind the worst of its kind."""
        rungs = risk_by_level(other, invariants=not chosen.settled, levels=(plan.judged_level,))
        return max(getattr(rung, name[measure]) for rung in rungs)

    assert largest(chosen.plan) <= limit[measure]
    assert set(chosen.free) < set(chosen.costs) or measure == "correct"
    for level in set(chosen.costs) - set(chosen.free):
        assert largest(one_per_cent_more(chosen, level)) > limit[measure]
    # The printed lines are the plan.
    lines = tomllib.loads(budget_lines(chosen))["budget"]
    document = {**plan.document, "budget": {**plan.document["budget"], **lines}}
    again = plan.with_document(document)
    assert again.level_budgets == chosen.costs
    assert largest(again) == largest(chosen.plan)
    if measure == "risk":
        places, prior = plan.places(), min(plan.intruder.priors)
        for unit in range(places.units(plan.judged_level)):
            for kind, attribute in attacks_on(plan):
                for target in targets_of(plan, kind, attribute, None):
                    view = evidence_in(chosen.plan, plan.judged_level, unit, target, places)
                    if not view.settled and not chosen.settled:
                        who = Intruder(prior=prior, rows=plan.rows_per_person)
                        assert view.posterior(who.log_odds, who.rows)[0] / prior <= limit[
                            measure
                        ] * (1 + 1e-9)


def test_levels_that_say_nothing_are_named_and_others_get_what_is_left(places):
    """States are published exactly, and only their towns say anything about AGE."""
    queries = '[budget.queries.town]\nKIND = "1"\n[budget.queries.block]\nAGE = "1"\n'
    known = '[[invariants]]\nlevel = "state"\nquery = "AGE*KIND"\nreason = "known"\n'
    plan = Plan.parse(f'{THREE}{queries}{known}[intruder]\nknows = "block"\npriors = [0.02]\n')
    chosen = within_risk(plan, risk=1.5, geography=places)
    assert chosen.used_up
    for level in set(chosen.costs) - set(chosen.free):
        other = one_per_cent_more(chosen, level)
        rungs = risk_by_level(other, invariants=True, levels=("block",), geography=places)
        assert max(rung.marginal_risk for rung in rungs) > 1.5
    for level in chosen.free:  # ten times as much, and the limit is kept
        costs = {k: v * (10 if k == level else 1) for k, v in chosen.costs.items()}
        other = chosen.plan.with_level_budgets(costs)
        rungs = risk_by_level(other, invariants=True, levels=("block",), geography=places)
        assert max(rung.marginal_risk for rung in rungs) <= 1.5
    assert chosen.free


def test_budgets_are_short_decimals(places):
    chosen = within_risk(Plan.parse(THREE), risk=1.5, prior=0.02, geography=places)
    assert len(decimal(chosen.total).replace(".", "").lstrip("0")) <= 4
    assert budget_lines(chosen) == f'[budget]\nrho = "{decimal(chosen.total)}"'


def test_plans_in_epsilon_are_limited_by_what_everyone_known_would_reveal(places):
    plan = Plan.parse(THREE.replace('rho = "2"', 'epsilon = "2"'))
    chosen = within_risk(plan, risk=1.5, prior=0.02, geography=places)
    assert chosen.currency == "epsilon"
    assert all(rung.upper_bound for rung in chosen.risks)
    assert 1.49 < max(rung.marginal_risk for rung in chosen.risks) <= 1.5


def test_a_total_caps_the_budget(places):
    chosen = within_risk(
        Plan.parse(THREE), risk=1.5, prior=0.02, geography=places, total=Fraction(1, 100)
    )
    assert chosen.total == Fraction(1, 100)


def test_what_is_published_exactly_is_left_out_where_it_settles_the_matter(places):
    plan = Plan.parse(THREE + KNOWN + '[intruder]\nknows = "state"\npriors = [0.1]\n')
    chosen = within_risk(plan, risk=1.5, geography=places)
    assert chosen.settled
    assert max(rung.marginal_risk for rung in chosen.risks) <= 1.5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give one of risk, posterior and correct"),
        ({"risk": 1.5, "posterior": 0.5}, "give one of risk, posterior and correct"),
        ({"risk": 1}, "a limit of 1 is not possible; give one above 1"),
        ({"posterior": 1}, "a limit of 1 is not possible; give one between 0 and 1"),
        ({"posterior": 0.01, "prior": 0.02}, "no budget keeps this limit; raise it"),
        ({"risk": 60, "prior": 0.02}, "every budget keeps this limit; lower it"),
    ],
)
def test_limits_of_plans_that_cannot_be_kept_are_named(given, message, places):
    with pytest.raises(InputError, match=message):
        within_risk(Plan.parse(THREE), **given, geography=places)


def test_the_smallest_rho_for_an_accuracy():
    plan = Plan.parse(SMALL)
    wanted = AccuracyTarget.parse("block TOTAL ±1% of 2,000 at 95%")
    assert wanted == AccuracyTarget("block", "TOTAL", 20.0, 0.95, 2000)
    chosen = within_accuracy(plan, wanted)
    error = next(
        item.standard_error
        for item in expected_error(chosen.plan)
        if (item.level, item.query) == ("block", "TOTAL")
    )
    assert 1.959963984540054 * error == pytest.approx(20.0, rel=1e-3)
    assert 1.959963984540054 * error <= 20.0
    assert {rung.level for rung in chosen.ladder} == {"state", "block"}
    assert AccuracyTarget.parse("county TOTAL ±1% at 95%").half_width == 100.0  # of 10,000 people


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("county TOTAL", "is not understood; write it like"),
        ("block TOTAL ±5 of 20 at 95%", "'of' belongs to a percentage"),
        ("block TOTAL ±0 at 95%", "give a width above 0 and a confidence between 0 and 100 %"),
        ("town TOTAL ±5 at 95%", "no measured level 'town'; choose from state, block"),
        ("block AGE ±5 at 95%", "no query 'AGE' is measured at block; choose from AGE\\*KIND"),
    ],
)
def test_an_accuracy_that_is_not_understood_is_named(text, message):
    with pytest.raises(InputError, match=message):
        within_accuracy(Plan.parse(SMALL), AccuracyTarget.parse(text))


def test_releases_in_sequence_multiply():
    noise = DiscreteGaussian.from_rho("1666368/16793603")
    sequel = sequential_risk([noise, noise], observed=[2, 3], intruder=Intruder(prior=0.5))
    assert math.prod(sequel.each) == pytest.approx(sequel.together.value, rel=1e-12)
    assert sequel.each == pytest.approx((1.147750093, 1.199998167), abs=1e-8)
    with pytest.raises(
        InputError, match="observed: got 1 counts for 2 releases; give one for each"
    ):
        sequential_risk([noise, noise], observed=[2], intruder=Intruder(prior=0.5))
