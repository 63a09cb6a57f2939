"""Projected gradient: a start for the active set, near enough that few pivots are left."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from countveil.numerics import FloatArray


@njit(cache=True, nogil=True)
def project(x: FloatArray, parent: FloatArray, allowed: Any) -> None:
    """Move each column of x to the nearest non-negative one that sums to the parent's cell."""
    children, cells = x.shape
    for j in range(cells):
        count, together = 0, 0.0
        for c in range(children):
            if allowed[c, j]:
                count += 1
                together += x[c, j]
        shift = (together - parent[j]) / max(count, 1)
        while True:  # Michelot (1986): drop what falls below the shift until nothing does
            kept, together = 0, 0.0
            for c in range(children):
                if allowed[c, j] and x[c, j] > shift:
                    kept += 1
                    together += x[c, j]
            if kept >= count or kept == 0:  # equal but for rounding, which must not make it circle
                break
            count = kept
            shift = (together - parent[j]) / kept
        for c in range(children):
            x[c, j] = max(x[c, j] - shift, 0.0) if allowed[c, j] else 0.0


@njit(cache=True, nogil=True)
def descend(
    A: FloatArray, b: FloatArray, parent: FloatArray, allowed: Any, steps: int
) -> FloatArray:
    """Take accelerated projected-gradient steps (Beck and Teboulle 2009) from an even split."""
    children, cells = b.shape
    # Entries of A are sums of positive weights, so its largest row sum bounds its eigenvalues.
    steepest = 0.0
    for i in range(cells):
        total = 0.0
        for j in range(cells):
            total += abs(A[i, j])
        steepest = max(steepest, total)
    step = 1.0 / steepest
    x = np.empty((children, cells))
    for c in range(children):
        for j in range(cells):
            x[c, j] = b[c, j] / A[j, j]
    project(x, parent, allowed)
    ahead, momentum = x.copy(), 1.0
    for _ in range(steps):
        new = np.dot(ahead, A)
        for c in range(children):
            for j in range(cells):
                new[c, j] = ahead[c, j] - step * (new[c, j] - b[c, j])
        project(new, parent, allowed)
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum))
        for c in range(children):
            for j in range(cells):
                ahead[c, j] = new[c, j] + (momentum - 1.0) / following * (new[c, j] - x[c, j])
        x, momentum = new, following
    return x
