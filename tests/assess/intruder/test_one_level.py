"""One level against brute force, simulation and extremes; printed numbers are in the golden walk."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countveil import (
    DiscreteGaussian,
    DiscreteLaplace,
    Gaussian,
    Intruder,
    Laplace,
    assess,
)
from countveil.errors import InputError

RHO1 = "1666368/16793603"


def test_change_one_neighbours_double_the_variance_and_lower_the_risk():
    noise = DiscreteGaussian.from_rho(RHO1, sensitivity2=2)
    value = assess.correct_decision(noise, intruder=Intruder(prior=0.5)).value
    assert value == pytest.approx(0.5628, abs=5e-5)  # ERRATA 002.1


def brute_force(noise, prior, known, reach=400):
    """Bayes' rule by enumeration: (marginal posterior, correct when there, correct when not)."""
    x = np.arange(known - reach, known + reach + 1)
    there, absent = np.exp(noise.log_pmf(x - known - 1)), np.exp(noise.log_pmf(x - known))
    log_ratio = noise.log_pmf(x - known - 1) - noise.log_pmf(x - known)
    after = 1 / (1 + (1 - prior) / prior * np.exp(np.clip(-log_ratio, -600, 600)))
    says_yes = after > 0.5
    return (there * after).sum(), there[says_yes].sum(), absent[~says_yes].sum()


@given(
    st.sampled_from(
        [
            DiscreteGaussian("0.3"),
            DiscreteGaussian("2"),
            DiscreteGaussian("40"),
            DiscreteLaplace("1/2"),
            DiscreteLaplace("3"),
        ]
    ),
    st.floats(0.001, 0.999),
    st.integers(0, 50),
)
@settings(max_examples=150, deadline=None)
def test_everything_equals_enumeration(noise, prior, known):
    who = Intruder(prior=prior, known=known)
    after, there, absent = brute_force(noise, prior, known)
    assert assess.marginal_risk(noise, intruder=who).posterior == pytest.approx(after, rel=1e-11)
    threshold = math.log((1 - prior) / prior)
    losses = noise.loss_at(np.arange(-400, 401))
    if np.abs(losses - threshold).min() > 1e-9:  # away from ties
        right = assess.correct_decision(noise, intruder=who).value
        assert right == pytest.approx(there, rel=1e-9, abs=1e-300)
        right = assess.correct_decision(noise, intruder=who, present=False).value
        assert right == pytest.approx(absent, rel=1e-9)


@pytest.mark.parametrize("rows", [2, 3])
@pytest.mark.parametrize("noise", [DiscreteGaussian("6"), DiscreteLaplace("3")])
def test_a_target_with_several_rows_by_enumeration(noise, rows):
    x = np.arange(-300, 301)
    there, absent = np.exp(noise.log_pmf(x - rows)), np.exp(noise.log_pmf(x))
    after = 0.1 * there / (0.1 * there + 0.9 * absent + 1e-300)
    who = Intruder(prior=0.1, rows=rows)
    assert assess.marginal_risk(noise, intruder=who).posterior == pytest.approx(
        (there * after).sum(), rel=1e-9
    )
    mixed = assess.marginal_risk([noise, DiscreteGaussian("9")], intruder=who).value
    assert mixed > assess.marginal_risk(noise, intruder=who).value
    shown = assess.posterior(noise, observed=x[280:320], intruder=who).value
    assert shown == pytest.approx(after[280:320], rel=1e-9)
    right = assess.correct_decision(noise, intruder=who).value
    assert right == pytest.approx(there[after > 0.5].sum(), abs=1e-12)


def test_several_counts_are_a_product_of_evidence():
    noises = [DiscreteGaussian("2"), DiscreteLaplace("3"), DiscreteGaussian("0.4")]
    e = [np.arange(-60, 61), np.arange(-200, 201), np.arange(-12, 13)]
    losses = [noise.loss_at(k) for noise, k in zip(noises, e, strict=True)]
    weights = [np.exp(noise.log_pmf(k)) for noise, k in zip(noises, e, strict=True)]
    total = losses[0][:, None, None] + losses[1][:, None] + losses[2]
    weight = weights[0][:, None, None] * weights[1][:, None] * weights[2]
    for prior in (0.5, 0.01):
        logit = math.log(prior / (1 - prior))
        direct = (weight * np.exp(-np.logaddexp(0, -logit - total))).sum() / prior
        ours = assess.marginal_risk(noises, intruder=Intruder(prior=prior)).value
        assert ours == pytest.approx(direct, rel=1e-10)


def test_wide_gaussians_pool_into_one():
    """All eleven block queries of 2020 together: effective rho .10304952 (truth mq_presence)."""
    noises = [
        DiscreteGaussian.from_rho("0.05"),
        DiscreteGaussian.from_rho("0.04"),
        DiscreteGaussian("90"),
    ]
    rate = sum(float(1 / (2 * noise.sigma2)) for noise in noises)
    pooled = assess.marginal_risk(Gaussian(math.sqrt(1 / (2 * rate))), intruder=Intruder(prior=0.1))
    ours = assess.marginal_risk(noises, intruder=Intruder(prior=0.1))
    assert ours.value == pytest.approx(pooled.value, rel=1e-12)


def test_many_coarse_counts_are_binned_without_harm():
    noises = [DiscreteGaussian(s) for s in ("0.9", "1.1", "1.3", "1.7", "2.1", "2.3", "2.9")]
    rng = np.random.default_rng(5)
    loss = np.zeros(400_000)
    for noise in noises:
        k = np.arange(-25, 26)
        p = np.exp(noise.log_pmf(k))
        loss += noise.loss_at(rng.choice(k, len(loss), p=p / p.sum()))
    simulated = np.exp(-np.logaddexp(0, -loss))
    ours = assess.marginal_risk(noises, intruder=Intruder(prior=0.5)).posterior
    assert abs(ours - simulated.mean()) < 5 * simulated.std() / math.sqrt(len(loss))


def test_no_count_tells_nothing():
    assert assess.marginal_risk([], intruder=Intruder(prior=0.3)).value == 1


@pytest.mark.parametrize("law", [Laplace(1), Gaussian(2), Laplace(0.1)])
def test_continuous_laws_against_simulation(law):
    rng = np.random.default_rng(11)
    n = 400_000
    e = (
        rng.laplace(0, 1 / law.epsilon, n)
        if isinstance(law, Laplace)
        else rng.normal(0, law.sigma, n)
    )
    after = 1 / (1 + 4 * np.exp(-law.loss_at(e)))
    who = Intruder(prior=0.2)
    assert assess.marginal_risk(law, intruder=who).posterior == pytest.approx(
        after.mean(), abs=5 * after.std() / math.sqrt(n)
    )
    right = assess.correct_decision(law, intruder=who).value
    assert right == pytest.approx((after > 0.5).mean(), abs=5 / math.sqrt(n))


def test_ties_follow_the_rule():
    # Two people at issue would tie between 0 and 1; with one, pure noise ties when odds = epsilon.
    epsilon = math.log(4)
    noise, who = Laplace(epsilon), Intruder(prior=0.2)
    yes, no, split = (
        assess.correct_decision(noise, intruder=who, ties=rule).value
        for rule in ("yes", "no", "split")
    )
    assert (yes, no, split) == pytest.approx((0.5, 0.0, 0.25), rel=1e-12)
    with pytest.raises(InputError, match='choose "split", "yes" or "no"'):
        assess.correct_decision(noise, intruder=who, ties="maybe")


@pytest.mark.parametrize("rho", ["1e-17", "1e-12", "1e-6", "0.1", "100", "1e4"])
@pytest.mark.parametrize("prior", [1e-12, 0.02, 0.5, 1 - 1e-12])
def test_extremes_are_finite_and_ordered(rho, prior):
    noise = DiscreteGaussian.from_rho(rho)
    who = Intruder(prior=prior, known=10**9)
    risk = assess.marginal_risk(noise, intruder=who)
    assert 1 - 1e-12 <= risk.value <= (1 + 1e-12) / prior
    x = np.array([-(10.0**9), 0, 10**9, 10**9 + 1, 3 * 10**9])
    after = assess.posterior(noise, observed=x, intruder=who).value
    assert np.isfinite(after).all()
    assert (np.diff(after) >= 0).all()
    assert 0 <= assess.correct_decision(noise, intruder=who).value <= 1


def test_far_out_observations_do_not_cancel():
    noise, who = DiscreteGaussian.from_rho("1e-10"), Intruder(prior=0.5, known=10**9)
    value = assess.posterior(noise, observed=2 * 10**9, intruder=who).value
    exact = 1 / (1 + math.exp(-1e-10 * (2 * 10**9 - 1)))
    assert value == pytest.approx(exact, rel=1e-14)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Intruder(prior=0), "prior: 0 is not allowed; it must be between 0 and 1"),
        (lambda: Intruder(prior=1), "prior: 1 is not allowed"),
        (lambda: Intruder(prior=float("nan")), "prior: nan is not allowed"),
        (
            lambda: Intruder(prior=0.5, known=-1),
            "known: -1 is not allowed; it must be a whole number, 0 or",
        ),
        (lambda: Intruder(prior=0.5, known=1.5), "known: 1.5 is not allowed"),
        (
            lambda: Intruder(prior=0.5, rows=0),
            "rows: 0 is not allowed; it must be a whole number, 1 or more",
        ),
        (
            lambda: assess.posterior(Gaussian(1), observed=math.nan, intruder=Intruder(prior=0.5)),
            "observed: not a finite number; a released count is a whole number",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(build, message):
    with pytest.raises(InputError, match=message):
        build()


def test_several_laws_need_someone_who_knows_everyone_else():
    laws = [DiscreteGaussian.from_rho("1/2")] * 2
    who = Intruder.knowing_all_but(2, prior=0.1)
    with pytest.raises(InputError, match="got 2 laws, but an intruder who is unsure about others"):
        assess.correct_decision(laws, intruder=who)
