"""Projected gradient: a starting point for the active set, close enough to leave few pivots."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from countveil.base.numerics import FloatArray
from countveil.postprocess.solver.family_problem import Gram, diagonals, largest_sum, multiply


@njit(cache=True, nogil=True)
def project_onto_sums(x: FloatArray, parent: FloatArray, allowed: NDArray[np.bool_]) -> None:
    """Replace each column of x by the nearest non-negative one that sums to the parent's cell."""
    children, cells = x.shape
    for j in range(cells):
        count, together = 0, 0.0
        for c in range(children):
            if allowed[c, j]:
                count += 1
                together += x[c, j]
        shift = (together - parent[j]) / max(count, 1)
        while True:  # Michelot (1986): drop entries below the shift until there are none
            kept, together = 0, 0.0
            for c in range(children):
                if allowed[c, j] and x[c, j] > shift:
                    kept += 1
                    together += x[c, j]
            if kept >= count or kept == 0:  # equal except for rounding, which must not loop forever
                break
            count = kept
            shift = (together - parent[j]) / kept
        for c in range(children):
            x[c, j] = max(x[c, j] - shift, 0.0) if allowed[c, j] else 0.0


@njit(cache=True, nogil=True)
def _keep_totals(x: FloatArray, move: FloatArray, totals: FloatArray) -> None:
    """Shift the moves of each child's positive entries so that they reach its total."""
    children, cells = x.shape
    for c in range(children):
        count, missing = 0, totals[c]
        for j in range(cells):
            missing -= x[c, j]
            if x[c, j] > 0.0:
                count += 1
                missing += move[c, j]
        for j in range(cells):
            move[c, j] -= missing / max(count, 1)


@njit(cache=True, nogil=True)
def gradient_start_point(
    gram: Gram,
    b: FloatArray,
    parent: FloatArray,
    totals: FloatArray,
    allowed: NDArray[np.bool_],
    steps: int,
) -> FloatArray:
    """Return h after accelerated projected-gradient steps.

    The sums over children hold exactly; totals, if fixed, only approximately (Beck and Teboulle 2009;
    O'Donoghue and Candès 2015).
    """
    children, cells = b.shape
    step, steepness = 1.0 / largest_sum(gram), diagonals(gram)
    summed, fixed = len(parent) > 0, len(totals) > 0
    x = np.empty((children, cells))
    together = max(totals.sum(), 1e-300) if fixed else 1.0
    for c in range(children):
        for j in range(cells):
            if fixed:  # start as if all children had the same mix
                x[c, j] = totals[c] * (parent[j] / together if summed else 1.0 / cells)
            else:
                x[c, j] = b[c, j] / steepness[gram.shape_of[c], j]
    _project(x, parent, allowed)
    ahead, momentum = x.copy(), 1.0
    for _ in range(steps):
        move = multiply(gram, ahead)
        for c in range(children):
            for j in range(cells):
                move[c, j] = step * (move[c, j] - b[c, j])
        if fixed:
            _keep_totals(ahead, move, totals)
        new = ahead - move
        _project(new, parent, allowed)
        uphill = 0.0
        for c in range(children):
            for j in range(cells):
                uphill += (ahead[c, j] - new[c, j]) * (new[c, j] - x[c, j])
        momentum = 1.0 if uphill > 0.0 else momentum
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum))
        for c in range(children):
            for j in range(cells):
                ahead[c, j] = new[c, j] + (momentum - 1.0) / following * (new[c, j] - x[c, j])
        x, momentum = new, following
    return x


@njit(cache=True, nogil=True)
def _project(x: FloatArray, parent: FloatArray, allowed: NDArray[np.bool_]) -> None:
    """Project onto the parent's sums or, without a parent, onto non-negative numbers."""
    if len(parent) > 0:
        project_onto_sums(x, parent, allowed)
        return
    for c in range(x.shape[0]):
        for j in range(x.shape[1]):
            x[c, j] = max(x[c, j], 0.0) if allowed[c, j] else 0.0
