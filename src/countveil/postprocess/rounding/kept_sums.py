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


class _KeptSums(NamedTuple):
    """The sums that each entry is in, ids[first[e]:first[e + 1]], and how many may go up in each.

    Those that `must` hold may be broken during a search, but not in its result.
    """

    ids: IntArray
    first: IntArray
    lower: IntArray
    upper: IntArray
    must: NDArray[np.bool_]


class _Places(NamedTuple):
    """Where entries are: of each child, cell and sum, and which is of a child and a cell (or -1)."""

    child: IntArray
    cell: IntArray
    of_child: IntArray
    child_first: IntArray
    of_cell: IntArray
    cell_first: IntArray
    of_sum: IntArray
    sum_first: IntArray
    at: IntArray


class _State(NamedTuple):
    """What a search changes: which entries are up, the round-ups of each sum, and until which step
    each entry stays as it is.
    """

    up: NDArray[np.bool_]
    ups: IntArray
    until: IntArray


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
    sums = _KeptSums(ids, first, lower.astype(np.int64), upper.astype(np.int64), must)
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
    return _Places(child, cell, of_child, child_first, of_cell, cell_first, of_sum, sum_first, at)


@njit(cache=True, nogil=True)
def _beyond(ups: int, lower: int, upper: int) -> int:
    return max(lower - ups, ups - upper, 0)


@njit(cache=True, nogil=True)
def _moved(entry: int, step: int, sums: Any, ups: IntArray) -> int:
    """Move an entry up (1) or down (-1) in all its sums; return by how much more are broken."""
    change = 0
    for p in range(sums.first[entry], sums.first[entry + 1]):
        i = sums.ids[p]
        if i >= 0:
            before = _beyond(ups[i], sums.lower[i], sums.upper[i])
            ups[i] += step
            change += _beyond(ups[i], sums.lower[i], sums.upper[i]) - before
    return change


@njit(cache=True, nogil=True)
def _tried(one: int, other: int, up: bool, sums: Any, ups: IntArray) -> int:
    """Return by how much more would be broken if one entry moved and the other, if any, moved back."""
    step = 1 if up else -1
    change = _moved(one, step, sums, ups)
    if other >= 0:
        change += _moved(other, -step, sums, ups)
        _moved(other, step, sums, ups)
    _moved(one, -step, sums, ups)
    return change


@njit(cache=True, nogil=True)
def _cost(exchange: IntArray, state: Any, part: FloatArray, places: Any) -> float:
    """Return how much further from the values the entries of an exchange would be."""
    cost = 0.0
    for e in exchange:
        if e >= 0:
            sign = -1.0 if state.up[e] else 1.0
            cost += sign * (0.5 - part[places.child[e], places.cell[e]])
    return cost


@njit(cache=True, nogil=True)
def _is_free(exchange: IntArray, state: Any, step: int) -> bool:
    free = True
    for e in exchange:
        free = free and (e < 0 or state.until[e] < step)
    return free


@njit(cache=True, nogil=True)
def _drawn(random: NDArray[np.uint64], below: int) -> int:
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
    state: Any,
    sums: Any,
    places: Any,
    summed: bool,
    balanced: bool,
    random: NDArray[np.uint64],
) -> None:
    """Choose the exchange that repairs sum i and breaks least; a change below `better` is a record.

    It moves up to four entries: one of the sum, one of the same cell, one of the same child, and the
    one where the last two cross. Those that were moved lately stay as they are, except for a record.
    """
    chosen[:] = -1
    exchange = np.empty(4, np.int64)
    change, cost = 1 << 60, 0.0
    tries, down = _TRIES, state.ups[i] > sums.upper[i]
    begin, size = places.sum_first[i], places.sum_first[i + 1] - places.sum_first[i]
    shift = _drawn(random, size)
    for number in range(size):
        e = places.of_sum[begin + (number + shift) % size]
        if state.up[e] != down:
            continue
        c = places.child[e]
        by_e = _moved(e, -1 if down else 1, sums, state.ups)
        # Another child gives or takes, if sums over children are fixed.
        start, stop = 0, 1
        if summed:
            start, stop = (
                places.cell_first[places.cell[e]],
                places.cell_first[places.cell[e] + 1],
            )
        for q in range(start, stop):
            f = places.of_cell[q] if summed else -1
            if f >= 0 and state.up[f] == down:
                continue
            by_f = by_e if f < 0 else by_e + _moved(f, 1 if down else -1, sums, state.ups)
            # Another cell gives or takes, so that totals stay as they are.
            there, inside, turn = places.child_first[c], 0, 0
            if balanced:
                inside = places.child_first[c + 1] - there
                turn = _drawn(random, inside)
            for r in range(-1, min(inside, _PARTNERS)):
                g = h = -1
                more = by_f
                if r >= 0:
                    g = places.of_child[there + (r + turn) % inside]
                    if state.up[g] == down or g == e:
                        continue
                    if summed:
                        h = places.at[places.child[f], places.cell[g]]
                        if h < 0 or state.up[h] != down:
                            continue
                    tries -= 1
                    more += _tried(g, h, down, sums, state.ups)
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
                _moved(f, -1 if down else 1, sums, state.ups)
        _moved(e, 1 if down else -1, sums, state.ups)
        if tries < 0:
            break


@njit(cache=True, nogil=True)
def _search(
    part: FloatArray,
    up: NDArray[np.bool_],
    sums: Any,
    places: Any,
    summed: bool,
    balanced: bool,
    most: int,
) -> int:
    """Exchange round-ups in place; return by how much sums stay beyond their bounds, together.

    With `balanced`, exchanges that leave the total of each child as it is are tried, too.
    """
    entries, count = len(places.child), len(sums.lower)
    state = _State(
        np.empty(entries, np.bool_), np.zeros(count, np.int64), np.zeros(entries, np.int64)
    )
    for e in range(entries):
        state.up[e] = up[places.child[e], places.cell[e]]
        if state.up[e]:
            for p in range(sums.first[e], sums.first[e + 1]):
                if sums.ids[p] >= 0:
                    state.ups[sums.ids[p]] += 1
    broken, bad, position = 0, np.empty(count, np.int64), np.full(count, -1, np.int64)
    total = missed = 0
    for i in range(count):
        beyond = _beyond(state.ups[i], sums.lower[i], sums.upper[i])
        if beyond > 0:
            total += beyond
            bad[broken], position[i] = i, broken
            broken += 1
    least, best, improved = total, state.up.copy(), 0
    random = np.array([88172645463325252], np.uint64)
    chosen = np.empty(4, np.int64)
    for step in range(1, most + 1):
        if broken == 0 or step - improved > _PATIENCE:
            break
        i = bad[_drawn(random, broken)]
        _choose(chosen, i, step, least - total, part, state, sums, places, summed, balanced, random)
        for e in chosen:
            if e < 0:
                continue
            total += _moved(e, -1 if state.up[e] else 1, sums, state.ups)
            state.up[e] = not state.up[e]
            state.until[e] = step + _TABU + _drawn(random, _TABU)
            for p in range(sums.first[e], sums.first[e + 1]):
                k = sums.ids[p]
                if k < 0:
                    continue
                now = _beyond(state.ups[k], sums.lower[k], sums.upper[k]) > 0
                if now and position[k] < 0:
                    missed += sums.must[k]
                    bad[broken], position[k] = k, broken
                    broken += 1
                elif not now and position[k] >= 0:
                    missed -= sums.must[k]
                    broken -= 1
                    last = bad[broken]
                    bad[position[k]], position[last] = last, position[k]
                    position[k] = -1
        if total < least and not missed:
            least, improved = total, step
            best[:] = state.up
    for e in range(entries):
        up[places.child[e], places.cell[e]] = best[e]
    return least


@njit(cache=True, nogil=True)
def _approach(
    up: NDArray[np.bool_],
    sums: Any,
    places: Any,
    values: FloatArray,
    shares: FloatArray,
    summed: bool,
) -> None:
    """Exchange round-ups in place while that lowers Σ share × (sum − value)² and breaks no sum."""
    entries = len(places.child)
    state, ups = np.empty(entries, np.bool_), np.zeros(len(values), np.int64)
    for e in range(entries):
        state[e] = up[places.child[e], places.cell[e]]
        for p in range(sums.first[e], sums.first[e + 1]):
            if sums.ids[p] >= 0 and state[e]:
                ups[sums.ids[p]] += 1
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
                for q in range(
                    places.cell_first[places.cell[e]], places.cell_first[places.cell[e] + 1]
                ):
                    f = places.of_cell[q]
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
                for p in range(sums.first[entry], sums.first[entry + 1]):
                    if sums.ids[p] >= 0:
                        ups[sums.ids[p]] += step
                gain[entry] = -np.inf  # to be computed again where it matters
        if not moved:
            break
    for e in range(entries):
        up[places.child[e], places.cell[e]] = state[e]


@njit(cache=True, nogil=True)
def _gain(
    entry: int,
    step: int,
    sums: Any,
    ups: IntArray,
    values: FloatArray,
    shares: FloatArray,
) -> float:
    """Return the change of Σ share × (sum − value)² if an entry moves; infinite if a sum breaks."""
    change = 0.0
    for p in range(sums.first[entry], sums.first[entry + 1]):
        i = sums.ids[p]
        if i >= 0:
            if ups[i] + step < sums.lower[i] or ups[i] + step > sums.upper[i]:
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
