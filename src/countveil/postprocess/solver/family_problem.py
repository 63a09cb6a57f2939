"""The least-squares problem of one family, and the matrices A_c in the blocks that queries give them.

A_c[i, j] = Σ_k C_ck[α(i), α(j)] over the terms k that add up cells i and j. A term is a query; α(i) is
the atom of cell i, and with a single atom C_ck is one number, the weight of the query: A = Σ_k w_k QᵀQ.
Cells are divided into blocks such that the sums of most terms stay inside one; those make a small dense
matrix in each block. The few sums across blocks are kept as rows R: A_c = blocks + RᵀW_c R. Children of
the same shape share one matrix. A matrix passed as it is makes one block and no rows.
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
_FAINT = 1e-9  # of the largest eigenvalue of W


@dataclass(frozen=True, eq=False, slots=True)
class Squares:
    """The matrices A_c, not yet multiplied out.

    Parameters
    ----------
    places : array of terms × cells
        Term k adds up the cells with the same places[k, j]; it leaves out those with -1.
    weights : array of terms, or of shapes × terms × atoms × atoms
        The weight of each query, one over the variance of its noise; or the matrices C.
    atoms : array of cells, optional
        The atom of each cell; by default there is one.
    shape_of : array of children, optional
        Which of the shapes each child has; by default there is one.

    """

    places: IntArray
    weights: FloatArray
    atoms: IntArray | None = None
    shape_of: IntArray | None = None

    @property
    def matrices(self) -> FloatArray:
        """The matrices C: shapes × terms × atoms × atoms."""
        if self.weights.ndim == 4:
            return self.weights
        return self.weights.reshape(1, -1, 1, 1)

    @property
    def cell_atoms(self) -> IntArray:
        """The atom of each cell."""
        return np.zeros(self.places.shape[1], np.int64) if self.atoms is None else self.atoms

    def child_shapes(self, children: int) -> IntArray:
        """Return the shape of each child."""
        return np.zeros(children, np.int64) if self.shape_of is None else self.shape_of

    def without_totals(self) -> SquaresWithoutTotals:
        """Leave out terms of the total, which say nothing once it is fixed."""
        total = (self.places[:, :1] == self.places).all(axis=1) & (self.places[:, 0] >= 0)
        matrices = self.matrices
        if not total.any() or total.all():
            return SquaresWithoutTotals(self, np.zeros(len(matrices)))
        together = matrices[:, total].sum(axis=1)
        mean = together.mean(axis=(1, 2))
        # What differs between atoms stays, with as much of the total as keeps it positive.
        apart = np.abs(together - mean[:, None, None]).max(axis=(1, 2)) * together.shape[1]
        if apart.any():
            weight = np.maximum(mean - apart, 0.0)
            kept = together - weight[:, None, None]
            places = np.vstack([self.places[~total], np.zeros((1, self.places.shape[1]), np.int64)])
            rest = np.concatenate([matrices[:, ~total], kept[:, None]], axis=1)
            return SquaresWithoutTotals(Squares(places, rest, self.atoms, self.shape_of), weight)
        rest = np.ascontiguousarray(matrices[:, ~total])
        return SquaresWithoutTotals(
            Squares(self.places[~total], rest, self.atoms, self.shape_of), mean
        )

    def within(self, kept: NDArray[np.bool_]) -> Squares:
        """Return the squares over some of the cells."""
        atoms = None if self.atoms is None else self.atoms[kept]
        places = np.ascontiguousarray(self.places[:, kept])
        return Squares(places, self.weights, atoms, self.shape_of)


class SquaresWithoutTotals(NamedTuple):
    """The squares of all other queries, and for each shape the weight that was left out."""

    squares: Squares
    weight: FloatArray


class Gram(NamedTuple):
    """The matrices A_c in blocks, one of each kind per shape; child c has shape shape_of[c].

    Block k has the cells order[starts[k]:starts[k+1]] and its matrix, row by row, from
    values[shape, offsets[k]]. Cell j counts in the rows sums[j] (-1: none) with weights W
    (`weights[shape]`), and `inverse` is W⁻¹.
    """

    order: IntArray
    starts: IntArray
    values: FloatArray
    offsets: IntArray
    sums: IntArray
    weights: FloatArray
    inverse: FloatArray
    shape_of: IntArray


@dataclass(frozen=True, eq=False, slots=True)
class FamilyProblem:
    """min Σ_c ½ h_cᵀA_c h_c − b_cᵀh_c,  h ≥ 0,  Σ_c h_c = parent,  1ᵀh_c = totals_c.

    h is 0 where not allowed. An empty parent or empty totals fix nothing; `rows` bound other sums.
    """

    gram: Gram
    b: FloatArray
    parent: FloatArray
    totals: FloatArray
    allowed: NDArray[np.bool_]
    rows: Sequence[Row] = ()

    def matrices(self) -> FloatArray:
        """Return the matrices A multiplied out: shapes × cells × cells."""
        return dense(self.gram)

    @property
    def scale(self) -> float:
        """The largest of the sums, at least 1; entries are measured relative to it."""
        bounds = [bound for row in self.rows for bound in (row.lower, row.upper)]
        sums = [self.parent.max(initial=0.0), self.totals.max(initial=0.0), *bounds]
        return float(max(1.0, *(value for value in sums if np.isfinite(value))))


def gram_in_one_block(A: FloatArray, shape_of: IntArray) -> Gram:
    """Return matrices, shapes × cells × cells, as one block each."""
    shapes, cells, _ = A.shape
    return Gram(
        np.arange(cells),
        np.array([0, cells]),
        np.ascontiguousarray(A).reshape(shapes, -1),
        np.zeros(1, np.int64),
        np.empty((cells, 0), np.int64),
        np.empty((shapes, 0, 0)),
        np.empty((shapes, 0, 0)),
        shape_of,
    )


def gram_in_blocks(squares: Squares, children: int) -> Gram:
    """Return the matrices in the blocks that are cheapest for a family with this many children."""
    places, matrices, atoms = squares.places, squares.matrices, squares.cell_atoms
    shape_of = squares.child_shapes(children)
    whole = places.shape[1] <= _WHOLE
    if not whole:
        groups, _ = _numbered(places, np.zeros_like(atoms), 1)
        fine, sizes = _numbered(places, atoms, matrices.shape[2])
        chosen, owner = _cheapest(groups, sizes, children)
        whole = chosen < 0
    if not whole:
        gram: Gram = _divided(groups, fine, sizes, atoms, matrices, chosen, owner, shape_of)
        return gram._replace(inverse=_inverse(gram.weights))
    return gram_in_one_block(multiplied_out(places, atoms, matrices), shape_of)


def _inverse(weights: FloatArray) -> FloatArray:
    """Return inverses of W, as if what W leaves out had a faint weight.

    Sums across blocks can follow from each other, and then W is singular. Solutions are refined with W
    itself, so that the faint weight does not show in them.
    """
    if not weights.size:
        return weights
    values, vectors = np.linalg.eigh(weights)
    least = _FAINT * np.abs(values).max(axis=1, keepdims=True)
    least = np.where(least > 0, least, 1.0)
    kept = np.where(np.abs(values) > least, values, least)
    return np.asarray((vectors / kept[:, None, :]) @ np.swapaxes(vectors, 1, 2), float)


@njit(cache=True, nogil=True)
def multiplied_out(places: IntArray, atoms: IntArray, matrices: FloatArray) -> FloatArray:
    """Return A of each shape: shapes × cells × cells."""
    terms, cells = places.shape
    shapes = len(matrices)
    A = np.zeros((shapes, cells, cells))
    for k in range(terms):
        for i in range(cells):
            place = places[k, i]
            if place < 0:
                continue
            for j in range(cells):
                if places[k, j] == place:
                    for s in range(shapes):
                        A[s, i, j] += matrices[s, k, atoms[i], atoms[j]]
    return A


@njit(cache=True, nogil=True)
def _numbered(places: IntArray, atoms: IntArray, count: int) -> Any:
    """Number the sums of each term that occur, atom by atom, from 0; return numbers and their count."""
    queries, cells = places.shape
    groups = np.empty((queries, cells), np.int64)
    sizes = np.zeros(queries, np.int64)
    seen = np.full((places.max() + 1) * count, -1, np.int64)
    for k in range(queries):
        for j in range(cells):
            place = places[k, j] * count + atoms[j]
            if places[k, j] >= 0 and seen[place] < 0:
                seen[place] = sizes[k]
                sizes[k] += 1
            groups[k, j] = seen[place] if places[k, j] >= 0 else -1
        for j in range(cells):
            if places[k, j] >= 0:
                seen[places[k, j] * count + atoms[j]] = -1
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

    `sizes` counts the sums of a query atom by atom: the rows that it needs across blocks. A query
    inside the blocks has owner -1; one across them is its own owner, or a sum of its owner's sums.
    """
    queries, cells = groups.shape
    inside, summed = np.zeros((2, queries, queries), np.bool_)
    above = np.empty(cells, np.int64)
    coarse = np.zeros(queries, np.int64)  # sums without regard to atoms
    for q in range(queries):
        coarse[q] = groups[q].max() + 1
    for p in range(queries):
        for q in range(queries):
            inside[q, p] = _refines(groups[q], groups[p], above, False)
            summed[q, p] = sizes[q] >= sizes[p] and _refines(groups[q], groups[p], above, True)
    best, least = -1, (children + 1.0) * float(cells) ** 3
    owners = np.full(queries, -1, np.int64)
    for p in range(queries):
        if coarse[p] < 2 or coarse[p] == cells or groups[p].min() < 0:
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
        count = np.zeros(coarse[p])
        for j in range(cells):
            count[groups[p, j]] += 1.0
        for k in range(coarse[p]):
            cost += children * count[k] ** 2 * (count[k] + rows)
        cost += children * rows**2 * (cells + rows) + min(float(cells), children * rows) ** 3
        if cost < least:
            best, least, owners = p, cost, owner
    return best, owners


@njit(cache=True, nogil=True)
def _divided(
    groups: IntArray,
    fine: IntArray,
    sizes: IntArray,
    atoms: IntArray,
    matrices: FloatArray,
    chosen: int,
    owner: IntArray,
    shape_of: IntArray,
) -> Any:
    """Return the matrices with the cells divided by the sums of the chosen query.

    `groups` are the sums of each query, `fine` the same atom by atom.
    """
    queries, cells = groups.shape
    shapes, blocks = len(matrices), groups[chosen].max() + 1
    starts = np.zeros(blocks + 1, np.int64)
    for j in range(cells):
        starts[groups[chosen, j] + 1] += 1
    offsets = np.zeros(blocks, np.int64)
    used = 0
    for k in range(blocks):
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
                sums[j, table] = fine[q, j] + first[q] if fine[q, j] >= 0 else -1
            table += 1
    values, across = np.zeros((shapes, used)), np.zeros((shapes, rows, rows))
    for q in range(queries):
        if owner[q] >= 0:
            own = owner[q]
            group_of = np.full(sizes[own], -1, np.int64)
            atom_of = np.zeros(sizes[own], np.int64)
            for j in range(cells):
                if fine[own, j] >= 0:
                    group_of[fine[own, j]] = groups[q, j]
                    atom_of[fine[own, j]] = atoms[j]
            for a in range(sizes[own]):
                for b in range(sizes[own]):
                    if group_of[a] >= 0 and group_of[a] == group_of[b]:
                        for s in range(shapes):
                            across[s, first[own] + a, first[own] + b] += matrices[
                                s, q, atom_of[a], atom_of[b]
                            ]
            continue
        for k in range(blocks):
            at = offsets[k]
            for i in range(starts[k], starts[k + 1]):
                mine = groups[q, order[i]]
                for j in range(starts[k], starts[k + 1]):
                    if mine >= 0 and groups[q, order[j]] == mine:
                        for s in range(shapes):
                            values[s, at] += matrices[s, q, atoms[order[i]], atoms[order[j]]]
                    at += 1
    return Gram(order, starts, values, offsets, sums, across, across, shape_of)


@njit(cache=True, nogil=True)
def multiply(gram: Gram, h: FloatArray) -> FloatArray:
    """Return A_c h_c for each child, a row of h each."""
    children, cells = h.shape
    product = np.zeros((children, cells))
    rows, tables = gram.weights.shape[1], gram.sums.shape[1]
    for c in range(children):
        values, weights = gram.values[gram.shape_of[c]], gram.weights[gram.shape_of[c]]
        if len(gram.offsets) == 1:  # its cells are in order
            for i in range(cells):
                value = h[c, i]
                if value != 0.0:
                    for j in range(cells):
                        product[c, j] += values[i * cells + j] * value
        for k in range(len(gram.offsets) if len(gram.offsets) > 1 else 0):
            first, size = gram.starts[k], gram.starts[k + 1] - gram.starts[k]
            for i in range(size):
                value = h[c, gram.order[first + i]]
                if value != 0.0:
                    at = gram.offsets[k] + i * size
                    for j in range(size):
                        product[c, gram.order[first + j]] += values[at + j] * value
        if rows > 0:
            summed = np.zeros(rows)
            for j in range(cells):
                for t in range(tables):
                    if gram.sums[j, t] >= 0:
                        summed[gram.sums[j, t]] += h[c, j]
            weighed = np.zeros(rows)
            for a in range(rows):
                for b in range(rows):
                    weighed[a] += weights[a, b] * summed[b]
            for j in range(cells):
                for t in range(tables):
                    if gram.sums[j, t] >= 0:
                        product[c, j] += weighed[gram.sums[j, t]]
    return product


@njit(cache=True, nogil=True)
def diagonals(gram: Gram) -> FloatArray:
    """Return the diagonal of A of each shape: shapes × cells."""
    cells, tables = gram.sums.shape
    result = np.zeros((len(gram.values), cells))
    for s in range(len(gram.values)):
        for k in range(len(gram.offsets)):
            size = gram.starts[k + 1] - gram.starts[k]
            for i in range(size):
                at = gram.offsets[k] + i * (size + 1)
                result[s, gram.order[gram.starts[k] + i]] = gram.values[s, at]
        for j in range(cells):
            for t in range(tables):
                for u in range(tables):
                    if gram.sums[j, t] >= 0 and gram.sums[j, u] >= 0:
                        result[s, j] += gram.weights[s, gram.sums[j, t], gram.sums[j, u]]
    return result


@njit(cache=True, nogil=True)
def largest_sum(gram: Gram) -> float:
    """Return a bound on the largest eigenvalue of all A: the largest row sum of absolute values."""
    shapes = len(gram.values)
    sizes = Gram(
        gram.order,
        gram.starts,
        np.abs(gram.values),
        gram.offsets,
        gram.sums,
        np.abs(gram.weights),
        gram.inverse,
        np.arange(shapes),
    )
    return float(multiply(sizes, np.ones((shapes, len(gram.order)))).max())


def dense(gram: Gram) -> FloatArray:
    """Return the matrices A multiplied out: shapes × cells × cells."""
    cells = len(gram.order)
    same = [gram._replace(shape_of=np.full(cells, s)) for s in range(len(gram.values))]
    return np.stack([np.asarray(multiply(one, np.eye(cells))) for one in same])
