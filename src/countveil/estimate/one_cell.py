"""One noisy count on its own: the exact posterior of the count behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from countveil.base.intervals import checked
from countveil.errors import InputError
from countveil.noise.law import Mechanism, central_half_width

_LEFT_OUT = 1e-15


class CountInterval(NamedTuple):
    """The smallest and the largest count of an interval."""

    lower: int
    upper: int


@dataclass(frozen=True, slots=True)
class CellPosterior:
    """The counts that may be behind one noisy value, and the probability of each.

    Attributes
    ----------
    counts : tuple of int
        The possible counts; those with negligible probability are left out.
    probabilities : tuple of float
        Their posterior probabilities, under a uniform prior.

    """

    counts: tuple[int, ...]
    probabilities: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The expected count."""
        return float(np.dot(self.counts, self.probabilities))

    def interval(self, confidence: float = 0.9) -> CountInterval:
        """Return the shortest run of counts with at least this much probability."""
        checked(confidence)
        sums = np.concatenate(([0.0], np.cumsum(self.probabilities)))
        goal = np.minimum(sums[:-1] + confidence, sums[-1])
        last = np.searchsorted(sums, goal - 1e-12, side="left") - 1  # of the run from each count
        inside = sums[np.minimum(last + 1, len(sums) - 1)] - sums[:-1]
        length = np.where(inside >= confidence - 1e-12, last - np.arange(len(last)), len(sums))
        first = int(np.lexsort((-inside, length))[0])
        return CountInterval(self.counts[first], self.counts[int(last[first])])


def cell_posterior(
    value: int, mechanism: Mechanism, *, lowest: int = 0, highest: int | None = None
) -> CellPosterior:
    """Return the posterior of the count behind a noisy value, using no other measurement.

    P(x | value) is proportional to P(noise = value - x), for x from `lowest` to `highest`.

    Parameters
    ----------
    value : int
        The noisy count.
    mechanism : Mechanism
        The law of its noise.
    lowest, highest : int
        The range of possible counts; without `highest`, there is no upper limit. All counts in the
        range are equally probable beforehand.

    Returns
    -------
    CellPosterior

    Examples
    --------
    >>> from countveil.noise.discrete_gaussian import DiscreteGaussian
    >>> posterior = cell_posterior(-1, DiscreteGaussian(4))
    >>> posterior.interval(0.9)
    CountInterval(lower=0, upper=2)

    """
    if not isinstance(value, int | np.integer):
        raise InputError(f"value: {value!r} is not a whole number; noisy counts are whole")
    if highest is not None and highest < lowest:
        raise InputError(f"highest: {highest} is below lowest, {lowest}; swap them")
    reach = central_half_width(mechanism, 1 - _LEFT_OUT)
    # If the value is outside the range, the law falls off even faster than around its centre.
    nearest = max(value, lowest) if highest is None else min(max(value, lowest), highest)
    low, high = max(lowest, nearest - reach), nearest + reach
    if highest is not None:
        high = min(high, highest)
    counts = np.arange(low, high + 1)
    log_weights = mechanism.log_pmf(value - counts)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    return CellPosterior(tuple(counts.tolist()), tuple(weights.tolist()))
