"""Intervals for counts: whole numbers, never negative, that hold as often as they say.

An estimate of something that cannot be negative may itself be: cutting its interval off at 0 holds
zeros too often, and leaves nothing but 0 where noise fell far below. Ordering estimates by their
likelihood against that of the best count there can be (Feldman and Cousins, 1998) gives every count,
0 too, the confidence asked for, and never an empty interval.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from scipy.special import ndtr

from countveil.numerics import FloatArray

_POINTS = 4_001
_HALVINGS = 60
_SMALLEST = 1e-6  # a confidence below is this one
_SLACK = 1e-9  # a whole number this close to an end is inside


def count_interval(
    value: FloatArray, error: FloatArray, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Return the smallest and largest count inside, of estimates that are normal around a count.

    Where no whole number lies between the ends, the count nearest to the estimate stands for itself.
    """
    noisy = error > 0
    scaled = np.divide(value, error, out=np.zeros_like(value), where=noisy)
    low, high = (np.where(noisy, end * error, value) for end in _ends(scaled, confidence))
    low, high = np.ceil(low - _SLACK), np.floor(high + _SLACK)
    none, nearest = low > high, np.rint(value)
    low, high = np.where(none, nearest, low), np.where(none, nearest, high)
    return np.maximum(low, 0.0), np.maximum(high, 0.0)


def _ends(scaled: FloatArray, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Return both ends for estimates whose error is 1."""
    table = _Table.of(confidence)
    # Far above 0 nothing is cut off.
    low = np.interp(scaled, table.reach, table.lowest)
    low = np.where(scaled >= 2 * table.half, scaled - table.half, low)
    high = np.interp(1.0 / (1.0 - np.minimum(scaled, 0.0)), table.fall, table.highest)
    return low, np.where(scaled >= 0, scaled + table.half, high)


@dataclass(frozen=True, eq=False, slots=True)
class _Table:
    """Ends near 0, to read others between: `lowest` of estimates `reach`, `highest` of negative ones.

    An estimate x below 0 is looked up as 1 / (1 - x), in which the ends are smooth.
    """

    half: float
    reach: FloatArray
    lowest: FloatArray
    fall: FloatArray
    highest: FloatArray

    @classmethod
    @lru_cache(maxsize=16)
    def of(cls, confidence: float) -> _Table:
        normal, confidence = NormalDist(), max(confidence, _SMALLEST)
        half = normal.inv_cdf((1 + confidence) / 2)
        first = max(normal.inv_cdf(confidence), 0.0)  # up to here 0 is inside
        means = np.linspace(0.0, half, _POINTS)[1:]

        def within(above: FloatArray) -> FloatArray:
            """The chance of estimates up to mean + above, from where they are as unlikely below."""
            below = np.where(above <= means, means - above, (means**2 - above**2) / (2 * means))
            return np.asarray(ndtr(above) - ndtr(below - means))

        above = _where(within, confidence, np.full(len(means), first), np.full(len(means), half))
        fall = np.linspace(0.0, 1.0, _POINTS)[1:]
        estimates = 1.0 - 1.0 / fall

        def holding(mean: FloatArray) -> FloatArray:
            """The chance of all that is more likely under a mean than the estimate is."""
            reach = np.sqrt(mean**2 - 2 * estimates * mean)
            return np.asarray(ndtr(reach) - ndtr(estimates - mean))

        highest = _where(holding, confidence, np.zeros(len(fall)), np.full(len(fall), half))
        return cls(
            half,
            np.concatenate([[first], means + above]),
            np.concatenate([[0.0], means]),
            np.concatenate([[0.0], fall]),
            np.concatenate([[0.0], highest]),
        )


def _where(
    rising: Callable[[FloatArray], FloatArray], target: float, low: FloatArray, high: FloatArray
) -> FloatArray:
    """Return where a function that rises reaches a value, by halving."""
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        short = rising(middle) < target
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return 0.5 * (low + high)
