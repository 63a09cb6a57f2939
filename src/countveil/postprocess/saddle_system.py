"""The linear system of a family with rows: entries and the multipliers of their sums, together.

It is taken apart child by child: memory goes with children × cells², not with the square of all
entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtrs

from countveil.numerics import FloatArray, IntArray


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

    def left_over(self, x: FloatArray) -> FloatArray:
        """Return m − M x, summed in more than double precision where the machine has it.

        A plain sum of large counts is off by more people than the solution is.
        """
        left = np.asarray(self.m, np.longdouble) - self.M.astype(np.longdouble) @ x
        return np.asarray(left, float)


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


@dataclass(frozen=True, eq=False, slots=True)
class Taken:
    """One child taken out of a system, by Cholesky factors.

    They are of its block over the free entries, and of its own sums; `across` joins those to the
    sums it shares, as far as it has a free entry in them.
    """

    free: IntArray
    block: FloatArray
    own: FloatArray
    across: FloatArray
    shared: IntArray


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
        block.flat[:: len(at) + 1] += D[part.entries][at]
        L = _cholesky(block)
        M = np.take(part.M, at, axis=1)
        felt = np.flatnonzero(M[own:].any(axis=1))  # shared sums that a free entry is in
        X = _forward(L, np.concatenate([M[:own], M[own + felt]]).T)
        N = X.T @ X
        T = _cholesky(N[:own, :own] + np.diag(corner[part.own]))
        Y = _forward(T, N[:own, own:])
        among = place[part.shared[felt]]
        N[own:, own:] -= Y.T @ Y
        S[np.ix_(among, among)] += N[own:, own:]
        children.append(Taken(part.entries.start + at, L, T, Y, part.shared[felt]))
    return Factor(p, slack, children, shared, _cholesky(S))


def solve(factor: Factor, slope: FloatArray, sums: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return x, 0 where not free, and y with (Q + D) x − Mᵀy = slope and M x + E y = sums."""
    p = factor.program
    y = sums - p.M @ _answer(factor, slope)
    for part, child in zip(p.parts, factor.children, strict=True):
        y[part.own] = _forward(child.own, y[part.own])
        y[child.shared] -= child.across.T @ y[part.own]
    y[factor.shared] = _backward(factor.S, _forward(factor.S, y[factor.shared]))
    for part, child in zip(p.parts, factor.children, strict=True):
        y[part.own] = _backward(child.own, y[part.own] - child.across @ y[child.shared])
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
