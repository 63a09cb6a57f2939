"""Families of a descent, captured as they are solved, and one judge for all solutions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from countveil import postprocess
from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.base.randomness import BitSource
from countveil.measure.measurements import Measurements
from countveil.plan.geography import Geography
from countveil.plan.passes import Passes
from countveil.plan.plans import Plan
from countveil.postprocess import family as passing
from countveil.postprocess import topdown
from countveil.postprocess.family import Family, SolvedFamily
from countveil.postprocess.solver.family_problem import Squares, multiplied_out

_HALVINGS = 100  # of an interval of multipliers: far below double precision


@dataclass(frozen=True, eq=False, slots=True)
class Problem:
    """min Σ_c ½ h_cᵀA h_c − b_cᵀh_c, h ≥ 0, Σ_c h_c = parent, 1ᵀh_c = totals_c; either may be None.

    `groups` describes A, which is Σ_k weights_k Q_kᵀQ_k, and row k of Q_k sums the cells with
    the same number in groups[k], or no cell if it is -1.
    """

    level: str
    A: FloatArray
    b: FloatArray
    parent: FloatArray | None
    totals: FloatArray | None
    groups: IntArray
    weights: FloatArray

    @property
    def size(self) -> int:
        """The number of unknowns."""
        return self.b.size


@dataclass(frozen=True, eq=False, slots=True)
class Caught:
    """A sample of the families of every level, and the number of all families."""

    problems: list[Problem]
    families: dict[str, int]


def catch(measurements: Measurements, plan: Plan, geography: Geography, most: int) -> Caught:
    """Run the descent and keep up to `most` families of each level, evenly spread.

    A family that is solved in passes is kept as in its last pass. Families with one child, or
    without people, are trivial and left out.
    """
    problems: list[Problem] = []
    families: Counter[str] = Counter()
    level_below = dict(pairwise(plan.levels))
    last: list[tuple[Any, ...]] = [()]

    def noted(squares: Squares, b: Any, parent: Any, totals: Any = None, **others: Any) -> Any:
        last[0] = (squares, b, parent, totals)
        return postprocess.solve_family(squares, b, parent, totals, **others)

    def caught(family: Family, passes: Passes, *, rng: BitSource | None = None) -> SolvedFamily:
        solved = passing.solve(family, passes, rng=rng)
        above = family.name.split()[0]
        level = above if family.parent is None else level_below[above]
        if family.parent is None or (len(family.children) > 1 and len(family.cells) > 0):
            parents = 1 if family.parent is None else geography.units(above)
            spread = max(1, parents // most)
            if families[level] % spread == 0 and families[level] // spread < most:
                problems.append(_problem(level, *last[0]))
            families[level] += 1
        return solved

    with (
        mock.patch.object(topdown, "solve", caught),
        mock.patch.object(passing, "solve_family", noted),
    ):
        postprocess.top_down(measurements, plan, geography=geography)
    return Caught(problems, dict(families))


def _problem(level: str, squares: Squares, b: Any, parent: Any, totals: Any) -> Problem:
    return Problem(
        level,
        multiplied_out(squares.places, squares.cell_atoms, squares.matrices)[0],
        b,
        None if parent is None else parent.astype(float),
        None if totals is None else totals.astype(float),
        squares.places,
        squares.weights,
    )


def write(problems: list[Problem], path: Path) -> None:
    """Write problems for a process that has NumPy but not countveil."""
    arrays: dict[str, Any] = {"levels": np.array([problem.level for problem in problems])}
    for number, problem in enumerate(problems):
        for name in ("A", "b", "parent", "totals", "groups", "weights"):
            array = getattr(problem, name)
            arrays[f"{number}.{name}"] = np.empty(0) if array is None else array
    np.savez(path, **arrays)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The quality of a solution: `residual` as in `Certificate.kkt_residual`, `gap` in people."""

    residual: float
    gap: float


def judge(problem: Problem, h: FloatArray) -> Judgement:
    """Judge h alone, with the multipliers that suit it best, in the same way for all solvers."""
    gradient = h @ problem.A - problem.b
    scale = max(1.0, *(float(x.max()) for x in (problem.parent, problem.totals) if x is not None))
    steep = max(float(np.abs(h @ problem.A).max()), float(np.abs(problem.b).max()))
    gap = largest_gap(problem, h)
    x, slope = h / scale, _reduced(problem, h, gradient) / steep
    if problem.parent is not None:
        apart = _least_residual(x, slope)
    elif problem.totals is not None:
        apart = _least_residual(x.T, slope.T)
    else:
        apart = float(np.abs(x - np.maximum(x - slope, 0.0)).max())
    return Judgement(max(apart, float(-x.min()), gap / scale), gap)


def largest_gap(problem: Problem, h: FloatArray) -> float:
    """Return the largest error of a sum of h, in people."""
    gaps = [0.0]
    if problem.parent is not None:
        gaps.append(float(np.abs(h.sum(axis=0) - problem.parent).max()))
    if problem.totals is not None:
        gaps.append(float(np.abs(h.sum(axis=1) - problem.totals).max()))
    return max(gaps)


def objective(problem: Problem, h: FloatArray) -> float:
    """Return Σ_c ½ h_cᵀA h_c − b_cᵀh_c."""
    return float((0.5 * (h @ problem.A) * h - problem.b * h).sum())


def excess(problem: Problem, ours: FloatArray, theirs: FloatArray) -> float:
    """Return the objective of `theirs` minus that of `ours`, negative only if ours is not optimal.

    A solution that violates a sum or falls below 0 could have a lower objective than the optimum. To
    first order, which is a bound because the objective is convex, the gain is the reduced gradients
    and multipliers of ours times the violations; it is subtracted.
    """
    gradient = ours @ problem.A - problem.b
    reduced = gradient
    if problem.parent is not None or problem.totals is not None:
        reduced = gradient - sum(_multipliers(problem, ours, gradient))
    away = theirs - ours
    # (gradient − reduced) · away prices the violated sums, reduced · away the entries below 0.
    broken = float(((gradient - reduced) * away).sum())
    negative = float((reduced * np.minimum(theirs, 0.0)).sum())
    return objective(problem, theirs) - objective(problem, ours) - broken - negative


def _reduced(problem: Problem, h: FloatArray, gradient: FloatArray) -> FloatArray:
    """Subtract the totals' multipliers if both kinds of sum are fixed; one kind fits exactly."""
    if problem.parent is None or problem.totals is None:
        return gradient
    by_child, _ = _multipliers(problem, h, gradient)
    return gradient - by_child


def _multipliers(problem: Problem, h: FloatArray, gradient: FloatArray) -> tuple[Array, Array]:
    """Fit gradient = μ_c + λ_j by least squares over the positive entries."""
    kept = (h > 1e-6 * h.max()).astype(float)
    by_child, by_cell = np.zeros(len(h)), np.zeros(h.shape[1])
    in_cell = np.maximum(kept.sum(axis=0), 1.0)
    if problem.totals is not None and problem.parent is not None:
        # λ is the mean of its column; eliminating it leaves a small system, regular up to a shift.
        left = kept * (gradient - (kept * gradient).sum(axis=0) / in_cell)
        system = np.diag(kept.sum(axis=1)) - (kept / in_cell) @ kept.T
        by_child = np.linalg.lstsq(system, left.sum(axis=1))[0]
    elif problem.totals is not None:
        by_child = (kept * gradient).sum(axis=1) / np.maximum(kept.sum(axis=1), 1.0)
    if problem.parent is not None:
        by_cell = (kept * (gradient - by_child[:, None])).sum(axis=0) / in_cell
    return by_child[:, None], by_cell[None, :]


def _least_residual(x: FloatArray, slope: FloatArray) -> float:
    """Return min over λ of max |x − max(0, x − (slope − λ))|, a λ for each column.

    A value of t is possible if some λ is at most t above every slope of the column and at most t
    below the slopes of its entries above t. Bisect for the smallest such t.
    """
    low = np.zeros(x.shape[1])
    high = np.full(x.shape[1], float(np.abs(x).max() + 2 * np.abs(slope).max()))
    lowest = slope.min(axis=0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        highest = np.where(x > middle, slope, -np.inf).max(axis=0)
        possible = highest - lowest <= 2 * middle
        high, low = np.where(possible, middle, high), np.where(possible, low, middle)
    return float(high.max())
