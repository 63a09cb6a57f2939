"""Non-negative least squares for one family by a primal-dual active set: the compiled kernel.

`pivot` guesses which entries are free (not held at 0), solves for those with no sign constraint, and
corrects the guess until every entry is right. The sections below it are its tools, in the order in
which it needs them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from countveil.base.numerics import FloatArray, IntArray
from countveil.base.union_find import root_of
from countveil.postprocess.solver.family_problem import Gram, diagonals, multiply
from countveil.postprocess.solver.positive_matrices import factor_of, inverse_of, solve_factored

_TOLERANCE = 1e-11  # of the largest cell: entries this close to 0 stay where they are
_PATIENCE = 6  # block steps without progress before single ones
_REFINEMENTS = 6  # of a solution that will be returned
_ROUNDING = 1e-14  # of the terms of a gradient: the error that their sum may have
_TILE = 64  # rows of a product at a time, so that it stays in the processor's cache


@njit(cache=True, nogil=True)
def pivot(
    gram: Gram,
    b: FloatArray,
    parent: FloatArray,
    totals: FloatArray,
    allowed: NDArray[np.bool_],
    start: FloatArray,
    most: int,
) -> Any:
    """Solve by a primal-dual active set, starting with the positive entries of `start` free.

    min Σ_c ½ h_cᵀA_c h_c − b_cᵀh_c,  h ≥ 0,  h = 0 where not allowed,  Σ_c h_c = parent (unless that is
    empty),  1ᵀh_c = totals_c (unless that is empty). Returns h, A h − b less the multipliers of the
    sums, the number of iterations, and whether it ended; if it did, h is optimal.
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
    steepness = diagonals(gram)
    fewest, patience = children * cells + 1, _PATIENCE
    for iteration in range(1, most + 1):
        cover(free, allowed, gradient, summed, totals)
        if fixed and summed:
            balance(free, allowed, parent, totals, gradient)
        factor = prepare(gram, free, summed, fixed)
        h, lam, mu = solve_free(gram, factor, b, parent, totals)
        gradient = _reduced(gram, b, h, lam, mu)
        for _ in range(3):  # with weights far apart, one solve is not accurate enough
            if _left_over(gradient, free, b, lam, mu) <= 1e-13 and (
                gap_of_sums(h, parent, totals) <= 0.1 * _TOLERANCE * scale
            ):
                break
            _refine(gram, factor, b, parent, totals, free, h, lam, mu)
            gradient = _reduced(gram, b, h, lam, mu)
        changes, last_c, last_j = 0, 0, 0
        wrong = np.zeros((children, cells), np.bool_)
        for c in range(children):
            if fixed and totals[c] == 0.0:  # no entry is free: μ is as low as necessary
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
                    near = _TOLERANCE * scale * steepness[gram.shape_of[c], j] + _ROUNDING * steep
                    wrong[c, j] = not gradient[c, j] >= -near
                if wrong[c, j]:
                    changes, last_c, last_j = changes + 1, c, j
        if changes == 0:
            last = np.inf
            for _ in range(_REFINEMENTS):
                change = _refine(gram, factor, b, parent, totals, free, h, lam, mu)
                if not change < 0.5 * last:  # only rounding errors are left
                    break
                last = change
            # An entry just below 0 becomes 0, and the others take over its share. Clipping it alone
            # would leave the sums off by the tolerance: whole people if counts are large.
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
        else:
            # Block steps may cycle; changing the last entry alone cannot (Murty 1974, Júdice and Pires
            # 1994).
            free[last_c, last_j] = not free[last_c, last_j]
    return h, gradient, most, False


# How far a solution is off, and refining it.


@njit(cache=True, nogil=True)
def _reduced(gram: Gram, b: FloatArray, h: FloatArray, lam: FloatArray, mu: FloatArray) -> Any:
    """Return A_c h_c − b_c − λ − μ_c."""
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
    """Return parent − Σ_c h_c and totals_c − 1ᵀh_c, if any, as if in twice the precision.

    Summed plainly, large counts would be off by more people than the solution is.
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
    free: NDArray[np.bool_],
    h: FloatArray,
    lam: FloatArray,
    mu: FloatArray,
) -> float:
    """Correct a solution in place by its residuals; return the largest correction."""
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
    gradient: FloatArray, free: NDArray[np.bool_], b: FloatArray, lam: FloatArray, mu: FloatArray
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


# Which entries are free, as a graph of children and cells.


@njit(cache=True, nogil=True)
def components_of(free: NDArray[np.bool_], above: IntArray) -> None:
    """Write the component of each node: children first, then cells, joined by free entries."""
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
def balance(
    free: NDArray[np.bool_],
    allowed: NDArray[np.bool_],
    parent: FloatArray,
    totals: FloatArray,
    price: FloatArray,
) -> None:
    """Free the cheapest entries between components whose cells and children do not add up."""
    children, cells = free.shape
    above = np.empty(children + cells, np.int64)
    negligible = 1e-12 * max(parent.max(), 1.0)  # counts are integers: a true excess is at least 1
    for _ in range(children + cells):
        components_of(free, above)
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
                    and excess[here] < -negligible  # its children need more than its cells have
                    and price[c, j] < best
                ):
                    best_c, best_j, best = c, j, price[c, j]
        if best_c < 0:
            return
        free[best_c, best_j] = True


@njit(cache=True, nogil=True)
def cover(
    free: NDArray[np.bool_],
    allowed: NDArray[np.bool_],
    price: FloatArray,
    summed: bool,
    totals: FloatArray,
) -> None:
    """Free the cheapest entry of every cell, and of every child with a total, that has no free one."""
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


# Least squares over the free entries: what can be prepared before the sums are known.


@njit(cache=True, nogil=True)
def _free_cells(gram: Gram, free: NDArray[np.bool_]) -> Any:
    """Return the free cells of each child, block by block, and where each list begins."""
    children, cells = free.shape
    blocks = len(gram.offsets)
    first = np.empty(children * blocks + 1, np.int64)
    listed = np.empty(children * cells, np.int64)
    n = 0
    for c in range(children):
        for k in range(blocks):
            first[c * blocks + k] = n
            for i in range(gram.starts[k], gram.starts[k + 1]):
                if free[c, gram.order[i]]:
                    listed[n] = gram.order[i]
                    n += 1
    first[children * blocks] = n
    return listed[:n], first


@njit(cache=True, nogil=True)
def prepare(gram: Gram, free: NDArray[np.bool_], summed: bool, fixed: bool) -> Any:
    """Prepare to solve for the free entries, with the others at 0 and no sign constraint.

    With P_c the inverse of A's blocks over the free cells of child c and R its rows,
    h_c = P_c (b_c + λ + Rᵀz_c), and the sums require
        Σ_c P_c λ + Σ_c P_cRᵀ z_c = parent − Σ_c P_c b_c
        R P_c λ + (Ω + R P_cRᵀ) z_c = t_c − R P_c b_c
    where Ω is one over the weights of the rows, 0 for a fixed total. If rows are few, λ is eliminated
    first, block by block; if children are many, z_c is, child by child. The rest is factored.
    """
    children, cells = free.shape
    blocks, rows = len(gram.offsets), row_count(gram, fixed)
    listed, first = _free_cells(gram, free)
    at = np.empty(children * blocks + 1, np.int64)
    used, widest = 0, 0
    for n in range(children * blocks):
        at[n] = used
        used += (first[n + 1] - first[n]) ** 2
    for c in range(children):
        widest = max(widest, first[(c + 1) * blocks] - first[c * blocks])
    at[children * blocks] = used
    P = np.empty(used)
    nth = np.empty(cells, np.int64)  # the position of a cell in the order of blocks
    place = np.empty(cells, np.int64)  # its position within its block
    for k in range(blocks):
        for i in range(gram.starts[k], gram.starts[k + 1]):
            nth[gram.order[i]], place[gram.order[i]] = i, i - gram.starts[k]
    rows_first = summed and not (rows == 0 or (blocks > 1 and children * rows <= cells))
    inner = np.zeros((children, rows, rows))
    S = np.zeros((cells, cells) if rows_first else (0, 0))
    middle = np.zeros(gram.values.shape[1] if summed and not rows_first else 0)
    Y = np.empty((widest, rows))
    for c in range(children):
        begin, values = first[c * blocks], gram.values[gram.shape_of[c]]
        for k in range(blocks):
            n = c * blocks + k
            F = listed[first[n] : first[n + 1]]
            size, full = len(F), gram.starts[k + 1] - gram.starts[k]
            M = np.empty((size, size))
            for i in range(size):
                for j in range(size):
                    M[i, j] = values[gram.offsets[k] + place[F[i]] * full + place[F[j]]]
            M = inverse_of(M)
            for i in range(size):
                for j in range(size):
                    P[at[n] + i * size + j] = M[i, j]
                    if rows_first:
                        S[nth[F[i]], nth[F[j]]] += M[i, j]
                    elif summed:
                        middle[gram.offsets[k] + place[F[i]] * full + place[F[j]]] += M[i, j]
            if rows > 0:
                here = Y[first[n] - begin : first[n + 1] - begin]
                row_responses(gram, F, P, at[n], fixed, here)
                for i in range(size):
                    for t in range(gram.sums.shape[1]):
                        if gram.sums[F[i], t] >= 0:
                            inner[c, gram.sums[F[i], t]] += here[i]
                    if fixed:
                        inner[c, rows - 1] += here[i]
        if rows == 0:
            continue
        inverse = gram.inverse[gram.shape_of[c]]
        for a in range(len(inverse)):
            for b in range(len(inverse)):
                inner[c, a, b] += inverse[a, b]
        F = listed[begin : first[(c + 1) * blocks]]
        if fixed and len(F) == 0:
            inner[c, rows - 1, rows - 1] = 1.0
        if rows_first or not summed:
            inner[c] = inverse_of(inner[c].copy())
        if rows_first:
            _eliminate(S, nth, F, Y[: len(F)], inner[c])
    if rows_first:
        if fixed:
            _tie(S, free, 0, gram.order)
        S = factor_of(S)
    elif summed:
        S = _rows_left(gram, free, fixed, listed, first, P, at, place, middle, inner)
    return listed, first, P, at, rows_first, middle, inner, S


@njit(cache=True, nogil=True)
def _eliminate(S: FloatArray, nth: IntArray, F: IntArray, Y: FloatArray, inner: FloatArray) -> None:
    """Subtract Y inner Yᵀ, over the free cells F of a child, from the lower half of S."""
    pushed, across = np.dot(Y, inner), np.ascontiguousarray(Y.T)
    for first in range(0, len(F), _TILE):
        last = min(first + _TILE, len(F))
        tile = np.dot(pushed[first:last], np.ascontiguousarray(across[:, :last]))
        for i in range(first, last):
            for j in range(i + 1):
                S[nth[F[i]], nth[F[j]]] -= tile[i - first, j]


@njit(cache=True, nogil=True)
def _rows_left(
    gram: Gram,
    free: NDArray[np.bool_],
    fixed: bool,
    listed: IntArray,
    first: IntArray,
    P: FloatArray,
    at: IntArray,
    place: IntArray,
    middle: FloatArray,
    inner: FloatArray,
) -> Any:
    """Invert Σ_c P_c in each block, in place, eliminate λ from the rows, and factor the rest."""
    children, rows = len(free), row_count(gram, fixed)
    blocks = len(gram.offsets)
    T = np.zeros((children * rows, children * rows))
    for c in range(children):
        T[c * rows : (c + 1) * rows, c * rows : (c + 1) * rows] = inner[c]
    for k in range(blocks):
        full = gram.starts[k + 1] - gram.starts[k]
        begin, end = gram.offsets[k], gram.offsets[k] + full * full
        C = inverse_of(middle[begin:end].copy().reshape(full, full))
        middle[begin:end] = C.copy().reshape(full * full)
        if rows == 0:
            continue
        answers = np.zeros((full, children * rows))
        for c in range(children):
            n = c * blocks + k
            F = listed[first[n] : first[n + 1]]
            Y = np.empty((len(F), rows))
            row_responses(gram, F, P, at[n], fixed, Y)
            for i in range(len(F)):
                answers[place[F[i]], c * rows : (c + 1) * rows] = Y[i]
        T -= np.dot(answers.T, np.dot(C, answers))
    if rows == 0:
        return T
    if fixed:
        _tie(T, free, rows, gram.order)
    return factor_of(T)


@njit(cache=True, nogil=True)
def _tie(M: FloatArray, free: NDArray[np.bool_], rows: int, order: IntArray) -> None:
    """Make M regular: with fixed totals it is singular, once per component of the free graph.

    M is over the cells in this order if `rows` is 0, otherwise over the rows of each child, the last
    being its total.
    """
    children, cells = free.shape
    above = np.empty(children + cells, np.int64)
    components_of(free, above)
    size = np.zeros(children + cells)
    weight = 0.0
    nodes = children if rows > 0 else cells
    component = np.empty(nodes, np.int64)
    for n in range(nodes):
        component[n] = above[n if rows > 0 else children + order[n]]
        size[component[n]] += 1.0
        index = n * rows + rows - 1 if rows > 0 else n
        weight += M[index, index] / nodes
    weight = weight if weight > 0.0 else 1.0
    for n in range(nodes):
        for m in range(nodes):
            if component[n] == component[m]:
                i = n * rows + rows - 1 if rows > 0 else n
                j = m * rows + rows - 1 if rows > 0 else m
                M[i, j] += weight / size[component[n]]


# Least squares over the free entries, solved with what was prepared.


@njit(cache=True, nogil=True)
def _respond(
    gram: Gram, factor: Any, x: FloatArray, lam: FloatArray, z: FloatArray, fixed: bool
) -> FloatArray:
    """Return P_c (x_c + λ + Rᵀz_c) for each child."""
    listed, first, P, at = factor[0], factor[1], factor[2], factor[3]
    blocks = len(gram.offsets)
    h = np.zeros(x.shape)
    rows = z.shape[1]
    pushed = np.empty(x.shape[1])
    for c in range(len(x)):
        for k in range(blocks):
            n = c * blocks + k
            F = listed[first[n] : first[n + 1]]
            size = len(F)
            for j in range(size):
                pushed[j] = x[c, F[j]] + lam[F[j]]
                if rows > 0:
                    pushed[j] += row_push(gram, F[j], z[c], fixed)
            for i in range(size):
                total = 0.0
                for j in range(size):
                    total += P[at[n] + i * size + j] * pushed[j]
                h[c, F[i]] = total
    return h


@njit(cache=True, nogil=True)
def _in_blocks(gram: Gram, C: FloatArray, x: FloatArray) -> FloatArray:
    """Multiply by a matrix that is zero outside the blocks."""
    product = np.zeros(len(x))
    for k in range(len(gram.offsets)):
        begin, size = gram.starts[k], gram.starts[k + 1] - gram.starts[k]
        for i in range(size):
            total = 0.0
            for j in range(size):
                total += C[gram.offsets[k] + i * size + j] * x[gram.order[begin + j]]
            product[gram.order[begin + i]] = total
    return product


@njit(cache=True, nogil=True)
def solve_free(
    gram: Gram, factor: Any, b: FloatArray, parent: FloatArray, totals: FloatArray
) -> Any:
    """Solve with what `prepare` returned; return h, λ, μ."""
    rows_first, middle, inner, S = factor[4], factor[5], factor[6], factor[7]
    children, cells = b.shape
    summed, fixed = len(parent) > 0, len(totals) > 0
    rows = row_count(gram, fixed)
    lam, z = np.zeros(cells), np.zeros((children, rows))
    h = _respond(gram, factor, b, lam, z, fixed)
    left = -row_sums(gram, h, rows, fixed)
    for c in range(len(totals)):
        left[c, rows - 1] += (
            totals[c]
            if factor[1][c * len(gram.offsets)] < factor[1][(c + 1) * len(gram.offsets)]
            else 0.0
        )
    if summed:
        over = parent.copy()
        for c in range(children):
            over -= h[c]
        nothing = np.zeros((children, cells))
        if rows_first:
            for c in range(children):
                z[c] = np.dot(inner[c], left[c])
            for answer in _respond(gram, factor, nothing, lam, z, fixed):
                over -= answer
            lam[gram.order] = solve_factored(S, over[gram.order])
            z[:] = 0.0
            left -= row_sums(gram, _respond(gram, factor, nothing, lam, z, fixed), rows, fixed)
        else:
            lam = _in_blocks(gram, middle, over)
            if rows > 0:
                answers = _respond(gram, factor, nothing, lam, z, fixed)
                left -= row_sums(gram, answers, rows, fixed)
                z = solve_factored(S, left.copy().reshape(children * rows)).reshape(children, rows)
                lam[:] = 0.0
                for answer in _respond(gram, factor, nothing, lam, z, fixed):
                    over -= answer
                lam = _in_blocks(gram, middle, over)
    if rows_first or not summed:
        for c in range(children if rows > 0 else 0):
            z[c] = np.dot(inner[c], left[c])
    h = _respond(gram, factor, b, lam, z, fixed)
    mu = z[:, rows - 1].copy() if fixed else np.zeros(children)
    return h, lam, mu


# The rows of a child: its sums of cells measured across blocks, and its total if that is fixed.


@njit(cache=True, nogil=True)
def row_count(gram: Gram, fixed: bool) -> int:
    """Return how many rows a child has: the sums across blocks, then its total if fixed."""
    return int(gram.weights.shape[1]) + (1 if fixed else 0)


@njit(cache=True, nogil=True)
def _sum_up(gram: Gram, cell: int, value: float, fixed: bool, rows: FloatArray) -> None:
    """Add the value of a cell to the rows it counts in."""
    for t in range(gram.sums.shape[1]):
        if gram.sums[cell, t] >= 0:
            rows[gram.sums[cell, t]] += value
    if fixed:
        rows[len(rows) - 1] += value


@njit(cache=True, nogil=True)
def row_push(gram: Gram, cell: int, rows: FloatArray, fixed: bool) -> float:
    """Return Rᵀz at one cell: the push of all rows that count it."""
    value = rows[len(rows) - 1] if fixed else 0.0
    for t in range(gram.sums.shape[1]):
        if gram.sums[cell, t] >= 0:
            value += rows[gram.sums[cell, t]]
    return value


@njit(cache=True, nogil=True)
def row_responses(
    gram: Gram, F: IntArray, P: FloatArray, at: int, fixed: bool, Y: FloatArray
) -> None:
    """Write P Rᵀ for the free cells F of a block into Y: how each responds to a push on each row."""
    size = len(F)
    for i in range(size):
        Y[i] = 0.0
        for j in range(size):
            _sum_up(gram, F[j], P[at + i * size + j], fixed, Y[i])


@njit(cache=True, nogil=True)
def row_sums(gram: Gram, h: FloatArray, rows: int, fixed: bool) -> FloatArray:
    """Return R h_c for each child."""
    sums = np.zeros((len(h), rows))
    for c in range(len(h)):
        for j in range(h.shape[1] if rows > 0 else 0):
            if h[c, j] != 0.0:
                _sum_up(gram, j, h[c, j], fixed, sums[c])
    return sums
