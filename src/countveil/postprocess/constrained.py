"""Families with rows: the active set again, over entries and rows, on a sparse linear system."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import splu

from countveil.numerics import FloatArray
from countveil.postprocess.rows import Row, as_matrix

_TOLERANCE = 1e-11


def pivot_rows(
    A: FloatArray,
    b: FloatArray,
    parent: FloatArray,
    totals: FloatArray,
    allowed: NDArray[np.bool_],
    rows: Sequence[Row],
    start: FloatArray,
    most: int,
) -> tuple[FloatArray, FloatArray, int, bool]:
    """Solve from the positive entries and tight rows of `start`.

    Returns h, its reduced gradients (A h − b less all multipliers), the iterations, and whether it
    ended.
    """
    children, cells = b.shape
    equalities, values = _equalities(parent, totals, children, cells)
    inequality = as_matrix(rows, children, cells)
    lower = np.array([row.lower for row in rows])
    upper = np.array([row.upper for row in rows])
    scale = max(1.0, float(values.max(initial=0.0)), float(lower.max(initial=0.0)))
    steep = np.tile(np.diag(A), children) * scale
    free = (allowed & (start > 1e-7 * scale)).reshape(-1)
    open_entries = allowed.reshape(-1)
    flat = start.reshape(-1)
    sums = inequality @ flat
    # -1 where a row is held at its lower bound, 1 at its upper, 0 where it is slack.
    held = np.where(sums <= lower + 1e-6 * scale, -1, np.where(sums >= upper - 1e-6 * scale, 1, 0))
    quadratic = sp.block_diag([A] * children, format="csr")
    h = np.zeros(children * cells)
    reduced = -b.reshape(-1)
    for iteration in range(1, most + 1):
        tight = held != 0
        E = sp.vstack([equalities, inequality[tight]], format="csr")
        target = np.concatenate([values, np.where(held < 0, lower, upper)[tight]])
        h, multipliers = _solve(quadratic, E, b.reshape(-1), target, free)
        reduced = quadratic @ h - b.reshape(-1) - E.T @ multipliers
        along = multipliers[equalities.shape[0] :]
        changed = int((np.abs(E @ h - target) > 1e-7 * scale).any())
        drop = free & ~(h >= -_TOLERANCE * scale)
        add = ~free & open_entries & ~(reduced >= -_TOLERANCE * steep)
        free = (free & ~drop) | add
        sums = inequality @ h
        release = np.zeros(len(rows), bool)
        # A row at its lower bound pushes up, at its upper bound down; an equality may do either.
        loose = lower < upper
        release[tight] = along * held[tight] > _TOLERANCE * steep.max()
        release &= loose
        below = ~tight & (sums < lower - _TOLERANCE * scale)
        above = ~tight & (sums > upper + _TOLERANCE * scale)
        held = np.where(release, 0, np.where(below, -1, np.where(above, 1, held)))
        if changed and not (drop.any() or add.any() or release.any() or below.any() or above.any()):
            # The free entries cannot meet the tight rows: free the cheapest entry of each.
            for row in np.flatnonzero(np.abs(E @ h - target) > 1e-7 * scale):
                entries = E.indices[E.indptr[row] : E.indptr[row + 1]]
                entries = entries[open_entries[entries] & ~free[entries]]
                if len(entries):
                    free[entries[np.argmin(reduced[entries])]] = True
        changed += drop.sum() + add.sum() + release.sum() + below.sum() + above.sum()
        if changed == 0:
            shape = (children, cells)
            return h.reshape(shape), reduced.reshape(shape), iteration, True
    return h.reshape(children, cells), reduced.reshape(children, cells), most, False


def _equalities(
    parent: FloatArray, totals: FloatArray, children: int, cells: int
) -> tuple[sp.csr_array, FloatArray]:
    """Return the plain sums as a matrix over all entries, and their values."""
    parts, values = [], []
    if len(parent):
        parts.append(sp.kron(np.ones((1, children)), sp.eye_array(cells)))
        values.append(parent)
    if len(totals):
        parts.append(sp.kron(sp.eye_array(children), np.ones((1, cells))))
        values.append(totals)
    if not parts:
        return sp.csr_array((0, children * cells)), np.empty(0)
    return sp.csr_array(sp.vstack(parts)), np.concatenate(values)


def _solve(
    quadratic: sp.csr_array,
    E: sp.csr_array,
    b: FloatArray,
    target: FloatArray,
    free: NDArray[np.bool_],
) -> tuple[FloatArray, FloatArray]:
    """Minimise over the free entries with the tight rows held; redundant rows do no harm."""
    inside = np.flatnonzero(free)
    Q, F = quadratic[inside][:, inside], E[:, inside]
    size, count = Q.shape[0], F.shape[0]
    exact = sp.block_array([[Q, -F.T], [F, None]], format="csc") if count else sp.csc_array(Q)
    damping = 1e-10 / max(float(Q.diagonal().max(initial=1.0)), 1e-300)
    damped = exact + sp.diags_array(
        np.concatenate([np.zeros(size), np.full(count, damping)]), format="csc"
    )
    right = np.concatenate([b[inside], target])
    factor = splu(sp.csc_matrix(damped))
    solution = factor.solve(right)
    for _ in range(8):  # iterated regularisation: converges to a solution of the exact system
        solution += factor.solve(right - exact @ solution)
    h = np.zeros(len(b))
    h[inside] = solution[:size]
    return h, solution[size:]
