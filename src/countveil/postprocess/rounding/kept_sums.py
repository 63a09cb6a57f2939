"""Rounding that keeps sums: a search for round-ups that leave every kept sum within 1 of its value.

A solved family is rounded entry by entry, up or down. That alone can move a sum of many small entries
by many people, even a sum that was measured precisely. So round-ups are exchanged until each kept sum
is rounded up or down itself: within a cell if the sums over children are fixed, within a child if its
total is, and in a square of two children and two cells if both are. The search takes the best exchange
that repairs a broken sum and does not undo a recent one (tabu search, Glover 1989). If no sum is broken
at the end, the result is exact; otherwise it is the best that was seen. Then, unless totals are fixed,
exchanges that break nothing bring the sums closer to their values still, each query counting the same.
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
_STEPS_PER_ENTRY, _LEAST_STEPS = 20, 2_000
_PATIENCE = 2_000  # steps without a better table after which the search ends
_TRIES, _PARTNERS = 8_000, 256  # exchanges to compare in a step, and for two of their entries
_APPROACHES = 4  # rounds over all entries that bring sums closer


class SumsKept(NamedTuple):
    """Which entries go up, and by how much the sums are beyond their next integers, together."""

    up: NDArray[np.bool_]
    broken: int


# What kernels share, as plain tuples: compiled code that is kept names no class that may change.
#
# _Lists: the sums that each entry is in, ids[first[e]:first[e + 1]]; how many entries may go up in
# each sum, from `lower` to `upper`; and which sums must hold in the result, if not on the way.
#
# _Places: the child and the cell of each entry; the entries of each child, cell and sum, with where
# they begin; and which entry is of a child and a cell, or -1.
#
# _State: what a search changes. Which entries are up, the round-ups of each sum, and until which step
# each entry stays as it is.
_Lists = tuple[IntArray, IntArray, IntArray, IntArray, NDArray[np.bool_]]
_Places = tuple[
    IntArray, IntArray, IntArray, IntArray, IntArray, IntArray, IntArray, IntArray, IntArray
]
_State = tuple[NDArray[np.bool_], IntArray, IntArray]


def keep_sums(
    part: FloatArray,
    up: NDArray[np.bool_],
    groups: IntArray,
    *,
    summed: bool,
    totals_held: bool = False,
    rows: Sequence[Row] = (),
    base: IntArray | None = None,
) -> SumsKept:
    """Exchange round-ups until each sum of a group is rounded up or down itself.

    Parameters
    ----------
    part : array of children × cells
        The fraction of each entry; 0 where it is an integer.
    up : array of bool, children × cells
        A rounding to start with. Totals that are held are those of this rounding, and it keeps `rows`.
    groups : array of queries × cells
        Which sum of each query a cell is in, -1 for none.
    summed : bool
        Whether the sums over children are fixed.
    totals_held : bool
        Whether the totals of the children are fixed.
    rows : sequence of Row
        Bounds on other sums of the rounded table, which are kept.
    base : array of int, children × cells
        The integers below the entries; needed with `rows`.

    Returns
    -------
    SumsKept

    """
    tables = groups
    if totals_held:  # as one more table, whose sums must not be broken
        tables = np.vstack([groups, np.zeros((1, part.shape[1]), np.int64)])
    entries = _entries(part, np.ascontiguousarray(tables))
    lower, upper = np.floor(entries.fractions + _WHOLE), np.ceil(entries.fractions - _WHOLE)
    must = np.zeros(len(lower), bool)
    ids, first = entries.sums.reshape(-1), np.arange(len(entries.child) + 1) * len(tables)
    if totals_held:
        totals = entries.sums[:, -1]
        lower[totals] = upper[totals] = up.sum(axis=1)[entries.child]
        must[totals] = True
    if rows:
        assert base is not None
        ids, first, lower, upper, must = _with_rows(
            entries, rows, base, ids, first, lower, upper, must
        )
    sums = (ids, first, lower.astype(np.int64), upper.astype(np.int64), must)
    places = _places(entries.child, entries.cell, ids, first, len(lower), *part.shape)
    result = up.copy()
    steps = max(_LEAST_STEPS, _STEPS_PER_ENTRY * len(entries.child))
    broken = _search(part, result, sums, places, summed, totals_held, steps)
    if broken and not totals_held:
        broken = _search(part, result, sums, places, summed, True, steps)
    if not broken and not totals_held:
        shares = _shares(entries.sums[:, : len(groups)], len(lower))
        values = np.zeros(len(lower))
        values[: len(entries.fractions)] = entries.fractions
        _approach(result, sums, places, values, shares, summed)
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
    must: NDArray[np.bool_],
) -> tuple[IntArray, IntArray, FloatArray, FloatArray, NDArray[np.bool_]]:
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
    return (
        which[order],
        starts,
        np.concatenate(low),
        np.concatenate(high),
        np.concatenate([must, np.ones(len(rows), bool)]),
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
def _places(
    child: IntArray,
    cell: IntArray,
    ids: IntArray,
    first: IntArray,
    sums: int,
    children: int,
    cells: int,
) -> Any:
    """List the entries of each child, cell and sum."""
    entries = len(child)
    at = np.full((children, cells), -1, np.int64)
    child_first, cell_first = np.zeros(children + 1, np.int64), np.zeros(cells + 1, np.int64)
    sum_first = np.zeros(sums + 1, np.int64)
    for e in range(entries):
        at[child[e], cell[e]] = e
        child_first[child[e] + 1] += 1
        cell_first[cell[e] + 1] += 1
        for p in range(first[e], first[e + 1]):
            if ids[p] >= 0:
                sum_first[ids[p] + 1] += 1
    child_first, cell_first = np.cumsum(child_first), np.cumsum(cell_first)
    sum_first = np.cumsum(sum_first)
    of_child, of_cell = np.empty(entries, np.int64), np.empty(entries, np.int64)
    of_sum = np.empty(sum_first[sums], np.int64)
    child_fill, cell_fill, sum_fill = child_first.copy(), cell_first.copy(), sum_first.copy()
    for e in range(entries):
        of_child[child_fill[child[e]]] = e
        child_fill[child[e]] += 1
        of_cell[cell_fill[cell[e]]] = e
        cell_fill[cell[e]] += 1
        for p in range(first[e], first[e + 1]):
            if ids[p] >= 0:
                of_sum[sum_fill[ids[p]]] = e
                sum_fill[ids[p]] += 1
    return child, cell, of_child, child_first, of_cell, cell_first, of_sum, sum_first, at


@njit(cache=True, nogil=True)
def _beyond(ups: int, lower: int, upper: int) -> int:
    return max(lower - ups, ups - upper, 0)


@njit(cache=True, nogil=True)
def _moved(entry: int, step: int, sums: _Lists, ups: IntArray) -> int:
    """Move an entry up (1) or down (-1) in all its sums; return by how much more are broken."""
    ids, first, lower, upper, _ = sums
    change = 0
    for p in range(first[entry], first[entry + 1]):
        i = ids[p]
        if i >= 0:
            before = _beyond(ups[i], lower[i], upper[i])
            ups[i] += step
            change += _beyond(ups[i], lower[i], upper[i]) - before
    return change


@njit(cache=True, nogil=True)
def _tried(one: int, other: int, up: bool, sums: _Lists, ups: IntArray) -> int:
    """Return by how much more would be broken if one entry moved and the other, if any, moved back."""
    step = 1 if up else -1
    change = _moved(one, step, sums, ups)
    if other >= 0:
        change += _moved(other, -step, sums, ups)
        _moved(other, step, sums, ups)
    _moved(one, -step, sums, ups)
    return change


@njit(cache=True, nogil=True)
def _cost(exchange: IntArray, state: _State, part: FloatArray, places: _Places) -> float:
    """Return how much further from the values the entries of an exchange would be."""
    child, cell, up = places[0], places[1], state[0]
    cost = 0.0
    for e in exchange:
        if e >= 0:
            cost += (-1.0 if up[e] else 1.0) * (0.5 - part[child[e], cell[e]])
    return cost


@njit(cache=True, nogil=True)
def _is_free(exchange: IntArray, state: _State, step: int) -> bool:
    free = True
    for e in exchange:
        free = free and (e < 0 or state[2][e] < step)
    return free


@njit(cache=True, nogil=True)
def _drawn(random: NDArray[np.uint64], below: int) -> Any:
    """Return a number below a bound by xorshift: the same choices every time."""
    x = random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    random[0] = x
    return np.int64((x >> np.uint64(8)) % np.uint64(below))


@njit(cache=True, nogil=True)
def _choose(
    chosen: IntArray,
    i: int,
    step: int,
    better: int,
    part: FloatArray,
    state: _State,
    sums: _Lists,
    places: _Places,
    summed: bool,
    balanced: bool,
    random: NDArray[np.uint64],
) -> None:
    """Choose the exchange that repairs sum i and breaks least; a change below `better` is a record.

    It moves up to four entries: one of the sum, one of the same cell, one of the same child, and the
    one where the last two cross. Those that were moved lately stay as they are, except for a record.
    """
    upper, (up, ups, _) = sums[3], state
    child, cell, of_child, child_first, of_cell, cell_first, of_sum, sum_first, at = places
    chosen[:] = -1
    exchange = np.empty(4, np.int64)
    change, cost = 1 << 60, 0.0
    tries, down = _TRIES, ups[i] > upper[i]
    begin, size = sum_first[i], sum_first[i + 1] - sum_first[i]
    shift = _drawn(random, size)
    for number in range(size):
        e = of_sum[begin + (number + shift) % size]
        if up[e] != down:
            continue
        c = child[e]
        by_e = _moved(e, -1 if down else 1, sums, ups)
        # Another child gives or takes, if sums over children are fixed.
        start, stop = 0, 1
        if summed:
            start, stop = (
                cell_first[cell[e]],
                cell_first[cell[e] + 1],
            )
        for q in range(start, stop):
            f = of_cell[q] if summed else -1
            if f >= 0 and up[f] == down:
                continue
            by_f = by_e if f < 0 else by_e + _moved(f, 1 if down else -1, sums, ups)
            # Another cell gives or takes, so that totals stay as they are.
            there, inside, turn = child_first[c], 0, 0
            if balanced:
                inside = child_first[c + 1] - there
                turn = _drawn(random, inside)
            for r in range(-1, min(inside, _PARTNERS)):
                g = h = -1
                more = by_f
                if r >= 0:
                    g = of_child[there + (r + turn) % inside]
                    if up[g] == down or g == e:
                        continue
                    if summed:
                        h = at[child[f], cell[g]]
                        if h < 0 or up[h] != down:
                            continue
                    tries -= 1
                    more += _tried(g, h, down, sums, ups)
                if more > change:
                    continue
                exchange[0], exchange[1], exchange[2], exchange[3] = e, f, g, h
                if not (_is_free(exchange, state, step) or more < better):
                    continue
                move = _cost(exchange, state, part, places)
                if more < change or move < cost:
                    change, cost = more, move
                    chosen[:] = exchange
            if f >= 0:
                _moved(f, -1 if down else 1, sums, ups)
        _moved(e, 1 if down else -1, sums, ups)
        if tries < 0:
            break


@njit(cache=True, nogil=True)
def _search(
    part: FloatArray,
    up: NDArray[np.bool_],
    sums: _Lists,
    places: _Places,
    summed: bool,
    balanced: bool,
    most: int,
) -> int:
    """Exchange round-ups in place; return by how much sums stay beyond their bounds, together.

    With `balanced`, exchanges that leave the total of each child as it is are tried, too.
    """
    ids, first, lower, upper, must = sums
    child, cell = places[0], places[1]
    entries, count = len(child), len(lower)
    is_up, ups = np.empty(entries, np.bool_), np.zeros(count, np.int64)
    until = np.zeros(entries, np.int64)
    state = (is_up, ups, until)
    for e in range(entries):
        is_up[e] = up[child[e], cell[e]]
        if is_up[e]:
            for p in range(first[e], first[e + 1]):
                if ids[p] >= 0:
                    ups[ids[p]] += 1
    broken, bad, position = 0, np.empty(count, np.int64), np.full(count, -1, np.int64)
    total = missed = 0
    for i in range(count):
        beyond = _beyond(ups[i], lower[i], upper[i])
        if beyond > 0:
            total += beyond
            bad[broken], position[i] = i, broken
            broken += 1
    least, best, improved = total, is_up.copy(), 0
    random = np.array([88172645463325252], np.uint64)
    chosen = np.empty(4, np.int64)
    for step in range(1, most + 1):
        if broken == 0 or step - improved > _PATIENCE:
            break
        i = bad[_drawn(random, broken)]
        _choose(chosen, i, step, least - total, part, state, sums, places, summed, balanced, random)
        for number in range(len(chosen)):
            entry = int(chosen[number])
            if entry < 0:
                continue
            total += _moved(entry, -1 if is_up[entry] else 1, sums, ups)
            is_up[entry] = not is_up[entry]
            until[entry] = step + _TABU + _drawn(random, _TABU)
            for p in range(first[entry], first[entry + 1]):
                k = ids[p]
                if k < 0:
                    continue
                now = _beyond(ups[k], lower[k], upper[k]) > 0
                if now and position[k] < 0:
                    missed += 1 if must[k] else 0
                    bad[broken], position[k] = k, broken
                    broken += 1
                elif not now and position[k] >= 0:
                    missed -= 1 if must[k] else 0
                    broken -= 1
                    last = bad[broken]
                    bad[position[k]], position[last] = last, position[k]
                    position[k] = -1
        if total < least and not missed:
            least, improved = total, step
            best[:] = is_up
    for e in range(entries):
        up[child[e], cell[e]] = best[e]
    return least


@njit(cache=True, nogil=True)
def _approach(
    up: NDArray[np.bool_],
    sums: _Lists,
    places: _Places,
    values: FloatArray,
    shares: FloatArray,
    summed: bool,
) -> None:
    """Exchange round-ups in place while that lowers Σ share × (sum − value)² and breaks no sum."""
    ids, first = sums[0], sums[1]
    child, cell, of_cell, cell_first = places[0], places[1], places[4], places[5]
    entries = len(child)
    state, ups = np.empty(entries, np.bool_), np.zeros(len(values), np.int64)
    for e in range(entries):
        state[e] = up[child[e], cell[e]]
        for p in range(first[e], first[e + 1]):
            if ids[p] >= 0 and state[e]:
                ups[ids[p]] += 1
    gain = np.empty(entries)
    for _ in range(_APPROACHES):
        moved = False
        for e in range(entries):
            gain[e] = _gain(e, -1 if state[e] else 1, sums, ups, values, shares)
        for e in range(entries):
            sign = -1 if state[e] else 1
            mine = _gain(e, sign, sums, ups, values, shares)
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
                    both = mine + _gain(f, -sign, sums, ups, values, shares)
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
    sums: _Lists,
    ups: IntArray,
    values: FloatArray,
    shares: FloatArray,
) -> float:
    """Return the change of Σ share × (sum − value)² if an entry moves; infinite if a sum breaks."""
    ids, first, lower, upper, _ = sums
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
