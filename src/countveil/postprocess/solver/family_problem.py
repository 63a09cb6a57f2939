"""The least-squares problem of one family, and its matrix A in the blocks that queries give it.

A = Σ_k w_k Q_kᵀQ_k. Cells are divided into blocks such that the sums of most queries stay inside one;
those make a small dense matrix in each block. The few sums across blocks are kept as rows R:
A = blocks + RᵀW R. A matrix passed as it is makes one block and no rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from countveil.base.numerics import FloatArray, IntArray
from countveil.postprocess.facts.rows import Row

_WHOLE = 40  # cells up to which dividing them costs more than it saves


@dataclass(frozen=True, eq=False, slots=True)
class Squares:
    """A = Σ_k w_k Q_kᵀQ_k, not yet multiplied out.

    Parameters
    ----------
    places : array of queries × cells
        Query k counts cell j in its scalar places[k, j]; -1 if it leaves the cell out.
    weights : array of queries
        Query k has weight weights[k]: one over the variance of its noise.

    """

    places: IntArray
    weights: FloatArray

    def without_totals(self) -> SquaresWithoutTotals:
        """Leave out queries of the total, which say nothing once it is fixed."""
        total = (self.places[:, :1] == self.places).all(axis=1) & (self.places[:, 0] >= 0)
        if not total.any() or total.all():
            return SquaresWithoutTotals(self, 0.0)
        rest = Squares(self.places[~total], self.weights[~total])
        return SquaresWithoutTotals(rest, float(self.weights[total].sum()))

    def within(self, kept: NDArray[np.bool_]) -> Squares:
        """Return the squares over some of the cells."""
        return Squares(np.ascontiguousarray(self.places[:, kept]), self.weights)


class SquaresWithoutTotals(NamedTuple):
    """The squares of all other queries, and the weight of the queries of the total."""

    squares: Squares
    weight: float


class Gram(NamedTuple):
    """A in blocks.

    Block k has the cells order[starts[k]:starts[k+1]] and its matrix, row by row, from
    values[offsets[k]]. Cell j counts in the rows sums[j] (-1: none) with weights W (`weights`), and
    `inverse` is W⁻¹.
    """

    order: IntArray
    starts: IntArray
    values: FloatArray
    offsets: IntArray
    sums: IntArray
    weights: FloatArray
    inverse: FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class FamilyProblem:
    """min Σ_c ½ h_cᵀA h_c − b_cᵀh_c,  h ≥ 0,  Σ_c h_c = parent,  1ᵀh_c = totals_c.

    h is 0 where not allowed. An empty parent or empty totals fix nothing; `rows` bound other sums.
    """

    gram: Gram
    b: FloatArray
    parent: FloatArray
    totals: FloatArray
    allowed: NDArray[np.bool_]
    rows: Sequence[Row] = ()

    def matrix(self) -> FloatArray:
        """Return A multiplied out."""
        return dense(self.gram)

    @property
    def scale(self) -> float:
        """The largest of the sums, at least 1; entries are measured relative to it."""
        bounds = [bound for row in self.rows for bound in (row.lower, row.upper)]
        sums = [self.parent.max(initial=0.0), self.totals.max(initial=0.0), *bounds]
        return float(max(1.0, *(value for value in sums if np.isfinite(value))))


def gram_in_one_block(A: FloatArray) -> Gram:
    """Return a matrix as one block."""
    cells = len(A)
    return Gram(
        np.arange(cells),
        np.array([0, cells]),
        np.ascontiguousarray(A).reshape(-1),
        np.zeros(1, np.int64),
        np.empty((cells, 0), np.int64),
        np.empty((0, 0)),
        np.empty((0, 0)),
    )


def gram_in_blocks(squares: Squares, children: int) -> Gram:
    """Return A in the blocks that are cheapest for a family with this many children."""
    places, weights = squares.places, squares.weights
    if places.shape[1] <= _WHOLE:
        return gram_in_one_block(multiplied_out(places, weights))
    groups, sizes = _numbered(places)
    chosen, owner = _cheapest(groups, sizes, children)
    if chosen < 0:
        return gram_in_one_block(multiplied_out(places, weights))
    gram: Gram = _divided(groups, sizes, weights, chosen, owner)
    return gram._replace(inverse=np.asarray(np.linalg.inv(gram.weights), float))


@njit(cache=True, nogil=True)
def multiplied_out(places: IntArray, weights: FloatArray) -> FloatArray:
    """Return A = Σ_k w_k Q_kᵀQ_k."""
    queries, cells = places.shape
    A = np.zeros((cells, cells))
    for k in range(queries):
        for i in range(cells):
            place = places[k, i]
            if place < 0:
                continue
            for j in range(cells):
                if places[k, j] == place:
                    A[i, j] += weights[k]
    return A


@njit(cache=True, nogil=True)
def _numbered(places: IntArray) -> Any:
    """Number the scalars of each query that occur, from 0; return the numbers and their count."""
    queries, cells = places.shape
    groups = np.empty((queries, cells), np.int64)
    sizes = np.zeros(queries, np.int64)
    seen = np.full(places.max() + 1, -1, np.int64)
    for k in range(queries):
        for j in range(cells):
            place = places[k, j]
            if place >= 0 and seen[place] < 0:
                seen[place] = sizes[k]
                sizes[k] += 1
            groups[k, j] = seen[place] if place >= 0 else -1
        for j in range(cells):
            if places[k, j] >= 0:
                seen[places[k, j]] = -1
    return groups, sizes


@njit(cache=True, nogil=True)
def _refines(fine: IntArray, coarse: IntArray, above: IntArray, everywhere: bool) -> bool:
    """Whether all cells of a sum of `fine` are in the same sum of `coarse`, or all in none.

    With `everywhere`, cells that `fine` leaves out must be left out of `coarse` too.
    """
    above[:] = -2
    for j in range(len(fine)):
        if fine[j] < 0:
            if everywhere and coarse[j] >= 0:
                return False
        elif above[fine[j]] == -2:
            above[fine[j]] = coarse[j]
        elif above[fine[j]] != coarse[j]:
            return False
    return True


@njit(cache=True, nogil=True)
def _cheapest(groups: IntArray, sizes: IntArray, children: int) -> Any:
    """Return the query whose sums make the cheapest blocks, -1 for none, and each query's owner.

    A query inside the blocks has owner -1; one across them is its own owner, or a sum of its owner's
    sums.
    """
    queries, cells = groups.shape
    inside, summed = np.zeros((2, queries, queries), np.bool_)
    above = np.empty(cells, np.int64)
    for p in range(queries):
        for q in range(queries):
            inside[q, p] = _refines(groups[q], groups[p], above, False)
            summed[q, p] = sizes[q] >= sizes[p] and _refines(groups[q], groups[p], above, True)
    best, least = -1, (children + 1.0) * float(cells) ** 3
    owners = np.full(queries, -1, np.int64)
    for p in range(queries):
        if sizes[p] < 2 or sizes[p] == cells or groups[p].min() < 0:
            continue
        owner = np.full(queries, -1, np.int64)
        rows = 1.0
        for q in range(queries):
            if inside[q, p]:
                continue
            owner[q] = q
            for other in range(queries):
                if inside[other, p] or not summed[other, q] or other == q:
                    continue
                if sizes[other] > sizes[owner[q]] or (
                    sizes[other] == sizes[owner[q]] and other < owner[q]
                ):
                    owner[q] = other
            if owner[q] == q:
                rows += sizes[q]
        cost = 0.0
        count = np.zeros(sizes[p])
        for j in range(cells):
            count[groups[p, j]] += 1.0
        for k in range(sizes[p]):
            cost += children * count[k] ** 2 * (count[k] + rows)
        cost += children * rows**2 * (cells + rows) + min(float(cells), children * rows) ** 3
        if cost < least:
            best, least, owners = p, cost, owner
    return best, owners


@njit(cache=True, nogil=True)
def _divided(
    groups: IntArray, sizes: IntArray, weights: FloatArray, chosen: int, owner: IntArray
) -> Any:
    """Return A with the cells divided by the sums of the chosen query."""
    queries, cells = groups.shape
    starts = np.zeros(sizes[chosen] + 1, np.int64)
    for j in range(cells):
        starts[groups[chosen, j] + 1] += 1
    offsets = np.zeros(sizes[chosen], np.int64)
    used = 0
    for k in range(sizes[chosen]):
        offsets[k] = used
        used += starts[k + 1] ** 2
        starts[k + 1] += starts[k]
    order, filled = np.empty(cells, np.int64), starts.copy()
    for j in range(cells):
        order[filled[groups[chosen, j]]] = j
        filled[groups[chosen, j]] += 1
    tables, rows = 0, 0
    first = np.full(queries, -1, np.int64)
    for q in range(queries):
        if owner[q] == q:
            first[q] = rows
            tables += 1
            rows += sizes[q]
    sums = np.empty((cells, tables), np.int64)
    table = 0
    for q in range(queries):
        if owner[q] == q:
            for j in range(cells):
                sums[j, table] = groups[q, j] + first[q] if groups[q, j] >= 0 else -1
            table += 1
    values, across = np.zeros(used), np.zeros((rows, rows))
    for q in range(queries):
        if owner[q] >= 0:
            own = owner[q]
            group_of = np.full(sizes[own], -1, np.int64)
            for j in range(cells):
                if groups[own, j] >= 0:
                    group_of[groups[own, j]] = groups[q, j]
            for a in range(sizes[own]):
                for b in range(sizes[own]):
                    if group_of[a] >= 0 and group_of[a] == group_of[b]:
                        across[first[own] + a, first[own] + b] += weights[q]
            continue
        for k in range(len(offsets)):
            at = offsets[k]
            for i in range(starts[k], starts[k + 1]):
                mine = groups[q, order[i]]
                for j in range(starts[k], starts[k + 1]):
                    if mine >= 0 and groups[q, order[j]] == mine:
                        values[at] += weights[q]
                    at += 1
    return Gram(order, starts, values, offsets, sums, across, across)


@njit(cache=True, nogil=True)
def multiply(gram: Gram, h: FloatArray) -> FloatArray:
    """Return A h_c for each child, a row of h each."""
    children, cells = h.shape
    product = np.zeros((children, cells))
    rows, tables = len(gram.weights), gram.sums.shape[1]
    for c in range(children):
        if len(gram.offsets) == 1:  # its cells are in order
            for i in range(cells):
                value = h[c, i]
                if value != 0.0:
                    for j in range(cells):
                        product[c, j] += gram.values[i * cells + j] * value
        for k in range(len(gram.offsets) if len(gram.offsets) > 1 else 0):
            first, size = gram.starts[k], gram.starts[k + 1] - gram.starts[k]
            for i in range(size):
                value = h[c, gram.order[first + i]]
                if value != 0.0:
                    at = gram.offsets[k] + i * size
                    for j in range(size):
                        product[c, gram.order[first + j]] += gram.values[at + j] * value
        if rows > 0:
            summed = np.zeros(rows)
            for j in range(cells):
                for t in range(tables):
                    if gram.sums[j, t] >= 0:
                        summed[gram.sums[j, t]] += h[c, j]
            weighed = np.zeros(rows)
            for a in range(rows):
                for b in range(rows):
                    weighed[a] += gram.weights[a, b] * summed[b]
            for j in range(cells):
                for t in range(tables):
                    if gram.sums[j, t] >= 0:
                        product[c, j] += weighed[gram.sums[j, t]]
    return product


@njit(cache=True, nogil=True)
def diagonal(gram: Gram) -> FloatArray:
    """Return the diagonal of A."""
    cells, tables = gram.sums.shape
    result = np.zeros(cells)
    for k in range(len(gram.offsets)):
        size = gram.starts[k + 1] - gram.starts[k]
        for i in range(size):
            result[gram.order[gram.starts[k] + i]] = gram.values[gram.offsets[k] + i * (size + 1)]
    for j in range(cells):
        for s in range(tables):
            for t in range(tables):
                if gram.sums[j, s] >= 0 and gram.sums[j, t] >= 0:
                    result[j] += gram.weights[gram.sums[j, s], gram.sums[j, t]]
    return result


@njit(cache=True, nogil=True)
def largest_sum(gram: Gram) -> float:
    """Return a bound on the largest eigenvalue of A: the largest row sum of absolute values."""
    sizes = Gram(
        gram.order,
        gram.starts,
        np.abs(gram.values),
        gram.offsets,
        gram.sums,
        np.abs(gram.weights),
        gram.inverse,
    )
    return float(multiply(sizes, np.ones((1, len(gram.order)))).max())


def dense(gram: Gram) -> FloatArray:
    """Return A multiplied out."""
    return np.asarray(multiply(gram, np.eye(len(gram.order))))
