"""Least squares over the free entries of a family: what can be prepared before the sums are known."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from countveil.numerics import FloatArray, IntArray
from countveil.postprocess.free_graph import components_of
from countveil.postprocess.free_rows import row_count, row_responses
from countveil.postprocess.gram import Gram
from countveil.postprocess.small_inverse import inverse_of


@njit(cache=True, nogil=True)
def _free_cells(gram: Gram, free: Any) -> Any:
    """List the free cells of each child, block after block; return them and where each list begins."""
    children, cells = free.shape
    blocks = len(gram.offsets)
    first = np.empty(children * blocks + 1, np.int64)
    listed = np.empty(children * cells, np.int64)
    n = 0
    for c in range(children):
        for k in range(blocks):
            first[c * blocks + k] = n
            for i in range(gram.starts[k], gram.starts[k + 1]):
                if free[c, gram.order[i]]:
                    listed[n] = gram.order[i]
                    n += 1
    first[children * blocks] = n
    return listed[:n], first


@njit(cache=True, nogil=True)
def prepare(gram: Gram, free: Any, summed: bool, fixed: bool) -> Any:
    """Prepare to solve with the entries not free at 0 and no sign asked of the others.

    With P_c the inverse of A's blocks over the free cells of child c and R its rows,
    h_c = P_c (b_c + λ + Rᵀz_c), and the sums ask for
        Σ_c P_c λ + Σ_c P_cRᵀ z_c = parent − Σ_c P_c b_c
        R P_c λ + (Ω + R P_cRᵀ) z_c = t_c − R P_c b_c
    where Ω is one over the weights of rows, 0 for a fixed total. Where rows are few, λ is taken out
    first, block by block; where children are many, z_c, child by child. What is left is inverted.
    """
    children, cells = free.shape
    blocks, rows = len(gram.offsets), row_count(gram, fixed)
    listed, first = _free_cells(gram, free)
    at = np.empty(children * blocks + 1, np.int64)
    used, widest = 0, 0
    for n in range(children * blocks):
        at[n] = used
        used += (first[n + 1] - first[n]) ** 2
    for c in range(children):
        widest = max(widest, first[(c + 1) * blocks] - first[c * blocks])
    at[children * blocks] = used
    P = np.empty(used)
    place = np.empty(cells, np.int64)  # of a cell within its block
    for k in range(blocks):
        for i in range(gram.starts[k], gram.starts[k + 1]):
            place[gram.order[i]] = i - gram.starts[k]
    rows_first = summed and not (rows == 0 or (blocks > 1 and children * rows <= cells))
    inner = np.zeros((children, rows, rows))
    S = np.zeros((cells, cells) if rows_first else (0, 0))
    middle = np.zeros(len(gram.values) if summed and not rows_first else 0)
    Y = np.empty((widest, rows))
    for c in range(children):
        begin = first[c * blocks]
        for k in range(blocks):
            n = c * blocks + k
            F = listed[first[n] : first[n + 1]]
            size, full = len(F), gram.starts[k + 1] - gram.starts[k]
            M = np.empty((size, size))
            for i in range(size):
                for j in range(size):
                    M[i, j] = gram.values[gram.offsets[k] + place[F[i]] * full + place[F[j]]]
            M = inverse_of(M)
            for i in range(size):
                for j in range(size):
                    P[at[n] + i * size + j] = M[i, j]
                    if rows_first:
                        S[F[i], F[j]] += M[i, j]
                    elif summed:
                        middle[gram.offsets[k] + place[F[i]] * full + place[F[j]]] += M[i, j]
            if rows > 0:
                here = Y[first[n] - begin : first[n + 1] - begin]
                row_responses(gram, F, P, at[n], fixed, here)
                for i in range(size):
                    for t in range(gram.sums.shape[1]):
                        if gram.sums[F[i], t] >= 0:
                            inner[c, gram.sums[F[i], t]] += here[i]
                    if fixed:
                        inner[c, rows - 1] += here[i]
        if rows == 0:
            continue
        for a in range(len(gram.weights)):
            for b in range(len(gram.weights)):
                inner[c, a, b] += gram.inverse[a, b]
        F = listed[begin : first[(c + 1) * blocks]]
        if fixed and len(F) == 0:
            inner[c, rows - 1, rows - 1] = 1.0
        if rows_first or not summed:
            inner[c] = inverse_of(inner[c].copy())
        if rows_first:
            mine = Y[: len(F)]
            taken = np.dot(np.dot(mine, inner[c]), mine.T)
            for i in range(len(F)):
                for j in range(len(F)):
                    S[F[i], F[j]] -= taken[i, j]
    if rows_first:
        if fixed:
            _tie(S, free, 0)
        S = inverse_of(S)
    elif summed:
        S = _rows_left(gram, free, fixed, listed, first, P, at, place, middle, inner)
    return listed, first, P, at, rows_first, middle, inner, S


@njit(cache=True, nogil=True)
def _rows_left(
    gram: Gram,
    free: Any,
    fixed: bool,
    listed: IntArray,
    first: IntArray,
    P: FloatArray,
    at: IntArray,
    place: IntArray,
    middle: FloatArray,
    inner: FloatArray,
) -> Any:
    """Invert Σ_c P_c in each block, in place, take λ out of the rows, and invert what is left."""
    children, rows = len(free), row_count(gram, fixed)
    blocks = len(gram.offsets)
    T = np.zeros((children * rows, children * rows))
    for c in range(children):
        T[c * rows : (c + 1) * rows, c * rows : (c + 1) * rows] = inner[c]
    for k in range(blocks):
        full = gram.starts[k + 1] - gram.starts[k]
        begin, end = gram.offsets[k], gram.offsets[k] + full * full
        C = inverse_of(middle[begin:end].copy().reshape(full, full))
        middle[begin:end] = C.copy().reshape(full * full)
        if rows == 0:
            continue
        answers = np.zeros((full, children * rows))
        for c in range(children):
            n = c * blocks + k
            F = listed[first[n] : first[n + 1]]
            Y = np.empty((len(F), rows))
            row_responses(gram, F, P, at[n], fixed, Y)
            for i in range(len(F)):
                answers[place[F[i]], c * rows : (c + 1) * rows] = Y[i]
        T -= np.dot(answers.T, np.dot(C, answers))
    if rows == 0:
        return T
    if fixed:
        _tie(T, free, rows)
    return inverse_of(T)


@njit(cache=True, nogil=True)
def _tie(M: FloatArray, free: Any, rows: int) -> None:
    """Make M regular: with fixed totals it is singular, once for each part of the free graph.

    M is over cells if `rows` is 0; else over the rows of each child, of which the last is its total.
    """
    children, cells = free.shape
    above = np.empty(children + cells, np.int64)
    components_of(free, above)
    size = np.zeros(children + cells)
    weight = 0.0
    nodes = children if rows > 0 else cells
    for n in range(nodes):
        size[above[n if rows > 0 else children + n]] += 1.0
        index = n * rows + rows - 1 if rows > 0 else n
        weight += M[index, index] / nodes
    weight = weight if weight > 0.0 else 1.0
    for n in range(nodes):
        for m in range(nodes):
            one = above[n if rows > 0 else children + n]
            other = above[m if rows > 0 else children + m]
            if one == other:
                i = n * rows + rows - 1 if rows > 0 else n
                j = m * rows + rows - 1 if rows > 0 else m
                M[i, j] += weight / size[one]
