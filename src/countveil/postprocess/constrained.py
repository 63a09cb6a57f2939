"""Families with rows: an interior point finds which bounds hold, an active set ends it exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import splu

from countveil.numerics import FloatArray
from countveil.postprocess.interior import Point, Program, approach
from countveil.postprocess.problem import Problem
from countveil.postprocess.rows import as_matrix

_TOLERANCE = 1e-11
_ROUNDING = 1e-14
_PIVOTS = 12
_REFINEMENTS = 50


@dataclass(frozen=True, eq=False, slots=True)
class Solved:
    """h, its reduced gradients (A h − b less all multipliers), and the multipliers of the rows."""

    h: FloatArray
    reduced: FloatArray
    along: FloatArray
    iterations: int


def solve_rows(problem: Problem) -> Solved:
    """Solve a family with rows; each bound of a row gets a slack entry that is 0 where it holds."""
    A, b, rows = problem.matrix(), problem.b, problem.rows
    children, cells = b.shape
    inside = np.flatnonzero(problem.allowed.reshape(-1))
    matrix = as_matrix(rows, children, cells)[:, inside]
    lower = np.array([row.lower for row in rows])
    upper = np.array([row.upper for row in rows])
    same = lower == upper
    low, high = ~same & np.isfinite(lower), ~same & np.isfinite(upper)
    sums, values = _sums(problem)
    counts = [len(values), int(same.sum()), int(low.sum()), int(high.sum())]
    slack = sp.vstack(
        [
            sp.csr_array((counts[0] + counts[1], counts[2] + counts[3])),
            sp.diags_array(np.repeat([-1.0, 1.0], counts[2:])),
        ]
    )
    M = sp.hstack([sp.vstack([sums[:, inside], matrix[same], matrix[low], matrix[high]]), slack])
    Q = sp.block_diag(
        [
            sp.block_diag([A] * children, format="csr")[inside][:, inside],
            sp.csr_array((slack.shape[1], slack.shape[1])),
        ]
    )
    program = Program(
        sp.csr_array(Q),
        np.concatenate([b.reshape(-1)[inside], np.zeros(slack.shape[1])]),
        sp.csr_array(M),
        np.concatenate([values, lower[same], lower[low], upper[high]]),
    )
    try:
        x, multipliers, iterations = _pivot(program, approach(program), _softest(A))
    except RuntimeError:  # a singular system: nothing is proved, and the certificate says so
        nothing = np.zeros(b.shape)
        return Solved(nothing, np.full(b.shape, np.inf), np.zeros(len(rows)), _PIVOTS)
    _, for_same, for_low, for_high = np.split(multipliers, np.cumsum(counts)[:-1])
    along = np.zeros(len(rows))
    along[same] = for_same
    along[low] += for_low
    along[high] += for_high
    h, reduced = np.zeros(children * cells), np.zeros(children * cells)
    h[inside] = x[: len(inside)]
    reduced[inside] = (program.Q @ x - program.b - program.M.T @ multipliers)[: len(inside)]
    return Solved(h.reshape(b.shape), reduced.reshape(b.shape), along, iterations)


def _softest(A: FloatArray) -> float:
    """Return the least curvature of A: one over it is how far multipliers may move entries."""
    eigenvalues = np.linalg.eigvalsh(A)
    return float(max(eigenvalues[0], 1e-12 * eigenvalues[-1]))


def _pivot(p: Program, near: Point, softest: float) -> tuple[FloatArray, FloatArray, int]:
    """Solve with the entries that are not free at 0, and mend what was taken for the other."""
    x, multipliers, free = near.x, near.y, near.positive
    scale = max(1.0, float(np.abs(p.m).max(initial=0.0)))
    steps = 0
    while True:
        steps += 1
        x, multipliers = _solve(p, free, x, multipliers, softest)
        reduced = p.Q @ x - p.b - p.M.T @ multipliers
        steep = float(np.abs(p.b).max()) + float(np.abs(multipliers).max(initial=0.0))
        drop = free & ~(x >= -_TOLERANCE * scale)
        flat = _TOLERANCE * scale * p.Q.diagonal() + _ROUNDING * steep
        add = ~free & ~(reduced >= -flat)
        if steps == _PIVOTS or not (drop | add).any():
            return np.maximum(x, 0.0), multipliers, steps
        free = (free & ~drop) | add


def _sums(problem: Problem) -> tuple[sp.csr_array, FloatArray]:
    """Return the plain sums as a matrix over all entries, and their values."""
    children, cells = problem.b.shape
    parts, values = [sp.csr_array((0, children * cells))], [np.empty(0)]
    if len(problem.parent):
        parts.append(sp.kron(np.ones((1, children)), sp.eye_array(cells)))
        values.append(problem.parent)
    if len(problem.totals):
        parts.append(sp.kron(sp.eye_array(children), np.ones((1, cells))))
        values.append(problem.totals)
    return sp.csr_array(sp.vstack(parts)), np.concatenate(values)


def _solve(
    p: Program, free: NDArray[np.bool_], x: FloatArray, y: FloatArray, softest: float
) -> tuple[FloatArray, FloatArray]:
    """Minimise over the free entries, from x and multipliers y near by.

    Sums may be redundant; then many multipliers will do, and those near y have the right signs.
    """
    inside = np.flatnonzero(free)
    Q, M = p.Q[inside][:, inside], p.M[:, inside]
    corner = sp.csr_array((len(p.m), len(p.m)))
    exact = sp.csc_array(sp.block_array([[Q, -M.T], [M, corner]]))
    # Iterated regularisation: the damped system is solved again for what it leaves over, and that
    # converges to a solution of the exact one.
    damping = np.repeat([1e-8 * softest, 1e-10 / softest], [len(inside), len(p.m)])
    factor = splu(sp.csc_matrix(exact + sp.diags_array(damping)))
    right = np.concatenate([p.b[inside], p.m])
    solution = np.concatenate([x[inside], y])
    for _ in range(_REFINEMENTS):
        change = factor.solve(right - exact @ solution)
        solution += change
        if (np.abs(change) <= 1e-15 * np.abs(solution).max(initial=0.0)).all():
            break
    x = np.zeros(len(p.b))
    x[inside] = solution[: len(inside)]
    return x, solution[len(inside) :]
