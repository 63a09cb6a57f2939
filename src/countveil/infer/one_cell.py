"""One noisy count on its own: what it may have been, exactly, by the law of its noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from countveil.errors import InputError
from countveil.infer.interval import checked
from countveil.mechanisms.law import Mechanism, central_half_width

_LEFT_OUT = 1e-15


@dataclass(frozen=True, slots=True)
class CellPosterior:
    """Counts that may be behind one noisy value, and how probable each is.

    Before, every count from `lowest` to `highest` is taken for equally likely.
    """

    counts: tuple[int, ...]
    probabilities: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The expected count."""
        return float(np.dot(self.counts, self.probabilities))

    def interval(self, confidence: float = 0.9) -> tuple[int, int]:
        """Return the shortest run of counts that holds at least this much probability."""
        checked(confidence)
        sums = np.concatenate(([0.0], np.cumsum(self.probabilities)))
        goal = np.minimum(sums[:-1] + confidence, sums[-1])
        last = np.searchsorted(sums, goal - 1e-12, side="left") - 1  # of the run from each count
        held = sums[np.minimum(last + 1, len(sums) - 1)] - sums[:-1]
        length = np.where(held >= confidence - 1e-12, last - np.arange(len(last)), len(sums))
        first = int(np.lexsort((-held, length))[0])
        return self.counts[first], self.counts[int(last[first])]


def cell_posterior(
    value: int, mechanism: Mechanism, *, lowest: int = 0, highest: int | None = None
) -> CellPosterior:
    """Return the law of the count behind a noisy value, no other measurement being used.

    P(x | value) is proportional to P(noise = value - x), for x from `lowest` to `highest`.
    """
    if not isinstance(value, int | np.integer):
        raise InputError(f"value: {value!r} is no whole number, and noisy counts are")
    if highest is not None and highest < lowest:
        raise InputError(f"highest: {highest} is below lowest, {lowest}; give a range")
    reach = central_half_width(mechanism, 1 - _LEFT_OUT)
    # Beyond the range the law only falls off faster than around its middle.
    nearest = max(value, lowest) if highest is None else min(max(value, lowest), highest)
    low, high = max(lowest, nearest - reach), nearest + reach
    if highest is not None:
        high = min(high, highest)
    counts = np.arange(low, high + 1)
    log_weights = mechanism.log_pmf(value - counts)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    return CellPosterior(tuple(counts.tolist()), tuple(weights.tolist()))
