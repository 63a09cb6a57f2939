"""Controlled rounding: each entry goes up or down, sums are kept, and as little moves as possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import njit
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

from countveil.base.numerics import FloatArray, IntArray
from countveil.base.union_find import root_of
from countveil.errors import InfeasibleError, InputError
from countveil.plan.workload import Query
from countveil.postprocess.facts.rows import Row, as_matrix, largest_gap, nested
from countveil.postprocess.rounding.kept_sums import keep_sums

_NONE = "no rounding of h, each entry up or down, meets all its sums and bounds; widen a bound"
_CLOSE = 1e-3  # how far sums of h may be off; solutions are far closer
_WHOLE = 1e-7  # entries this close to an integer are that integer
_REMEMBERED = 1_000  # rows up to which the cheapest column of each pair is kept
_LARGEST_PROGRAM, _MOST_NODES = 500, 200  # entries and steps of a program for kept sums


def round_family(
    h: ArrayLike,
    parent: ArrayLike | None,
    totals: ArrayLike | None = None,
    *,
    allowed: NDArray[np.bool_] | None = None,
    rows: Sequence[Row] = (),
    total_aware: bool = False,
    keep: Sequence[ArrayLike | Query] = (),
) -> IntArray:
    """Return integers close to h, each entry rounded up or down, that keep its sums.

    Without `keep` they are the closest (L1). Sums over children are met by largest remainder, totals by
    shortest paths, rows by HiGHS: as a linear program, whose vertices are integers, if rows nest, and
    as an integer program if they cross. Crossing rows may leave no table of entries rounded up or down;
    the result is then the nearest of all tables of integers.

    With `keep`, round-ups are exchanged until each kept sum of each child is rounded up or down as
    well, wherever such a table is found.

    Parameters
    ----------
    h : array of children × cells
        A solved family.
    parent : array of cells, or None
        What the children add up to, cell by cell; None for a root.
    totals : array of children, optional
        The sum of each child, to be kept exactly.
    allowed : array of bool, children × cells, optional
        False where an entry must be 0, if entries may move further than to the next integer.
    rows : sequence of Row, optional
        Bounds on other sums.
    total_aware : bool
        Whether to round the children's totals first, as little as possible (the first of those that
        tie), and then the entries to match.
    keep : sequence of array or Query, optional
        Sums of cells to keep within 1: a matrix of zeros and ones (sums × cells), the number of the sum
        that each cell is in (-1 for none), or a query of a plan, if h has every cell of its histogram.

    Returns
    -------
    array of int, children × cells

    Examples
    --------
    >>> round_family([[1.6, 0.3], [0.4, 1.7]], parent=[2, 2]).tolist()
    [[2, 0], [0, 2]]

    """
    values, above, fixed = checked_table(h, parent, totals)
    if len(keep):
        return _keeping(values, parent, totals, allowed, rows, total_aware, keep)
    whole, part = whole_and_part(values)
    ups = _round_ups(above, whole, part)
    base = whole.astype(np.int64)
    if rows:
        plain = round_family(values, parent, totals, total_aware=total_aware)
        if largest_gap(rows, plain) == 0:
            return plain
        if nested(rows):
            return base + _program(part, ups, base, fixed, rows, total_aware)
        try:
            return base + _program(part, ups, base, fixed, rows, total_aware)
        except InfeasibleError:
            return nearest_table(values, above, fixed, rows, allowed)
    up = _nearest(part) if ups is None else round_up(part, ups)
    if fixed is None and not total_aware:
        return base + up
    sums = values.sum(axis=1)
    aims = fixed
    if aims is None:
        aims = np.rint(sums) if ups is None else round_totals(sums, part).astype(float)
    targets = np.rint(aims - whole.sum(axis=1)).astype(np.int64)
    if ups is None:
        return base + _children_alone(part, targets)
    # Unless the totals add up to the parent, no child has too few round-ups when others have too many.
    if targets.sum() == up.sum() and meet_totals(part, up, targets):
        return base + up
    if fixed is not None:
        raise InputError("h cannot be rounded to these totals: its own totals differ from them")
    return base + _program(part, ups, base, None, (), True)


def _keeping(
    values: FloatArray,
    parent: ArrayLike | None,
    totals: ArrayLike | None,
    allowed: NDArray[np.bool_] | None,
    rows: Sequence[Row],
    total_aware: bool,
    keep: Sequence[ArrayLike | Query],
) -> IntArray:
    """Round, then exchange round-ups until the kept sums are rounded up or down as well."""
    rounded = round_family(
        values, parent, totals, allowed=allowed, rows=rows, total_aware=total_aware
    )
    whole, part = whole_and_part(values)
    base = whole.astype(np.int64)
    up = rounded > base
    if (rounded - base != up).any() or (up & (part == 0.0)).any():
        return rounded  # facts moved entries further than to the next integer
    groups = _groups(keep, values.shape[1])
    kept = keep_sums(
        part,
        up,
        groups,
        summed=parent is not None,
        totals_held=totals is not None,
        rows=rows,
        base=base,
    )
    up = kept.up
    if kept.broken and np.count_nonzero(part) <= _LARGEST_PROGRAM:
        fixed = None if totals is None else np.asarray(totals, np.int64) - base.sum(axis=1)
        better = _kept_program(values, part, base, parent, fixed, rows, groups)
        up = up if better is None else better
    return base + up


def _groups(keep: Sequence[ArrayLike | Query], cells: int) -> IntArray:
    """Return which sum of each kept table a cell is in; rows of a matrix that overlap are parted."""
    groups = []
    for item in keep:
        table = np.asarray(item.cell_of if isinstance(item, Query) else item)
        if table.shape[-1:] != (cells,) or table.ndim > 2:
            raise InputError(
                f"keep has a table of shape {table.shape}; it must have one column per cell: {cells}"
            )
        if table.ndim == 1:
            groups.append(table.astype(np.int64))
            continue
        left = [row.astype(bool) for row in table]
        while left:
            group, over = np.full(cells, -1, np.int64), []
            for number, row in enumerate(left):
                if (group[row] >= 0).any():
                    over.append(row)
                else:
                    group[row] = number
            groups.append(group)
            left = over
    return np.array(groups, np.int64).reshape(len(groups), cells)


def _kept_program(
    values: FloatArray,
    part: FloatArray,
    base: IntArray,
    parent: ArrayLike | None,
    totals: IntArray | None,
    rows: Sequence[Row],
    groups: IntArray,
) -> NDArray[np.bool_] | None:
    """Look for round-ups that keep all sums by HiGHS, up to a limit; None if it finds none."""
    children, cells = part.shape
    entries = np.flatnonzero(part.reshape(-1) > 0)
    bounds = list(rows)
    for group in groups:
        for g in np.unique(group[group >= 0]):
            inside = np.flatnonzero(group == g)
            for c, total in enumerate(values[:, inside].sum(axis=1)):
                if part[c, inside].any():
                    low, high = np.floor(total + _WHOLE), np.ceil(total - _WHOLE)
                    bounds.append(Row(np.array([c]), inside, float(low), float(high)))
    matrix = as_matrix(bounds, children, cells)
    already = matrix @ base.reshape(-1)
    limits = _RoundUps(whole=True)
    limits.add(
        matrix[:, entries],
        np.ceil([row.lower - _WHOLE for row in bounds]) - already,
        np.floor([row.upper + _WHOLE for row in bounds]) - already,
    )
    ones, number = np.ones(len(entries)), np.arange(len(entries))
    if parent is not None:
        ups = np.rint(np.asarray(parent, float) - base.sum(axis=0))
        by_cell = sp.csr_array((ones, (entries % cells, number)), shape=(cells, len(entries)))
        limits.add(by_cell, ups, ups)
    if totals is not None:
        by_child = sp.csr_array((ones, (entries // cells, number)), shape=(children, len(entries)))
        limits.add(by_child, totals, totals)
    try:
        chosen = limits.least(1.0 - 2.0 * part.reshape(-1)[entries], nodes=_MOST_NODES)
    except InfeasibleError:
        return None
    up = np.zeros(part.size, bool)
    up[entries] = chosen > 0
    return up.reshape(part.shape)


class CheckedTable(NamedTuple):
    """A solved family and the sums to keep, as arrays."""

    h: FloatArray
    parent: FloatArray | None
    totals: FloatArray | None


def checked_table(
    h: ArrayLike, parent: ArrayLike | None, totals: ArrayLike | None = None
) -> CheckedTable:
    """Return h and its sums as arrays; refuse an h that cannot be the solution of a family."""
    values = np.ascontiguousarray(h, float)
    if values.ndim != 2 or not np.isfinite(values).all():
        raise InputError("h must be a table of finite numbers, children × cells")
    if (values < -_WHOLE).any():
        raise InputError("h has a negative entry; solve the family first")
    children, cells = values.shape
    return CheckedTable(
        values,
        _checked_sums("parent", parent, cells),
        _checked_sums("totals", totals, children),
    )


def _checked_sums(name: str, sums: ArrayLike | None, size: int) -> FloatArray | None:
    if sums is None:
        return None
    array = np.asarray(sums, float)
    if array.shape != (size,):
        raise InputError(f"{name} has shape {array.shape}; it must have ({size},)")
    if not (np.isfinite(array) & (array == np.rint(array))).all():
        raise InputError(f"{name} must hold whole numbers only; round it first")
    return array


class WholeAndPart(NamedTuple):
    """The floor of each value, and the fraction above it."""

    whole: FloatArray
    part: FloatArray


def whole_and_part(values: FloatArray) -> WholeAndPart:
    """Split values into floor and fraction; a value close to an integer has no fraction."""
    whole = np.floor(values + _WHOLE)
    return WholeAndPart(whole, np.where(values - whole > _WHOLE, values - whole, 0.0))


def _round_ups(parent: FloatArray | None, whole: FloatArray, part: FloatArray) -> IntArray | None:
    """Return how many entries of each cell must be rounded up."""
    if parent is None:
        return None
    ups: IntArray = np.rint(parent - whole.sum(axis=0)).astype(np.int64)
    if (ups < 0).any() or (np.abs(part.sum(axis=0) - ups) > _CLOSE).any():
        raise InputError("h does not add up to its parent; solve the family first")
    return ups


def _nearest(part: FloatArray) -> NDArray[np.bool_]:
    return part > 0.5


def _children_alone(part: FloatArray, targets: IntArray) -> NDArray[np.bool_]:
    """Return which entries go up if each child is rounded on its own to its total."""
    if (targets < 0).any() or (targets > (part > 0).sum(axis=1)).any():
        raise InputError("h cannot be rounded to these totals: its own totals differ from them")
    return np.asarray(round_up(np.ascontiguousarray(part.T), targets)).T


def _program(
    part: FloatArray,
    ups: IntArray | None,
    base: IntArray,
    totals: FloatArray | None,
    rows: Sequence[Row],
    total_aware: bool,
) -> IntArray:
    """Choose the round-ups by HiGHS; `total_aware` chooses the best totals first, unless fixed."""
    children, cells = part.shape
    entries = np.flatnonzero(part.reshape(-1) > 0)
    child, cell = entries // cells, entries % cells
    count, number = len(entries), np.arange(len(entries))
    up = np.zeros(children * cells, np.int64)
    if not count:
        if largest_gap(rows, base) > 0:
            raise InfeasibleError(_NONE)
        return up.reshape(children, cells)
    by_child = sp.csr_array((np.ones(count), (child, number)), shape=(children, count))
    limits = _RoundUps(whole=bool(rows) and not nested(rows))
    if ups is not None:
        by_cell = sp.csr_array((np.ones(count), (cell, number)), shape=(cells, count))
        limits.add(by_cell, ups, ups)
    if rows:
        matrix = as_matrix(rows, children, cells)
        already = matrix @ base.reshape(-1)
        lower = np.ceil([row.lower - _WHOLE for row in rows]) - already
        upper = np.floor([row.upper + _WHOLE for row in rows]) - already
        limits.add(matrix[:, entries], lower, upper)
    if totals is not None:
        needed = totals - base.sum(axis=1)
        limits.add(by_child, needed, needed)
    elif total_aware:
        needed = _least_totals(limits, by_child, part.sum(axis=1))
        limits.add(by_child, needed, needed)
    up[entries] = limits.least(1.0 - 2.0 * part.reshape(-1)[entries])
    return up.reshape(children, cells)


def nearest_table(
    values: FloatArray,
    parent: FloatArray | None,
    totals: FloatArray | None,
    rows: Sequence[Row],
    allowed: NDArray[np.bool_] | None,
) -> IntArray:
    """Return the table of integers nearest to h, entries moving as far as they must."""
    children, cells = values.shape
    size = children * cells
    entries = np.arange(size)
    cell, child = entries % cells, entries // cells
    ones = np.ones(size)
    parts = [as_matrix(rows, children, cells) if rows else sp.csr_array((0, size))]
    lower = [np.ceil([row.lower - _WHOLE for row in rows])]
    upper = [np.floor([row.upper + _WHOLE for row in rows])]
    for sums, where, count in ((parent, cell, cells), (totals, child, children)):
        if sums is not None:
            parts.append(sp.csr_array((ones, (where, entries)), shape=(count, size)))
            lower.append(sums)
            upper.append(sums)
    nothing = sp.csr_array((sum(part.shape[0] for part in parts), 2 * size))
    # x - above + below = h, where above and below cost as much as they are large.
    apart = sp.hstack([sp.eye_array(size), -sp.eye_array(size), sp.eye_array(size)])
    matrix = sp.vstack([sp.hstack([sp.vstack(parts), nothing]), apart])
    flat = values.reshape(-1)
    highest = (
        np.full(size, np.inf) if allowed is None else np.where(allowed.reshape(-1), np.inf, 0.0)
    )
    result = milp(
        np.repeat([0.0, 1.0], [size, 2 * size]),
        integrality=np.repeat([1, 0], [size, 2 * size]),
        bounds=Bounds(0.0, np.concatenate([highest, np.full(2 * size, np.inf)])),
        options={"mip_rel_gap": 0.0},
        constraints=LinearConstraint(
            matrix, np.concatenate([*lower, flat]), np.concatenate([*upper, flat])
        ),
    )
    if result.x is None:
        raise InfeasibleError("no table of integers meets all its sums and bounds; widen a bound")
    return np.asarray(np.rint(result.x[:size]), np.int64).reshape(children, cells)


def _least_totals(limits: _RoundUps, by_child: sp.csr_array, sums: FloatArray) -> FloatArray:
    """Return the number of round-ups of each child for which the totals move least."""
    floor = np.floor(sums + _WHOLE)
    if not limits.whole:
        # Totals also go up or down; up costs 1 - 2 × its fraction more than down.
        limits.add(by_child, floor, floor + (sums - floor > _WHOLE))
        return np.asarray(by_child @ limits.least(by_child.T @ (1.0 - 2.0 * (sums - floor))))
    children, count = by_child.shape
    # Crossing rows may move totals further: two more variables per child measure how far.
    apart = sp.hstack([by_child, -sp.eye_array(children), sp.eye_array(children)])
    wider = _RoundUps(whole=True)
    for matrix, lower, upper in limits.parts:
        wider.add(sp.hstack([matrix, sp.csr_array((matrix.shape[0], 2 * children))]), lower, upper)
    wider.add(apart, sums, sums)
    cost = np.repeat([0.0, 1.0], [count, 2 * children])
    return np.asarray(by_child @ wider.least(cost, extra=2 * children))


class _RoundUps:
    """The sums that round-ups must keep, and the cheapest choice that keeps them."""

    def __init__(self, *, whole: bool) -> None:
        self.whole = whole
        self.parts: list[tuple[sp.csr_array, FloatArray, FloatArray]] = []

    def add(self, matrix: sp.csr_array, lower: ArrayLike, upper: ArrayLike) -> None:
        """Add rows with bounds."""
        self.parts.append((matrix, np.asarray(lower, float), np.asarray(upper, float)))

    def least(self, cost: FloatArray, extra: int = 0, nodes: int | None = None) -> IntArray:
        """Return the cheapest round-ups; the last `extra` variables may be any numbers of 0 or more.

        With `nodes`, return the best solution within that many steps of the search.
        """
        count = len(cost) - extra
        matrices, lower, upper = zip(*self.parts, strict=True)
        result = milp(
            cost,
            integrality=np.repeat([int(self.whole), 0], [count, extra]),
            bounds=Bounds(0.0, np.repeat([1.0, np.inf], [count, extra])),
            options={"mip_rel_gap": 0.0} if nodes is None else {"node_limit": nodes},
            constraints=LinearConstraint(
                sp.vstack(matrices), np.concatenate(lower), np.concatenate(upper)
            ),
        )
        if result.x is None:
            raise InfeasibleError(_NONE)
        chosen = np.rint(result.x[:count])
        if np.abs(chosen - result.x[:count]).max() > 1e-6:
            raise ArithmeticError("a nested rounding problem has a vertex that is not an integer")
        return np.asarray(chosen, np.int64)


# Rounding at least cost, compiled: largest remainder for cells, shortest paths for totals.


@njit(cache=True, nogil=True)
def _largest(part: FloatArray, ups: int, up: NDArray[np.bool_]) -> None:
    """Mark the `ups` largest entries of `part`, earlier ones first if they tie."""
    order = np.argsort(-part, kind="mergesort")
    for i in range(ups):
        up[order[i]] = True


@njit(cache=True, nogil=True)
def round_up(part: FloatArray, ups: IntArray) -> Any:
    """Return which entries to round up, `ups` in each column; the largest fractions cost least."""
    children, cells = part.shape
    up = np.zeros((children, cells), np.bool_)
    for j in range(cells):
        if ups[j] > 0:
            _largest(part[:, j], ups[j], up[:, j])
    return up


@njit(cache=True, nogil=True)
def largest_remainder(values: FloatArray, total: int) -> IntArray:
    """Round numbers that add up to `total` up or down so that they still do, moving them least."""
    whole = np.floor(values)
    up = np.zeros(len(values), np.bool_)
    _largest(values - whole, int(total - whole.sum()), up)
    return (whole + up).astype(np.int64)


@njit(cache=True, nogil=True)
def round_totals(sums: FloatArray, part: FloatArray) -> IntArray:
    """Round the children's totals; only children with open cells in common can trade round-ups."""
    children, cells = part.shape
    above = np.arange(children)
    for j in range(cells):
        last = -1
        for c in range(children):
            if part[c, j] > 0.0:
                if last >= 0:
                    above[root_of(above, c)] = root_of(above, last)
                last = c
    for c in range(children):
        above[c] = root_of(above, c)
    order = np.argsort(above, kind="mergesort")
    rounded = np.empty(children, np.int64)
    start = 0
    while start < children:
        stop = start
        while stop < children and above[order[stop]] == above[order[start]]:
            stop += 1
        members = order[start:stop]
        inside = sums[members]
        rounded[members] = largest_remainder(inside, int(np.rint(inside.sum())))
        start = stop
    return rounded


@njit(cache=True, nogil=True)
def meet_totals(part: FloatArray, up: NDArray[np.bool_], targets: IntArray) -> bool:
    """Move round-ups within columns, at least cost, until each row has its target number.

    `up` starts at least cost for its columns. Each step carries one round-up from a row with too many
    to a row with too few along a shortest path over rows; reduced costs stay non-negative (Dijkstra
    with potentials), so the result has least cost too. Returns False if some row cannot be reached.
    """
    children = len(part)
    excess = np.empty(children, np.int64)
    for c in range(children):
        excess[c] = up[c].sum() - targets[c]
    cost = 1.0 - 2.0 * part
    potential = np.zeros(children)
    distance = np.empty(children)
    giver = np.empty(children, np.int64)
    column = np.empty(children, np.int64)
    visited = np.empty(children, np.bool_)
    # The cheapest column in which one row can hand a round-up to another, until either changes.
    slots = children if children <= _REMEMBERED else 1
    fresh = np.zeros((slots, children), np.bool_)
    handing = np.empty((slots, children), np.int32)
    while True:
        distance[:] = np.inf
        giver[:] = -1
        visited[:] = False
        for c in range(children):
            if excess[c] > 0:
                distance[c] = 0.0
        if not np.isfinite(distance).any():
            return True
        target = -1
        while True:
            row, nearest = -1, np.inf
            for c in range(children):
                if not visited[c] and distance[c] < nearest:
                    row, nearest = c, distance[c]
            if row < 0:
                break
            visited[row] = True
            if excess[row] < 0:
                target = row
                break
            slot = row if slots == children else 0
            for c in range(children):
                if visited[c]:
                    continue
                if not fresh[slot, c] or slots < children:
                    handing[slot, c] = _cheapest_column(cost, part, up, row, c)
                    fresh[slot, c] = True
                best = handing[slot, c]
                if best >= 0:
                    least = cost[c, best] - cost[row, best]
                    reach = nearest + max(least + potential[row] - potential[c], 0.0)
                    if reach < distance[c]:
                        distance[c], giver[c], column[c] = reach, row, best
        if target < 0:
            return False
        for c in range(children):
            potential[c] += min(distance[c], distance[target])
        row = target
        excess[row] += 1
        while row >= 0:
            if slots == children:
                fresh[row, :] = False
                fresh[:, row] = False
            last = row
            row = giver[row]
            if row >= 0:
                up[last, column[last]] = True
                up[row, column[last]] = False
        excess[last] -= 1


@njit(cache=True, nogil=True)
def _cheapest_column(
    cost: FloatArray, part: FloatArray, up: NDArray[np.bool_], giver: int, taker: int
) -> int:
    """Return the column in which a round-up is handed over at least cost, or -1."""
    least, best = np.inf, -1
    for j in range(part.shape[1]):
        if up[giver, j] and not up[taker, j] and part[taker, j] > 0.0:
            along = cost[taker, j] - cost[giver, j]
            if along < least:
                least, best = along, j
    return best
