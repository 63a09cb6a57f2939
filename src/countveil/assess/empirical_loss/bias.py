"""How far an empirical privacy loss is off by its construction: simulated where the truth is known."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from countveil.assess.empirical_loss.geometric import geometric
from countveil.assess.empirical_loss.kde import EmpiricalLoss, kde
from countveil.assess.empirical_loss.residuals import Residuals, whole_residuals
from countveil.errors import InputError
from countveil.mechanisms.discrete_laplace import DiscreteLaplace
from countveil.numerics import Array

_TAIL = 40.0
_MOST_POINTS = 1 << 22


@dataclass(frozen=True, slots=True)
class Bias:
    """What the estimator gives, on average and in 95 % of cases, where the loss is `truth`."""

    truth: float
    mean: float
    interval: tuple[float, float]
    residuals: int
    replicates: int

    @property
    def note(self) -> str:
        """A sentence for readers of an empirical privacy loss."""
        return (
            f"With {self.residuals:,} residuals of two-sided geometric noise whose loss is "
            f"{self.truth:.4g}, this estimator gives {self.mean:.4g} on average and between "
            f"{self.interval[0]:.4g} and {self.interval[1]:.4g} in 95 % of cases: the maximum over a "
            f"rough density is {self.mean / self.truth:.2f} times the truth on average. It is no bound "
            f"on the privacy loss in either direction."
        )


def bias(
    residuals: Array | Residuals, loss: EmpiricalLoss, *, replicates: int = 100, seed: int = 1
) -> Bias:
    """Return what `loss`, of these whole residuals, would be for geometric noise of the same size.

    The noise fitted to the residuals is drawn as often as there are residuals, again and again, and
    estimated with the same bandwidth factor, range and step.
    """
    if replicates < 2:
        raise InputError(f"replicates: {replicates} is not allowed; at least 2 are needed")
    found = whole_residuals(residuals)
    truth = geometric(found).value
    law = DiscreteLaplace(Fraction(1 / truth))
    if _TAIL / truth > _MOST_POINTS:
        raise InputError(
            f"residuals: noise of their size takes more than {_MOST_POINTS:,} numbers, which is the "
            f"limit; check the columns of exact and released counts"
        )
    reach = int(np.ceil(_TAIL / truth)) + 1
    k = np.arange(-reach, reach + 1)
    p = np.exp(law.log_pmf(k))
    factor = loss.bandwidth / found.deviation
    rng = np.random.default_rng(seed)
    values = []
    for _ in range(replicates):
        counts = rng.multinomial(found.total, p / p.sum())
        seen = np.flatnonzero(counts)
        if len(seen) < 2:
            continue
        drawn = Residuals(k[seen].astype(float), counts[seen], whole=True)
        values.append(kde(drawn, bandwidth=factor, span=loss.span, step=loss.step).value)
    finite = [value for value in values if np.isfinite(value)]
    if len(finite) < 2:
        raise InputError(
            "bandwidth: too small for so few residuals; the density vanishes nearly always"
        )
    low, high = np.percentile(finite, [2.5, 97.5])
    return Bias(truth, float(np.mean(finite)), (float(low), float(high)), found.total, len(finite))
