"""The kernel: non-negative least squares for one family, by a primal-dual active set."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from countveil.numerics import FloatArray, IntArray
from countveil.postprocess.union_find import root_of

# One file, long as it is: Numba's cache sees a change in the file of a kernel, not in what it calls.

# Free sets up to this size are inverted in plain loops; LAPACK is faster beyond.
_SMALL = 32
_TOLERANCE = 1e-11  # of the largest cell: entries this close to 0 stay where they are
_PATIENCE = 6  # block steps without progress before single ones
_ROUNDING = 1e-14  # of the terms of a gradient: what their sum may be off by


@njit(cache=True, nogil=True)
def _invert(M: FloatArray, size: int) -> bool:
    """Invert a small symmetric positive matrix in place by Cholesky; False if it is not positive."""
    for i in range(size):
        for j in range(i + 1):
            total = M[i, j]
            for k in range(j):
                total -= M[i, k] * M[j, k]
            if i == j:
                if not total > 0.0:
                    return False
                M[i, i] = np.sqrt(total)
            else:
                M[i, j] = total / M[j, j]
    for j in range(size):  # the inverse of the factor, below the diagonal
        M[j, j] = 1.0 / M[j, j]
        for i in range(j + 1, size):
            total = 0.0
            for k in range(j, i):
                total -= M[i, k] * M[k, j]
            M[i, j] = total / M[i, i]
    for i in range(size):
        for j in range(i + 1):
            total = 0.0
            for k in range(i, size):
                total += M[k, i] * M[k, j]
            M[i, j] = total
    for i in range(size):
        for j in range(i + 1, size):
            M[i, j] = M[j, i]
    return True


@njit(cache=True, nogil=True)
def _solve(M: FloatArray, sides: FloatArray) -> Any:
    """Solve by LAPACK; the one place that does, since each costs seconds to compile."""
    return np.linalg.solve(M, sides)


@njit(cache=True, nogil=True)
def _free_cells(free: Any, c: int) -> IntArray:
    """Return the free cells of a child."""
    cells = free.shape[1]
    found = np.empty(cells, np.int64)
    k = 0
    for j in range(cells):
        if free[c, j]:
            found[k] = j
            k += 1
    return found[:k]


@njit(cache=True, nogil=True)
def _taken(A: FloatArray, free: IntArray, size: int) -> FloatArray:
    M = np.empty((size, size))
    for i in range(size):
        for j in range(size):
            M[i, j] = A[free[i], free[j]]
    return M


@njit(cache=True, nogil=True)
def _inverse_of(A: FloatArray, free: IntArray, size: int) -> Any:
    M = _taken(A, free, size)
    if size > _SMALL or not _invert(M, size):
        return _solve(_taken(A, free, size), np.eye(size))
    return M


@njit(cache=True, nogil=True)
def _components(free: Any, above: IntArray) -> None:
    """Join children (first) and cells (after them) that share a free entry."""
    children, cells = free.shape
    for node in range(children + cells):
        above[node] = node
    for c in range(children):
        for j in range(cells):
            if free[c, j]:
                above[root_of(above, c)] = root_of(above, children + j)
    for node in range(children + cells):
        above[node] = root_of(above, node)


@njit(cache=True, nogil=True)
def _balance(
    free: Any,
    allowed: Any,
    parent: FloatArray,
    totals: FloatArray,
    price: FloatArray,
) -> None:
    """Free the cheapest entries between parts of the free graph whose two sides do not add up."""
    children, cells = free.shape
    above = np.empty(children + cells, np.int64)
    negligible = 1e-9 * max(parent.max(), 1.0)
    for _ in range(children + cells):
        _components(free, above)
        excess = np.zeros(children + cells)
        for c in range(children):
            excess[above[c]] -= totals[c]
        for j in range(cells):
            excess[above[children + j]] += parent[j]
        best_c, best_j, best = -1, -1, np.inf
        for c in range(children):
            if totals[c] == 0.0:
                continue
            for j in range(cells):
                here, there = above[c], above[children + j]
                if (
                    allowed[c, j]
                    and here != there
                    and excess[here] < -negligible  # its children need more than its cells hold
                    and price[c, j] < best
                ):
                    best_c, best_j, best = c, j, price[c, j]
        if best_c < 0:
            return
        free[best_c, best_j] = True


@njit(cache=True, nogil=True)
def _solve_prices(S: FloatArray, right: FloatArray, free: Any, fixed: bool) -> Any:
    """Solve S λ = right; with fixed totals S is singular, once for each part of the free graph."""
    children, cells = free.shape
    sides = right.copy().reshape(cells, 1)
    if not fixed:
        return _solve(S, sides)[:, 0]
    above = np.empty(children + cells, np.int64)
    _components(free, above)
    size = np.zeros(children + cells)
    weight = 0.0
    for j in range(cells):
        size[above[children + j]] += 1.0
        weight += S[j, j] / cells
    M = S.copy()
    for i in range(cells):
        for j in range(cells):
            if above[children + i] == above[children + j]:
                M[i, j] += (weight if weight > 0.0 else 1.0) / size[above[children + i]]
    return _solve(M, sides)[:, 0]


@njit(cache=True, nogil=True)
def _solve_free(
    A: FloatArray, b: FloatArray, parent: FloatArray, totals: FloatArray, free: Any
) -> Any:
    """Solve with the entries not free at 0 and no sign asked of the others; return h, λ, μ.

    With P_c the inverse of A over the free cells of child c, h_c = P_c (b_c + λ + μ_c); the sums
    give Σ_c P_c λ = parent − Σ_c P_c b_c, and a fixed total takes its own direction out of P_c.
    """
    children, cells = b.shape
    summed, fixed = len(parent) > 0, len(totals) > 0
    h = np.zeros((children, cells))
    lam, mu = np.zeros(cells), np.zeros(children)
    y, P1 = np.zeros((children, cells)), np.zeros((children, cells))
    weight = np.zeros(children)
    S, right = np.zeros((len(parent), len(parent))), parent.copy()
    used = 0
    for c in range(children):
        k = len(_free_cells(free, c))
        used += k * k if k <= _SMALL else 0
    kept = np.empty(used)
    used = 0
    for c in range(children):
        F = _free_cells(free, c)
        k = len(F)
        if k == 0:
            continue
        if summed or k <= _SMALL:
            P = _inverse_of(A, F, k)
            for i in range(k):
                for j in range(k):
                    y[c, i] += P[i, j] * b[c, F[j]]
                    P1[c, i] += P[i, j]
        else:
            sides = np.empty((k, 2))
            for i in range(k):
                sides[i, 0], sides[i, 1] = b[c, F[i]], 1.0
            P = _taken(A, F, k)
            solved = _solve(P, sides)
            for i in range(k):
                y[c, i], P1[c, i] = solved[i, 0], solved[i, 1]
        gap = totals[c] if fixed else 0.0
        for i in range(k):
            weight[c] += P1[c, i]
            gap -= y[c, i] if fixed else 0.0
        gap /= weight[c]
        if summed:
            for i in range(k):
                right[F[i]] -= y[c, i] + gap * P1[c, i]
                share = P1[c, i] / weight[c] if fixed else 0.0
                for j in range(k):
                    S[F[i], F[j]] += P[i, j] - share * P1[c, j]
        if k <= _SMALL:
            for i in range(k):
                for j in range(k):
                    kept[used] = P[i, j]
                    used += 1
    if summed:
        lam = _solve_prices(S, right, free, fixed)
    used = 0
    for c in range(children):
        F = _free_cells(free, c)
        k = len(F)
        if k == 0:
            continue
        if fixed:
            mu[c] = totals[c]
            for i in range(k):
                mu[c] -= y[c, i] + P1[c, i] * lam[F[i]]
            mu[c] /= weight[c]
        if k <= _SMALL:
            for i in range(k):
                total = y[c, i] + mu[c] * P1[c, i]
                for j in range(k):
                    total += kept[used] * lam[F[j]]
                    used += 1
                h[c, F[i]] = total
        else:
            sides = np.empty((k, 1))
            for i in range(k):
                sides[i, 0] = b[c, F[i]] + lam[F[i]] + mu[c]
            solved = _solve(_taken(A, F, k), sides)
            for i in range(k):
                h[c, F[i]] = solved[i, 0]
    return h, lam, mu


@njit(cache=True, nogil=True)
def _reduced(A: FloatArray, b: FloatArray, h: FloatArray, lam: FloatArray, mu: FloatArray) -> Any:
    """Return A h − b − λ − μ."""
    children, cells = b.shape
    gradient = np.empty((children, cells))
    for c in range(children):
        for j in range(cells):
            gradient[c, j] = -b[c, j] - lam[j] - mu[c]
        for i in range(cells):
            if h[c, i] != 0.0:
                for j in range(cells):
                    gradient[c, j] += A[i, j] * h[c, i]
    return gradient


@njit(cache=True, nogil=True)
def _take_off(sums: FloatArray, sides: FloatArray, h: FloatArray) -> None:
    """Take the sums of h off those of the parent and of the totals, where there are any."""
    children, cells = h.shape
    for c in range(children):
        for j in range(cells):
            if len(sums) > 0:
                sums[j] -= h[c, j]
            if len(sides) > 0:
                sides[c] -= h[c, j]


@njit(cache=True, nogil=True)
def _refine(
    A: FloatArray,
    b: FloatArray,
    parent: FloatArray,
    totals: FloatArray,
    free: Any,
    h: FloatArray,
    lam: FloatArray,
    mu: FloatArray,
) -> float:
    """Correct a solution in place by what it leaves over; return the largest correction."""
    left = _reduced(A, b, h, lam, mu)
    for c in range(len(left)):
        for j in range(len(lam)):
            left[c, j] = -left[c, j] if free[c, j] else 0.0
    sums, sides = parent.copy(), totals.copy()
    _take_off(sums, sides, h)
    dh, dlam, dmu = _solve_free(A, left, sums, sides, free)
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
def _gap(h: FloatArray, parent: FloatArray, totals: FloatArray) -> float:
    """Return how far the sums of h are from the parent and the totals."""
    sums, sides = parent.copy(), totals.copy()
    _take_off(sums, sides, h)
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
def _cover(free: Any, allowed: Any, price: FloatArray, summed: bool, totals: FloatArray) -> None:
    """Free the cheapest entry of every cell, and of every child with a total, that has none."""
    children, cells = free.shape
    for j in range(cells if summed else 0):
        best, some = -1, False
        for c in range(children):
            some = some or free[c, j]
            if allowed[c, j] and (best < 0 or price[c, j] < price[best, j]):
                best = c
        if not some and best >= 0:
            free[best, j] = True
    for c in range(len(totals)):
        best, some = -1, False
        for j in range(cells):
            free[c, j] = free[c, j] and totals[c] > 0.0
            some = some or free[c, j]
            if allowed[c, j] and (best < 0 or price[c, j] < price[c, best]):
                best = j
        if not some and best >= 0 and totals[c] > 0.0:
            free[c, best] = True


@njit(cache=True, nogil=True)
def pivot(
    A: FloatArray,
    b: FloatArray,
    parent: FloatArray,
    totals: FloatArray,
    allowed: Any,
    start: FloatArray,
    most: int,
) -> Any:
    """Solve by a primal-dual active set from the positive entries of `start`.

    min Σ_c ½ h_cᵀA h_c − b_cᵀh_c,  h ≥ 0,  h = 0 where not allowed,  Σ_c h_c = parent (unless that is
    empty),  1ᵀh_c = totals_c (unless that is empty). Returns h, the multipliers λ of the parent's
    cells and μ of the totals, the iterations, and whether it ended: ended is optimal.
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
    fewest, patience = children * cells + 1, _PATIENCE
    for iteration in range(1, most + 1):
        _cover(free, allowed, gradient, summed, totals)
        if fixed and summed:
            _balance(free, allowed, parent, totals, gradient)
        h, lam, mu = _solve_free(A, b, parent, totals, free)
        gradient = _reduced(A, b, h, lam, mu)
        for _ in range(3):  # with weights far apart, what a solution leaves over shows it
            if _left_over(gradient, free, b, lam, mu) <= 1e-13 and (
                _gap(h, parent, totals) <= 0.1 * _TOLERANCE * scale
            ):
                break
            _refine(A, b, parent, totals, free, h, lam, mu)
            gradient = _reduced(A, b, h, lam, mu)
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
                    near = _TOLERANCE * scale * A[j, j] + _ROUNDING * steep
                    wrong[c, j] = not gradient[c, j] >= -near
                if wrong[c, j]:
                    changes, last_c, last_j = changes + 1, c, j
        if changes == 0:
            for _ in range(4):
                if not _refine(A, b, parent, totals, free, h, lam, mu) > 1e-13 * scale:
                    break
            return h, lam, mu, iteration, True
        patience = _PATIENCE if changes < fewest else patience - 1
        fewest = min(fewest, changes)
        if patience > 0:
            for c in range(children):
                for j in range(cells):
                    free[c, j] = free[c, j] != wrong[c, j]
        else:  # block steps may cycle; the last entry alone cannot (Murty 1974, Júdice and Pires 1994)
            free[last_c, last_j] = not free[last_c, last_j]
    return h, lam, mu, most, False
