"""The rows of a child: the sums of cells that are measured across blocks, and its total where fixed."""

from __future__ import annotations

import numpy as np
from numba import njit

from countveil.numerics import FloatArray, IntArray
from countveil.postprocess.gram import Gram


@njit(cache=True, nogil=True)
def row_count(gram: Gram, fixed: bool) -> int:
    """Return how many rows a child has: the sums across blocks, and last its total where fixed."""
    return len(gram.weights) + (1 if fixed else 0)


@njit(cache=True, nogil=True)
def _sum_up(gram: Gram, cell: int, value: float, fixed: bool, rows: FloatArray) -> None:
    """Add the value of a cell to the rows it counts in."""
    for t in range(gram.sums.shape[1]):
        if gram.sums[cell, t] >= 0:
            rows[gram.sums[cell, t]] += value
    if fixed:
        rows[len(rows) - 1] += value


@njit(cache=True, nogil=True)
def spread(gram: Gram, cell: int, rows: FloatArray, fixed: bool) -> float:
    """Return what the rows of a cell hold together."""
    value = rows[len(rows) - 1] if fixed else 0.0
    for t in range(gram.sums.shape[1]):
        if gram.sums[cell, t] >= 0:
            value += rows[gram.sums[cell, t]]
    return value


@njit(cache=True, nogil=True)
def row_responses(
    gram: Gram, F: IntArray, P: FloatArray, at: int, fixed: bool, Y: FloatArray
) -> None:
    """Write P Rᵀ for the free cells F of a block into Y: how each answers a push on each row."""
    size = len(F)
    for i in range(size):
        Y[i] = 0.0
        for j in range(size):
            _sum_up(gram, F[j], P[at + i * size + j], fixed, Y[i])


@njit(cache=True, nogil=True)
def row_sums(gram: Gram, h: FloatArray, rows: int, fixed: bool) -> FloatArray:
    """Return R h_c for each child."""
    sums = np.zeros((len(h), rows))
    for c in range(len(h)):
        for j in range(h.shape[1] if rows > 0 else 0):
            if h[c, j] != 0.0:
                _sum_up(gram, j, h[c, j], fixed, sums[c])
    return sums
