"""What a level's measurements say of the cells of a family: the sides of A h = b."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from countveil.measure.measurement import Measured
from countveil.numerics import FloatArray, IntArray
from countveil.postprocess.gram import Squares
from countveil.schema.workload import Query

# Where no query tells two cells apart, this much of the smallest weight pulls a child towards its
# share of the parent: enough to make the solution one, too little to compete with a measurement.
_PULL = 1e-3
# Noise below this is none, for whole numbers; its weight would drown those of all other queries.
_LEAST_VARIANCE = 1e-4


@dataclass(frozen=True, eq=False, slots=True)
class Observations:
    """The queries of a level, their values side by side: query k begins at scalar offsets[k]."""

    queries: tuple[Query, ...]
    offsets: IntArray
    weights: FloatArray

    @classmethod
    def of(cls, measurements: Measured, level: str) -> Observations:
        """Return what is measured at a level; weights are one over the variance of the noise."""
        queries = [item.query for item in measurements.plan.at(level)]
        laws = [measurements.mechanisms[level, query.name] for query in queries]
        return cls.made_of(queries, [law.variance for law in laws])

    @classmethod
    def made_of(cls, queries: Sequence[Query], variances: Sequence[float]) -> Observations:
        """Lay out queries side by side, with the variance of each one's noise."""
        sizes = [query.cells for query in queries]
        offsets = np.concatenate(([0], np.cumsum(sizes)))[:-1].astype(np.int64)
        return cls(tuple(queries), offsets, 1.0 / np.maximum(variances, _LEAST_VARIANCE))

    def scalars_of(self, cells: IntArray) -> IntArray:
        """Return which scalar of each query counts each cell, -1 where it is left out."""
        places = np.empty((len(self.queries), len(cells)), np.int64)
        for number, (query, offset) in enumerate(zip(self.queries, self.offsets, strict=True)):
            cell = query.cells_at(cells)
            places[number] = np.where(cell >= 0, cell + offset, -1)
        return places


@njit(cache=True, nogil=True)
def right_sides(places: IntArray, weights: FloatArray, values: Any) -> FloatArray:
    """Return, a row per child, b = Σ_k w_k Q_kᵀ m_k."""
    queries, cells = places.shape
    children = values.shape[0]
    b = np.zeros((children, cells))
    for c in range(children):
        for k in range(queries):
            for j in range(cells):
                if places[k, j] >= 0:
                    b[c, j] += weights[k] * values[c, places[k, j]]
    return b


def merge(places: IntArray, group: IntArray, groups: int) -> tuple[IntArray, IntArray]:
    """Return the scalars of the groups of cells, for the queries that are sums of groups.

    Also returns which queries those are.
    """
    first = np.full(groups, -1, np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]
    merged = places[:, first]
    answers = np.flatnonzero((merged[:, group] == places).all(axis=1) & (merged >= 0).any(axis=1))
    return np.ascontiguousarray(merged[answers]), answers


def tells_apart(places: IntArray) -> bool:
    """Whether some query counts each cell on its own, which makes A positive definite."""
    cells = places.shape[1]
    # The most detailed query usually comes last.
    return any((row >= 0).all() and len(np.unique(row)) == cells for row in places[::-1])


def pulled(
    squares: Squares, b: FloatArray, parent: FloatArray | None, totals: FloatArray
) -> tuple[Squares, FloatArray]:
    """Pull children towards their share of the parent, where measurements leave them undecided."""
    places, weights = squares.places, squares.weights
    weight = _PULL * weights.min(initial=1.0 if len(weights) == 0 else np.inf)
    each = places.max(initial=-1) + 1 + np.arange(places.shape[1])  # a query of every cell
    squares = Squares(np.vstack([places, each]), np.append(weights, weight))
    if parent is not None:
        shares = np.maximum(totals, 0.0) + 1.0
        b = b + weight * np.outer(shares / shares.sum(), parent)
    return squares, b


def rough_totals(places: IntArray, weights: FloatArray, values: Any) -> FloatArray:
    """Return each child's total from the query that gives it with least noise; else zeros."""
    best, least = np.zeros(len(values)), np.inf
    for row, weight in zip(places, weights, strict=True):
        if (row < 0).any():
            continue
        scalars = np.unique(row)
        if len(scalars) / weight < least:
            best, least = values[:, scalars].sum(axis=1).astype(float), len(scalars) / weight
    return best
