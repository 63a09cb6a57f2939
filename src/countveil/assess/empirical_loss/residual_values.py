"""Residuals, released minus exact: the distinct values and how often each occurs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.errors import InputError

_WIDEST = 1 << 24  # the widest range of whole residuals that is counted in one array
_LARGEST = 2.0**53


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Residuals:
    """Residuals by value.

    Attributes
    ----------
    values : array
        The distinct residuals, in ascending order.
    counts : array of int
        How often each of them occurs.
    whole : bool
        Whether all of them are whole numbers.
    """

    values: FloatArray
    counts: IntArray
    whole: bool

    @property
    def total(self) -> int:
        """How many residuals there are."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """Their mean."""
        return float(self.values @ self.counts) / self.total

    @property
    def deviation(self) -> float:
        """Their standard deviation, with n - 1."""
        apart = self.values - self.mean
        return float(np.sqrt((apart * apart) @ self.counts / (self.total - 1)))

    def percentile(self, percent: float) -> float:
        """Return a percentile, interpolated as NumPy does."""
        place = (self.total - 1) * percent / 100
        below = int(np.floor(place))
        ends = np.cumsum(self.counts)
        low, high = (
            float(self.values[np.searchsorted(ends, min(at, self.total - 1), side="right")])
            for at in (below, below + 1)
        )
        share = place - below
        return low + (high - low) * share if share < 0.5 else high - (high - low) * (1 - share)


def gathered(residuals: Array | Residuals) -> Residuals:
    """Return residuals by value; refuse anything but two or more numbers that differ."""
    if isinstance(residuals, Residuals):
        _refuse_too_few(residuals.total, residuals.values[0], residuals.values[-1])
        return residuals
    numbers = np.asarray(residuals)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iuf":
        raise InputError(
            f"residuals: got an array of {numbers.dtype} with {numbers.ndim} dimensions; give one "
            f"list of numbers, released minus exact"
        )
    low, high = (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 0.0)
    if not np.isfinite([low, high]).all():
        raise InputError("residuals: some are missing or infinite; drop those rows first")
    if max(abs(low), abs(high)) > _LARGEST:
        raise InputError(
            f"residuals: the largest is {max(abs(low), abs(high)):g}, and residuals of counts do "
            f"not exceed {_LARGEST:g}; check the columns of exact and released counts"
        )
    _refuse_too_few(len(numbers), low, high)
    whole = numbers.dtype.kind in "iu" or bool((numbers == np.rint(numbers)).all())
    if whole and high - low < _WIDEST:
        counts = np.zeros(int(high - low) + 1, np.int64)
        _count(numbers, int(low), counts)
        places = np.flatnonzero(counts)
        return Residuals(np.asarray(places + low, np.float64), counts[places], whole)
    if len(numbers) > _WIDEST // 16:  # fractions rarely coincide, and counting them takes long
        values = np.sort(numbers.astype(np.float64))
        return Residuals(values, np.ones(len(numbers), np.int64), whole)
    values, counts = np.unique(numbers.astype(np.float64), return_counts=True)
    return Residuals(values, counts, whole)


def _refuse_too_few(total: int, low: float, high: float) -> None:
    if total < 2:
        raise InputError(f"residuals: got {total}; give two or more")
    if low == high:
        raise InputError(
            f"residuals: all {total:,} are {low:g}, so there is no noise to estimate a loss from; "
            f"check that the columns are exact and released counts"
        )


@njit(cache=True, nogil=True)
def _count(numbers: Array, first: int, counts: IntArray) -> None:
    """Count whole numbers in one pass, without copying them."""
    for value in numbers:
        counts[int(value) - first] += 1


def whole_residuals(residuals: Array | Residuals) -> Residuals:
    """Return residuals by value; refuse any that are not whole numbers."""
    by_value = gathered(residuals)
    if not by_value.whole:
        raise InputError(
            "residuals: some are not whole numbers, and tail ratios are for counts released as "
            "integers; use kde, or round the released counts"
        )
    return by_value
