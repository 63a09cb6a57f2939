"""The normal equations A h = b of a family, from the measurements of its level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.measure.measurements import Measured
from countveil.plan.workload import Query
from countveil.postprocess.solver.family_problem import Squares

# If no query tells two cells apart, this fraction of the smallest weight pulls a child towards its
# share of the parent: enough to make the solution unique, too little to compete with a measurement.
_PULL = 1e-3
# Integer noise with a smaller variance is almost always 0, and its weight would drown all others.
_LEAST_VARIANCE = 1e-4


@dataclass(frozen=True, eq=False, slots=True)
class Observations:
    """The queries of a level, values side by side: query k starts at scalar offsets[k]."""

    queries: tuple[Query, ...]
    offsets: IntArray
    weights: FloatArray

    @classmethod
    def of(cls, measurements: Measured, level: str) -> Observations:
        """Return what a level measures; weights are one over the variance of the noise."""
        queries = [item.query for item in measurements.plan.at(level)]
        laws = [measurements.mechanisms[level, query.name] for query in queries]
        return cls.of_queries(queries, [law.variance for law in laws])

    @classmethod
    def of_queries(cls, queries: Sequence[Query], variances: Sequence[float]) -> Observations:
        """Return queries side by side, from the variance of each one's noise."""
        sizes = [query.cells for query in queries]
        offsets = np.concatenate(([0], np.cumsum(sizes)))[:-1].astype(np.int64)
        return cls(tuple(queries), offsets, 1.0 / np.maximum(variances, _LEAST_VARIANCE))

    def scalars_of(self, cells: IntArray) -> IntArray:
        """Return which scalar of each query counts each cell, -1 if it is left out."""
        places = np.empty((len(self.queries), len(cells)), np.int64)
        for number, (query, offset) in enumerate(zip(self.queries, self.offsets, strict=True)):
            cell = query.cells_at(cells)
            places[number] = np.where(cell >= 0, cell + offset, -1)
        return places


@njit(cache=True, nogil=True)
def right_sides(places: IntArray, weights: FloatArray, values: Array) -> FloatArray:
    """Return b = Σ_k w_k Q_kᵀ m_k, a row per child."""
    queries, cells = places.shape
    children = values.shape[0]
    b = np.zeros((children, cells))
    for c in range(children):
        for k in range(queries):
            for j in range(cells):
                if places[k, j] >= 0:
                    b[c, j] += weights[k] * values[c, places[k, j]]
    return b


class MergedQueries(NamedTuple):
    """The queries that are sums of groups: the scalar that counts each group, and their numbers."""

    places: IntArray
    queries: IntArray


def merge(places: IntArray, group: IntArray, groups: int) -> MergedQueries:
    """Return the queries over groups of cells, keeping those that are sums of groups."""
    first = np.full(groups, -1, np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]
    merged = places[:, first]
    answers = np.flatnonzero((merged[:, group] == places).all(axis=1) & (merged >= 0).any(axis=1))
    return MergedQueries(np.ascontiguousarray(merged[answers]), answers)


def tells_apart(places: IntArray) -> bool:
    """Whether some query counts every cell separately, which makes A positive definite."""
    cells = places.shape[1]
    # The most detailed query usually comes last.
    return any((row >= 0).all() and len(np.unique(row)) == cells for row in places[::-1])


class NormalEquations(NamedTuple):
    """A, as squares, and b, children × cells."""

    squares: Squares
    b: FloatArray


def pulled(
    squares: Squares, b: FloatArray, parent: FloatArray | None, totals: FloatArray
) -> NormalEquations:
    """Pull children gently towards their share of the parent where measurements do not decide."""
    places, weights = squares.places, squares.weights
    weight = _PULL * weights.min(initial=1.0 if len(weights) == 0 else np.inf)
    each = places.max(initial=-1) + 1 + np.arange(places.shape[1])  # a query of every cell
    squares = Squares(np.vstack([places, each]), np.append(weights, weight))
    if parent is not None:
        shares = np.maximum(totals, 0.0) + 1.0
        b = b + weight * np.outer(shares / shares.sum(), parent)
    return NormalEquations(squares, b)


def rough_totals(places: IntArray, weights: FloatArray, values: Array) -> FloatArray:
    """Return each child's total from the query that has it with the least noise; zeros if none does."""
    best, least = np.zeros(len(values)), np.inf
    for row, weight in zip(places, weights, strict=True):
        if (row < 0).any():
            continue
        scalars = np.unique(row)
        if len(scalars) / weight < least:
            best, least = values[:, scalars].sum(axis=1).astype(float), len(scalars) / weight
    return best
