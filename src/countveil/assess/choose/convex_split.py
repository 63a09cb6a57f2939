"""The best split under convex and linear limits, with a proof.

Minimise objective·F(x), or a common bound z, over splits x >= 0 with F_j(x) <= free_j + shared_j z and
rows x <= limits + slopes z, by Newton's method on the logarithmic barrier (Boyd & Vandenberghe 2004,
section 11.3). Tangents give a lower bound that holds for every split, whether or not the method
converged: that is the certificate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import linprog

from countveil.base.numerics import FloatArray

_PRECISION = 3e-7  # relative gap at which the search ends
_FASTER, _CAREFUL = 15.0, 3.0  # factors of the objective's weight from stage to stage
_CLOSE = 1e-5  # the gap below which small steps are taken
_MOST_STEPS = 500
_NEAR, _CENTRED = 0.02, 1e-7  # half the squared Newton decrement at the end of a stage, of the last
_SLOW = 6  # steps of a stage after which curvatures are computed again
_REUSED = 3  # steps of a stage from which on the next one does not reuse its curvatures
_RIDGES = (1e-14, 1e-12, 1e-10, 1e-8)  # where rounding errors make a matrix indefinite
_SHRINK, _ENOUGH = 0.5, 0.01  # of the line search


class Convex(Protocol):
    """Convex functions of x: their values, gradients and Hessians."""

    def values(self, weights: FloatArray) -> FloatArray:
        """Return the values."""

    def gradients(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return values and gradients, functions × variables."""

    def curvature(self, weights: FloatArray, importance: FloatArray) -> FloatArray:
        """Return the Hessian of the sum of the functions, each times its importance."""


@dataclass(frozen=True, eq=False, slots=True)
class ConvexProgram:
    """What is minimised, and its limits; a function with an infinite `free` has none.

    Without `objective`, the common bound z is minimised. The first row is a budget, in which every
    variable counts.
    """

    functions: Convex
    objective: FloatArray | None
    free: FloatArray
    shared: FloatArray
    rows: FloatArray
    limits: FloatArray
    slopes: FloatArray


class Solution(NamedTuple):
    """A split x with its figure, a lower bound for all splits, and the multipliers of the rows."""

    x: FloatArray
    figure: float
    bound: float
    row_multipliers: FloatArray
    steps: int

    @property
    def gap(self) -> float:
        """How far the figure may be above the least, relative to it."""
        return max(0.0, self.figure - self.bound) / abs(self.figure)


def solve(
    program: ConvexProgram,
    start: FloatArray,
    *,
    progress: Callable[[float], None] = lambda gap: None,
) -> Solution:
    """Solve a program from a positive split that meets every limit strictly (for some z).

    Parameters
    ----------
    program : ConvexProgram
        What to minimise.
    start : array
        The split to start from.
    progress : callable
        Called with the relative gap after each stage.

    Returns
    -------
    Solution
        With its certificate.

    """
    inside = _Scaled(program, start.copy())
    point = inside.starting_point()
    state = inside.at(point)
    constraints = len(start) + int(np.isfinite(program.free).sum()) + len(program.limits)
    weight = constraints / abs(inside.figure(state, point))
    best: Solution | None = None
    curvature: FloatArray | None = None
    steps = 0
    while steps < _MOST_STEPS:
        last = constraints / weight < 0.1 * _PRECISION * abs(inside.figure(state, point))
        near = _NEAR if best is None or best.gap > _CLOSE else _CENTRED
        in_stage = 0
        while steps < _MOST_STEPS:
            if curvature is None:
                curvature = inside.curvature(state, point, weight)
            slope, matrix = inside.newton(state, point, weight, curvature)
            step = _solved(matrix, -slope)
            if step is None or -float(slope @ step) <= 2 * (_CENTRED if last else near):
                break
            moved = _line_search(inside, point, step, slope, weight)
            if moved is None:
                break
            steps, in_stage = steps + 1, in_stage + 1
            point = moved
            state = inside.at(point)
            if in_stage % _SLOW == 0:
                curvature = None
        bound, multipliers = inside.bound(state, point)
        figure = inside.figure(state, point)
        solution = Solution(inside.split(point), figure, bound, multipliers, steps)
        if best is None or solution.gap < best.gap:
            best = solution
        progress(best.gap)
        if last or best.gap < _PRECISION:
            break
        weight *= _FASTER if best.gap > _CLOSE else _CAREFUL  # rounding errors grow with it
        if in_stage >= _REUSED:
            curvature = None
    assert best is not None
    return best


class _State(NamedTuple):
    values: FloatArray
    gradients: FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class _Scaled:
    """The program in variables that start at 1; the last one is z, if there is one."""

    program: ConvexProgram
    scale: FloatArray

    @property
    def common(self) -> bool:
        """Whether a common bound z is minimised."""
        return self.program.objective is None

    def split(self, point: FloatArray) -> FloatArray:
        """Return the split at a point."""
        return np.asarray(self.scale * point[: len(self.scale)])

    def starting_point(self) -> FloatArray:
        """Return the point to start from, with a z that leaves room in every limit that has z."""
        ones = np.ones(len(self.scale))
        if not self.common:
            return ones
        program = self.program
        used = np.concatenate([program.functions.values(self.scale), program.rows @ self.scale])
        free = np.concatenate([program.free, program.limits])
        shared = np.concatenate([program.shared, program.slopes])
        needed = float(((used - free)[shared > 0] / shared[shared > 0]).max())
        return np.append(ones, 1.5 * needed if needed > 0 else 1.0)

    def at(self, point: FloatArray) -> _State:
        """Return values and gradients at a point."""
        values, gradients = self.program.functions.gradients(self.split(point))
        return _State(values, gradients * self.scale)

    def curvature(self, state: _State, point: FloatArray, weight: float) -> FloatArray:
        """Return what the functions add to the Hessian of the barrier function, per weight.

        It is used for several steps, and for the next weight: a Newton step with it still descends.
        """
        bent = 1 / (weight * self._convex_slack(state.values, point))
        if self.program.objective is not None:
            bent = bent + self.program.objective
        whole = self.program.functions.curvature(self.split(point), bent)
        return np.asarray(whole * self.scale * self.scale[:, None])

    def figure(self, state: _State, point: FloatArray) -> float:
        """Return what is minimised."""
        objective = self.program.objective
        return float(point[-1] if objective is None else objective @ state.values)

    def height(self, point: FloatArray, weight: float) -> float:
        """Return the barrier function; infinite outside."""
        x = point[: len(self.scale)]
        if (x <= 0).any():
            return np.inf
        rows = self._row_slack(point)
        if (rows <= 0).any():
            return np.inf
        values = self.program.functions.values(self.split(point))
        convex = self._convex_slack(values, point)
        if (convex <= 0).any():
            return np.inf
        logs = np.log(x).sum() + np.log(convex[np.isfinite(convex)]).sum() + np.log(rows).sum()
        objective = self.program.objective
        figure = point[-1] if objective is None else objective @ values
        return float(weight * figure - logs)

    def newton(
        self, state: _State, point: FloatArray, weight: float, curvature: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the gradient and the Hessian of the barrier function."""
        program, count = self.program, len(self.scale)
        convex, rows = state.gradients, program.rows * self.scale
        if self.common:
            convex = np.concatenate([convex, -program.shared[:, None]], axis=1)
            rows = np.concatenate([rows, -program.slopes[:, None]], axis=1)
        pull = 1 / self._convex_slack(state.values, point)
        press = 1 / self._row_slack(point)
        slope = convex.T @ pull + rows.T @ press
        matrix = (convex.T * pull**2) @ convex + (rows.T * press**2) @ rows
        if program.objective is None:
            slope[-1] += weight
        else:
            slope += weight * (program.objective @ convex)
        slope[:count] -= 1 / point[:count]
        matrix[:count, :count] += weight * curvature
        matrix[np.arange(count), np.arange(count)] += 1 / point[:count] ** 2
        return slope, matrix

    def bound(self, state: _State, point: FloatArray) -> tuple[float, FloatArray]:
        """Return a lower bound on the figure that holds for every split, and the rows' multipliers.

        With multipliers u, v >= 0 (and u·shared + v·slopes = 1 for a common z), the figure is at least
        the least of objective·F + u·(F - free) + v·(rows x - limits) over x >= 0, and F is at least its
        tangent here. The best multipliers are those of a linear program. Its rounding errors are
        repaired: the budget's multiplier is raised until no variable pays, so the bound holds.
        """
        program = self.program
        limited = np.flatnonzero(np.isfinite(program.free))
        tangents = state.values - state.gradients @ point[: len(self.scale)]
        scaled = program.rows * self.scale
        fixed = 0.0 if program.objective is None else program.objective @ state.gradients
        constant = 0.0 if program.objective is None else float(program.objective @ tangents)
        gains = np.concatenate([(tangents - program.free)[limited], -program.limits])
        pays = np.concatenate([state.gradients[limited], scaled])  # multipliers × variables
        totals = np.concatenate([program.shared[limited], program.slopes])[None, :]
        # Per unit of budget: a variable that gets little must not be missed by more.
        per_budget = 1 / scaled[0]
        solution = linprog(
            -gains / max(1.0, float(np.abs(gains).max())),
            A_ub=-(pays * per_budget).T,
            b_ub=fixed * per_budget,
            A_eq=totals if self.common else None,
            b_eq=np.ones(1) if self.common else None,
            method="highs",
        )
        if solution.x is None:
            return -np.inf, np.zeros(len(program.rows))
        multipliers = np.maximum(solution.x, 0.0)
        lacking = -(fixed + multipliers @ pays) / scaled[0]
        multipliers[len(limited)] += max(0.0, float(lacking.max()))
        total = float(totals[0] @ multipliers) if self.common else 1.0
        return (constant + float(gains @ multipliers)) / total, multipliers[len(limited) :] / total

    def _convex_slack(self, values: FloatArray, point: FloatArray) -> FloatArray:
        z = point[-1] if self.common else 0.0
        return np.asarray(self.program.free + self.program.shared * z - values)

    def _row_slack(self, point: FloatArray) -> FloatArray:
        z = point[-1] if self.common else 0.0
        program = self.program
        return np.asarray(program.limits + program.slopes * z - program.rows @ self.split(point))


def _solved(matrix: FloatArray, right: FloatArray) -> FloatArray | None:
    """Return the Newton step; None where rounding errors have taken over."""
    diagonal = np.diagonal(matrix)
    if not (np.isfinite(matrix).all() and (diagonal > 0).all()):
        return None
    size = 1 / np.sqrt(diagonal)
    scaled = matrix * size * size[:, None]
    for ridge in (0.0, *_RIDGES):
        try:
            factor = cho_factor(scaled + ridge * np.eye(len(scaled)))
        except LinAlgError:
            continue
        return np.asarray(size * cho_solve(factor, size * right))
    return None


def _line_search(
    inside: _Scaled, point: FloatArray, step: FloatArray, slope: FloatArray, weight: float
) -> FloatArray | None:
    """Return a point along the step with a lower barrier function; None if there is none."""
    length = 1.0
    count = len(inside.scale)
    shrinking = step[:count] < 0
    if shrinking.any():
        room = -point[:count][shrinking] / step[:count][shrinking]
        length = min(1.0, 0.99 * float(room.min()))
    here = inside.height(point, weight)
    while length > 1e-10:
        there = point + length * step
        if inside.height(there, weight) <= here + _ENOUGH * length * float(slope @ step):
            return there
        length *= _SHRINK
    return None
