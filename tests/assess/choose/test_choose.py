"""Choosing a budget: that what is chosen keeps its limit and no more would."""

import math
from fractions import Fraction

import pytest
from tests.assess.intruder.test_attacks import SMALL

from countveil import DiscreteGaussian, DiscreteLaplace, Intruder, assess
from countveil.assess.choose import budget_for_risk
from countveil.assess.choose.plan_budget import (
    AccuracyTarget,
    RiskSearch,
    with_rho,
    within_accuracy,
    within_risk,
)
from countveil.assess.intruder import attacks
from countveil.assess.intruder.composition import sequential_risk
from countveil.assess.intruder.siblings import fewest_siblings
from countveil.errors import InputError
from countveil.estimate.plan_error import expected_error
from countveil.papers.kazan_reiter import illustrated_risk
from countveil.plan.geography import read_crosswalk
from countveil.plan.plans import Plan


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
    """Below the first loss that can persuade him he never says yes; beyond it the limit holds."""
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


def test_a_plan_within_a_risk_keeps_it_at_every_level():
    plan = Plan.parse(SMALL)
    chosen = within_risk(plan, risk=1.4, prior=0.1)
    for level in plan.measured_levels:
        risk = attacks.marginal_risk(chosen.plan, attack="presence", prior=0.1, level=level).value
        assert risk == pytest.approx(chosen.risks[level])
        assert 1.399 < risk <= 1.4
    less = within_risk(plan, risk=1.4, prior=0.1, total=Fraction(1, 10))
    assert less.total <= Fraction(1, 10)
    assert all(less.rho[level] <= chosen.rho[level] for level in less.rho)
    more = within_risk(plan, risk=1.4, prior=0.1, siblings={"block": 4})
    assert more.rho["block"] < chosen.rho["block"]
    record = within_risk(plan, risk=1.4, prior=0.1, attack="whole record")
    assert record.rho["block"] < chosen.rho["block"]


@pytest.mark.parametrize(("risk", "prior"), [(1.8, 0.5), (20, 0.02)])
def test_large_limits_are_used_up(risk, prior):
    chosen = within_risk(Plan.parse(SMALL), risk=risk, prior=prior)
    assert all(0.9999 * risk < value <= risk for value in chosen.risks.values())


def test_the_levels_above_are_kept_within_the_limit_too():
    plan = Plan.parse(SMALL)
    chosen = within_risk(plan, risk=2, prior=0.02, siblings={"block": 1})
    rho = attacks.effective_rho(
        chosen.plan, attack="presence", level="block", siblings={"block": 1}
    ).value
    noise = DiscreteGaussian.from_rho(str(rho))
    assert assess.marginal_risk(noise, intruder=Intruder(prior=0.02)).value <= 2


THREE = SMALL.replace('["state", "block"]', '["state", "town", "block"]').replace(
    'block = "1/2"\n', 'town = "1/4"\nblock = "1/4"\n', 1
)


@pytest.mark.parametrize("known", [False, True])
def test_the_limit_is_kept_in_every_unit_of_the_crosswalk(known, tmp_path):
    """Only children are told all that their parents are; a published total of the state counts, too."""
    fixed = '[[invariants]]\nlevel = "state"\nquery = "TOTAL"\nreason = "known"\n' * known
    plan = Plan.parse(THREE + fixed)
    children = {("s", "t1"): 1, ("s", "t2"): 5, ("s", "t3"): 2, ("u", "t4"): 3, ("u", "t5"): 3}
    rows = [f"{state},{town},{town}b{k}" for (state, town), n in children.items() for k in range(n)]
    (tmp_path / "places.csv").write_text("\n".join(["state,town,block", *rows]))
    families = fewest_siblings(read_crosswalk(tmp_path / "places.csv", plan.levels))
    assert {(f["town"], f["block"]) for f in families} == {(2, 0), (1, 2)}
    chosen = within_risk(plan, risk=1.5, prior=0.02, siblings=families)
    assert chosen.settled == (("state",) if known else ())
    worst = []
    for (state, _), blocks in children.items():
        siblings = {"town": {"s": 2, "u": 1}[state], "block": blocks - 1}
        for level in ("town", "block"):
            rho = attacks.effective_rho(
                chosen.plan, attack="presence", level=level, siblings=siblings
            ).value
            noise = DiscreteGaussian.from_rho(str(rho))
            worst.append(float(assess.marginal_risk(noise, intruder=Intruder(prior=0.02)).value))
    assert 1.4999 < max(worst) <= 1.5
    more = within_risk(plan, risk=1.5, prior=0.02, siblings={"town": 2, "block": 3})
    assert more.total > chosen.total


def test_no_more_could_be_given_to_a_level():
    """From the lowest up each has what is left: a little more to any of them passes the limit."""
    plan, siblings = Plan.parse(THREE), {"town": 0, "block": 1}
    chosen = within_risk(plan, risk=1.5, prior=0.02, siblings=siblings)
    for level in chosen.rho:
        more = {**chosen.rho, level: chosen.rho[level] * Fraction(1001, 1000)}
        trial = with_rho(plan, more)
        search = RiskSearch(plan, "presence", None, (0.02,), 1.5)
        assert max(search.worst(trial, name, [siblings]) for name in more) > 1.5


def test_a_total_published_as_counted_needs_no_budget_of_its_own():
    fixed = '[[invariants]]\nlevel = "state"\nquery = "TOTAL"\nreason = "known"\n'
    text = SMALL.replace('state = "1/2"', 'state = "1/8"').replace('block = "1/2"', 'block = "7/8"')
    plan = Plan.parse(text + fixed)
    shared = within_risk(plan, risk=2, prior=0.1, total=Fraction(1, 10)).rho
    assert shared["state"] == pytest.approx(shared["block"], rel=1e-8)
    with pytest.raises(
        InputError, match="TOTAL of state is published exactly, regardless of the budget"
    ):
        within_accuracy(plan, AccuracyTarget.parse("state TOTAL ±5 at 95%"))


def test_levels_that_say_nothing_of_an_attack_keep_their_budget():
    plan = Plan.parse(
        SMALL.replace(
            '[budget.queries."*"]', '[budget.queries.state]\nTOTAL = "1"\n[budget.queries.block]'
        )
    )
    chosen = within_risk(plan, risk=1.4, prior=0.1, attack="unknown attribute", attribute="AGE")
    assert chosen.rho["state"] == 1


def test_sharing_a_total_lowers_the_error_most():
    plan = Plan.parse(SMALL)
    total = Fraction(1, 10)
    chosen = within_risk(plan, risk=1.4, prior=0.1, total=total)

    def error(shares: dict[str, Fraction]) -> float:
        text = SMALL.replace('rho = "2"', f'rho = "{total}"')
        for level, share in shares.items():
            text = text.replace(f'{level} = "1/2"', f'{level} = "{share}"')
        items = expected_error(Plan.parse(text))
        return sum(item.standard_error**2 for item in items if item.query == "TOTAL")

    best = {level: Fraction(value / chosen.total) for level, value in chosen.rho.items()}
    least = error(best)
    for shift in (Fraction(1, 20), -Fraction(1, 20)):
        other = {"state": best["state"] + shift, "block": best["block"] - shift}
        assert error(other) >= least * (1 - 1e-6)


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
    assert 1.959963984540054 * error == pytest.approx(20.0, rel=1e-6)
    assert 1.959963984540054 * error <= 20.0
    assert set(chosen.risks) == {"state", "block"}
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


def test_the_illustration_of_post_processing_rounds_halves_up_too(truth):
    noise = DiscreteGaussian.from_rho("1666368/16793603")
    level = assess.Level(noise, 27)
    checked = 0
    for key, item in truth.items():
        if key.startswith("s6_R_x"):
            up = float(item["note"].split("half up: ")[1].split(")")[0])
            value = illustrated_risk(
                level,
                released_parent=int(key[6:]),
                parent=1,
                intruder=Intruder(prior=0.5),
                rounding="half up",
            ).value
            assert value == pytest.approx(up, abs=6e-7)
            checked += 1
    assert checked == 10
    # Not bounded by the risk of X1* alone, as the supplement says, but by that of X1* and Y1*.
    alone, at_200, joint = (truth[f"s6_{key}"]["exact"] for key in ("nopp", "R_x200", "joint"))
    assert alone < at_200 < joint
