"""The kernel: non-negative least squares for one family, by a primal-dual active set."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from countveil.numerics import FloatArray
from countveil.postprocess.free_factor import prepare
from countveil.postprocess.free_graph import balance, cover
from countveil.postprocess.free_solution import solve_free
from countveil.postprocess.gram import Gram, diagonal, multiply

_TOLERANCE = 1e-11  # of the largest cell: entries this close to 0 stay where they are
_PATIENCE = 6  # block steps without progress before single ones
_REFINEMENTS = 6  # of a solution that is to be returned
_ROUNDING = 1e-14  # of the terms of a gradient: what their sum may be off by


@njit(cache=True, nogil=True)
def _reduced(gram: Gram, b: FloatArray, h: FloatArray, lam: FloatArray, mu: FloatArray) -> Any:
    """Return A h − b − λ − μ."""
    gradient = multiply(gram, h)
    children, cells = b.shape
    for c in range(children):
        for j in range(cells):
            gradient[c, j] -= b[c, j] + lam[j] + mu[c]
    return gradient


@njit(cache=True, nogil=True)
def _subtract(values: FloatArray, lost: FloatArray, i: int, term: float) -> None:
    """Subtract a term from values[i]; add to lost[i] what rounding loses (Knuth's two-sum)."""
    before = values[i]
    after = before - term
    back = after - before
    lost[i] += (before - (after - back)) - (term + back)
    values[i] = after


@njit(cache=True, nogil=True)
def _left_of_sums(parent: FloatArray, totals: FloatArray, h: FloatArray) -> Any:
    """Return parent − Σ_c h_c and totals_c − 1ᵀh_c, where there are any, as if in twice the precision.

    Plain sums of large counts would be off by more people than the solution is.
    """
    children, cells = h.shape
    sums, sides = parent.copy(), totals.copy()
    lost_sums, lost_sides = np.zeros(len(sums)), np.zeros(len(sides))
    for c in range(children):
        for j in range(cells):
            if len(sums) > 0:
                _subtract(sums, lost_sums, j, h[c, j])
            if len(sides) > 0:
                _subtract(sides, lost_sides, c, h[c, j])
    return sums + lost_sums, sides + lost_sides


@njit(cache=True, nogil=True)
def _refine(
    gram: Gram,
    factor: Any,
    b: FloatArray,
    parent: FloatArray,
    totals: FloatArray,
    free: Any,
    h: FloatArray,
    lam: FloatArray,
    mu: FloatArray,
) -> float:
    """Correct a solution in place by what it leaves over; return the largest correction."""
    left = _reduced(gram, b, h, lam, mu)
    for c in range(len(left)):
        for j in range(len(lam)):
            left[c, j] = -left[c, j] if free[c, j] else 0.0
    sums, sides = _left_of_sums(parent, totals, h)
    dh, dlam, dmu = solve_free(gram, factor, left, sums, sides)
    largest = 0.0
    for c in range(len(left)):
        mu[c] += dmu[c]
        for j in range(len(lam)):
            h[c, j] += dh[c, j]
            largest = max(largest, abs(dh[c, j]))
    for j in range(len(lam)):
        lam[j] += dlam[j]
    return largest


@njit(cache=True, nogil=True)
def gap_of_sums(h: FloatArray, parent: FloatArray, totals: FloatArray) -> float:
    """Return how far the sums of h are from the parent and the totals, in people."""
    sums, sides = _left_of_sums(parent, totals, h)
    largest = 0.0
    for j in range(len(sums)):
        largest = max(largest, abs(sums[j]))
    for c in range(len(sides)):
        largest = max(largest, abs(sides[c]))
    return largest


@njit(cache=True, nogil=True)
def _left_over(
    gradient: FloatArray, free: Any, b: FloatArray, lam: FloatArray, mu: FloatArray
) -> float:
    """Return the largest gradient of a free entry, relative to the largest of its terms."""
    children, cells = gradient.shape
    largest, steep = 0.0, 1e-300
    for c in range(children):
        for j in range(cells):
            steep = max(steep, abs(b[c, j]) + abs(lam[j]) + abs(mu[c]))
            if free[c, j]:
                largest = max(largest, abs(gradient[c, j]))
    return largest / steep


@njit(cache=True, nogil=True)
def pivot(
    gram: Gram,
    b: FloatArray,
    parent: FloatArray,
    totals: FloatArray,
    allowed: Any,
    start: FloatArray,
    most: int,
) -> Any:
    """Solve by a primal-dual active set from the positive entries of `start`.

    min Σ_c ½ h_cᵀA h_c − b_cᵀh_c,  h ≥ 0,  h = 0 where not allowed,  Σ_c h_c = parent (unless that is
    empty),  1ᵀh_c = totals_c (unless that is empty). Returns h, A h − b less the multipliers of the
    sums, the iterations, and whether it ended: ended is optimal.
    """
    children, cells = b.shape
    summed, fixed = len(parent) > 0, len(totals) > 0
    free = np.empty((children, cells), np.bool_)
    gradient = np.empty((children, cells))
    for c in range(children):
        for j in range(cells):
            free[c, j] = allowed[c, j] and start[c, j] > 0.0
            gradient[c, j] = -b[c, j]
    scale = 1.0
    for j in range(len(parent)):
        scale = max(scale, parent[j])
    for c in range(len(totals)):
        scale = max(scale, totals[c])
    h = np.zeros((children, cells))
    lam, mu = np.zeros(cells), np.zeros(children)
    steepness = diagonal(gram)
    fewest, patience = children * cells + 1, _PATIENCE
    for iteration in range(1, most + 1):
        cover(free, allowed, gradient, summed, totals)
        if fixed and summed:
            balance(free, allowed, parent, totals, gradient)
        factor = prepare(gram, free, summed, fixed)
        h, lam, mu = solve_free(gram, factor, b, parent, totals)
        gradient = _reduced(gram, b, h, lam, mu)
        for _ in range(3):  # with weights far apart, what a solution leaves over shows it
            if _left_over(gradient, free, b, lam, mu) <= 1e-13 and (
                gap_of_sums(h, parent, totals) <= 0.1 * _TOLERANCE * scale
            ):
                break
            _refine(gram, factor, b, parent, totals, free, h, lam, mu)
            gradient = _reduced(gram, b, h, lam, mu)
        changes, last_c, last_j = 0, 0, 0
        wrong = np.zeros((children, cells), np.bool_)
        for c in range(children):
            if fixed and totals[c] == 0.0:  # nothing is free: μ is as low as it need be
                lowest = np.inf
                for j in range(cells):
                    if allowed[c, j]:
                        lowest = min(lowest, gradient[c, j])
                mu[c] = lowest if lowest < np.inf else 0.0
                continue
            steep = 0.0
            for j in range(cells):
                steep = max(steep, abs(b[c, j]) + abs(lam[j]) + abs(mu[c]))
            for j in range(cells):
                if free[c, j]:
                    wrong[c, j] = not h[c, j] >= -_TOLERANCE * scale
                elif allowed[c, j]:
                    near = _TOLERANCE * scale * steepness[j] + _ROUNDING * steep
                    wrong[c, j] = not gradient[c, j] >= -near
                if wrong[c, j]:
                    changes, last_c, last_j = changes + 1, c, j
        if changes == 0:
            last = np.inf
            for _ in range(_REFINEMENTS):
                change = _refine(gram, factor, b, parent, totals, free, h, lam, mu)
                if not change < 0.5 * last:  # rounding is all that is left
                    break
                last = change
            # An entry a hair below 0 goes to 0, and the others take up its share. Cutting it off alone
            # would leave the sums off by the tolerance: whole people where counts are large.
            below = False
            for c in range(children):
                for j in range(cells):
                    if h[c, j] < 0.0:
                        below, free[c, j] = True, False
            if below:
                continue
            return h, _reduced(gram, b, h, lam, mu), iteration, True
        patience = _PATIENCE if changes < fewest else patience - 1
        fewest = min(fewest, changes)
        if patience > 0:
            for c in range(children):
                for j in range(cells):
                    free[c, j] = free[c, j] != wrong[c, j]
        else:  # block steps may cycle; the last entry alone cannot (Murty 1974, Júdice and Pires 1994)
            free[last_c, last_j] = not free[last_c, last_j]
    return h, gradient, most, False
