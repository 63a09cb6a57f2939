"""Families with rows: an interior point finds which bounds hold, an active set ends it exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from countveil.numerics import FloatArray
from countveil.postprocess.certificate import LARGEST_RESIDUAL, natural_residual
from countveil.postprocess.interior import Blocks, Point, Program, approach, factor, parted, solve
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
    p = parted(
        Blocks(A, problem.allowed, slack.shape[1]),
        np.concatenate([b.reshape(-1)[inside], np.zeros(slack.shape[1])]),
        sp.csr_array(M),
        np.concatenate([values, lower[same], lower[low], upper[high]]),
    )
    x, multipliers, iterations = _end(p, _softest(A), problem.scale)
    _, for_same, for_low, for_high = np.split(multipliers, np.cumsum(counts)[:-1])
    along = np.zeros(len(rows))
    along[same] = for_same
    along[low] += for_low
    along[high] += for_high
    h, reduced = np.zeros(children * cells), np.zeros(children * cells)
    h[inside] = x[: len(inside)]
    reduced[inside] = (p.Q @ x - p.b - p.M.T @ multipliers)[: len(inside)]
    return Solved(h.reshape(b.shape), reduced.reshape(b.shape), along, iterations)


def _end(p: Program, softest: float, scale: float) -> tuple[FloatArray, FloatArray, int]:
    """Pivot from the points approached until one ends well; where none does, nothing is proved."""
    x, multipliers, iterations = np.zeros(len(p.b)), np.full(len(p.m), np.inf), 0
    for near in approach(p):
        try:
            x, multipliers, steps = _pivot(p, near, softest)
        except np.linalg.LinAlgError:  # a singular system
            steps = _PIVOTS
        iterations += steps
        if _residual(p, x, multipliers, scale) <= LARGEST_RESIDUAL:
            break
    return x, multipliers, iterations


def _residual(p: Program, x: FloatArray, multipliers: FloatArray, scale: float) -> float:
    """Return how far x is from optimal, as the certificate will measure it."""
    pull = p.Q @ x
    steep = float(np.abs(np.concatenate([pull, p.b])).max()) or 1.0
    reduced = pull - p.b - p.M.T @ multipliers
    gap = float(np.abs(p.M @ x - p.m).max(initial=0.0)) / scale
    return float(np.max([gap, natural_residual(x, reduced, True, scale, steep)]))


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
    # Iterated regularisation: the damped system is solved again for what it leaves over, and that
    # converges to a solution of the exact one.
    damped = factor(p, free, np.full(len(p.b), 1e-8 * softest), 1e-10 / softest)
    x = np.where(free, x, 0.0)
    last = np.full(2, np.inf)
    for _ in range(_REFINEMENTS):
        dx, dy = solve(damped, p.b - p.Q @ x + p.M.T @ y, p.m - p.M @ x)
        x, y = x + dx, y + dy
        change = np.array([np.abs(dx).max(), np.abs(dy).max(initial=0.0)])
        if not (change < 0.95 * last).any():  # rounding is all that is left
            break
        last = change
    return x, y
