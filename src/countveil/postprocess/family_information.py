"""What is known about the children of a family, as normal equations A_c h_c = b_c.

`LevelInformation` has the measurements of the children's own level; `SubtreeInformation` also all those
below, as the tree passes them up. Either can be asked about sums of cells, for a pass of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numba import njit

from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.measure.measurements import Measured
from countveil.plan.workload import TOTAL, Query
from countveil.postprocess.pass_rule import UnbiasedSums
from countveil.postprocess.solver.family_problem import Squares, gram_in_blocks, multiply
from countveil.tree.subtrees import PULL, CellTerms, GroupInformation, SubtreeSlice

# If no query tells two cells apart, this fraction of the smallest weight pulls a child towards its
# share of the parent: enough to make the solution unique, too little to compete with a measurement.
_PULL = 1e-3
# Integer noise with a smaller variance is almost always 0, and its weight would drown all others.
_LEAST_VARIANCE = 1e-4
_EXACT = 1e-9  # of the largest variance: below it, a sum is known exactly


class NormalEquations(NamedTuple):
    """The matrices A, as squares or one per child, and b, children × cells."""

    squares: Squares | FloatArray
    b: FloatArray


class FamilyInformation(Protocol):
    """What is known about the children of a family, over the cells that may have people."""

    def equations(self, parent: IntArray | None, totals: IntArray | None) -> NormalEquations:
        """Return equations with exactly one solution, for a parent and fixed totals if there are."""
        ...

    def about(self, query: Query, group: IntArray, groups: int) -> FamilyInformation | None:
        """Return what is known about the sums of a query, None if that is nothing.

        `group` is the number of the sum that each cell is in, from 0 to `groups` - 1.
        """
        ...

    def unbiased(self, query: Query) -> UnbiasedSums | None:
        """Return unbiased estimates of all sums of a query, None if not all of them are known."""
        ...


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


# What the measurements of the children's own level say.


@dataclass(frozen=True, eq=False, slots=True)
class LevelInformation:
    """The measured values of the children, children × scalars, and which scalar counts each cell.

    `totals` are unbiased estimates of the children's totals from everything below them, if a pass over
    totals is to use those.
    """

    places: IntArray
    weights: FloatArray
    values: Array
    totals: GroupInformation | None = None

    @classmethod
    def of(
        cls,
        observed: Observations,
        cells: IntArray,
        values: Array,
        totals: GroupInformation | None = None,
    ) -> LevelInformation:
        """Return what a level measured about some cells."""
        return cls(observed.scalars_of(cells), observed.weights, values, totals)

    def equations(self, parent: IntArray | None, totals: IntArray | None) -> NormalEquations:
        """Return the normal equations, pulled towards the parent where nothing decides."""
        squares = Squares(self.places, self.weights)
        b = right_sides(self.places, self.weights, self.values)
        if tells_apart(self.places):
            return NormalEquations(squares, b)
        rough = rough_totals(self.places, self.weights, self.values)
        if totals is not None:
            rough = totals.astype(float)
        return pulled(squares, b, None if parent is None else parent.astype(float), rough)

    def about(self, query: Query, group: IntArray, groups: int) -> FamilyInformation | None:
        """Return the queries that are sums of the groups; totals as everything below measured them."""
        if query.name == TOTAL and self.totals is not None:
            return GroupSums.of(self.totals, np.zeros(1, np.int64), np.arange(len(self.values)))
        places, queries = merge(self.places, group, groups)
        if not len(places):
            return None
        return LevelInformation(places, self.weights[queries], self.values)

    def unbiased(self, query: Query) -> UnbiasedSums | None:
        """Return nothing: sums are estimated from the level alone."""
        return None


# What the children and everything below them say.


@dataclass(frozen=True, eq=False, slots=True)
class SubtreeInformation:
    """What the subtrees of the children say about some cells."""

    terms: CellTerms
    of: SubtreeSlice
    cells: IntArray

    def equations(self, parent: IntArray | None, totals: IntArray | None) -> NormalEquations:
        """Return the normal equations.

        What nothing measures is pulled towards the parent or, where there is none, towards what
        independent attributes would give. Both have no negative counts, so that the bound of 0 does not
        turn the pull against what is measured.
        """
        places, matrices, atoms = self.terms.about(self.of, self.cells)
        b = self.terms.right_sides(self.of, self.cells)
        free = self.terms.undetermined(self.of, self.cells)
        if free is not None:
            projector = gram_in_blocks(Squares(free.places, free.matrices, free.atoms), 1)
            weight = PULL * self.of.least[self.of.shape_of]
            if parent is None:
                likely = np.stack([multiply(projector, one[None])[0] for one in self._likely()])
            else:
                shares = np.maximum(self._totals() if totals is None else totals, 0.0) + 1.0
                likely = multiply(projector, parent.astype(float)[None])
                weight = weight * shares / shares.sum()
            b = b + weight[:, None] * likely
        return NormalEquations(Squares(places, matrices, atoms, self.of.shape_of), b)

    def _likely(self) -> FloatArray:
        """Return the cells of each child if its attributes were independent: children × cells."""
        schema = self.terms.schema
        values = self.terms.histograms(self.of).reshape(-1, *schema.shape)
        axes = tuple(range(1, values.ndim))
        likely = np.maximum(values.sum(axis=axes), 1.0)[:, None] * np.ones(len(self.cells))
        codes = np.unravel_index(self.cells, schema.shape) if schema.shape else ()
        for axis, code in zip(axes, codes, strict=True):
            margin = np.maximum(
                values.sum(axis=tuple(other for other in axes if other != axis)), 0.5
            )
            likely *= (margin / margin.sum(axis=1, keepdims=True))[:, code]
        return np.asarray(likely)

    def _totals(self) -> FloatArray:
        """Return rough totals of the children, zeros if nothing measures them."""
        groups = self.terms.groups(self.of, self.terms.schema.query(TOTAL))
        return np.zeros(len(self.of.shape_of)) if groups is None else groups.estimate[:, 0]

    def unbiased(self, query: Query) -> UnbiasedSums | None:
        """Return unbiased estimates of all sums of a query; None if they are not all determined."""
        groups = self.terms.groups(self.of, query)
        if groups is None:
            return None
        variance = np.diagonal(groups.covariance, axis1=1, axis2=2)
        return UnbiasedSums(groups.estimate, np.sqrt(np.maximum(variance, 0.0))[self.of.shape_of])

    def about(self, query: Query, group: IntArray, groups: int) -> FamilyInformation | None:
        """Return unbiased estimates of the sums of a query, with their covariance."""
        known = self.terms.groups(self.of, query)
        if known is None:
            return None
        inside = np.empty(groups, np.int64)
        inside[group] = query.cells_at(self.cells)
        return GroupSums.of(known, inside, self.of.shape_of)


@dataclass(frozen=True, eq=False, slots=True)
class GroupSums:
    """Estimates of sums of cells, children × groups, and the precision of each child's."""

    estimate: FloatArray
    precision: FloatArray

    @classmethod
    def of(cls, known: GroupInformation, inside: IntArray, shape_of: IntArray) -> GroupSums:
        """Return estimates of the sums `inside`, given that the other sums are 0."""
        values, vectors = np.linalg.eigh(known.covariance)
        largest = values.max(axis=1, keepdims=True, initial=0.0)
        # What is known exactly is fixed by the family's facts: its weight changes nothing.
        inverse = 1.0 / np.where(
            values > _EXACT * largest, values, np.where(largest > 0, largest, 1)
        )
        precision = (vectors * inverse[:, None, :]) @ np.swapaxes(vectors, 1, 2)
        precision = precision[shape_of]
        push = np.einsum("cgh,ch->cg", precision, known.estimate)[:, inside]
        kept = precision[:, inside][:, :, inside]
        return cls(np.linalg.solve(kept, push[:, :, None])[:, :, 0], kept)

    def equations(self, parent: IntArray | None, totals: IntArray | None) -> NormalEquations:
        """Return the normal equations."""
        b = np.einsum("cgh,ch->cg", self.precision, self.estimate)
        return NormalEquations(self.precision, b)

    def about(self, query: Query, group: IntArray, groups: int) -> FamilyInformation | None:
        """Return nothing: sums are not added up again."""
        return None

    def unbiased(self, query: Query) -> UnbiasedSums | None:
        """Return nothing: sums have no passes of their own."""
        return None
