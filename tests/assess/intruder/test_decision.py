"""Unsure intruders, other losses, exceedances: against plain sums."""

import math

import numpy as np
import pytest

from countveil import DiscreteGaussian, DiscreteLaplace, Gaussian, Intruder, Laplace, assess
from countveil.assess import Losses, decide
from countveil.assess.choose import budget_for_risk
from countveil.assess.intruder.several_levels import hierarchy
from countveil.errors import InputError

NOISES = (DiscreteGaussian(5), DiscreteGaussian("1/4"), DiscreteLaplace(2))
UNSURE = Intruder(prior=0.3, known=2, others=(0.5, 0.25, 0.25))


def mixtures(noise, who, x):
    there, away = np.zeros(len(x)), np.zeros(len(x))
    for more, weight in enumerate(who.others):
        there += weight * np.exp(noise.log_pmf(x - who.known - more - who.rows))
        away += weight * np.exp(noise.log_pmf(x - who.known - more))
    return there, away


@pytest.mark.parametrize("noise", NOISES)
def test_unsure_of_others_equals_mixing(noise):
    x = np.arange(-200, 210)
    there, away = mixtures(noise, UNSURE, x)
    with np.errstate(invalid="ignore"):
        after = 0.3 * there / (0.3 * there + 0.7 * away)
    near = there > 1e-250
    found = assess.posterior(noise, observed=x[near], intruder=UNSURE).value
    np.testing.assert_allclose(found, after[near], rtol=1e-9)
    risk = assess.marginal_risk(noise, intruder=UNSURE)
    assert risk.posterior == pytest.approx((there * after)[near].sum(), rel=1e-9)
    for present, law in ((True, there), (False, away)):
        yes = law[near][after[near] > 0.5].sum() + law[near][after[near] == 0.5].sum() / 2
        value = assess.correct_decision(noise, intruder=UNSURE, present=present).value
        assert value == pytest.approx(yes if present else 1 - yes, abs=1e-9)
        value = assess.exceedance(noise, above=1.5, intruder=UNSURE, present=present).value
        assert value == pytest.approx(law[near][after[near] > 0.45].sum(), abs=1e-9)


def test_not_knowing_others_helps_the_target():
    noise = DiscreteGaussian(2)
    risks = [
        assess.marginal_risk(noise, intruder=Intruder.knowing_all_but(n, prior=0.1)).value
        for n in (0, 1, 3, 10)
    ]
    assert risks == sorted(risks, reverse=True)
    sure = assess.marginal_risk(noise, intruder=Intruder(prior=0.1)).value
    assert risks[0] == pytest.approx(sure, rel=1e-12)
    certain = Intruder.knowing_all_but(3, prior=0.1, probability=1.0)
    assert assess.marginal_risk(noise, intruder=certain).value == pytest.approx(sure, rel=1e-9)


@pytest.mark.parametrize("noise", [*NOISES, Laplace(1.5), Gaussian(2.0)])
@pytest.mark.parametrize("above", [0.5, 1.0, 1.2, 1.7, 3.0])
def test_exceedances_equal_a_sum(noise, above):
    who = Intruder(prior=0.2, known=1)
    for present in (True, False):
        value = assess.exceedance(noise, above=above, intruder=who, present=present).value
        shift = 2 if present else 1
        if hasattr(noise, "log_pmf"):
            x = np.arange(-400, 400)
            weights = np.exp(noise.log_pmf(x - shift))
            step = 1.0
        else:
            step = 1e-3
            x = np.arange(-60, 60, step)
            weights = np.exp(noise.log_density(x - shift)) * step
        passes = assess.disclosure_risk(noise, observed=x, intruder=who).value > above * (1 + 1e-12)
        assert value == pytest.approx(weights[passes].sum(), abs=1e-9 if step == 1 else 2e-3)
    many = assess.expected_exceedances(noise, above=above, intruder=who, targets=5_900_000).value
    once = assess.exceedance(noise, above=above, intruder=who).value
    assert many == pytest.approx(5_900_000 * once)


def test_no_posterior_passes_one():
    assert assess.exceedance(NOISES[0], above=5.0, intruder=Intruder(prior=0.2)).value == 0.0


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("losses", [Losses(1, 1), Losses(3, 1), Losses(1, 10)])
def test_decisions_under_any_loss(noise, losses):
    who = Intruder(prior=0.4)
    x = np.arange(-300, 300)
    after = assess.posterior(noise, observed=x, intruder=who).value
    yes = np.array([decide(float(p), losses=losses) for p in after])
    for present in (True, False):
        weights = np.exp(noise.log_pmf(x - (1 if present else 0)))
        says_yes = weights @ yes
        value = assess.correct_decision(noise, intruder=who, losses=losses, present=present).value
        assert value == pytest.approx(says_yes if present else 1 - says_yes, abs=1e-9)


def test_even_losses_are_ties():
    assert decide(0.5) == 0.5
    assert decide(0.5, ties="yes") == 1.0
    assert decide(0.25, losses=Losses(false_yes=1, false_no=3), ties="no") == 0.0
    assert decide(0.26, losses=Losses(false_yes=1, false_no=3)) == 1.0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Losses(0, 1), "false_yes: 0 is not allowed; a loss must be above 0 and finite"),
        (lambda: decide(1.5), "posterior: 1.5 is not allowed; it must be between 0 and 1"),
        (lambda: decide(0.5, ties="maybe"), "ties: 'maybe' is not allowed"),
        (lambda: Intruder(prior=0.5, others=(0.5, 0.6)), "others: the probabilities of 0, 1, 2"),
        (lambda: Intruder(prior=0.5, others=()), "others: the probabilities"),
        (lambda: Intruder.knowing_all_but(-1, prior=0.5), "count: -1 is not allowed"),
        (lambda: Intruder.knowing_all_but(1, prior=0.5, probability=2), "probability: 2 is not"),
        (
            lambda: assess.exceedance(NOISES[0], above=0, intruder=UNSURE),
            "above: 0 is not allowed; a ratio must be above 0",
        ),
        (
            lambda: assess.marginal_risk(list(NOISES), intruder=UNSURE),
            "noise: got 3 laws, but an intruder who is unsure about others is assessed by one count",
        ),
    ],
)
def test_bad_values_are_named(build, message):
    with pytest.raises(InputError, match=message):
        build()


def test_wide_noise_is_finite_for_the_unsure():
    for rho in ("1e-12", "1e-4", "10000"):
        noise = DiscreteGaussian.from_rho(rho)
        risk = assess.marginal_risk(noise, intruder=UNSURE).value
        assert 1 - 1e-9 <= risk <= 1 / 0.3 + 1e-9
        assert math.isfinite(risk)


def test_a_facility_that_must_hold_someone_gives_the_target_away():
    """The intruder knows that no one else is there, and that the count is at least one."""
    sure = Intruder(prior=0.02, at_least=1)
    assert sure.informed_prior == 1.0
    assert assess.marginal_risk(NOISES[0], intruder=sure).value == 1.0  # the release adds nothing
    assert assess.posterior(NOISES[0], observed=-3, intruder=sure).value == 1.0
    gone = Intruder(prior=0.02, known=4, at_most=4)
    assert gone.informed_prior == 0.0
    assert assess.posterior(NOISES[0], observed=9, intruder=gone).value == 0.0


def test_what_is_public_of_the_count_enters_exactly():
    """Unsure of three others, the intruder knows of at least two people."""
    others = (0.125, 0.375, 0.375, 0.125)
    who = Intruder(prior=0.2, others=others, at_least=2, at_most=3)
    joint = {
        (b, u): (0.2 if b else 0.8) * others[u] for b in (0, 1) for u in range(4) if 2 <= u + b <= 3
    }
    whole = sum(joint.values())
    assert who.informed_prior == pytest.approx(sum(p for (b, _), p in joint.items() if b) / whole)
    noise = DiscreteGaussian(2)
    for x in (-2, 0, 3, 7):
        weights = {key: p * math.exp(noise.log_pmf(x - sum(key))) for key, p in joint.items()}
        expected = sum(p for (b, _), p in weights.items() if b) / sum(weights.values())
        found = assess.posterior(noise, observed=x, intruder=who).value
        assert found == pytest.approx(expected, rel=1e-10)
        levels = [assess.Level(noise)]
        again = hierarchy.posterior(levels, observed=[x], intruder=who).value
        assert again == pytest.approx(expected, rel=1e-10)
    # The public facts alone take the intruder this far; the release adds the rest.
    risk = assess.marginal_risk(noise, intruder=who)
    assert risk.posterior > who.informed_prior > who.prior


def test_facts_that_contradict_what_the_intruder_knows_are_refused():
    with pytest.raises(
        InputError, match="no count of at least 5 is possible to an intruder who knows of 0"
    ):
        Intruder(prior=0.5, at_least=5)


@pytest.mark.parametrize(
    ("sigma2", "others", "rows"), [(10**6, (0.5, 0.5), 1), (40_000, (0.3, 0.4, 0.3), 2)]
)
def test_wide_noise_keeps_its_jumps_for_the_unsure(sigma2, others, rows):
    noise = DiscreteGaussian(sigma2)
    who = Intruder(prior=0.5, others=others, rows=rows)
    x = np.arange(-60_000, 60_001).astype(float)
    there, away = mixtures(noise, who, x)
    near = there + away > 1e-200
    sign = np.sign(np.log(there[near]) - np.log(away[near]))
    expected = there[near] @ np.where(sign > 0, 1.0, np.where(sign == 0, 0.5, 0.0))
    value = assess.correct_decision(noise, intruder=who).value
    assert value == pytest.approx(expected, abs=1e-6)
    assert value > 0.5
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = there[near] / (there[near] + away[near]) / 0.5
    expected = there[near][ratio > 1.0005].sum()
    found = assess.exceedance(noise, above=1.0005, intruder=who).value
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Intruder(prior="x"), "prior: x is not allowed; it must be between 0 and 1"),
        (lambda: Intruder(prior=0.5, others=("a",)), "others: the probabilities"),
        (lambda: Intruder(prior=0.5, at_least="x"), "at_least: 'x' is not allowed"),
        (
            lambda: assess.expected_exceedances(NOISES[0], above=2, intruder=UNSURE, targets=-5),
            "targets: -5 is not allowed; it must be a whole number, 0 or more",
        ),
        (
            lambda: hierarchy.posterior([assess.Level(NOISES[0])], observed=[1.7], intruder=UNSURE),
            "observed: 1.7 is not allowed; a released count is a whole number",
        ),
        (lambda: budget_for_risk.safe_rho(risk=1.5, prior=0), "prior: 0 is not allowed"),
    ],
)
def test_arguments_of_the_wrong_kind_are_named(build, message):
    with pytest.raises(InputError, match=message):
        build()


def test_losses_tie_but_for_rounding():
    assert decide(0.3, losses=Losses(3, 7)) == 0.5
