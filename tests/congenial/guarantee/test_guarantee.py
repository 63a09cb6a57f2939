"""What is promised, against what a release really tells: golden values and enumeration."""

import math
import re
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
from scipy.stats import binom
from tests.congenial.laws import (
    exponential,
    golden,
    has,
    of_value_and_count,
    response,
    uniform,
)

from countveil.congenial import (
    AtMost,
    FixedTotal,
    FixedTotals,
    JointLaw,
    PartialPrivacy,
    PartialZCDP,
    PreviousCounts,
    Theta,
    compose,
    largest_shift,
    odds_bounds,
    posterior_to_posterior,
    printed_posterior_to_posterior,
)
from countveil.errors import InfeasibleError, InputError
from countveil.noise.discrete_gaussian import DiscreteGaussian
from countveil.noise.discrete_laplace import DiscreteLaplace
from countveil.papers.seeman import (
    ValueSecret,
    conditioned,
    delta_z,
    realised_divergence,
    realised_loss,
    secret_pairs,
)

PAIR = [(has(0), has(1))]
THETA = Theta(("the total is 5",), "people are independent", "all pairs remain")


@pytest.mark.parametrize(("case", "exact", "tol"), golden("deltaz"))
def test_golden_delta_z(case, exact, tol):
    n, z0, z1 = case.split("|")
    assert delta_z(n=int(n), z0=z0, z1=z1) == exact


@pytest.mark.parametrize(("case", "exact", "tol"), golden("naive_float"))
def test_floats_fall_short(case, exact, tol):
    """Quantiles in floats, at the steps of one distribution function, as the paper evaluates (35)."""
    n, z0, z1 = (float(part) for part in re.findall(r"[\d.]+", case))
    steps = binom.cdf(np.arange(n), n - 1, z0)
    apart = binom.ppf(steps, n - 1, z0) - 1 - binom.ppf(steps, n - 1, z1)
    assert np.abs(apart).max() == pytest.approx(exact, abs=tol)
    assert exact <= delta_z(n=int(n), z0=f"{z0}", z1=f"{z1}")


@pytest.mark.parametrize(("case", "exact", "tol"), golden("thm9"))
def test_theorem_9_as_realised(case, exact, tol):
    n, z0, z1 = re.findall(r"\d+/\d+|\d+", case.split("eps")[0].removeprefix("no2"))
    people, loss = exact
    assert delta_z(n=int(n), z0=z0, z1=z1) == people
    halves = 1 if case.startswith("no2") else 2
    mechanism = exponential(int(n), 1 / (halves * people))
    result = realised_loss(mechanism, of_value_and_count(int(n), z0, z1), PAIR)
    assert result == pytest.approx(loss, abs=tol)
    assert result <= 1 + 1e-12


def test_dependence_that_is_ignored():
    ((_, exact, tol),) = golden("ignore_dependence")
    law = of_value_and_count(20, "3/10", "7/10")
    result = realised_loss(exponential(20, 1 / 2), law, PAIR)
    assert result == pytest.approx(exact, abs=tol)
    assert result > 4


@pytest.mark.parametrize("epsilon", ["1/2", "1", "3"])
@pytest.mark.parametrize("case", [(6, "1/2", "1/2"), (9, "1/5", "4/5"), (7, "7/10", "2/5")])
def test_theorem_9_holds_for_every_case(case, epsilon):
    n, z0, z1 = case
    people = delta_z(n=n, z0=z0, z1=z1)
    rate = Fraction(epsilon) / (2 * people)
    law = of_value_and_count(n, z0, z1)
    promised = PartialPrivacy.of_exponential(rate, Fraction(people), THETA, "quantiles")
    assert promised.epsilon == Fraction(epsilon)
    assert realised_loss(exponential(n, float(rate)), law, PAIR) <= float(promised.epsilon) + 1e-12


def added(mechanism, n, reach=60):
    """Noise added to the count, and far outcomes taken together on either side."""

    def law(database):
        at = np.arange(-reach, n + reach + 1)
        p = np.exp(mechanism.log_pmf(at - database[1]))
        p[0] += float(mechanism.cdf(at[0] - 1 - database[1]))
        p[-1] += float(mechanism.survival(at[-1] - database[1]))
        return dict(zip(at.tolist(), p.tolist(), strict=True))

    return law


@pytest.mark.parametrize("case", [(6, "1/2", "1/2"), (9, "1/5", "4/5"), (20, "0", "1")])
def test_added_noise_needs_no_factor_of_two(case):
    n, z0, z1 = case
    people = delta_z(n=n, z0=z0, z1=z1)
    law = of_value_and_count(n, z0, z1)
    promised = PartialPrivacy.of_exponential(
        "1/7", Fraction(people), THETA, "quantiles", constant_normalizer=True
    )
    assert promised.epsilon == Fraction(people, 7)
    result = realised_loss(added(DiscreteLaplace("7"), n), law, PAIR)
    assert result <= people / 7 + 1e-12
    if (z0, z1) == ("0", "1"):
        assert result == pytest.approx(people / 7)


def test_cut_noise_does_need_it():
    """On 0 … n the normalizer moves too: without the factor 2 the promise is broken."""
    law = of_value_and_count(1, "0", "0")
    half = {"rate": 1, "sensitivity": Fraction(1), "theta": THETA, "coupling": "none"}
    assert PartialPrivacy.of_exponential(**half, constant_normalizer=True).epsilon == 1
    result = realised_loss(exponential(3, 1), law, PAIR)
    assert 1.18 < result < PartialPrivacy.of_exponential(**half).epsilon


def geometric(epsilon):
    """Two-sided geometric noise on the values 0 and 1: below 0, at 0, and 1 or more."""
    noise = DiscreteLaplace(epsilon=epsilon)

    def mechanism(database):
        at = -database[0]
        return {
            "below": float(noise.cdf(at - 1)),
            "zero": math.exp(noise.log_pmf(at)),
            "above": float(noise.survival(at)),
        }

    return mechanism


@pytest.mark.parametrize(("case", "exact", "tol"), golden("lemma8"))
def test_conditioning_costs_up_to_twice(case, exact, tol):
    epsilon = case.removeprefix("eps=")
    one = uniform([(0,), (1,)])
    free = geometric(epsilon)
    assert realised_loss(free, one, PAIR) == pytest.approx(float(epsilon))
    result = realised_loss(conditioned(free, lambda y: y != "below"), one, PAIR)
    assert result == pytest.approx(exact, abs=tol)
    assert result < PartialPrivacy.of_conditioning(epsilon, THETA).epsilon


def test_twice_epsilon_is_nearly_reached():
    remaining = conditioned(geometric("0.01"), lambda y: y != "below")
    assert realised_loss(remaining, uniform([(0,), (1,)]), PAIR) / 0.01 == pytest.approx(
        1.98, abs=0.005
    )


def test_conditioning_costs_more_where_people_depend_on_each_other():
    """Lemma 8 prints 2 epsilon; three people known to be alike pay 3, and Delta_z says up to 6."""
    alike = uniform([(0, 0, 0), (1, 1, 1)])
    people = delta_z(dependence=alike, of="database")
    assert people == 3
    bits = [lambda x, i=i: x[i] for i in range(3)]
    free = response(bits, 1)
    for x, other in product(product((0, 1), repeat=3), repeat=2):
        if sum(a != b for a, b in zip(x, other, strict=True)) == 1:
            pair = uniform([x, other])
            secrets = [(lambda d, x=x: d == x, lambda d, other=other: d == other)]
            assert realised_loss(free, pair, secrets) == pytest.approx(1)  # plain privacy
    remaining = conditioned(free, lambda y: len(set(y)) == 1)
    pairs = secret_pairs(people=3).pairs
    assert realised_loss(remaining, alike, pairs) == pytest.approx(3)
    assert PartialPrivacy.of_conditioning(1, THETA, delta_z=people).epsilon == 6


@pytest.mark.parametrize("case", [(6, "1/2", "1/2"), (9, "1/5", "4/5"), (7, "7/10", "2/5")])
@pytest.mark.parametrize("order", [1.01, 2.0, 8.0, 60.0])
def test_zero_concentration_is_kept(case, order):
    n, z0, z1 = case
    people = delta_z(n=n, z0=z0, z1=z1)
    law = of_value_and_count(n, z0, z1)
    noise = DiscreteGaussian("50")
    promised = PartialZCDP.of_gaussian(50, people**2, THETA, "quantiles")
    assert promised.rho == Fraction(people**2, 100)
    gaussian = added(noise, n, reach=120)
    assert realised_divergence(gaussian, law, PAIR, order=order) <= order * float(promised.rho)
    bounded = PartialZCDP.of_exponential(2, THETA, "quantiles")
    assert bounded.rho == Fraction(1, 2)
    result = realised_divergence(exponential(n, 1 / people), law, PAIR, order=order)
    assert result <= order * float(bounded.rho)


def test_zero_concentration_comes_close():
    """Where everyone follows one person, the mixture is the noise itself."""
    law = of_value_and_count(4, "0", "1")
    result = realised_divergence(added(DiscreteGaussian("50"), 4, 120), law, PAIR, order=3)
    assert result == pytest.approx(3 * 16 / 100, rel=1e-6)
    # Two outcomes, equally likely but for the database: the bound of epsilon²/8 is its limit.
    small = realised_divergence(
        response([lambda x: x[0]], 0.01), uniform([(0,), (1,)]), PAIR, order=2
    )
    assert small == pytest.approx(2 * 0.02**2 / 8, rel=1e-3)


def test_cut_gaussian_noise_breaks_it():
    """Conditioned on two far outcomes, the normalizer moves: the promise is for noise that is added."""
    law = of_value_and_count(1, "0", "0")
    rho = float(PartialZCDP.of_gaussian(50, 1, THETA, "one").rho)
    whole = added(DiscreteGaussian("50"), 1, 120)
    assert realised_divergence(whole, law, PAIR, order=2) <= 2 * rho * (1 + 1e-9)
    cut = conditioned(whole, lambda y: y in (-20, 21))
    assert realised_divergence(cut, law, PAIR, order=2) > 10 * rho


@pytest.mark.parametrize("epsilon", ["0", "1/100", "1/3", "1", "5", "40", "900"])
def test_bounds_are_rounded_outwards(epsilon):
    value = Fraction(epsilon)
    with mpmath.workdps(60):
        e = mpmath.mpf(value.numerator) / value.denominator
        low, high = odds_bounds(epsilon)
        assert low <= mpmath.exp(-e)
        assert high >= mpmath.exp(e)
        assert low == pytest.approx(float(mpmath.exp(-e)), rel=1e-15, abs=5e-324)
        if math.isfinite(high):
            assert high == pytest.approx(float(mpmath.exp(e)), rel=1e-15)
        for result, right in (
            (largest_shift(epsilon), mpmath.tanh(e / 4)),
            (posterior_to_posterior(epsilon), mpmath.tanh(e / 2)),
        ):
            assert result >= right or result == 1.0
            assert result == pytest.approx(float(right), rel=1e-15)
        printed = printed_posterior_to_posterior(epsilon)
        assert printed >= mpmath.expm1(e)
        assert printed >= posterior_to_posterior(epsilon)


def total_variation(mechanism, prior, replace, outcome):
    """(3) of the paper: beliefs after a release, and after one with a record replaced."""
    beliefs = []
    for change in (lambda x: x, replace):
        weights = {x: float(p) * mechanism(change(x))[outcome] for x, p in prior.items()}
        beliefs.append({x: w / sum(weights.values()) for x, w in weights.items()})
    return sum(abs(beliefs[0][x] - beliefs[1][x]) for x in prior) / 2


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_posterior_to_posterior_is_attained_and_never_passed(epsilon):
    bound = posterior_to_posterior(str(epsilon))
    parity = response([lambda x: x[0] ^ x[1]], epsilon)
    prior = uniform([(1, 0), (1, 1)])
    result = total_variation(parity, prior, lambda x: (0, x[1]), (1,))
    assert result == pytest.approx(bound, rel=1e-12)
    rng = np.random.default_rng(5)
    everyone = list(product((0, 1), repeat=3))
    functions = [
        lambda x: x[0] ^ x[1] ^ x[2],
        lambda x: int(sum(x) >= 2),
        lambda x: x[0] & x[1],
    ]
    for _ in range(100):
        weights = [Fraction(int(w)) for w in rng.integers(1, 50, 8)]
        prior = {x: w / sum(weights) for x, w in zip(everyone, weights, strict=True)}
        for function in functions:
            one = response([function], epsilon)
            result = total_variation(one, prior, lambda x: (1, *x[1:]), (int(rng.integers(2)),))
            assert result <= bound + 1e-12


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_the_largest_shift_is_attained(epsilon):
    prior = 1 / (1 + math.exp(epsilon / 2))
    responses = {0: 1 / (1 + math.exp(epsilon)), 1: math.exp(epsilon) / (1 + math.exp(epsilon))}
    after = prior * responses[1] / (prior * responses[1] + (1 - prior) * responses[0])
    assert after - prior == pytest.approx(largest_shift(str(epsilon)))


@pytest.mark.parametrize(
    ("facts", "secrets", "dependence", "message"),
    [
        (
            (),
            "all pairs",
            "any",
            r"secrets: 'all pairs' is not allowed; give what secret_pairs\(…\)",
        ),
        ((), None, "any", "secrets: None is not allowed"),
        (
            ("the total",),
            THETA,
            "any",
            "facts: 'the total' is not allowed; give facts such as Fixed",
        ),
        ((), THETA, 3, "dependence: 3 is not allowed; give a Dependence, a JointLaw or a sentence"),
    ],
)
def test_text_in_place_of_a_record_is_refused_with_the_way_to_write_it(
    facts, secrets, dependence, message
):
    with pytest.raises(InputError, match=message) as refused:
        Theta.of(*facts, secrets=secrets, dependence=dependence)
    assert 'Theta(public=("…",), dependence="…", secrets="…")' in str(refused.value)


OTHER_KINDS = {
    "public as text": (lambda: Theta("the total", "any", "all"), "public: 'the total' is not"),
    "public as numbers": (lambda: Theta((1, 2), "any", "all"), "give a tuple of sentences"),
    "dependence": (lambda: Theta((), 3, "all"), "dependence: 3 is not allowed; give a sentence"),
    "secrets": (lambda: Theta((), "any", None), "secrets: None is not allowed; give a sentence"),
    "theta": (lambda: PartialPrivacy(1, "all pairs"), "theta: 'all pairs' is not allowed"),
    "theta of zCDP": (lambda: PartialZCDP(1, None), "theta: None is not allowed"),
    "coupling": (lambda: PartialPrivacy(1, THETA, 3), "coupling: 3 is not allowed"),
    "sensitivity": (
        lambda: PartialPrivacy.of_exponential(1, 0.5, THETA, "plan"),
        "sensitivity: 0.5 is a float",
    ),
    "guarantees": (lambda: compose("1/2"), "guarantees: '1/2' is not allowed; give PartialPriv"),
    "cells": (lambda: FixedTotal(1, 3), "cells: 3 is not allowed; give a list of positions"),
    "a cell": (lambda: FixedTotal(1, [0.5]), "cells: 0.5 is not allowed; give a whole number"),
    "totals": (lambda: FixedTotals(3), r"totals: 3 is not allowed; give FixedTotal\(…\)"),
    "counts": (lambda: PreviousCounts("12"), "counts: '12' is not allowed; give a list of counts"),
    "a count": (lambda: PreviousCounts([2.7]), "counts: 2.7 is not allowed; give a whole number"),
    "lower": (lambda: AtMost(None, [0]), "lower: None is not allowed; give a list of positions"),
    "law": (lambda: JointLaw([(0, 1)]), "joint law: .* give a dictionary of databases"),
    "database": (lambda: JointLaw({"01": 1}), "joint law: .* give a dictionary of databases"),
}


@pytest.mark.parametrize("what", OTHER_KINDS)
def test_another_kind_of_input_is_refused_with_what_is_allowed(what):
    make, message = OTHER_KINDS[what]
    with pytest.raises(InputError, match=message):
        make()


def test_statements_say_what_they_are():
    facts = FixedTotal(2), FixedTotal(0, [0])
    theta = Theta.of(*facts, secrets=secret_pairs(*facts, people=4), dependence="any that agrees")
    promise = PartialPrivacy("1/2", theta, "nearest databases")
    assert promise.posterior_odds == odds_bounds("1/2")
    assert promise.largest_shift == largest_shift("1/2")
    assert promise.posterior_to_posterior == posterior_to_posterior("1/2")
    assert "by a factor from 0.6065 to 1.649 (epsilon = 1/2" in promise.sentence
    assert "not differential privacy" in promise.sentence
    assert "Public: the sum of all entries is exactly 2; the sum of entry 0" in promise.sentence
    assert "Assumed: any that agrees. Secrets: 3 of 4 secret pairs remain" in promise.sentence
    assert PartialPrivacy("1/2", theta).digest is None
    assert promise.digest != PartialPrivacy("1/2", theta, "others").digest
    assert promise.digest != PartialPrivacy("1/2", THETA, "nearest databases").digest
    assert promise.digest == PartialPrivacy("3", theta, "nearest databases").digest
    concentrated = PartialZCDP("0.1", theta, "nearest databases")
    assert "within rho = 1/10" in concentrated.sentence
    assert concentrated.digest == promise.digest
    assert 1 < concentrated.epsilon("1e-6") < 3


def test_a_refusal_names_what_is_impossible():
    bit = response([lambda x: x[0]], 1)
    with pytest.raises(InfeasibleError, match="no secret pair remains"):
        realised_loss(bit, uniform([(0,)]), PAIR)
    with pytest.raises(InputError, match="sum to 1 exactly"):
        realised_loss(bit, {(0,): Fraction(1, 2)}, PAIR)
    with pytest.raises(InputError, match="its probabilities sum to 0.5"):
        realised_loss(lambda x: {0: 0.5}, uniform([(0,), (1,)]), PAIR)
    with pytest.raises(InfeasibleError, match="no outcome that agrees"):
        realised_loss(conditioned(bit, lambda y: y == 5), uniform([(0,), (1,)]), PAIR)
    with pytest.raises(InputError, match="order: 1 is not allowed"):
        realised_divergence(bit, uniform([(0,), (1,)]), PAIR, order=1)
    with pytest.raises(InputError, match="epsilon: -1 is not allowed"):
        PartialPrivacy("-1", THETA)
    with pytest.raises(InputError, match="delta_z: 0 is not allowed"):
        PartialPrivacy.of_conditioning(1, THETA, delta_z=0)
    with pytest.raises(InputError, match="epsilon: -1 is not allowed"):
        odds_bounds("-1")


def test_a_release_that_gives_a_secret_away_loses_everything():
    plain = {(0,): {0: 1.0}, (1,): {1: 0.5, 0: 0.5}}
    both = uniform([(0,), (1,)])
    assert realised_loss(plain.__getitem__, both, PAIR) == math.inf
    assert realised_divergence(plain.__getitem__, both, PAIR, order=2) == math.inf
    assert (
        realised_loss(plain.__getitem__, both, [(ValueSecret(0, 0), ValueSecret(0, 1))]) == math.inf
    )
