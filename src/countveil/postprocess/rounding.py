"""Controlled rounding: each entry up or down, sums kept, as little moved as possible."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

from countveil.errors import InputError
from countveil.numerics import FloatArray, IntArray
from countveil.postprocess.flow import meet_totals, round_totals, round_up
from countveil.postprocess.rows import Row, as_matrix, largest_gap, nested

_WHOLE = 1e-7  # entries this close to a whole number are that number


def round_family(
    h: ArrayLike,
    parent: ArrayLike | None,
    totals: ArrayLike | None = None,
    *,
    rows: Sequence[Row] = (),
    total_aware: bool = False,
) -> IntArray:
    """Return integers, each entry of h rounded up or down, that move h least (L1) and keep its sums.

    Kept are the parent's cells, `totals` and `rows`. `total_aware` rounds the children's totals first,
    as little as possible, and then the entries to fit them. Sums over cells alone are met by largest
    remainder, totals too by shortest paths, rows by HiGHS: as a linear program where rows nest, whose
    vertices are whole, as an integer program where they cross.
    """
    values, above = checked_table(h, parent)
    whole, part = whole_and_part(values)
    ups = _wanted(above, whole, part)
    fixed = None if totals is None else np.asarray(totals, float)
    base = whole.astype(np.int64)
    if rows:
        plain = round_family(values, parent, totals, total_aware=total_aware)
        if largest_gap(rows, plain) == 0:
            return plain
        return base + _program(part, ups, base, fixed, rows, total_aware)
    up = _nearest(part) if ups is None else round_up(part, ups)
    if fixed is None and not total_aware:
        return base + up
    sums = values.sum(axis=1)
    aims = fixed
    if aims is None:
        aims = np.rint(sums) if ups is None else round_totals(sums, part)
    wanted = np.rint(aims - whole.sum(axis=1)).astype(np.int64)
    if ups is None:
        return base + _rows_alone(part, wanted)
    if meet_totals(part, up, wanted):
        return base + up
    if fixed is not None:
        raise InputError("the totals cannot be met by rounding h; h does not have them itself")
    return base + _program(part, ups, base, None, (), True)


def checked_table(h: ArrayLike, parent: ArrayLike | None) -> tuple[FloatArray, FloatArray | None]:
    """Return h and its parent as arrays; refuse an h that no counts could have been solved to."""
    values = np.ascontiguousarray(h, float)
    if values.ndim != 2 or not np.isfinite(values).all():
        raise InputError("h is a table of finite numbers, children × cells")
    if (values < -_WHOLE).any():
        raise InputError("h has a negative entry; solve the family first")
    return values, None if parent is None else np.asarray(parent, float)


def whole_and_part(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return floor and remainder of each value; a value close to a whole number is that number."""
    whole = np.floor(values + _WHOLE)
    return whole, np.where(values - whole > _WHOLE, values - whole, 0.0)


def _wanted(parent: FloatArray | None, whole: FloatArray, part: FloatArray) -> IntArray | None:
    """Return how many entries of each cell are rounded up."""
    if parent is None:
        return None
    ups: IntArray = np.rint(parent - whole.sum(axis=0)).astype(np.int64)
    if (ups < 0).any() or (ups > (part > 0).sum(axis=0)).any():
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
        return up.reshape(children, cells)
    by_child = sp.csr_array((np.ones(count), (child, number)), shape=(children, count))
    limits = _Limits(whole=bool(rows) and not nested(rows))
    if ups is not None:
        by_cell = sp.csr_array((np.ones(count), (cell, number)), shape=(cells, count))
        limits.add(by_cell, ups, ups)
    if rows:
        matrix = as_matrix(rows, children, cells)
        already = matrix @ base.reshape(-1)
        lower = np.array([row.lower for row in rows]) - already
        limits.add(matrix[:, entries], lower, np.array([row.upper for row in rows]) - already)
    if totals is not None:
        needed = totals - base.sum(axis=1)
        limits.add(by_child, needed, needed)
    elif total_aware:
        sums = part.sum(axis=1)
        floor = np.floor(sums + _WHOLE)
        limits.add(by_child, floor, floor + (sums - floor > _WHOLE))
        # A total rounded up costs 1 - 2 × its part more than one rounded down.
        first = limits.least(by_child.T @ (1.0 - 2.0 * (sums - floor)))
        needed = by_child @ first
        limits.add(by_child, needed, needed)
    up[entries] = limits.least(1.0 - 2.0 * part.reshape(-1)[entries])
    return up.reshape(children, cells)


class _Limits:
    """The sums that round-ups must keep, and the least costly choice within them."""

    def __init__(self, *, whole: bool) -> None:
        self.whole = whole
        self.parts: list[tuple[sp.csr_array, FloatArray, FloatArray]] = []

    def add(self, matrix: sp.csr_array, lower: ArrayLike, upper: ArrayLike) -> None:
        """Add rows with bounds."""
        self.parts.append((matrix, np.asarray(lower, float), np.asarray(upper, float)))

    def least(self, cost: FloatArray) -> IntArray:
        """Return the least costly round-ups."""
        matrices, lower, upper = zip(*self.parts, strict=True)
        result = milp(
            cost,
            integrality=np.full(len(cost), int(self.whole)),
            bounds=Bounds(0.0, 1.0),
            constraints=LinearConstraint(
                sp.vstack(matrices), np.concatenate(lower), np.concatenate(upper)
            ),
        )
        if result.x is None:
            raise InputError(
                "no rounding of h, each entry up or down, meets all its sums and bounds; widen a bound"
            )
        chosen = np.rint(result.x)
        if np.abs(chosen - result.x).max() > 1e-6:
            raise ArithmeticError("a nested rounding problem has a vertex that is not whole")
        return np.asarray(chosen, np.int64)
