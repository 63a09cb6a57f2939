"""Least squares over the free entries of a family, solved with what was prepared."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from countveil.numerics import FloatArray
from countveil.postprocess.free_rows import row_count, row_sums, spread
from countveil.postprocess.gram import Gram


@njit(cache=True, nogil=True)
def _respond(
    gram: Gram, factor: Any, x: FloatArray, lam: FloatArray, z: FloatArray, fixed: bool
) -> FloatArray:
    """Return P_c (x_c + λ + Rᵀz_c) for each child."""
    listed, first, P, at = factor[0], factor[1], factor[2], factor[3]
    blocks = len(gram.offsets)
    h = np.zeros(x.shape)
    rows = z.shape[1]
    pushed = np.empty(x.shape[1])
    for c in range(len(x)):
        for k in range(blocks):
            n = c * blocks + k
            F = listed[first[n] : first[n + 1]]
            size = len(F)
            for j in range(size):
                pushed[j] = x[c, F[j]] + lam[F[j]]
                if rows > 0:
                    pushed[j] += spread(gram, F[j], z[c], fixed)
            for i in range(size):
                total = 0.0
                for j in range(size):
                    total += P[at[n] + i * size + j] * pushed[j]
                h[c, F[i]] = total
    return h


@njit(cache=True, nogil=True)
def _in_blocks(gram: Gram, C: FloatArray, x: FloatArray) -> FloatArray:
    """Multiply by a matrix that is zero outside the blocks."""
    product = np.zeros(len(x))
    for k in range(len(gram.offsets)):
        begin, size = gram.starts[k], gram.starts[k + 1] - gram.starts[k]
        for i in range(size):
            total = 0.0
            for j in range(size):
                total += C[gram.offsets[k] + i * size + j] * x[gram.order[begin + j]]
            product[gram.order[begin + i]] = total
    return product


@njit(cache=True, nogil=True)
def solve_free(
    gram: Gram, factor: Any, b: FloatArray, parent: FloatArray, totals: FloatArray
) -> Any:
    """Solve with what `prepare` gives; return h, λ, μ."""
    rows_first, middle, inner, S = factor[4], factor[5], factor[6], factor[7]
    children, cells = b.shape
    summed, fixed = len(parent) > 0, len(totals) > 0
    rows = row_count(gram, fixed)
    lam, z = np.zeros(cells), np.zeros((children, rows))
    h = _respond(gram, factor, b, lam, z, fixed)
    left = -row_sums(gram, h, rows, fixed)
    for c in range(len(totals)):
        left[c, rows - 1] += (
            totals[c]
            if factor[1][c * len(gram.offsets)] < factor[1][(c + 1) * len(gram.offsets)]
            else 0.0
        )
    if summed:
        over = parent.copy()
        for c in range(children):
            over -= h[c]
        nothing = np.zeros((children, cells))
        if rows_first:
            for c in range(children):
                z[c] = np.dot(inner[c], left[c])
            for answer in _respond(gram, factor, nothing, lam, z, fixed):
                over -= answer
            lam = np.dot(S, over)
            z[:] = 0.0
            left -= row_sums(gram, _respond(gram, factor, nothing, lam, z, fixed), rows, fixed)
        else:
            lam = _in_blocks(gram, middle, over)
            if rows > 0:
                answers = _respond(gram, factor, nothing, lam, z, fixed)
                left -= row_sums(gram, answers, rows, fixed)
                z = np.dot(S, left.copy().reshape(children * rows)).reshape(children, rows)
                lam[:] = 0.0
                for answer in _respond(gram, factor, nothing, lam, z, fixed):
                    over -= answer
                lam = _in_blocks(gram, middle, over)
    if rows_first or not summed:
        for c in range(children if rows > 0 else 0):
            z[c] = np.dot(inner[c], left[c])
    h = _respond(gram, factor, b, lam, z, fixed)
    mu = z[:, rows - 1].copy() if fixed else np.zeros(children)
    return h, lam, mu
