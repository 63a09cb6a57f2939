"""Products of tables with one matrix for each of their axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from countveil.numerics import FloatArray

_TOGETHER = 64  # rows and columns up to which matrices of neighbouring axes are multiplied out


def merged(matrices: Sequence[FloatArray]) -> list[FloatArray]:
    """Multiply out matrices of neighbouring axes while they stay small: one pass then serves both."""
    result: list[FloatArray] = []
    for matrix in matrices:
        if result and all(
            one * other <= _TOGETHER
            for one, other in zip(result[-1].shape, matrix.shape, strict=True)
        ):
            result[-1] = np.asarray(np.kron(result[-1], matrix), float)
        else:
            result.append(np.ascontiguousarray(matrix))
    return result


def contract(table: FloatArray, matrices: Sequence[FloatArray]) -> FloatArray:
    """Multiply a table, units × the rows of each matrix, along every axis: units × the columns."""
    units = len(table)
    shape = [units, *(len(matrix) for matrix in matrices)]
    flat = table.reshape(units, -1)
    # First where most is added up: what comes after has less to do.
    for axis in sorted(range(len(matrices)), key=lambda n: matrices[n].shape[1] / len(matrices[n])):
        matrix = matrices[axis]
        before, after = math.prod(shape[: axis + 1]), math.prod(shape[axis + 2 :])
        if after == 1:
            flat = flat.reshape(before, len(matrix)) @ matrix
        else:
            flat = np.matmul(matrix.T, flat.reshape(before, len(matrix), after))
        shape[axis + 1] = matrix.shape[1]
    return flat.reshape(units, math.prod(shape[1:]))


def outer(factors: Sequence[FloatArray]) -> FloatArray:
    """Return the Kronecker product of square matrices, in stacks: stack axes multiply out too.

    Factor a is (n_a, d_a, e_a); the result is (Π n_a, Π d_a, Π e_a).
    """
    result = np.ones((1, 1, 1))
    for factor in factors:
        product = np.einsum("nij,mkl->nmikjl", result, factor)
        shape = [one * other for one, other in zip(result.shape, factor.shape, strict=True)]
        result = product.reshape(shape)
    return result
