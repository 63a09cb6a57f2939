"""Rounding that keeps sums: a search for round-ups that leave every kept sum within 1 of its value.

A solved family is rounded entry by entry, up or down. That alone can move a sum of many small entries
by many people, even a sum that was measured precisely. So round-ups are exchanged, within a cell if the
sums over children are fixed, until each kept sum is rounded up or down itself. The search takes the
best exchange that repairs a broken sum and does not undo a recent one (tabu search, Glover 1989). If no
sum is broken at the end, the result is exact; otherwise it is the best that was seen. Then exchanges
that break nothing bring the sums closer to their values still, each query counting the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from countveil.base.numerics import FloatArray, IntArray
from countveil.postprocess.facts.rows import Row

_WHOLE = 1e-7  # sums this close to an integer are that integer
_TABU = 10  # steps for which an exchanged entry stays as it is, and up to as many more
_STEPS_PER_ENTRY = 20
_LEAST_STEPS = 2_000
_APPROACHES = 4  # rounds over all entries that bring sums closer


class SumsKept(NamedTuple):
    """Which entries go up, and by how much the sums are beyond their next integers, together."""

    up: NDArray[np.bool_]
    broken: int


def keep_sums(
    part: FloatArray,
    up: NDArray[np.bool_],
    groups: IntArray,
    *,
    summed: bool,
    totals: IntArray | None = None,
    rows: Sequence[Row] = (),
    base: IntArray | None = None,
) -> SumsKept:
    """Exchange round-ups until each sum of a group is rounded up or down itself.

    Parameters
    ----------
    part : array of children × cells
        The fraction of each entry; 0 where it is an integer.
    up : array of bool, children × cells
        A rounding to start with, which keeps `totals` and `rows`.
    groups : array of queries × cells
        Which sum of each query a cell is in, -1 for none.
    summed : bool
        Whether the sums over children are fixed: then only entries of the same cell are exchanged.
    totals : array of children, optional
        How many entries of each child must go up.
    rows : sequence of Row
        Bounds on other sums of the rounded table, which are kept.
    base : array of int, children × cells
        The integers below the entries; needed with `rows`.

    Returns
    -------
    SumsKept

    """
    cells = part.shape[1]
    queries = groups if totals is None else np.vstack([groups, np.zeros((1, cells), np.int64)])
    entries = _entries(part, np.ascontiguousarray(queries))
    lower, upper = np.floor(entries.fractions + _WHOLE), np.ceil(entries.fractions - _WHOLE)
    weights = np.ones(len(lower), np.int64)
    ids, first = entries.sums.reshape(-1), np.arange(0, entries.sums.size + 1, len(queries))
    if totals is not None:
        last = entries.sums[:, -1]
        lower[last] = upper[last] = totals[entries.child]
        weights[last] = 0
    if rows:
        assert base is not None
        ids, first, lower, upper, weights = _with_rows(
            entries, rows, base, ids, first, lower, upper, weights
        )
    result = up.copy()
    steps = max(_LEAST_STEPS, _STEPS_PER_ENTRY * len(entries.child))
    broken = _search(
        part,
        result,
        entries.child,
        entries.cell,
        ids,
        first,
        lower.astype(np.int64),
        upper.astype(np.int64),
        weights,
        summed,
        steps,
    )
    if not broken:
        shares = _shares(entries.sums[:, : len(groups)], len(lower))
        values = np.zeros(len(lower))
        values[: len(entries.fractions)] = entries.fractions
        _approach(
            result,
            entries.child,
            entries.cell,
            ids,
            first,
            lower.astype(np.int64),
            upper.astype(np.int64),
            values,
            shares,
            summed,
        )
    return SumsKept(result, int(broken))


def _shares(sums: IntArray, count: int) -> FloatArray:
    """Return the weight of each sum such that every query counts the same; 0 for other sums."""
    shares = np.zeros(count)
    for column in sums.T:
        inside = np.unique(column[column >= 0])
        if len(inside):
            shares[inside] = 1.0 / len(inside)
    return shares


def departures(h: FloatArray, counts: IntArray, groups: IntArray) -> FloatArray:
    """Return, for each query, how far the farthest of its sums is from that of h."""
    return np.asarray(_departures(h, counts, np.ascontiguousarray(groups)))


class _Entries(NamedTuple):
    """The fractional entries, the sum of each query that each is in, and the fraction of each sum."""

    child: IntArray
    cell: IntArray
    sums: IntArray
    fractions: FloatArray


def _entries(part: FloatArray, groups: IntArray) -> _Entries:
    return _Entries(*_listed(part, groups))


def _with_rows(
    entries: _Entries,
    rows: Sequence[Row],
    base: IntArray,
    ids: IntArray,
    first: IntArray,
    lower: FloatArray,
    upper: FloatArray,
    weights: IntArray,
) -> tuple[IntArray, IntArray, FloatArray, FloatArray, IntArray]:
    """Append bounded rows, which must not be broken, to the sums of each entry."""
    known, count = len(lower), len(first) - 1
    owner = [np.repeat(np.arange(count), np.diff(first))]
    more, low, high = [ids], [lower], [upper]
    for number, row in enumerate(rows):
        inside = np.isin(entries.child, row.children) & np.isin(entries.cell, row.cells)
        owner.append(np.flatnonzero(inside))
        more.append(np.full(int(inside.sum()), known + number))
        already = int(base[np.ix_(row.children, row.cells)].sum())
        low.append(np.array([max(np.ceil(row.lower - _WHOLE) - already, -1e15)]))
        high.append(np.array([min(np.floor(row.upper + _WHOLE) - already, 1e15)]))
    whose, which = np.concatenate(owner), np.concatenate(more)
    order = np.argsort(whose, kind="stable")
    starts = np.concatenate(([0], np.cumsum(np.bincount(whose, minlength=count))))
    zeros = np.zeros(len(rows), np.int64)
    return (
        which[order],
        starts,
        np.concatenate(low),
        np.concatenate(high),
        np.concatenate([weights, zeros]),
    )


@njit(cache=True, nogil=True)
def _listed(part: FloatArray, groups: IntArray) -> Any:
    """List fractional entries; number the sums that have any, child by child."""
    children, cells = part.shape
    queries = len(groups)
    count, widest = 0, 1
    for c in range(children):
        for j in range(cells):
            if part[c, j] > 0.0:
                count += 1
    for k in range(queries):
        for j in range(cells):
            widest = max(widest, groups[k, j] + 1)
    child, cell = np.empty(count, np.int64), np.empty(count, np.int64)
    sums = np.full((count, queries), -1, np.int64)
    fractions = np.zeros(count * queries)
    number = np.full((queries, widest), -1, np.int64)
    e, used = 0, 0
    for c in range(children):
        number[:] = -1
        for j in range(cells):
            if part[c, j] > 0.0:
                child[e], cell[e] = c, j
                for k in range(queries):
                    g = groups[k, j]
                    if g >= 0:
                        if number[k, g] < 0:
                            number[k, g] = used
                            used += 1
                        sums[e, k] = number[k, g]
                        fractions[number[k, g]] += part[c, j]
                e += 1
    return child, cell, sums, fractions[:used].copy()


@njit(cache=True, nogil=True)
def _beyond(ups: int, lower: int, upper: int) -> int:
    return max(lower - ups, ups - upper, 0)


@njit(cache=True, nogil=True)
def _change(
    entry: int,
    step: int,
    ids: IntArray,
    first: IntArray,
    ups: IntArray,
    lower: IntArray,
    upper: IntArray,
    weights: IntArray,
) -> int:
    """Return by how much the broken sums change if an entry goes up (1) or down (-1)."""
    change = 0
    for p in range(first[entry], first[entry + 1]):
        i = ids[p]
        if i >= 0:
            before = _beyond(ups[i], lower[i], upper[i])
            change += weights[i] * (_beyond(ups[i] + step, lower[i], upper[i]) - before)
    return change


@njit(cache=True, nogil=True)
def _search(
    part: FloatArray,
    up: NDArray[np.bool_],
    child: IntArray,
    cell: IntArray,
    ids: IntArray,
    first: IntArray,
    lower: IntArray,
    upper: IntArray,
    weights: IntArray,
    summed: bool,
    most: int,
) -> int:
    """Exchange round-ups in place; return by how much sums stay beyond their bounds, together.

    Sums of weight 0 must not be broken: they get a weight above all others together.
    """
    entries, sums, cells = len(child), len(lower), part.shape[1]
    state = np.empty(entries, np.bool_)
    ups = np.zeros(sums, np.int64)
    for e in range(entries):
        state[e] = up[child[e], cell[e]]
        if state[e]:
            for p in range(first[e], first[e + 1]):
                if ids[p] >= 0:
                    ups[ids[p]] += 1
    together = 1
    for i in range(sums):
        if weights[i] > 0:
            together += _beyond(ups[i], lower[i], upper[i])
    weight = np.empty(sums, np.int64)
    broken, bad, position = 0, np.empty(sums, np.int64), np.full(sums, -1, np.int64)
    total = 0
    for i in range(sums):
        weight[i] = weights[i] if weights[i] > 0 else together
        if _beyond(ups[i], lower[i], upper[i]) > 0:
            total += weight[i] * _beyond(ups[i], lower[i], upper[i])
            bad[broken], position[i] = i, broken
            broken += 1
    if broken == 0:
        return 0
    # The entries of each cell, and of each sum.
    cell_first, sum_first = np.zeros(cells + 1, np.int64), np.zeros(sums + 1, np.int64)
    for e in range(entries):
        cell_first[cell[e] + 1] += 1
        for p in range(first[e], first[e + 1]):
            if ids[p] >= 0:
                sum_first[ids[p] + 1] += 1
    for j in range(cells):
        cell_first[j + 1] += cell_first[j]
    for i in range(sums):
        sum_first[i + 1] += sum_first[i]
    of_cell, of_sum = np.empty(entries, np.int64), np.empty(sum_first[sums], np.int64)
    cell_fill, sum_fill = cell_first[:-1].copy(), sum_first[:-1].copy()
    for e in range(entries):
        of_cell[cell_fill[cell[e]]] = e
        cell_fill[cell[e]] += 1
        for p in range(first[e], first[e + 1]):
            if ids[p] >= 0:
                of_sum[sum_fill[ids[p]]] = e
                sum_fill[ids[p]] += 1
    until = np.zeros(entries, np.int64)
    least, best = total, state.copy()
    mixed = np.uint64(88172645463325252)  # xorshift: the same choices every time
    for step in range(1, most + 1):
        if broken == 0:
            break
        mixed ^= mixed << np.uint64(13)
        mixed ^= mixed >> np.uint64(7)
        mixed ^= mixed << np.uint64(17)
        i = bad[np.int64(mixed % np.uint64(broken))]
        down = ups[i] > upper[i]
        sign = -1 if down else 1
        change, cost, one, other = 1 << 60, 0.0, -1, -1
        for p in range(sum_first[i], sum_first[i + 1]):
            e = of_sum[p]
            if state[e] != down:
                continue
            mine = _change(e, sign, ids, first, ups, lower, upper, weight)
            fraction = part[child[e], cell[e]]
            if not summed:
                move = sign * (0.5 - fraction)
                allowed = until[e] < step or total + mine < least
                if allowed and (mine < change or (mine == change and move < cost)):
                    change, cost, one, other = mine, move, e, -1
                continue
            for q in range(cell_first[cell[e]], cell_first[cell[e] + 1]):
                f = of_cell[q]
                if state[f] == down:
                    continue
                both = mine + _change(f, -sign, ids, first, ups, lower, upper, weight)
                move = sign * (part[child[f], cell[f]] - fraction)
                allowed = (until[e] < step and until[f] < step) or total + both < least
                if allowed and (both < change or (both == change and move < cost)):
                    change, cost, one, other = both, move, e, f
        if one < 0:
            continue
        for turn in range(2):
            e = one if turn == 0 else other
            if e < 0:
                continue
            move_by = -1 if state[e] else 1
            state[e] = not state[e]
            until[e] = step + _TABU + np.int64((mixed >> np.uint64(20)) % np.uint64(_TABU))
            for p in range(first[e], first[e + 1]):
                k = ids[p]
                if k < 0:
                    continue
                before = _beyond(ups[k], lower[k], upper[k])
                ups[k] += move_by
                after = _beyond(ups[k], lower[k], upper[k])
                total += weight[k] * (after - before)
                now = after > 0
                if now and position[k] < 0:
                    bad[broken], position[k] = k, broken
                    broken += 1
                elif not now and position[k] >= 0:
                    broken -= 1
                    moved = bad[broken]
                    bad[position[k]], position[moved] = moved, position[k]
                    position[k] = -1
        if total < least:
            least = total
            best[:] = state
    for e in range(entries):
        up[child[e], cell[e]] = best[e]
    return least


@njit(cache=True, nogil=True)
def _approach(
    up: NDArray[np.bool_],
    child: IntArray,
    cell: IntArray,
    ids: IntArray,
    first: IntArray,
    lower: IntArray,
    upper: IntArray,
    values: FloatArray,
    shares: FloatArray,
    summed: bool,
) -> None:
    """Exchange round-ups in place while that lowers Σ share × (sum − value)² and breaks no sum."""
    entries, sums, cells = len(child), len(lower), up.shape[1]
    state = np.empty(entries, np.bool_)
    ups = np.zeros(sums, np.int64)
    cell_first = np.zeros(cells + 1, np.int64)
    for e in range(entries):
        state[e] = up[child[e], cell[e]]
        cell_first[cell[e] + 1] += 1
        for p in range(first[e], first[e + 1]):
            if ids[p] >= 0 and state[e]:
                ups[ids[p]] += 1
    for j in range(cells):
        cell_first[j + 1] += cell_first[j]
    of_cell, fill = np.empty(entries, np.int64), cell_first[:-1].copy()
    for e in range(entries):
        of_cell[fill[cell[e]]] = e
        fill[cell[e]] += 1
    gain = np.empty(entries)
    for _ in range(_APPROACHES):
        moved = False
        for e in range(entries):
            gain[e] = _gain(e, -1 if state[e] else 1, ids, first, ups, lower, upper, values, shares)
        for e in range(entries):
            sign = -1 if state[e] else 1
            mine = _gain(e, sign, ids, first, ups, lower, upper, values, shares)
            if mine == np.inf:
                continue
            other, least = -1, -1e-9
            if not summed:
                if mine >= least:
                    continue
            else:
                for q in range(cell_first[cell[e]], cell_first[cell[e] + 1]):
                    f = of_cell[q]
                    if state[f] == state[e] or mine + gain[f] >= least:
                        continue
                    both = mine + _gain(f, -sign, ids, first, ups, lower, upper, values, shares)
                    if both < least:
                        other, least = f, both
                if other < 0:
                    continue
            moved = True
            for turn in range(2):
                entry = e if turn == 0 else other
                if entry < 0:
                    continue
                step = -1 if state[entry] else 1
                state[entry] = not state[entry]
                for p in range(first[entry], first[entry + 1]):
                    if ids[p] >= 0:
                        ups[ids[p]] += step
                gain[entry] = -np.inf  # to be computed again where it matters
        if not moved:
            break
    for e in range(entries):
        up[child[e], cell[e]] = state[e]


@njit(cache=True, nogil=True)
def _gain(
    entry: int,
    step: int,
    ids: IntArray,
    first: IntArray,
    ups: IntArray,
    lower: IntArray,
    upper: IntArray,
    values: FloatArray,
    shares: FloatArray,
) -> float:
    """Return the change of Σ share × (sum − value)² if an entry moves; infinite if a sum breaks."""
    change = 0.0
    for p in range(first[entry], first[entry + 1]):
        i = ids[p]
        if i >= 0:
            if ups[i] + step < lower[i] or ups[i] + step > upper[i]:
                return np.inf
            change += shares[i] * (1.0 + 2.0 * step * (ups[i] - values[i]))
    return change


@njit(cache=True, nogil=True)
def _departures(h: FloatArray, counts: IntArray, groups: IntArray) -> FloatArray:
    children, cells = h.shape
    queries = len(groups)
    result = np.zeros(queries)
    for k in range(queries):
        widest = 1
        for j in range(cells):
            widest = max(widest, groups[k, j] + 1)
        off = np.zeros(widest)
        for c in range(children):
            off[:] = 0.0
            for j in range(cells):
                if groups[k, j] >= 0:
                    off[groups[k, j]] += counts[c, j] - h[c, j]
            for g in range(widest):
                result[k] = max(result[k], abs(off[g]))
    return result
