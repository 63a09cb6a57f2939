"""Statements that hold for every mechanism and every law."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import integrate, stats

from countveil.base.randomness import Secure, Seeded
from countveil.noise.law import Law, Mechanism, central_half_width
from countveil.noise.mechanisms import MECHANISMS, calibrate, from_parameters
from countveil.privacy.certified_loss import ONE
from countveil.privacy.costs import ZCDP, PureDP, Sensitivity, total
from tests.laws.mechanisms import DOCUMENTED, LAW_CASES, MECHANISM_CASES, reach

every_mechanism = pytest.mark.parametrize("mechanism", MECHANISM_CASES, ids=str)
# The others offer no loss in whole numbers, so no budget of theirs is certified.
CERTIFIED = [case for case in MECHANISM_CASES if case.loss_masses() is not None]
certified_mechanism = pytest.mark.parametrize("mechanism", CERTIFIED, ids=str)
every_law = pytest.mark.parametrize("law", LAW_CASES, ids=str)


@every_mechanism
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_privacy_loss_never_exceeds_the_cost(mechanism, shift):
    cost = mechanism.cost(Sensitivity(Fraction(shift), Fraction(shift**2)))
    k = np.arange(-reach(mechanism), reach(mechanism) + 1)
    log_p, log_q = mechanism.log_pmf(k), mechanism.log_pmf(k - shift)
    if isinstance(cost, PureDP):
        worst = np.abs(log_p - log_q).max()
        rounding = 4 * np.finfo(float).eps * np.abs(log_p).max()  # of the two logarithms compared
        assert worst <= float(cost.epsilon) + rounding
        assert worst >= float(cost.epsilon) - rounding, "the cost should be tight"
        return
    for order in (1.01, 1.5, 2, 4, 10, 50):
        log_moment = np.logaddexp.reduce(order * log_p + (1 - order) * log_q)
        divergence = log_moment / (order - 1)
        assert divergence <= float(cost.rho) * order * (1 + 1e-9) + 1e-12
    # Tight as the order falls to one, except where the lattice is coarser than the noise.
    if mechanism.variance > 1:
        assert log_moment / 49 >= float(cost.rho) * 50 * 0.9


@every_mechanism
def test_sampler_follows_the_pmf(mechanism):
    draws = 1_000_000
    values = mechanism.sample(draws, rng=Secure())
    assert values.dtype == np.int64
    assert values.shape == (draws,)
    far = int(8 * mechanism.variance**0.5) + 2
    k = np.arange(-far, far + 1)
    expected = np.exp(mechanism.log_pmf(k)) * draws
    expected[0] = draws * float(mechanism.cdf(-far))
    expected[-1] = draws * float(mechanism.survival(far - 1))
    observed = np.bincount(np.clip(values, -far, far) + far, minlength=len(k))
    # Pool neighbours until every cell expects at least 25.
    cell = np.minimum(np.cumsum(expected) // 25, draws // 25).astype(int)
    _, cell = np.unique(cell, return_inverse=True)
    e, o = np.bincount(cell, expected), np.bincount(cell, observed)
    keep = e > 0
    chi2 = ((o - e) ** 2 / np.where(keep, e, 1))[keep].sum()
    p = stats.chi2.sf(chi2, max(1, keep.sum() - 1))
    assert p > 1e-7
    assert observed.sum() == draws


@every_mechanism
def test_moments_of_the_draws(mechanism):
    values = mechanism.sample(1_000_000, rng=Secure()).astype(float)
    k = np.arange(-reach(mechanism), reach(mechanism) + 1.0)
    p = np.exp(mechanism.log_pmf(k))
    fourth = (p * k**4).sum()
    variance = mechanism.variance
    assert abs(values.mean()) < 6 * math.sqrt(variance / 1e6)
    assert abs((values**2).mean() - variance) < 6 * math.sqrt((fourth - variance**2) / 1e6) + 1e-12


@every_mechanism
def test_variance_is_that_of_the_pmf(mechanism):
    k = np.arange(-reach(mechanism), reach(mechanism) + 1.0)
    p = np.exp(mechanism.log_pmf(k))
    assert p.sum() == pytest.approx(1, rel=1e-12)
    assert (p * k * k).sum() == pytest.approx(mechanism.variance, rel=1e-11)


@every_mechanism
def test_the_law_is_symmetric_and_lives_on_integers(mechanism):
    k = np.arange(50)
    assert (mechanism.log_pmf(k) == mechanism.log_pmf(-k)).all()
    assert mechanism.log_pmf(0.5) == -np.inf


@every_mechanism
def test_tails_keep_their_relative_precision(mechanism):
    k = np.arange(1, reach(mechanism))
    p = np.exp(mechanism.log_pmf(k))
    direct = np.cumsum(p[::-1])[::-1]
    shown = direct > 1e-290
    assert mechanism.survival(k - 1)[shown] == pytest.approx(direct[shown], rel=1e-9)


@every_mechanism
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_repeating_a_charge_equals_charging_again(mechanism, count):
    cost = mechanism.cost(Sensitivity(Fraction(2), Fraction(2)))
    again = total([cost] * count) if count else cost * 0
    assert cost * count == again
    assert count * cost == again


@every_mechanism
def test_parameters_build_the_mechanism_again(mechanism, monkeypatch):
    monkeypatch.setitem(MECHANISMS, DOCUMENTED.name, DOCUMENTED)
    assert from_parameters(mechanism.name, mechanism.parameters) == mechanism


@every_mechanism
def test_a_seed_repeats_and_another_does_not(mechanism):
    if mechanism.variance < 0.5:
        return  # noise that is nearly always zero
    first = mechanism.sample(200, rng=Seeded(1))
    assert (first == mechanism.sample(200, rng=Seeded(1))).all()
    assert not (first == mechanism.sample(200, rng=Seeded(2))).all()


@every_mechanism
@pytest.mark.parametrize("probability", [0.5, 0.95, 0.999999])
def test_central_half_widths_are_the_smallest_that_hold_the_probability(mechanism, probability):
    half = central_half_width(mechanism, probability)

    def inside(h: int) -> float:
        return 1 - 2 * float(mechanism.survival(h))

    assert inside(half) >= probability
    assert half == 0 or inside(half - 1) < probability


@pytest.mark.parametrize("kind", [*MECHANISMS.values(), DOCUMENTED], ids=lambda kind: kind.name)
@pytest.mark.parametrize("amount", ["1/1000", "1/7", "1", "20"])
@pytest.mark.parametrize("sensitivity", [(1, 1), (2, 2), (6, 18)])
def test_calibrated_noise_costs_what_is_allotted(kind, amount, sensitivity):
    allotted = {"rho": ZCDP, "epsilon": PureDP}[kind.currency](amount)
    moved = Sensitivity(*map(Fraction, sensitivity))
    noise = calibrate(kind, allotted, moved)
    assert isinstance(noise, kind)
    assert Fraction(9, 10) * allotted.amount <= noise.cost(moved).amount <= allotted.amount


@every_mechanism
@pytest.mark.parametrize("shift", [1, 3])
def test_hockey_stick_is_the_smallest_delta(mechanism, shift):
    e = np.arange(-reach(mechanism) - 5, reach(mechanism) + 6)
    log_p, loss = mechanism.log_pmf(e), mechanism.loss_at(e, shift)
    epsilons = np.array([-1.0, 0.0, 0.1, 0.7, 3.0])
    direct = [(np.exp(log_p) * -np.expm1(np.minimum(eps - loss, 0))).sum() for eps in epsilons]
    assert mechanism.hockey_stick(epsilons, shift) == pytest.approx(direct, rel=1e-9, abs=1e-13)


@certified_mechanism
@pytest.mark.parametrize("shift", [1, 3])
def test_loss_masses_are_the_loss_with_probabilities_rounded_up(mechanism, shift):
    law = mechanism.loss_masses(shift)
    whole = sum(mass for _, mass in law.atoms) + law.infinite
    assert 0 <= whole / ONE - 1 < 1e-9
    losses, weights = (np.array(part, float) for part in zip(*law.atoms, strict=True))
    for epsilon in (-1.0, 0.0, 0.1, 0.7, 3.0):
        gains = weights / ONE * -np.expm1(np.minimum(epsilon - losses, 0))
        bound = gains.sum() + law.infinite / ONE
        exact = float(mechanism.hockey_stick(np.array([epsilon]), shift)[0])
        assert bound == pytest.approx(exact, rel=1e-9, abs=1e-13)


@every_mechanism
def test_it_is_both_a_law_and_a_mechanism(mechanism):
    assert isinstance(mechanism, Law)
    assert isinstance(mechanism, Mechanism)


@every_law
def test_cdf_and_survival_are_complements(law):
    x = np.linspace(-30, 30, 241)
    assert law.cdf(x) + law.survival(x) == pytest.approx(np.ones_like(x), abs=1e-15)
    assert (np.diff(law.cdf(x)) >= 0).all()


@every_law
@pytest.mark.parametrize("shift", [1, 3])
def test_loss_is_the_log_ratio_and_never_falls(law, shift):
    e = np.arange(-60, 61)
    direct = law.log_density(e) - law.log_density(e + shift)
    assert law.loss_at(e, shift) == pytest.approx(direct, abs=1e-9, rel=1e-9)
    assert (np.diff(law.loss_at(e, shift)) >= 0).all()


@every_law
def test_answers_about_the_family_agree_with_the_law(law):
    e = np.arange(-60.0, 61.0)
    losses = law.loss_at(e)
    if law.bounded_loss is not None:
        assert losses.max() == pytest.approx(law.bounded_loss, rel=1e-12)
    else:
        assert law.loss_at(1e6) > 1e3 * losses[-1]
    if law.gaussian_variance is not None:
        assert losses == pytest.approx((2 * e + 1) / (2 * law.gaussian_variance), rel=1e-12)
    if law.laplace_scale is not None:
        assert losses == pytest.approx((abs(e + 1) - abs(e)) / law.laplace_scale, rel=1e-12)
    assert law.lattice == bool(np.isneginf(law.log_density(0.5)))


@every_law
@pytest.mark.parametrize("shift", [1, 3])
def test_privacy_loss_is_a_distribution_whose_exponential_integrates(law, shift):
    losses, weights = law.privacy_loss(shift)
    assert weights.sum() == pytest.approx(1, rel=1e-13)
    assert (weights * np.exp(-losses)).sum() == pytest.approx(1, rel=1e-12)


@every_law
def test_privacy_loss_gives_expectations_of_smooth_functions(law):
    losses, weights = law.privacy_loss()
    value = (weights * np.exp(-np.logaddexp(0, 1.3 - losses))).sum()
    if isinstance(law, Mechanism):
        e = np.arange(-reach(law), reach(law) + 1)
        direct = np.exp(law.log_pmf(e) - np.logaddexp(0, 1.3 - law.loss_at(e))).sum()
    else:
        far = 45 * law.variance**0.5

        def integrand(e: float) -> float:
            return float(np.exp(law.log_density(e) - np.logaddexp(0, 1.3 - law.loss_at(e))))

        direct = sum(
            integrate.quad(integrand, a, b, epsabs=1e-14, epsrel=1e-12, limit=400)[0]
            for a, b in ((-far, -1), (-1, -0.5), (-0.5, 0), (0, far))
        )
    assert value == pytest.approx(direct, rel=1e-10)


@every_law
def test_continuous_laws_cannot_be_released(law):
    if isinstance(law, Mechanism):
        assert hasattr(law, "cost")
    else:
        assert not hasattr(law, "sample")
        assert not hasattr(law, "cost")
