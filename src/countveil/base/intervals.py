"""Confidence intervals: normal ones, and intervals of non-negative whole numbers for counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from countveil.base.numerics import FloatArray
from countveil.errors import InputError

# Counts cannot be negative, but their estimates can. Truncating a normal interval at 0 would cover
# zeros too often, and shrink to just 0 if the noise is far below it. Ordering estimates by their
# likelihood ratio to the best possible count (Feldman and Cousins, 1998) covers every count, 0
# included, with the stated confidence, and the interval is never empty.

_POINTS = 4_001
_HALVINGS = 60
_SMALLEST = 1e-6  # a smaller confidence is raised to this
_SLACK = 1e-9  # a whole number this close to an end is inside


class CountEnds(NamedTuple):
    """The smallest and the largest count of each interval."""

    lower: FloatArray
    upper: FloatArray


def count_interval(value: FloatArray, error: FloatArray, confidence: float) -> CountEnds:
    """Return the smallest and largest count in the interval of each normally distributed estimate.

    If an interval contains no whole number, both ends are the count nearest to the estimate.
    """
    noisy = error > 0
    scaled = np.divide(value, error, out=np.zeros_like(value), where=noisy)
    low, high = (np.where(noisy, end * error, value) for end in _ends(scaled, confidence))
    low, high = np.ceil(low - _SLACK), np.floor(high + _SLACK)
    none, nearest = low > high, np.rint(value)
    low, high = np.where(none, nearest, low), np.where(none, nearest, high)
    return CountEnds(np.maximum(low, 0.0), np.maximum(high, 0.0))


def _ends(scaled: FloatArray, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Return both ends for estimates with a standard error of 1."""
    table = _IntervalEnds.of(confidence)
    # Far above 0, the bound at 0 does not matter.
    low = np.interp(scaled, table.reach, table.lowest)
    low = np.where(scaled >= 2 * table.half, scaled - table.half, low)
    high = np.interp(1.0 / (1.0 - np.minimum(scaled, 0.0)), table.fall, table.highest)
    return low, np.where(scaled >= 0, scaled + table.half, high)


@dataclass(frozen=True, eq=False, slots=True)
class _IntervalEnds:
    """Ends near 0, for interpolation: `lowest` for estimates `reach`, `highest` for negative ones.

    A negative estimate x is looked up as 1 / (1 - x), in which the ends are smooth.
    """

    half: float
    reach: FloatArray
    lowest: FloatArray
    fall: FloatArray
    highest: FloatArray

    @classmethod
    @lru_cache(maxsize=16)
    def of(cls, confidence: float) -> _IntervalEnds:
        normal, confidence = NormalDist(), max(confidence, _SMALLEST)
        half = normal.inv_cdf((1 + confidence) / 2)
        first = max(normal.inv_cdf(confidence), 0.0)  # up to here 0 is inside
        means = np.linspace(0.0, half, _POINTS)[1:]

        def within(above: FloatArray) -> FloatArray:
            """The probability of estimates up to mean + above, and of equally likely ones below."""
            below = np.where(above <= means, means - above, (means**2 - above**2) / (2 * means))
            return np.asarray(ndtr(above) - ndtr(below - means))

        above = _where(within, confidence, np.full(len(means), first), np.full(len(means), half))
        fall = np.linspace(0.0, 1.0, _POINTS)[1:]
        estimates = 1.0 - 1.0 / fall

        def holding(mean: FloatArray) -> FloatArray:
            """The probability of all estimates that are more likely under a mean than this one."""
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
    """Return the argument at which an increasing function reaches a value, by bisection."""
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        short = rising(middle) < target
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return 0.5 * (low + high)


LEAST, MOST = 1e-6, 1 - 1e-9


def checked(confidence: float) -> float:
    """Return a confidence as a float; refuse values that are not between 0 and 1."""
    if isinstance(confidence, bool) or not isinstance(confidence, int | float):
        raise InputError(
            f"confidence: {confidence!r} is not a number; give one between 0 and 1, such as 0.9"
        )
    if not LEAST <= confidence <= MOST:
        raise InputError(
            f"confidence: {confidence} is not allowed; it must be between 0 and 1, such as 0.9"
        )
    return float(confidence)


def normal_interval(
    value: FloatArray, standard_error: FloatArray, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Return value ∓ z · standard_error, where z is the normal quantile of (1 + confidence)/2.

    An infinite standard error gives an infinite interval.
    """
    half = NormalDist().inv_cdf((1 + checked(confidence)) / 2) * standard_error
    centre = np.where(np.isinf(half), 0.0, value)
    return centre - half, centre + half
