"""The appendix's demonstrations: exact minima by brute force, and losses like the paper's."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize

from countveil import Seeded
from countveil.assess import empirical_loss
from countveil.errors import InputError
from countveil.papers import petti_flaxman
from countveil.papers.petti_flaxman import demonstrations

RNG = np.random.default_rng(7)
STRATA = RNG.poisson([300, 120, 40, 8, 1, 0.1, 0.1, 0.05], (1_200, 8))
COUNTY = np.arange(1_200) // 40


@pytest.mark.parametrize("weight", [None, 1 / 3, 100.0])
def test_strata_are_shifted_to_the_minimum(weight):
    rng = np.random.default_rng(1)
    for _ in range(40):
        y, total = rng.integers(-4, 9, (1, 3)), rng.integers(0, 12, 1)
        result = demonstrations._least_squares(y, total, weight)[0]
        assert (result >= 0).all()

        def objective(x, y=y, total=total):
            short = (x.sum() - total[0]) ** 2
            return ((x - y[0]) ** 2).sum() + (0.0 if weight is None else weight * short)

        constraints = {"type": "eq", "fun": lambda x, total=total: x.sum() - total[0]}
        best = minimize(
            objective,
            np.full(3, total[0] / 3),
            bounds=[(0, None)] * 3,
            constraints=constraints if weight is None else (),
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert objective(result) <= best.fun + 1e-7
        if weight is None:
            assert result.sum() == pytest.approx(total[0])


@pytest.mark.parametrize("weights", [(0.25, 0.75), (0.75, 0.25)])
def test_absolute_differences_are_least(weights):
    rng = np.random.default_rng(2)
    for _ in range(60):
        y, total = rng.integers(-3, 5, (1, 3)), rng.integers(-2, 12, 1)
        result = demonstrations._least_absolute(y, total, *weights)[0]

        def objective(x, y=y, total=total):
            return weights[0] * abs(sum(x) - total[0]) + weights[1] * np.abs(x - y[0]).sum()

        least = min(objective(np.array(x)) for x in product(range(13), repeat=3))
        assert objective(result) == pytest.approx(least)


def test_losses_are_like_those_of_the_appendix():
    """Composition is not tight, a soft invariant raises the loss; noise alone is about epsilon."""
    alone = petti_flaxman.parallel(STRATA[:, 0], epsilon="1/4", rng=Seeded(1))
    assert 0.2 < empirical_loss.kde(alone).value < 0.6
    together = petti_flaxman.totals_and_strata(STRATA, rng=Seeded(2))
    assert len(together) == STRATA.size
    literal = petti_flaxman.totals_and_strata(STRATA, objective="absolute", rng=Seeded(2))
    assert (literal == np.rint(literal)).all()
    assert not (together == np.rint(together)).all()
    soft = petti_flaxman.invariant_total(STRATA, COUNTY, rng=Seeded(3))
    hard = petti_flaxman.invariant_total(STRATA, COUNTY, weight=None, rng=Seeded(3))
    sums = [
        np.abs(np.bincount(COUNTY, item.reshape(STRATA.shape).sum(1))).max()
        for item in (soft, hard)
    ]
    assert sums[1] < 1e-9 < sums[0] < 3
    assert np.abs(soft - hard).max() < 0.5
    assert empirical_loss.kde(soft).value > 0.25


def test_bad_counts_are_named():
    with pytest.raises(InputError, match="areas × strata"):
        petti_flaxman.totals_and_strata(np.arange(4), rng=Seeded(1))
    with pytest.raises(InputError, match="some are negative"):
        petti_flaxman.parallel(np.array([-1]), epsilon="1", rng=Seeded(1))
    with pytest.raises(InputError, match="one group for each"):
        petti_flaxman.invariant_total(STRATA, COUNTY[:5], rng=Seeded(1))
    with pytest.raises(InputError, match="objective: unknown objective 'median'"):
        petti_flaxman.totals_and_strata(STRATA, objective="median", rng=Seeded(1))
