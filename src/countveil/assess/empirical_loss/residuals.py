"""Residuals, released minus exact, gathered once: whole numbers by their counts, others as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from countveil.errors import InputError
from countveil.numerics import Array, FloatArray, IntArray

_WIDEST = 1 << 24  # whole residuals that are counted in one array
_LARGEST = 2.0**53


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Residuals:
    """Residuals in order, and how often each occurs."""

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
        """Return a percentile, interpolated between neighbours in order as NumPy does."""
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
    """Count residuals; refuse what is no list of two or more different numbers."""
    if isinstance(residuals, Residuals):
        _refuse_too_little(residuals.total, residuals.values[0], residuals.values[-1])
        return residuals
    given = np.asarray(residuals)
    if given.ndim != 1 or given.dtype.kind not in "iuf":
        raise InputError(
            f"residuals: an array of {given.dtype} with {given.ndim} dimensions came; give one list of "
            f"numbers, released minus exact"
        )
    low, high = (float(given.min()), float(given.max())) if len(given) else (0.0, 0.0)
    if not np.isfinite([low, high]).all():
        raise InputError("residuals: some are missing or infinite; drop those rows first")
    if max(abs(low), abs(high)) > _LARGEST:
        raise InputError(
            f"residuals: the largest is {max(abs(low), abs(high)):g}; beyond {_LARGEST:g} they are no "
            f"residuals of counts"
        )
    _refuse_too_little(len(given), low, high)
    whole = given.dtype.kind in "iu" or bool((given == np.rint(given)).all())
    if whole and high - low < _WIDEST:
        counts = np.zeros(int(high - low) + 1, np.int64)
        _count(given, int(low), counts)
        seen = np.flatnonzero(counts)
        return Residuals(np.asarray(seen + low, np.float64), counts[seen], whole)
    if len(given) > _WIDEST // 16:  # so many fractions are hardly ever the same
        return Residuals(np.sort(given.astype(np.float64)), np.ones(len(given), np.int64), whole)
    values, counts = np.unique(given.astype(np.float64), return_counts=True)
    return Residuals(values, counts, whole)


def _refuse_too_little(total: int, low: float, high: float) -> None:
    if total < 2:
        raise InputError(f"residuals: {total} came; two or more are needed")
    if low == high:
        raise InputError(
            f"residuals: all {total:,} are {low:g}, so there is no noise to estimate a loss from; "
            f"check that the columns are exact and released counts"
        )


@njit(cache=True, nogil=True)
def _count(given: Any, first: int, counts: IntArray) -> None:
    """Count whole numbers in one pass, without a copy of them."""
    for value in given:
        counts[int(value) - first] += 1


def whole_residuals(residuals: Array | Residuals) -> Residuals:
    """Count residuals that must be whole numbers."""
    found = gathered(residuals)
    if not found.whole:
        raise InputError(
            "residuals: some are no whole numbers; tail ratios are for counts released as integers, so "
            "take kde, or round the release as it was published"
        )
    return found
