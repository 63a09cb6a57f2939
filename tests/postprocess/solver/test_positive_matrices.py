"""Factors and inverses of positive matrices, against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from countveil.postprocess.solver.positive_matrices import factor_of, inverse_of, solve_factored


@pytest.mark.parametrize("size", [1, 5, 31, 33, 48, 49, 96, 130])
def test_inverse_and_factor_agree_with_numpy(size):
    rng = np.random.default_rng(size)
    half = rng.normal(size=(size, size + 3))
    matrix = half @ half.T + 0.01 * np.eye(size)
    side = rng.normal(size=size)
    inverse = np.linalg.inv(matrix)
    assert inverse_of(matrix.copy()) == pytest.approx(inverse, rel=1e-8, abs=1e-9 * inverse.max())
    lower_half = np.tril(matrix) + np.triu(np.full((size, size), np.nan), 1)
    assert solve_factored(factor_of(lower_half), side) == pytest.approx(inverse @ side, rel=1e-7)


def test_a_matrix_that_is_not_positive_is_solved_all_the_same():
    size = 60
    rng = np.random.default_rng(1)
    half = rng.normal(size=(size, size))
    matrix = half + half.T  # eigenvalues of both signs
    side = rng.normal(size=size)
    expected = np.linalg.solve(matrix, side)
    assert inverse_of(matrix.copy()) @ side == pytest.approx(expected, rel=1e-7)
    assert solve_factored(factor_of(np.tril(matrix)), side) == pytest.approx(expected, rel=1e-7)


def test_nothing_has_nothing_to_solve():
    assert solve_factored(factor_of(np.empty((0, 0))), np.empty(0)).shape == (0,)
