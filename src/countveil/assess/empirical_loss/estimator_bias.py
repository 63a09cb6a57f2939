"""The bias of an empirical privacy loss, by simulation with noise whose loss is known."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from countveil.assess.empirical_loss.residual_values import Residuals, whole_residuals
from countveil.assess.empirical_loss.smoothed_density import EmpiricalLoss, kde
from countveil.assess.empirical_loss.tail_ratios import geometric
from countveil.assess.risk import ConfidenceInterval
from countveil.base.numerics import Array
from countveil.errors import InputError
from countveil.noise.discrete_laplace import DiscreteLaplace

_TAIL = 40.0
_MOST_POINTS = 1 << 22


@dataclass(frozen=True, slots=True)
class Bias:
    """How an empirical loss is distributed if the true loss is known.

    Attributes
    ----------
    truth : float
        The true loss.
    mean : float
        The mean of the estimates.
    interval : ConfidenceInterval
        The range of the central 95 % of the estimates.
    residuals, replicates : int
        How many residuals each sample had, and how many samples gave a finite estimate.
    """

    truth: float
    mean: float
    interval: ConfidenceInterval
    residuals: int
    replicates: int

    @property
    def note(self) -> str:
        """A sentence for readers of an empirical privacy loss."""
        return (
            f"With {self.residuals:,} residuals of two-sided geometric noise whose loss is "
            f"{self.truth:.2g}, this estimator gives {self.mean:.2g} on average, and between "
            f"{self.interval.lower:.2g} and {self.interval.upper:.2g} in 95 % of cases: the maximum "
            f"over a rough density is on average {self.mean / self.truth:.2f} times the truth. It "
            f"does not bound the privacy loss in either direction."
        )


def bias(
    residuals: Array | Residuals, loss: EmpiricalLoss, *, replicates: int = 100, seed: int = 1
) -> Bias:
    """Return what an empirical loss would be for geometric noise of the same size.

    Geometric noise is fitted to the residuals. Samples of the same size are then drawn from it, and the
    loss of each is estimated with the same bandwidth factor, range and step.

    Parameters
    ----------
    residuals : array or Residuals
        Whole residuals, released minus exact.
    loss : EmpiricalLoss
        Their empirical loss, by `kde`.
    replicates : int
        How many samples are drawn.
    seed : int
        The seed of the draws.

    Returns
    -------
    Bias
        The true loss of the geometric noise, and the distribution of its estimates.
    """
    if replicates < 2:
        raise InputError(f"replicates: {replicates} is not allowed; use at least 2")
    observed = whole_residuals(residuals)
    truth = geometric(observed).value
    law = DiscreteLaplace(Fraction(1 / truth))
    if _TAIL / truth > _MOST_POINTS:
        raise InputError(
            f"residuals: noise of their size needs more than {_MOST_POINTS:,} numbers, which is "
            f"the limit; check the columns of exact and released counts"
        )
    reach = int(np.ceil(_TAIL / truth)) + 1
    k = np.arange(-reach, reach + 1)
    p = np.exp(law.log_pmf(k))
    factor = loss.bandwidth / observed.deviation
    rng = np.random.default_rng(seed)
    values = []
    for _ in range(replicates):
        counts = rng.multinomial(observed.total, p / p.sum())
        places = np.flatnonzero(counts)
        if len(places) < 2:
            continue
        sample = Residuals(k[places].astype(float), counts[places], whole=True)
        values.append(kde(sample, bandwidth=factor, span=loss.span, step=loss.step).value)
    finite = [value for value in values if np.isfinite(value)]
    if len(finite) < 2:
        raise InputError(
            "bandwidth: it is too small for so few residuals, whose density nearly always vanishes "
            "somewhere; use a larger one"
        )
    low, high = np.percentile(finite, [2.5, 97.5])
    interval = ConfidenceInterval(float(low), float(high))
    return Bias(truth, float(np.mean(finite)), interval, observed.total, len(finite))
