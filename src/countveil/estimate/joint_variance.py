"""Counts and rates of areas, two or more at a time, with their joint variance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from countveil.base.numerics import FloatArray
from countveil.estimate.area_rates import Rates
from countveil.estimate.areas import AreaEstimates

Estimated: TypeAlias = AreaEstimates | Rates

_ROUNDING = 1e-11  # a difference of variances this small, relative to them, is 0


class Term(NamedTuple):
    """What to read of an area: some cells, by default every cell, or (None) the sum of all cells."""

    area: int
    cells: slice | None = slice(None)


@dataclass(frozen=True, eq=False, slots=True)
class Pairs:
    """Pairs of estimates, first[i] and second[i], with their variances and covariances.

    An exact estimate has variance and covariance 0. An undetermined one is NaN, with an infinite
    variance and covariance 0.
    """

    first: FloatArray
    second: FloatArray
    first_variance: FloatArray
    second_variance: FloatArray
    covariance: FloatArray

    @property
    def determined(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Where both are determined."""
        return np.isfinite(self.first_variance + self.second_variance)

    def variance_less(self, times: FloatArray | float) -> FloatArray:
        """Return the variance of first - times · second; infinite if either is not determined."""
        known, times = self.determined, np.asarray(times, float)
        first, second = (
            np.where(known, part, 0.0) for part in (self.first_variance, self.second_variance)
        )
        apart = first + times**2 * second
        return np.where(
            known, variance_difference(apart - 2 * times * self.covariance, apart), np.inf
        )


def variance_difference(variance: FloatArray, parts: FloatArray) -> FloatArray:
    """Return a difference of larger variances (`parts`), 0 if it is only their rounding error."""
    return np.where(variance > _ROUNDING * parts, variance, 0.0)


def pairs(estimates: Estimated, first: Term, second: Term) -> Pairs:
    """Return two terms as pairs, cell by cell; a sum is paired with every cell."""
    counts, factors = _counts(estimates)
    (one, one_variance), (other, other_variance) = _read(counts, first), _read(counts, second)
    noisy = [np.isfinite(part) & (part > 0) for part in (one_variance, other_variance)]
    between = np.where(noisy[0] & noisy[1], _covariance(counts, first, second), 0.0)
    here, there = factors[first.area], factors[second.area]
    arrays = np.broadcast_arrays(
        here * one,
        there * other,
        here**2 * one_variance,
        there**2 * other_variance,
        here * there * between,
    )
    return Pairs(*(array.copy() for array in arrays))


def covariance_of_areas(estimates: Estimated, cell: int) -> FloatArray:
    """Return the covariance of one cell in all areas, areas × areas, 0 where one is exact.

    Rows and columns of areas where the cell is not determined are 0 as well.
    """
    counts, factors = _counts(estimates)
    result = np.zeros((len(counts.names), len(counts.names)))
    for space, block in zip(counts.decomposition.subspaces, counts.blocks, strict=True):
        row = counts.decomposition.rows(space)[cell]
        result += np.einsum("aibj,ij->ab", block, row @ row.T)
    error = counts.standard_error[:, cell]
    noisy = np.isfinite(error) & (error > 0)
    return result * np.outer(factors * noisy, factors * noisy)


def _counts(estimates: Estimated) -> tuple[AreaEstimates, FloatArray]:
    """Return the counts behind estimates, and the factor of each area."""
    if isinstance(estimates, Rates):
        return estimates.counts, estimates.factors
    return estimates, np.ones(len(estimates.names))


def _read(estimates: AreaEstimates, term: Term) -> tuple[FloatArray, FloatArray]:
    """Return the counts of a term and their variances."""
    value, error = estimates.value[term.area], estimates.standard_error[term.area]
    if term.cells is not None:
        return value[term.cells], error[term.cells] ** 2
    if np.isinf(error).any():
        return np.array([np.nan]), np.array([np.inf])
    variance = variance_difference(
        _covariance(estimates, term, term), (error**2).sum(keepdims=True)
    )
    total = value.sum(keepdims=True)
    return np.where(variance == 0, np.rint(total), total), variance


def _covariance(estimates: AreaEstimates, first: Term, second: Term) -> FloatArray:
    """Return the covariance of two terms' counts, cell by cell."""
    result = np.zeros(1)
    for space, block in zip(estimates.decomposition.subspaces, estimates.blocks, strict=True):
        rows = estimates.decomposition.rows(space)
        one, other = (
            rows.sum(axis=0, keepdims=True) if term.cells is None else rows[term.cells]
            for term in (first, second)
        )
        between = block[first.area, :, second.area, :]
        result = result + (np.einsum("nic,ij->njc", one, between) * other).sum(axis=(1, 2))
    return result
