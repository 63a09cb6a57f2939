"""Cholesky factors and inverses of symmetric positive definite matrices, compiled.

Small matrices are treated in plain loops, large ones panel by panel, so that most of the work is in
products of matrices. A matrix that rounding made indefinite is left to LAPACK.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from countveil.base.numerics import FloatArray

_SMALL = 32  # up to this size plain loops are faster
_PANEL = 48  # columns that are factored together


@njit(cache=True, nogil=True)
def inverse_of(M: FloatArray) -> Any:
    """Return the inverse of a symmetric positive matrix, overwriting M."""
    size = len(M)
    kept = M.copy()
    if size <= _SMALL:
        if _invert_small(M, size):
            return M
    elif _factor(M):
        _invert_factor(M)
        return _times_transpose(M)
    return np.ascontiguousarray(_solve(kept, np.eye(size)))


@njit(cache=True, nogil=True)
def factor_of(M: FloatArray) -> Any:
    """Return the lower Cholesky factor of a matrix, for `solve_factored`; overwrite the matrix.

    Only its lower half is read. If it is not positive its inverse is returned instead, with a last row
    that says so.
    """
    size = len(M)
    kept = M.copy()
    result = np.zeros((size + 1, size))
    if _factor(M):
        result[:size] = M
    else:
        for i in range(size):
            kept[i, i + 1 :] = kept[i + 1 :, i]
        result[:size] = _solve(kept, np.eye(size))
        result[size] = 1.0
    return result


@njit(cache=True, nogil=True)
def solve_factored(factor: FloatArray, side: FloatArray) -> Any:
    """Return M⁻¹ side, with the factor of M that `factor_of` returned."""
    size = len(side)
    if size == 0:
        return side.copy()
    if factor[size, 0] != 0.0:
        return np.dot(factor[:size], side)
    x = side.copy()
    for i in range(size):
        total = x[i]
        for k in range(i):
            total -= factor[i, k] * x[k]
        x[i] = total / factor[i, i]
    for i in range(size - 1, -1, -1):
        x[i] /= factor[i, i]
        for k in range(i):
            x[k] -= factor[i, k] * x[i]
    return x


@njit(cache=True, nogil=True)
def _factor_small(M: FloatArray, size: int) -> bool:
    """Replace the lower half of a small matrix by its Cholesky factor; False if it is not positive."""
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
    return True


@njit(cache=True, nogil=True)
def _invert_small_factor(M: FloatArray, size: int) -> None:
    """Replace a lower factor by its inverse."""
    for j in range(size):
        M[j, j] = 1.0 / M[j, j]
        for i in range(j + 1, size):
            total = 0.0
            for k in range(j, i):
                total -= M[i, k] * M[k, j]
            M[i, j] = total / M[i, i]


@njit(cache=True, nogil=True)
def _invert_small(M: FloatArray, size: int) -> bool:
    """Invert a small symmetric matrix in place; return False if it is not positive."""
    if not _factor_small(M, size):
        return False
    _invert_small_factor(M, size)
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
def _factor(M: FloatArray) -> bool:
    """Replace M by its lower factor, 0 above the diagonal; return False if it is not positive."""
    size = len(M)
    for first in range(0, size, _PANEL):
        last = min(first + _PANEL, size)
        if first > 0:
            done = np.ascontiguousarray(M[first:, :first])
            above = np.ascontiguousarray(M[first:last, :first].T)
            M[first:, first:last] -= np.dot(done, above)
        corner = M[first:last, first:last].copy()
        if not _factor_small(corner, last - first):
            return False
        for i in range(last - first):
            corner[i, i + 1 :] = 0.0
            M[first + i, first:last] = corner[i]
            M[first + i, last:] = 0.0
        if last < size:
            _invert_small_factor(corner, last - first)
            below = np.ascontiguousarray(M[last:, first:last])
            M[last:, first:last] = np.dot(below, np.ascontiguousarray(corner.T))
    return True


@njit(cache=True, nogil=True)
def _invert_factor(L: FloatArray) -> None:
    """Replace a lower factor by its inverse, panel by panel."""
    size = len(L)
    for first in range(0, size, _PANEL):
        last = min(first + _PANEL, size)
        corner = L[first:last, first:last].copy()
        _invert_small_factor(corner, last - first)
        L[first:last, first:last] = corner
        if first > 0:
            left = np.ascontiguousarray(L[first:last, :first])
            above = np.ascontiguousarray(L[:first, :first])
            L[first:last, :first] = -np.dot(corner, np.dot(left, above))


@njit(cache=True, nogil=True)
def _times_transpose(L: FloatArray) -> FloatArray:
    """Return LᵀL for a lower matrix L."""
    size = len(L)
    product = np.empty((size, size))
    for first in range(0, size, _PANEL):
        last = min(first + _PANEL, size)
        left = np.ascontiguousarray(L[first:, first:last].T)
        part = np.dot(left, np.ascontiguousarray(L[first:, :last]))
        product[first:last, :last] = part
        product[:last, first:last] = part.T
    return product


@njit(cache=True, nogil=True)
def _solve(M: FloatArray, sides: FloatArray) -> Any:
    """Solve by LAPACK; the only such call, since each takes seconds to compile."""
    return np.linalg.solve(M, sides)
