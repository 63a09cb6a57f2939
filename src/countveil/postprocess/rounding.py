"""Controlled rounding: each entry up or down, sums kept, as little moved as possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

from countveil.errors import InfeasibleError, InputError
from countveil.numerics import FloatArray, IntArray
from countveil.postprocess.flow import meet_totals, round_totals, round_up
from countveil.postprocess.rows import Row, as_matrix, largest_gap, nested

_NONE = "no rounding of h, each entry up or down, meets all its sums and bounds; widen a bound"
_CLOSE = 1e-3  # how far sums of h may be off; solutions are far nearer
_WHOLE = 1e-7  # entries this close to a whole number are that number


def round_family(
    h: ArrayLike,
    parent: ArrayLike | None,
    totals: ArrayLike | None = None,
    *,
    allowed: NDArray[np.bool_] | None = None,
    rows: Sequence[Row] = (),
    total_aware: bool = False,
) -> IntArray:
    """Return integers, each entry of h rounded up or down, that move h least (L1) and keep its sums.

    Kept are the parent's cells, `totals` and `rows`. `total_aware` rounds the children's totals first,
    as little as possible (the first of those that tie), and then the entries to fit them. Sums over
    cells alone are met by largest remainder, totals too by shortest paths, rows by HiGHS: as a linear
    program where rows nest, whose vertices are whole, as an integer program where they cross. Crossing
    rows may leave no table of entries up or down; then it is the nearest of all tables, with 0 where
    not `allowed`.
    """
    values, above, fixed = checked_table(h, parent, totals)
    whole, part = whole_and_part(values)
    ups = _wanted(above, whole, part)
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
    aims: Any = fixed
    if aims is None:
        aims = np.rint(sums) if ups is None else round_totals(sums, part)
    wanted = np.rint(aims - whole.sum(axis=1)).astype(np.int64)
    if ups is None:
        return base + _rows_alone(part, wanted)
    # Totals that do not add up to the parent leave no row with too few when others have too many.
    if wanted.sum() == up.sum() and meet_totals(part, up, wanted):
        return base + up
    if fixed is not None:
        raise InputError("the totals cannot be met by rounding h; h does not have them itself")
    return base + _program(part, ups, base, None, (), True)


def checked_table(
    h: ArrayLike, parent: ArrayLike | None, totals: ArrayLike | None = None
) -> tuple[FloatArray, FloatArray | None, FloatArray | None]:
    """Return h and its sums as arrays; refuse an h that no counts could have been solved to."""
    values = np.ascontiguousarray(h, float)
    if values.ndim != 2 or not np.isfinite(values).all():
        raise InputError("h is a table of finite numbers, children × cells")
    if (values < -_WHOLE).any():
        raise InputError("h has a negative entry; solve the family first")
    children, cells = values.shape
    return (
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
        raise InputError(f"{name} holds something else than whole numbers; round it first")
    return array


def whole_and_part(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return floor and remainder of each value; a value close to a whole number is that number."""
    whole = np.floor(values + _WHOLE)
    return whole, np.where(values - whole > _WHOLE, values - whole, 0.0)


def _wanted(parent: FloatArray | None, whole: FloatArray, part: FloatArray) -> IntArray | None:
    """Return how many entries of each cell are rounded up."""
    if parent is None:
        return None
    ups: IntArray = np.rint(parent - whole.sum(axis=0)).astype(np.int64)
    if (ups < 0).any() or (np.abs(part.sum(axis=0) - ups) > _CLOSE).any():
        raise InputError("h does not sum to its parent; solve the family first")
    return ups


def _nearest(part: FloatArray) -> NDArray[np.bool_]:
    return part > 0.5


def _rows_alone(part: FloatArray, wanted: IntArray) -> NDArray[np.bool_]:
    if (wanted < 0).any() or (wanted > (part > 0).sum(axis=1)).any():
        raise InputError("the totals cannot be met by rounding h; h does not have them itself")
    return np.asarray(round_up(np.ascontiguousarray(part.T), wanted)).T


def _program(
    part: FloatArray,
    ups: IntArray | None,
    base: IntArray,
    totals: FloatArray | None,
    rows: Sequence[Row],
    total_aware: bool,
) -> IntArray:
    """Choose the round-ups by HiGHS; without fixed totals, the best totals come first if asked."""
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
    limits = _Limits(whole=bool(rows) and not nested(rows))
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
    """Return the table of whole numbers that moves h least, entries going as far as they must."""
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
    # x - above + below = h, and what is above or below costs what it is.
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
        raise InfeasibleError(
            "no table of whole numbers meets all its sums and bounds; widen a bound"
        )
    return np.asarray(np.rint(result.x[:size]), np.int64).reshape(children, cells)


def _least_totals(limits: _Limits, by_child: sp.csr_array, sums: FloatArray) -> FloatArray:
    """Return how many round-ups each child gets so that the totals move least."""
    floor = np.floor(sums + _WHOLE)
    if not limits.whole:
        # Totals too go up or down; one rounded up costs 1 - 2 × its part more than one rounded down.
        limits.add(by_child, floor, floor + (sums - floor > _WHOLE))
        return np.asarray(by_child @ limits.least(by_child.T @ (1.0 - 2.0 * (sums - floor))))
    children, count = by_child.shape
    # Crossing rows may force totals further: two more entries a child take what it is above, below.
    apart = sp.hstack([by_child, -sp.eye_array(children), sp.eye_array(children)])
    wider = _Limits(whole=True)
    for matrix, lower, upper in limits.parts:
        wider.add(sp.hstack([matrix, sp.csr_array((matrix.shape[0], 2 * children))]), lower, upper)
    wider.add(apart, sums, sums)
    cost = np.repeat([0.0, 1.0], [count, 2 * children])
    return np.asarray(by_child @ wider.least(cost, extra=2 * children))


class _Limits:
    """The sums that round-ups must keep, and the least costly choice within them."""

    def __init__(self, *, whole: bool) -> None:
        self.whole = whole
        self.parts: list[tuple[sp.csr_array, FloatArray, FloatArray]] = []

    def add(self, matrix: sp.csr_array, lower: ArrayLike, upper: ArrayLike) -> None:
        """Add rows with bounds."""
        self.parts.append((matrix, np.asarray(lower, float), np.asarray(upper, float)))

    def least(self, cost: FloatArray, extra: int = 0) -> IntArray:
        """Return the least costly round-ups; the last `extra` variables are any numbers from 0 on."""
        count = len(cost) - extra
        matrices, lower, upper = zip(*self.parts, strict=True)
        result = milp(
            cost,
            integrality=np.repeat([int(self.whole), 0], [count, extra]),
            bounds=Bounds(0.0, np.repeat([1.0, np.inf], [count, extra])),
            options={"mip_rel_gap": 0.0},
            constraints=LinearConstraint(
                sp.vstack(matrices), np.concatenate(lower), np.concatenate(upper)
            ),
        )
        if result.x is None:
            raise InfeasibleError(_NONE)
        chosen = np.rint(result.x[:count])
        if np.abs(chosen - result.x[:count]).max() > 1e-6:
            raise ArithmeticError("a nested rounding problem has a vertex that is not whole")
        return np.asarray(chosen, np.int64)
