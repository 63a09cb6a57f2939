import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ndtr

from countveil.noise.continuous import Gaussian
from countveil.noise.discrete_gaussian import DiscreteGaussian
from countveil.privacy.costs import ZCDP
from countveil.privacy.loss_distribution import LossyQuery, tight_epsilon


def gaussian_epsilon(rho: float, delta: float) -> float:
    mu = math.sqrt(2 * rho)
    return brentq(
        lambda e: ndtr(mu / 2 - e / mu) - math.exp(e) * ndtr(-mu / 2 - e / mu) - delta,
        0,
        60,
        xtol=1e-13,
    )


def lossy(rho: str, count: int = 1) -> LossyQuery:
    noise = DiscreteGaussian.from_rho(rho)
    return LossyQuery(noise.hockey_stick, float(1 / (2 * noise.sigma2)), count)


def test_many_gaussians_are_one_gaussian():
    parts = [
        LossyQuery(Gaussian(math.sqrt(1 / (2 * r))).hockey_stick, r, c)
        for r, c in ((0.05, 4), (0.3, 1))
    ]
    tight = tight_epsilon(parts, 1e-10)
    true = gaussian_epsilon(0.5, 1e-10)
    assert true <= tight <= true + 1e-4


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
def test_discrete_gaussians_against_full_enumeration(delta):
    """Two queries, every pair of outcomes: the exact privacy profile."""
    noises = [DiscreteGaussian("3/2"), DiscreteGaussian("2/3")]
    k = np.arange(-60, 61)
    log_p = noises[0].log_pmf(k)[:, None] + noises[1].log_pmf(k)
    log_q = noises[0].log_pmf(k - 1)[:, None] + noises[1].log_pmf(k - 1)

    def profile(epsilon: float) -> float:
        return float(np.maximum(np.exp(log_p) - np.exp(epsilon + log_q), 0).sum())

    true = brentq(lambda e: profile(e) - delta, 0, 60, xtol=1e-12)
    parts = [LossyQuery(noise.hockey_stick, float(1 / (2 * noise.sigma2))) for noise in noises]
    tight = tight_epsilon(parts, delta)
    assert true - 1e-9 <= tight <= true + 2e-4


@pytest.mark.parametrize("rho", ["0.001", "0.1", "2.56", "20"])
def test_tight_is_below_the_zcdp_bound(rho):
    tight = tight_epsilon([lossy(rho)], 1e-10)
    assert 0 < tight < ZCDP(rho).epsilon("1e-10")


@pytest.mark.parametrize("rho", ["300", "800", "5000"])
def test_huge_budgets_fall_back_to_the_bound(rho):
    tight = tight_epsilon([lossy(rho)], 1e-10)
    # With so little noise the loss is rho for nearly every draw.
    assert float(rho) * (1 - 1e-9) <= tight <= ZCDP(rho).epsilon("1e-10") * (1 + 1e-12)


def test_nothing_asked_costs_nothing():
    assert tight_epsilon([], 1e-10) == 0


def test_a_tiny_budget_overflows_nowhere():
    """Warnings are errors: far below 0 the tilt exceeds what a float can hold."""
    tight = tight_epsilon([lossy("5e-10"), lossy("5e-10")], 1e-10)
    assert 0 < tight <= ZCDP("1e-9").epsilon("1e-10") * (1 + 1e-12)
