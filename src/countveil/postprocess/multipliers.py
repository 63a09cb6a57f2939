"""The proximal method of multipliers: exact for families with rows, and where the fast way fails.

Each round replaces the sums by a steep penalty and holds x a little where it was:

    min over x ≥ 0 of  ½ xᵀQx − bᵀx + δ/2 ‖x − x₀‖² + 1/(2ε) ‖m − M x + ε y₀‖²

That has one solution whatever the sums are, redundant or with no slack at all. What it leaves of the
sums moves the multipliers, y = y₀ + (m − M x)/ε, and the next round starts there (Rockafellar 1976).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from countveil.numerics import FloatArray
from countveil.postprocess.certificate import LARGEST_RESIDUAL, natural_residual
from countveil.postprocess.saddle_system import Program, factor, solve

# δ is this part of the least curvature of A, ε this part of one over it; for the multipliers to move
# fast, ε is also well below one over the largest curvature.
_STEEPEST, _BELOW = 1e-8, 1e-2
_GENTLEST, _STEEPER = 1e-2, 1e-2  # where the steepest does not end: the first, and how it goes on
_SINGULAR = (
    1e-14  # of the largest curvature: δ is never below it, so that every system can be solved
)
_ROUNDS = 40
_ENOUGH = 1e-16  # a residual that is rounding: at 2**30 people, 1e-7 of one
_PIVOTS = 60  # in a round
_PATIENCE = 6  # block steps without progress before descent
_TOLERANCE = 1e-11  # of the largest sum: entries this close to 0 stay where they are
_ROUNDING = 1e-14  # of the terms of a gradient: what their sum may be off by
_REFINEMENTS = 4  # of a linear system
_DESCENTS, _HALVINGS = 100, 40
_SUFFICIENT = 1e-4  # of the fall that the slope promises (Armijo)


@dataclass(frozen=True, eq=False, slots=True)
class Point:
    """Entries x, the multipliers y of the sums, which entries are free, and the steps it took."""

    x: FloatArray
    y: FloatArray
    free: NDArray[np.bool_]
    steps: int
    ended: bool


@dataclass(frozen=True, eq=False, slots=True)
class Round:
    """One round: where x and the multipliers were, and how steep the penalty is."""

    program: Program
    center: FloatArray
    y: FloatArray
    damping: float
    penalty: float
    scale: float

    @property
    def flat(self) -> FloatArray:
        """How far below 0 a gradient may be by tolerance."""
        return _TOLERANCE * self.scale * (self.program.Q.diagonal() + self.damping)


def minimise(p: Program, start: FloatArray, scale: float) -> tuple[FloatArray, FloatArray, int]:
    """Return x, the multipliers of its sums, and the number of steps; nothing is certified yet.

    Parameters
    ----------
    p : Program
        Feasible: with no solution at all, the multipliers grow until the rounds are over.
    start : array
        Entries to begin with; only which of them are positive matters much.
    scale : float
        The largest of the sums, which tolerances are relative to.

    """
    x, y, steps = start, np.full(len(p.m), np.inf), 0
    for gentlest in (0.0, _GENTLEST):
        try:
            point = _rounds(p, start, scale, gentlest)
        except np.linalg.LinAlgError:  # a system that rounding made singular
            continue
        x, y, steps = point.x, point.y, steps + point.steps
        if residual(p, x, y, scale) <= LARGEST_RESIDUAL:
            break
    return x, y, steps


def residual(p: Program, x: FloatArray, y: FloatArray, scale: float) -> float:
    """Return how far x is from optimal, as the certificate will measure it."""
    pull = p.Q @ x
    steep = float(np.abs(np.concatenate([pull, p.b])).max()) or 1.0
    reduced = pull - p.b - p.M.T @ y
    gap = float(np.abs(p.left_over(x)).max(initial=0.0)) / scale
    return float(np.max([gap, natural_residual(x, reduced, True, scale, steep)]))


def _rounds(p: Program, x: FloatArray, scale: float, gentlest: float) -> Point:
    """Take rounds, each steeper than the one before, until what is left over is rounding."""
    eigenvalues = np.linalg.eigvalsh(p.Q.A)
    stiffest = float(eigenvalues[-1])
    softest = max(float(eigenvalues[0]), 1e-12 * stiffest)
    steepest = min(_STEEPEST, _BELOW * softest / stiffest)
    point = Point(x, np.zeros(len(p.m)), x > 0.0, 0, False)
    steps, last = 0, np.inf
    for number in range(_ROUNDS):
        ease = max(gentlest * _STEEPER**number, steepest)
        damping = max(ease * softest, _SINGULAR * stiffest)
        now = Round(p, point.x, point.y, damping, ease / softest, scale)
        point = _pivot(now, point.free)
        steps += point.steps
        if not gentlest and not point.ended:
            break
        # An entry a hair below 0 goes to 0, and the others take up its share in the next round.
        below = point.free & (point.x < 0.0)
        x = np.where(below, 0.0, point.x)
        point = Point(x, point.y, point.free & ~below, steps, point.ended)
        if ease == steepest and point.ended and not below.any():
            off = residual(p, x, point.y, scale)
            if off <= _ENOUGH or (off <= LARGEST_RESIDUAL and not off < 0.7 * last):
                break
            last = off
    return point


def _pivot(now: Round, free: NDArray[np.bool_]) -> Point:
    """Minimise by an active set that starts with the free entries given."""
    p, flat = now.program, now.flat
    fewest, patience = len(p.b) + 1, _PATIENCE
    x, y = now.center, now.y
    for step in range(1, _PIVOTS + 1):
        at = np.where(free, now.center, 0.0)
        dx, dy = _step(now, free, p.b - p.Q @ at + p.M.T @ now.y, p.left_over(at))
        x, y = at + dx, now.y + dy
        reduced = p.Q @ x - p.b - p.M.T @ y - now.damping * np.where(free, 0.0, now.center)
        steep = float(np.abs(p.b).max()) + float(np.abs(y).max(initial=0.0))
        near = flat + _ROUNDING * steep
        wrong = np.where(free, ~(x >= -_TOLERANCE * now.scale), ~(reduced >= -near))
        changes = int(wrong.sum())
        if not changes:
            return Point(x, y, free, step, True)
        patience = _PATIENCE if changes < fewest else patience - 1
        fewest = min(fewest, changes)
        if patience > 0:
            free = free ^ wrong
        else:  # block steps may cycle; descent cannot
            free = _descend(now, np.maximum(x, 0.0))
            patience = _PATIENCE
    return Point(x, y, free, _PIVOTS, False)


def _step(
    now: Round, free: NDArray[np.bool_], slope: FloatArray, sums: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Solve for a step of the free entries and the multipliers; refine it by what rounding left."""
    p, D = now.program, np.full(len(now.program.b), now.damping)
    system = factor(p, free, D, now.penalty)
    dx, dy = solve(system, slope, sums)
    last = np.inf
    for _ in range(_REFINEMENTS):
        off_slope = np.where(free, slope - p.Q @ dx - D * dx + p.M.T @ dy, 0.0)
        more_x, more_y = solve(system, off_slope, sums - p.M @ dx - now.penalty * dy)
        dx, dy = dx + more_x, dy + more_y
        change = float(np.abs(more_x).max())
        if not change < 0.5 * last or change < 1e-15 * float(np.abs(dx).max()):
            break
        last = change
    return dx, dy


def _descend(now: Round, x: FloatArray) -> NDArray[np.bool_]:
    """Return which entries are free at the minimum, by projected Newton steps (Bertsekas 1982)."""
    p, flat = now.program, now.flat
    free = np.zeros(len(x), bool)
    full = False  # whether no bound and no halving cut the last step short
    for _ in range(_DESCENTS):
        pulled = now.y + p.left_over(x) / now.penalty
        slope = p.Q @ x - p.b + now.damping * (x - now.center) - p.M.T @ pulled
        before, free = free, (x > 0.0) | (slope < -flat)
        if full and (free == before).all():
            break
        step, _ = _step(now, free, np.where(free, -slope, 0.0), np.zeros(len(p.m)))
        reach = 1.0
        for _ in range(_HALVINGS):
            moved = np.maximum(x + reach * step, 0.0) - x
            along = p.M @ moved
            bend = float(
                moved @ (p.Q @ moved) + now.damping * moved @ moved + along @ along / now.penalty
            )
            if 0.5 * bend <= -(1.0 - _SUFFICIENT) * float(slope @ moved):
                break
            reach *= 0.5
        full = reach == 1.0 and not (x + step < 0.0).any()
        x = x + moved
    return free
