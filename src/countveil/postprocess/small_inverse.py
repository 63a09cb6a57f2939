"""Inverses of symmetric positive matrices: small ones in plain loops, others by LAPACK."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from countveil.numerics import FloatArray

# Free sets up to this size are inverted in plain loops; LAPACK is faster beyond.
_SMALL = 32


@njit(cache=True, nogil=True)
def _invert(M: FloatArray, size: int) -> bool:
    """Invert a small symmetric positive matrix in place by Cholesky; False if it is not positive."""
    for i in range(size):
        for j in range(i + 1):
            total = M[i, j]
            for k in range(j):
                total -= M[i, k] * M[j, k]
            if i == j:
                if not total > 0.0:
                    return False
                M[i, i] = np.sqrt(total)
            else:
                M[i, j] = total / M[j, j]
    for j in range(size):  # the inverse of the factor, below the diagonal
        M[j, j] = 1.0 / M[j, j]
        for i in range(j + 1, size):
            total = 0.0
            for k in range(j, i):
                total -= M[i, k] * M[k, j]
            M[i, j] = total / M[i, i]
    for i in range(size):
        for j in range(i + 1):
            total = 0.0
            for k in range(i, size):
                total += M[k, i] * M[k, j]
            M[i, j] = total
    for i in range(size):
        for j in range(i + 1, size):
            M[i, j] = M[j, i]
    return True


@njit(cache=True, nogil=True)
def _solve(M: FloatArray, sides: FloatArray) -> Any:
    """Solve by LAPACK; the one place that does, since each costs seconds to compile."""
    return np.linalg.solve(M, sides)


@njit(cache=True, nogil=True)
def inverse_of(M: FloatArray) -> Any:
    """Return the inverse of a symmetric positive matrix; M is not kept."""
    size = len(M)
    if size <= _SMALL:
        kept = M.copy()
        if _invert(M, size):
            return M
        M = kept
    return np.ascontiguousarray(_solve(M, np.eye(size)))
