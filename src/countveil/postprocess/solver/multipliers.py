"""Families with rows: the proximal method of multipliers, also used if the active set fails.

A family becomes a program of entries and slacks, min ½ xᵀQx − bᵀx with M x = m and x ≥ 0. Each round
replaces the sums by a steep penalty and keeps x near where it was:

    min over x ≥ 0 of  ½ xᵀQx − bᵀx + δ/2 ‖x − x₀‖² + 1/(2ε) ‖m − M x + ε y₀‖²

That has exactly one solution even if the sums are redundant or leave no slack at all. The error that
remains in the sums moves the multipliers, y = y₀ + (m − M x)/ε, and the next round starts there
(Rockafellar 1976).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtrs

from countveil.base.numerics import FloatArray, IntArray
from countveil.postprocess.certificate import LARGEST_GAP, LARGEST_RESIDUAL, natural_residual
from countveil.postprocess.facts.rows import as_matrix
from countveil.postprocess.solver.family_problem import FamilyProblem

# δ is this fraction of the least curvature of A, and ε this fraction of its inverse; for the
# multipliers to move fast, ε is also well below the inverse of the largest curvature.
_STEEPEST, _BELOW = 1e-8, 1e-2
_GENTLEST, _STEEPER = 1e-2, 1e-2  # the first penalty if the steepest does not end, and its factor
_SINGULAR = 1e-14  # of the largest curvature: δ stays above it, so that every system has a solution
_ROUNDS = 40
_ENOUGH = 1e-16  # a residual this small is rounding: with 2**30 people, 1e-7 of one person
_PIVOTS = 60  # per round
_PATIENCE = 6  # block steps without progress before descent
_TOLERANCE = 1e-11  # of the largest sum: entries this close to 0 stay where they are
_ROUNDING = 1e-14  # of the terms of a gradient: the error that their sum may have
_REFINEMENTS = 4  # of a linear system
_SETTLING = 4
_DESCENTS, _HALVINGS = 100, 40
_SUFFICIENT = 1e-4  # of the decrease that the slope promises (Armijo)
# Products of two residues fit in 64 bits. Rows independent modulo a prime are independent; the converse
# fails only if the prime divides a minor of a 0-1 matrix, and then the sums in the certificate show it.
_PRIME = 2**31 - 1


@dataclass(frozen=True, eq=False, slots=True)
class RowSolution:
    """h, its reduced gradients (A h − b less all multipliers), and the multipliers of the rows."""

    h: FloatArray
    reduced: FloatArray
    along: FloatArray
    iterations: int


def solve_rows(problem: FamilyProblem, start: FloatArray) -> RowSolution:
    """Solve a family with rows, beginning at `start`; the slack of a binding bound is 0."""
    b, rows = problem.b, problem.rows
    children, cells = b.shape
    inside = np.flatnonzero(problem.allowed.reshape(-1))
    matrix = as_matrix(rows, children, cells)[:, inside]
    lower = np.array([row.lower for row in rows])
    upper = np.array([row.upper for row in rows])
    same = lower == upper
    low, high = ~same & np.isfinite(lower), ~same & np.isfinite(upper)
    sums, values, fixed = _sums(problem)
    # Leave out equations that follow from others: their multipliers would be arbitrary.
    equal = sp.csr_array(sp.vstack([sums[fixed:, inside], matrix[same]]))
    keep = np.concatenate([np.ones(fixed, bool), independent_rows(sums[:fixed, inside], equal)])
    equations = sp.csr_array(sp.vstack([sums[:fixed, inside], equal]))[keep]
    sides = np.concatenate([values, lower[same]])[keep]
    counts = [len(sides), int(low.sum()), int(high.sum())]
    slack = sp.vstack(
        [
            sp.csr_array((counts[0], counts[1] + counts[2])),
            sp.diags_array(np.repeat([-1.0, 1.0], counts[1:])),
        ]
    )
    M = sp.hstack([sp.vstack([equations, matrix[low], matrix[high]]), slack])
    p = program_by_child(
        Blocks(problem.matrices(), problem.gram.shape_of, problem.allowed, slack.shape[1]),
        np.concatenate([b.reshape(-1)[inside], np.zeros(slack.shape[1])]),
        sp.csr_array(M),
        np.concatenate([sides, lower[low], upper[high]]),
    )
    x, multipliers, steps = minimise(p, _begin(p, start[problem.allowed]), problem.scale)
    for_equal, for_low, for_high = np.split(multipliers, np.cumsum(counts)[:-1])
    along = np.zeros(len(rows))
    for_all = np.zeros(len(keep))
    for_all[keep] = for_equal
    along[same] = for_all[len(values) :]
    along[low] += for_low
    along[high] += for_high
    h, reduced = np.zeros(children * cells), np.zeros(children * cells)
    h[inside] = x[: len(inside)]
    reduced[inside] = (p.Q @ x - p.b - p.M.T @ multipliers)[: len(inside)]
    return RowSolution(h.reshape(b.shape), reduced.reshape(b.shape), along, steps)


def settle_sums(problem: FamilyProblem, h: FloatArray) -> FloatArray:
    """Move the smallest entries so that all sums are right to the last digits that doubles have.

    With counts of a billion, rounding each of hundreds of entries is off by millionths of a person in a
    sum. Small entries have digits to spare; large ones move by less than their rounding error.
    """
    rows = problem.rows
    sums, values, _ = _sums(problem)
    bounds = as_matrix(rows, *problem.b.shape)
    lower, upper = (np.array([getattr(row, end) for row in rows]) for end in ("lower", "upper"))
    for _ in range(_SETTLING):
        flat = h.reshape(-1)
        along = np.asarray(bounds.astype(np.longdouble) @ flat, float)
        broken = np.maximum(lower - along, 0.0) - np.maximum(along - upper, 0.0)
        left = np.asarray(values - sums.astype(np.longdouble) @ flat, float)
        right = np.concatenate([left, broken[broken != 0.0]])
        if np.abs(right).max(initial=0.0) <= 0.1 * LARGEST_GAP:
            break
        open_ = np.flatnonzero((flat > 0.0) & problem.allowed.reshape(-1))
        M = sp.csr_array(sp.vstack([sums, bounds[broken != 0.0]]))[:, open_]
        ease = 1.0 / (1.0 + flat[open_])
        weighted = M.multiply(ease)
        multipliers = np.linalg.lstsq((weighted @ M.T).toarray(), right, rcond=1e-12)[0]
        moved = flat.copy()
        moved[open_] = np.maximum(moved[open_] + weighted.T @ multipliers, 0.0)
        h = moved.reshape(h.shape)
    return h


def _begin(p: Program, entries: FloatArray) -> FloatArray:
    """Append the slacks that these entries leave, 0 for a broken bound."""
    x = np.concatenate([entries, np.zeros(p.Q.slacks)])
    first = len(p.m) - p.Q.slacks
    sign = p.M[first:, len(entries) :].diagonal()
    x[len(entries) :] = np.maximum(sign * (p.m - p.M @ x)[first:], 0.0)
    return x


def _sums(problem: FamilyProblem) -> tuple[sp.csr_array, FloatArray, int]:
    """Return the plain sums as a matrix over all entries, their values, and how many share no entry.

    Those that share no entry come first: the sums over children or, without a parent, the totals.
    """
    children, cells = problem.b.shape
    parts, values = [sp.csr_array((0, children * cells))], [np.empty(0)]
    if len(problem.parent):
        parts.append(sp.kron(np.ones((1, children)), sp.eye_array(cells)))
        values.append(problem.parent)
    if len(problem.totals):
        parts.append(sp.kron(sp.eye_array(children), np.ones((1, cells))))
        values.append(problem.totals)
    first = len(problem.parent) or len(problem.totals)
    return sp.csr_array(sp.vstack(parts)), np.concatenate(values), first


# The program of a family with rows.


@dataclass(frozen=True, eq=False, slots=True)
class Blocks:
    """Q: the matrix of each child over its entries `inside` (children × cells), 0 for slacks."""

    A: FloatArray
    shape_of: IntArray
    inside: NDArray[np.bool_]
    slacks: int

    def __matmul__(self, x: FloatArray) -> FloatArray:
        h = np.zeros(self.inside.shape)
        h[self.inside] = x[: len(x) - self.slacks]
        if len(self.A) == 1:
            product = h @ self.A[0]
        else:
            product = np.stack([h_c @ self.A[s] for h_c, s in zip(h, self.shape_of, strict=True)])
        return np.concatenate([product[self.inside], np.zeros(self.slacks)])

    def diagonal(self) -> FloatArray:
        """Return the diagonal, slacks included."""
        child, cell = np.nonzero(self.inside)
        diagonals = np.diagonal(self.A, axis1=1, axis2=2)
        return np.concatenate([diagonals[self.shape_of[child], cell], np.zeros(self.slacks)])


@dataclass(frozen=True, eq=False, slots=True)
class ChildEntries:
    """The entries of one child: where they are, their cells, and M over them.

    The rows of M are the sums of this child alone (`own`), then those it shares with others.
    """

    entries: slice
    cells: IntArray
    own: IntArray
    shared: IntArray
    M: FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class Program:
    """min ½ xᵀQx − bᵀx,  M x = m,  x ≥ 0. The last entries are the slacks of the last sums."""

    Q: Blocks
    b: FloatArray
    M: sp.csr_array
    m: FloatArray
    children: Sequence[ChildEntries]

    def left_over(self, x: FloatArray) -> FloatArray:
        """Return m − M x, summed in more than double precision if the machine has it.

        Summed plainly, large counts would be off by more people than the solution is.
        """
        left = np.asarray(self.m, np.longdouble) - self.M.astype(np.longdouble) @ x
        return np.asarray(left, float)


def program_by_child(Q: Blocks, b: FloatArray, M: sp.csr_array, m: FloatArray) -> Program:
    """Return the program, with its sums sorted into those of one child and those shared."""
    child, cell = np.nonzero(Q.inside)
    starts = np.searchsorted(child, np.arange(len(Q.inside) + 1)).tolist()
    slices = [slice(*pair) for pair in pairwise(starts)]
    columns = [sp.csc_array(M[:, entries]) for entries in slices]
    sums = [np.unique(some.indices) for some in columns]
    alone = np.bincount(np.concatenate(sums), minlength=len(m)) == 1
    children = []
    for entries, some, mine in zip(slices, columns, sums, strict=True):
        own, shared = mine[alone[mine]], mine[~alone[mine]]
        dense = sp.csr_array(some)[np.concatenate([own, shared])].toarray()
        children.append(ChildEntries(entries, cell[entries], own, shared, dense))
    return Program(Q, b, M, m, children)


# Rounds of the method of multipliers.


@dataclass(frozen=True, eq=False, slots=True)
class Iterate:
    """Entries x, the multipliers y of the sums, which entries are free, and the steps so far."""

    x: FloatArray
    y: FloatArray
    free: NDArray[np.bool_]
    steps: int
    ended: bool


@dataclass(frozen=True, eq=False, slots=True)
class Round:
    """One round: x and the multipliers where it starts, and how steep the penalty is."""

    program: Program
    center: FloatArray
    y: FloatArray
    damping: float
    penalty: float
    scale: float

    @property
    def flat(self) -> FloatArray:
        """How far below 0 a gradient may be, within the tolerance."""
        return _TOLERANCE * self.scale * (self.program.Q.diagonal() + self.damping)


class Minimum(NamedTuple):
    """Entries x, the multipliers of their sums, and the steps taken; not certified yet."""

    x: FloatArray
    multipliers: FloatArray
    steps: int


def minimise(p: Program, start: FloatArray, scale: float) -> Minimum:
    """Return the minimum of a program, not certified yet.

    Parameters
    ----------
    p : Program
        It must be feasible: otherwise the multipliers grow until the rounds are used up.
    start : array
        Entries to begin with; what matters is mostly which of them are positive.
    scale : float
        The largest of the sums; tolerances are relative to it.

    """
    x, y, steps = start, np.full(len(p.m), np.inf), 0
    for gentlest in (0.0, _GENTLEST):
        try:
            point = _rounds(p, start, scale, gentlest)
        except np.linalg.LinAlgError:  # rounding made a system singular
            continue
        x, y, steps = point.x, point.y, steps + point.steps
        if residual(p, x, y, scale) <= LARGEST_RESIDUAL:
            break
    return Minimum(x, y, steps)


def residual(p: Program, x: FloatArray, y: FloatArray, scale: float) -> float:
    """Return how far x is from optimal, measured as the certificate does."""
    pull = p.Q @ x
    steep = float(np.abs(np.concatenate([pull, p.b])).max()) or 1.0
    reduced = pull - p.b - p.M.T @ y
    gap = float(np.abs(p.left_over(x)).max(initial=0.0)) / scale
    return float(np.max([gap, natural_residual(x, reduced, True, scale, steep)]))


def _rounds(p: Program, x: FloatArray, scale: float, gentlest: float) -> Iterate:
    """Take ever steeper rounds until only rounding errors are left."""
    eigenvalues = np.linalg.eigvalsh(p.Q.A)
    stiffest = float(eigenvalues.max())
    softest = max(float(eigenvalues.min()), 1e-12 * stiffest)
    steepest = min(_STEEPEST, _BELOW * softest / stiffest)
    point = Iterate(x, np.zeros(len(p.m)), x > 0.0, 0, False)
    steps, last = 0, np.inf
    for number in range(_ROUNDS):
        ease = max(gentlest * _STEEPER**number, steepest)
        damping = max(ease * softest, _SINGULAR * stiffest)
        now = Round(p, point.x, point.y, damping, ease / softest, scale)
        point = _pivot(now, point.free)
        steps += point.steps
        if not gentlest and not point.ended:
            break
        # An entry just below 0 becomes 0, and the others take over its share in the next round.
        below = point.free & (point.x < 0.0)
        x = np.where(below, 0.0, point.x)
        point = Iterate(x, point.y, point.free & ~below, steps, point.ended)
        if ease == steepest and point.ended and not below.any():
            off = residual(p, x, point.y, scale)
            if off <= _ENOUGH or (off <= LARGEST_RESIDUAL and not off < 0.7 * last):
                break
            last = off
    return point


def _pivot(now: Round, free: NDArray[np.bool_]) -> Iterate:
    """Minimise one round by an active set that starts with these free entries."""
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
            return Iterate(x, y, free, step, True)
        patience = _PATIENCE if changes < fewest else patience - 1
        fewest = min(fewest, changes)
        if patience > 0:
            free = free ^ wrong
        else:  # block steps may cycle; a descent cannot
            free = _descend(now, np.maximum(x, 0.0))
            patience = _PATIENCE
    return Iterate(x, y, free, _PIVOTS, False)


def _step(
    now: Round, free: NDArray[np.bool_], slope: FloatArray, sums: FloatArray
) -> SystemSolution:
    """Solve for a step of the free entries and the multipliers, and refine away rounding errors."""
    p, D = now.program, np.full(len(now.program.b), now.damping)
    system = factor_system(p, free, D, now.penalty)
    dx, dy = solve_system(system, slope, sums)
    last = np.inf
    for _ in range(_REFINEMENTS):
        off_slope = np.where(free, slope - p.Q @ dx - D * dx + p.M.T @ dy, 0.0)
        more_x, more_y = solve_system(system, off_slope, sums - p.M @ dx - now.penalty * dy)
        dx, dy = dx + more_x, dy + more_y
        change = float(np.abs(more_x).max())
        if not change < 0.5 * last or change < 1e-15 * float(np.abs(dx).max()):
            break
        last = change
    return SystemSolution(dx, dy)


def _descend(now: Round, x: FloatArray) -> NDArray[np.bool_]:
    """Return which entries are free at the minimum, by projected Newton steps (Bertsekas 1982)."""
    p, flat = now.program, now.flat
    free = np.zeros(len(x), bool)
    full = False  # whether the last step was taken whole, not cut short by a bound or halved
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


# The linear system of a step: entries and the multipliers of their sums, together. It is solved child
# by child, so that memory grows with children × cells², not with the square of all entries.


@dataclass(frozen=True, eq=False, slots=True)
class EliminatedChild:
    """One child eliminated from a system.

    `block` and `own` are the Cholesky factors of its free entries and of its own sums; `across`
    couples those to the shared sums in which it has a free entry.
    """

    free: IntArray
    block: FloatArray
    own: FloatArray
    across: FloatArray
    shared: IntArray


@dataclass(frozen=True, eq=False, slots=True)
class FactoredSystem:
    """[[Q + D, −Mᵀ], [M, E]] over the free entries, factored.

    With P = (Q + D)⁻¹, which is `slack` for slacks, the multipliers solve S y = r − M P g, where
    S = M P Mᵀ + E. Each child's own sums are eliminated; `S` is the Cholesky factor over the rest.
    """

    program: Program
    slack: FloatArray
    children: Sequence[EliminatedChild]
    shared: IntArray
    S: FloatArray


class SystemSolution(NamedTuple):
    """Entries x, 0 where not free, and multipliers y."""

    x: FloatArray
    y: FloatArray


def factor_system(p: Program, free: NDArray[np.bool_], D: FloatArray, E: float) -> FactoredSystem:
    """Factor the system child by child; raise LinAlgError if it is singular."""
    sums, entries = len(p.m), len(p.b) - p.Q.slacks
    slack = np.where(free[entries:], 1.0 / D[entries:], 0.0)
    corner = np.full(sums, E)
    corner[sums - p.Q.slacks :] += slack
    place = np.zeros(sums, np.int64)
    for child in p.children:
        place[child.own] = -1
    shared = np.flatnonzero(place == 0)
    place[shared] = np.arange(len(shared))
    S = np.diag(corner[shared])
    eliminated = []
    for number, child in enumerate(p.children):
        own = len(child.own)
        at = np.flatnonzero(free[child.entries])
        cells = child.cells[at]
        block = p.Q.A[p.Q.shape_of[number]][np.ix_(cells, cells)]
        block.flat[:: len(at) + 1] += D[child.entries][at]
        L = _cholesky(block)
        M = np.take(child.M, at, axis=1)
        active = np.flatnonzero(M[own:].any(axis=1))  # shared sums with a free entry
        X = _forward(L, np.concatenate([M[:own], M[own + active]]).T)
        N = X.T @ X
        T = _cholesky(N[:own, :own] + np.diag(corner[child.own]))
        Y = _forward(T, N[:own, own:])
        among = place[child.shared[active]]
        N[own:, own:] -= Y.T @ Y
        S[np.ix_(among, among)] += N[own:, own:]
        free_entries = child.entries.start + at
        eliminated.append(EliminatedChild(free_entries, L, T, Y, child.shared[active]))
    return FactoredSystem(p, slack, eliminated, shared, _cholesky(S))


def solve_system(system: FactoredSystem, slope: FloatArray, sums: FloatArray) -> SystemSolution:
    """Return the x and y with (Q + D) x − Mᵀy = slope and M x + E y = sums."""
    p = system.program
    y = sums - p.M @ _times_inverse(system, slope)
    for child, factors in zip(p.children, system.children, strict=True):
        y[child.own] = _forward(factors.own, y[child.own])
        y[factors.shared] -= factors.across.T @ y[child.own]
    y[system.shared] = _backward(system.S, _forward(system.S, y[system.shared]))
    for child, factors in zip(p.children, system.children, strict=True):
        y[child.own] = _backward(factors.own, y[child.own] - factors.across @ y[factors.shared])
    return SystemSolution(_times_inverse(system, slope + p.M.T @ y), y)


def _times_inverse(system: FactoredSystem, slope: FloatArray) -> FloatArray:
    """Return P times a slope."""
    x = np.zeros(len(slope))
    for child in system.children:
        if len(child.free):
            x[child.free] = dpotrs(child.block, slope[child.free], lower=1)[0]
    entries = len(x) - len(system.slack)
    x[entries:] = system.slack * slope[entries:]
    return x


def _cholesky(matrix: FloatArray) -> FloatArray:
    """Return the lower factor of a positive matrix, in place; above the diagonal it is arbitrary."""
    if not len(matrix):
        return matrix
    L, failed = dpotrf(matrix.T, lower=1, clean=0, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError("a matrix that should be positive definite is not")
    return np.asarray(L)


def _forward(L: FloatArray, right: FloatArray) -> FloatArray:
    """Return L⁻¹ right, overwriting `right`."""
    return np.asarray(dtrtrs(L, right, lower=1, overwrite_b=1)[0]) if right.size else right


def _backward(L: FloatArray, right: FloatArray) -> FloatArray:
    """Return L⁻ᵀ right."""
    return np.asarray(dtrtrs(L, right, lower=1, trans=1)[0]) if right.size else right


# Which equations are independent: decided exactly, in integers modulo a prime.


def independent_rows(sums: sp.csr_array, rows: sp.csr_array) -> NDArray[np.bool_]:
    """Return which of `rows` to keep so that, with all of `sums`, the span stays the same.

    Parameters
    ----------
    sums : sparse 0-1 matrix
        Equations that are all kept. No two share a column, as with sums over children.
    rows : sparse 0-1 matrix
        Further equations over the same columns, in order of preference.

    Returns
    -------
    array of bool
        One entry per row of `rows`.

    """
    left = _without_sums(sums, rows)
    keep = np.zeros(left.shape[0], bool)
    # Reduced: each row is 1 at its pivot, where every other row is 0.
    basis = np.zeros((0, left.shape[1]), np.int64)
    pivots: list[int] = []
    for number, rest in enumerate(left):
        factors = rest[pivots]
        for one in np.flatnonzero(factors):  # one at a time: sums of products would overflow
            rest = (rest - factors[one] * basis[one]) % _PRIME
        if not rest.any():
            continue
        column = int(np.argmax(rest != 0))
        rest = rest * pow(int(rest[column]), -1, _PRIME) % _PRIME
        others = np.flatnonzero(basis[:, column])
        basis[others] = (basis[others] - basis[others, column, None] * rest) % _PRIME
        basis = np.vstack([basis, rest])
        pivots.append(column)
        keep[number] = True
    return keep


def _without_sums(sums: sp.csr_array, rows: sp.csr_array) -> IntArray:
    """Return the rows, modulo the prime, after eliminating each sum at its first column.

    Columns that are then equal are merged: they do not distinguish rows.
    """
    columns = np.asarray(rows.T.todense()).astype(np.int8)  # one line per column
    first = np.full(len(columns), -1)
    for start, stop in pairwise(sums.indptr.tolist()):
        inside = sums.indices[start:stop]
        first[inside] = inside.min(initial=len(columns))
    # Row r less r[first] times the sum: the sum's first column becomes 0, its others r[j] − r[first].
    summed = first >= 0
    columns[summed] -= columns[first[summed]]
    return np.unique(columns, axis=0).T.astype(np.int64) % _PRIME
