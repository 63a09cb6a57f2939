"""An interior point: near enough to the optimum to tell which entries are zero there.

Its Newton system, and that of an active set, is taken apart child by child: memory goes with
children × cells², not with the square of all entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtrs

from countveil.numerics import FloatArray, IntArray

_STEPS = 80
_STALE = 8  # steps without progress: rounding has the last word
_BACK = 0.995  # of the way to the nearest bound
_NEAR = 1e-9  # of what the program is scaled to: here it mostly shows which entries are zero
_NEAREST = 1e-14
_DAMPING = 1e-13  # of the scaled system, so that redundant sums do no harm
_SINGULAR = 1e-14  # of A's diagonal, where queries hardly tell cells apart
_CANCELLED = 1e-12  # of a sum's own curvature: what rounding may leave of a redundant one


@dataclass(frozen=True, eq=False, slots=True)
class Blocks:
    """The matrix A of each child over the entries `inside` (children × cells), and 0 for slacks."""

    A: FloatArray
    inside: NDArray[np.bool_]
    slacks: int

    def __matmul__(self, x: FloatArray) -> FloatArray:
        h = np.zeros(self.inside.shape)
        h[self.inside] = x[: len(x) - self.slacks]
        return np.concatenate([(h @ self.A)[self.inside], np.zeros(self.slacks)])

    def diagonal(self) -> FloatArray:
        """Return the diagonal, slacks and all."""
        cells = np.nonzero(self.inside)[1]
        return np.concatenate([np.diag(self.A)[cells], np.zeros(self.slacks)])


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """The entries of one child: which they are, their cells, and M over them.

    Sums come in the order of M's rows: those of this child alone, then those it shares.
    """

    entries: slice
    cells: IntArray
    own: IntArray
    shared: IntArray
    M: FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class Program:
    """min ½ xᵀQx − bᵀx,  M x = m,  x ≥ 0; the last entries are the slacks of the last sums."""

    Q: Blocks
    b: FloatArray
    M: sp.csr_array
    m: FloatArray
    parts: Sequence[Part]


@dataclass(frozen=True, eq=False, slots=True)
class Point:
    """A nearly optimal x, the multipliers of its sums, and which entries are above 0."""

    x: FloatArray
    y: FloatArray
    positive: NDArray[np.bool_]


def parted(Q: Blocks, b: FloatArray, M: sp.csr_array, m: FloatArray) -> Program:
    """Return the program with its sums taken apart by child."""
    child, cell = np.nonzero(Q.inside)
    starts = np.searchsorted(child, np.arange(len(Q.inside) + 1)).tolist()
    slices = [slice(*pair) for pair in pairwise(starts)]
    columns = [sp.csc_array(M[:, entries]) for entries in slices]
    sums = [np.unique(some.indices) for some in columns]
    alone = np.bincount(np.concatenate(sums), minlength=len(m)) == 1
    parts = []
    for entries, some, mine in zip(slices, columns, sums, strict=True):
        own, shared = mine[alone[mine]], mine[~alone[mine]]
        dense = sp.csr_array(some)[np.concatenate([own, shared])].toarray()
        parts.append(Part(entries, cell[entries], own, shared, dense))
    return Program(Q, b, M, m, parts)


def approach(program: Program) -> Iterator[Point]:
    """Follow the central path by predictor and corrector steps (Mehrotra 1992): near, then nearest.

    Near the end x hardly changes where it is positive and z where x is 0, which tells the two apart
    early (El-Bakry, Tapia and Zhang 1994); where that misleads, the path is followed to its end.
    """
    p, scale, steep = _scaled(program)
    count = len(p.b)
    x, y, z = np.ones(count), np.zeros(len(p.m)), np.ones(count)
    before, best, stale = (x, z), np.inf, 0
    nearest = Point(x, y, np.ones(count, bool))
    for _ in range(_STEPS):
        off_gradient = p.Q @ x - p.b - p.M.T @ y - z
        off_sums = p.M @ x - p.m
        mu = float(x @ z) / count
        worst = float(np.abs(np.concatenate([[mu], off_gradient, off_sums])).max())
        stale = 0 if worst < best else stale + 1
        if worst < _NEAR <= best:
            yield Point(x * scale, y * steep, x * before[1] > z * before[0])
        if worst < best:
            best, nearest = worst, Point(x * scale, y * steep, x > z)
        if worst < _NEAREST or stale > _STALE or not np.isfinite(worst):
            break
        try:
            dx, dy, dz = _predict_and_correct(p, x, z, off_gradient, off_sums)
        except np.linalg.LinAlgError:
            break
        reach, before = _BACK * _reach(x, dx, z, dz), (x, z)
        x, y, z = x + reach * dx, y + reach * dy, z + reach * dz
    yield nearest


def _scaled(program: Program) -> tuple[Program, float, float]:
    """Bring counts and gradients near one."""
    sizes = np.abs(program.m[program.m != 0])
    scale = float(np.median(sizes)) if len(sizes) else 1.0
    steep = max(float(np.abs(program.b).max()), float(program.Q.diagonal().max()) * scale, 1e-300)
    Q = replace(program.Q, A=program.Q.A * (scale / steep))
    return replace(program, Q=Q, b=program.b / steep, m=program.m / scale), scale, steep


def _predict_and_correct(
    p: Program, x: FloatArray, z: FloatArray, off_gradient: FloatArray, off_sums: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the step that aims as low as a first step, straight at 0, could come."""
    newton = factor(p, np.ones(len(x), bool), z / x, _DAMPING)
    dx, _, dz = _step(newton, x, z, off_gradient, off_sums, -x * z)
    reach = _reach(x, dx, z, dz)
    mu, after = float(x @ z) / len(x), float((x + reach * dx) @ (z + reach * dz)) / len(x)
    aim = mu * (max(after, 0.0) / mu) ** 3
    return _step(newton, x, z, off_gradient, off_sums, aim - dx * dz - x * z)


def _step(
    newton: Factor,
    x: FloatArray,
    z: FloatArray,
    off_gradient: FloatArray,
    off_sums: FloatArray,
    change: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the Newton step that takes off what is off and changes x z by `change`."""
    p, slope = newton.program, change / x - off_gradient
    dx, dy = solve(newton, slope, -off_sums)
    left = slope - p.Q @ dx - z / x * dx + p.M.T @ dy  # what damping and rounding left over
    more_x, more_y = solve(newton, left, -off_sums - p.M @ dx)
    dx, dy = dx + more_x, dy + more_y
    return dx, dy, (change - z * dx) / x


def _reach(x: FloatArray, dx: FloatArray, z: FloatArray, dz: FloatArray) -> float:
    """Return how far along the step x and z stay positive, 1 at the most."""
    value, change = np.concatenate([x, z]), np.concatenate([dx, dz])
    falling = change < 0
    return min(1.0, float((-value[falling] / change[falling]).min(initial=np.inf)))


@dataclass(frozen=True, eq=False, slots=True)
class Taken:
    """One child taken out of a system, by Cholesky factors.

    They are of its block over the free entries, and of its own sums; `across` joins those to the
    sums it shares.
    """

    free: IntArray
    block: FloatArray
    own: FloatArray
    across: FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class Factor:
    """[[Q + D, −Mᵀ], [M, E]] over the free entries, ready to solve.

    With P = (Q + D)⁻¹, which is `slack` for slacks, S y = r − M P g for the multipliers, where
    S = M P Mᵀ + E. Each child's own sums are taken out of S; its Cholesky factor is over the others.
    """

    program: Program
    slack: FloatArray
    children: Sequence[Taken]
    shared: IntArray
    S: FloatArray


def factor(p: Program, free: NDArray[np.bool_], D: FloatArray, E: float) -> Factor:
    """Factor the system child by child; LinAlgError where it is singular."""
    sums, entries = len(p.m), len(p.b) - p.Q.slacks
    slack = np.where(free[entries:], 1.0 / D[entries:], 0.0)
    corner = np.full(sums, E)
    corner[sums - p.Q.slacks :] += slack
    place = np.zeros(sums, np.int64)
    for part in p.parts:
        place[part.own] = -1
    shared = np.flatnonzero(place == 0)
    place[shared] = np.arange(len(shared))
    S = np.diag(corner[shared])
    children = []
    for part in p.parts:
        own = len(part.own)
        at = np.flatnonzero(free[part.entries])
        cells = part.cells[at]
        block = p.Q.A[np.ix_(cells, cells)]
        block.flat[:: len(at) + 1] *= 1.0 + _SINGULAR
        block.flat[:: len(at) + 1] += D[part.entries][at]
        L = _cholesky(block)
        X = _forward(L, np.take(part.M, at, axis=1).T)
        N = X.T @ X
        N.flat[:: len(N) + 1] *= 1.0 + _CANCELLED
        T = _cholesky(N[:own, :own] + np.diag(corner[part.own]))
        Y = _forward(T, N[:own, own:])
        among = place[part.shared]
        N[own:, own:] -= Y.T @ Y
        S[np.ix_(among, among)] += N[own:, own:]
        children.append(Taken(part.entries.start + at, L, T, Y))
    return Factor(p, slack, children, shared, _cholesky(S))


def solve(factor: Factor, slope: FloatArray, sums: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return x, 0 where not free, and y with (Q + D) x − Mᵀy = slope and M x + E y = sums."""
    p = factor.program
    y = sums - p.M @ _answer(factor, slope)
    for part, child in zip(p.parts, factor.children, strict=True):
        y[part.own] = _forward(child.own, y[part.own])
        y[part.shared] -= child.across.T @ y[part.own]
    y[factor.shared] = _backward(factor.S, _forward(factor.S, y[factor.shared]))
    for part, child in zip(p.parts, factor.children, strict=True):
        y[part.own] = _backward(child.own, y[part.own] - child.across @ y[part.shared])
    return _answer(factor, slope + p.M.T @ y), y


def _answer(factor: Factor, slope: FloatArray) -> FloatArray:
    """Return P times a slope."""
    x = np.zeros(len(slope))
    for child in factor.children:
        if len(child.free):
            x[child.free] = dpotrs(child.block, slope[child.free], lower=1)[0]
    entries = len(x) - len(factor.slack)
    x[entries:] = factor.slack * slope[entries:]
    return x


def _cholesky(matrix: FloatArray) -> FloatArray:
    """Return the lower factor in place of a positive matrix; above its diagonal is anything."""
    if not len(matrix):
        return matrix
    L, failed = dpotrf(matrix.T, lower=1, clean=0, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError("a matrix that should be positive is not")
    return np.asarray(L)


def _forward(L: FloatArray, right: FloatArray) -> FloatArray:
    """Return L⁻¹ right; `right` is not kept."""
    return np.asarray(dtrtrs(L, right, lower=1, overwrite_b=1)[0]) if right.size else right


def _backward(L: FloatArray, right: FloatArray) -> FloatArray:
    """Return L⁻ᵀ right."""
    return np.asarray(dtrtrs(L, right, lower=1, trans=1)[0]) if right.size else right
