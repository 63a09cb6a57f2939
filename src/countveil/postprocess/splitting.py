"""The fallback: ADMM on copies of the family, one for each kind of constraint, with one factor."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg

from countveil.numerics import FloatArray
from countveil.postprocess.gradient import project
from countveil.postprocess.problem import Problem

_RELAXATION = 1.6  # Boyd et al. (2011), section 3.4.3

Projection = Callable[[FloatArray], FloatArray]


def split(problem: Problem, steps: int) -> FloatArray:
    """Return a nearly optimal h: non-negative, its sums exact, its totals nearly so.

    Rows are left out. All children and all copies share one Cholesky factor of A + ρ K I, K the
    number of copies.
    """
    A, b = problem.matrix(), problem.b
    projections = _projections(problem)
    weight = len(projections)
    eigenvalues = scipy.linalg.eigvalsh(A)
    largest = float(eigenvalues[-1])
    rho = float(np.sqrt(max(eigenvalues[0], 1e-8 * largest) * largest))
    factor = scipy.linalg.cho_factor(A + rho * weight * np.eye(len(A)))
    copies = [projection(b / np.diag(A)) for projection in projections]
    duals = [np.zeros_like(b) for _ in projections]
    for _ in range(steps):
        pulled = sum((copy - dual for copy, dual in zip(copies, duals, strict=True)), 0.0 * b)
        h = scipy.linalg.cho_solve(factor, (b + rho * pulled).T).T
        for number, projection in enumerate(projections):
            ahead = _RELAXATION * h + (1 - _RELAXATION) * copies[number]
            copies[number] = projection(ahead + duals[number])
            duals[number] += ahead - copies[number]
    return np.asarray(copies[0])


def _projections(problem: Problem) -> list[Projection]:
    parent, totals, allowed = problem.parent, problem.totals, problem.allowed

    def onto_sums(x: FloatArray) -> FloatArray:
        x = np.ascontiguousarray(x).copy()
        if len(parent):
            project(x, parent, allowed)
            return x
        return np.asarray(np.where(allowed, np.maximum(x, 0.0), 0.0), float)

    def onto_totals(x: FloatArray) -> FloatArray:
        missing: FloatArray = (totals - x.sum(axis=1)) / x.shape[1]
        return x + missing[:, None]

    return [onto_sums, onto_totals] if len(totals) else [onto_sums]
