"""Counts and rates of areas two or more at a time, with their joint variance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from countveil.infer.areas import AreaEstimates
from countveil.infer.public_denominators import Rates
from countveil.numerics import FloatArray

Estimated: TypeAlias = AreaEstimates | Rates

_ROUNDING = 1e-11  # where a variance is this small a part of what it is left of, it is none


class Term(NamedTuple):
    """What is read of an area: one cell, every cell in turn, or all of them added up."""

    area: int
    cells: slice | None = slice(None)


@dataclass(frozen=True, eq=False, slots=True)
class Pairs:
    """Estimates two by two, first[i] beside second[i], with their variances and covariances.

    One that is exact has variance and covariance 0. One that is not determined is NaN, and has an
    infinite variance and covariance 0.
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
        """Return the variance of first - times · second; infinite where either is not determined."""
        known, times = self.determined, np.asarray(times, float)
        first, second = (
            np.where(known, part, 0.0) for part in (self.first_variance, self.second_variance)
        )
        apart = first + times**2 * second
        return np.where(known, settled_variance(apart - 2 * times * self.covariance, apart), np.inf)


def settled_variance(variance: FloatArray, parts: FloatArray) -> FloatArray:
    """Return a variance that is left of larger ones, 0 where it is no more than their rounding."""
    return np.where(variance > _ROUNDING * parts, variance, 0.0)


def pairs(found: Estimated, first: Term, second: Term) -> Pairs:
    """Return two terms beside each other, cell by cell; a sum stands beside every cell."""
    counts, factors = _counts(found)
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


def covariance_of_areas(found: Estimated, cell: int) -> FloatArray:
    """Return the covariance of one cell in all areas, areas × areas, 0 where one is exact.

    Rows and columns of areas where the cell is not determined are 0 as well.
    """
    counts, factors = _counts(found)
    result = np.zeros((len(counts.names), len(counts.names)))
    for space, block in zip(counts.asked.subspaces, counts.blocks, strict=True):
        row = counts.asked.rows(space)[cell]
        result += np.einsum("aibj,ij->ab", block, row @ row.T)
    error = counts.standard_error[:, cell]
    noisy = np.isfinite(error) & (error > 0)
    return result * np.outer(factors * noisy, factors * noisy)


def _counts(found: Estimated) -> tuple[AreaEstimates, FloatArray]:
    """Return the counts behind, and what those of each area are multiplied by."""
    if isinstance(found, Rates):
        return found.found, found.factors
    return found, np.ones(len(found.names))


def _read(found: AreaEstimates, term: Term) -> tuple[FloatArray, FloatArray]:
    """Return the counts of a term and their variances."""
    value, error = found.value[term.area], found.standard_error[term.area]
    if term.cells is not None:
        return value[term.cells], error[term.cells] ** 2
    if np.isinf(error).any():
        return np.array([np.nan]), np.array([np.inf])
    variance = settled_variance(_covariance(found, term, term), (error**2).sum(keepdims=True))
    total = value.sum(keepdims=True)
    return np.where(variance == 0, np.rint(total), total), variance


def _covariance(found: AreaEstimates, first: Term, second: Term) -> FloatArray:
    """Return the covariance of two terms' counts, cell by cell."""
    result = np.zeros(1)
    for space, block in zip(found.asked.subspaces, found.blocks, strict=True):
        rows = found.asked.rows(space)
        one, other = (
            rows.sum(axis=0, keepdims=True) if term.cells is None else rows[term.cells]
            for term in (first, second)
        )
        between = block[first.area, :, second.area, :]
        result = result + (np.einsum("nic,ij->njc", one, between) * other).sum(axis=(1, 2))
    return result
