"""Case rates from cases and deaths: by hand over all tables, and by data augmentation."""

import itertools
import math

import numpy as np
import pytest
from scipy import special

from countveil import congenial
from countveil.congenial import Wasserstein

MODEL = congenial.CaseRates(1.0, 9.0, congenial.GammaPoisson(2.0, 0.5, [1.0, 2.0]))
MECHANISM = Wasserstein(loss="L1", epsilon="2", total=6, deaths=True)
RELEASED = np.array([[5, 0], [1, 1]])


def _by_hand() -> tuple[float, float]:
    """Return the posterior means of both rates: Poisson counts, Beta-binomial deaths, all tables."""
    total, means = 0.0, np.zeros(2)
    for first in range(7):
        cases = (first, 6 - first)
        for deaths in itertools.product(*(range(count + 1) for count in cases)):
            log = MECHANISM.log_density(RELEASED, np.stack((cases, deaths), axis=1))
            for count, died, exposure in zip(cases, deaths, (1.0, 2.0), strict=True):
                log += (
                    special.gammaln(2.0 + count)
                    - special.gammaln(count + 1)
                    + count * math.log(exposure)
                    - (2.0 + count) * math.log(0.5 + exposure)
                )
                log += math.log(special.comb(count, died))
                log += special.betaln(1 + died, 9 + count - died) - special.betaln(1, 9)
            weight = math.exp(log)
            total += weight
            means += weight * (2.0 + np.array(cases)) / (0.5 + np.array([1.0, 2.0]))
    return tuple((means / total).tolist())


def test_exact_means_equal_a_sum_over_all_tables():
    result = congenial.posterior(
        model=MODEL, released=RELEASED, mechanism=MECHANISM, method="exact"
    )
    assert result.mean == pytest.approx(_by_hand(), rel=1e-9)
    assert result.parameter == "rate"
    above = result.above(2.0)
    assert above == pytest.approx([1 - mixture.cdf(2.0) for mixture in result.mixtures])


def test_augmentation_agrees():
    result = congenial.posterior(
        model=MODEL, released=RELEASED, mechanism=MECHANISM, method="augmented", draws=2_000, seed=3
    )
    spread = np.sqrt(result.variance / result.effective_sample_size)
    assert (np.abs(result.mean - np.array(_by_hand())) < 5 * spread).all()
    exact = congenial.posterior(model=MODEL, released=RELEASED, mechanism=MECHANISM, method="exact")
    assert result.above(2.0) == pytest.approx(exact.above(2.0), abs=0.06)
