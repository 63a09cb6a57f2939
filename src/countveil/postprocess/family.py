"""One family from measurements to integers: its passes, each solved, rounded, checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil.errors import CertificateError, InfeasibleError
from countveil.numerics import FloatArray, IntArray
from countveil.postprocess.certificate import LARGEST_GAP, Certificate, chain
from countveil.postprocess.dependent import round_unbiased
from countveil.postprocess.feasibility import refuse_infeasible
from countveil.postprocess.gram import Squares
from countveil.postprocess.least_squares import (
    merge,
    pulled,
    right_sides,
    rough_totals,
    tells_apart,
)
from countveil.postprocess.nonnegative import solve_family
from countveil.postprocess.rounding import nearest_table, round_family
from countveil.postprocess.rows import Row, largest_gap
from countveil.postprocess.totals import MeasuredTotals, fit
from countveil.randomness import BitSource
from countveil.schema.passes import Passes
from countveil.schema.workload import TOTAL, Query


@dataclass(frozen=True, eq=False, slots=True)
class Limits:
    """What a family must meet beyond its parent: totals, cells that are 0, other sums."""

    totals: IntArray | None = None
    allowed: NDArray[np.bool_] | None = None
    rows: tuple[Row, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Above:
    """What a family needs where its facts leave no table that adds up to its parent.

    `cells` are all that may hold people, `limits` the facts of the children over them. `kept` are the
    queries that public facts of the levels above are about: their sums stay as the parent has them.
    """

    cells: IntArray
    limits: Limits
    kept: tuple[Query, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Family:
    """The children of one parent over the cells that may hold people.

    `cells` are cells of the full histogram; `places` tells which scalar of `values` counts each of
    them, query by query. `parent` is None at the top. `totals` is what the children and their own
    parts measured of their totals, where a pass asks for it. `above` is called only where the facts
    leave no table that adds up to the parent.
    """

    name: str
    children: Sequence[str]
    cells: IntArray
    parent: IntArray | None
    places: IntArray
    weights: FloatArray
    values: Any
    limits: Limits
    label: Callable[[IntArray], str]
    totals: MeasuredTotals | None = None
    above: Callable[[], Above | None] = lambda: None


@dataclass(frozen=True, eq=False, slots=True)
class SolvedFamily:
    """The integer histograms of the children (children × cells) over some cells, certified."""

    cells: IntArray
    counts: IntArray
    certificate: Certificate


def solve(family: Family, passes: Passes, *, rng: BitSource | None = None) -> SolvedFamily:
    """Return the integer histograms of the children, and how good the solutions behind them are.

    They are over the family's cells, or over those of `family.above()` where their facts leave no table
    that adds up to the parent. The parent then has to follow them: `moved_parents` says so.
    """
    try:
        return SolvedFamily(family.cells, *_in_passes(family, passes, rng))
    except InfeasibleError as error:
        above = family.above()
        if above is None or family.parent is None:
            raise
        try:
            return SolvedFamily(above.cells, *_moving_the_parent(family, above, passes))
        except InfeasibleError:
            raise error from None  # the facts themselves leave no table


def _moving_the_parent(
    family: Family, above: Above, passes: Passes
) -> tuple[IntArray, Certificate]:
    """Solve without the facts, then take the nearest table of integers that meets them all.

    The parent's histogram was chosen before its children's facts came in, and not every histogram
    with the right sums can be shared out so that each child meets several facts at once.
    """
    assert family.parent is not None
    squares, b = _squares(family, family.parent, None)
    h, certificate = solve_family(squares, b, family.parent)
    _refuse_unproven(family, certificate, passes.residual)
    where = np.searchsorted(above.cells, family.cells)
    table, parent = np.zeros((len(h), len(above.cells))), np.zeros(len(above.cells), np.int64)
    table[:, where], parent[where] = h, family.parent
    rows = [*above.limits.rows]
    everyone = np.arange(len(h))
    for query in above.kept:
        group = query.cells_at(above.cells)
        sums = np.bincount(group[group >= 0], parent[group >= 0], query.cells)
        rows += [
            Row(everyone, np.flatnonzero(group == g), float(number), float(number), query.name)
            for g, number in enumerate(sums)
        ]
    limits = replace(above.limits, rows=tuple(rows))
    totals = None if limits.totals is None else limits.totals.astype(float)
    counts = nearest_table(table, None, totals, limits.rows, limits.allowed)
    _check_whole(replace(family, parent=None, limits=limits), counts)
    return counts, replace(certificate, fallbacks=certificate.fallbacks + 1, moved_parents=1)


def _in_passes(
    family: Family, passes: Passes, rng: BitSource | None
) -> tuple[IntArray, Certificate]:
    limits, certificates = family.limits, []
    try:
        for query in passes.first:
            if query.name == TOTAL and limits.totals is not None:
                continue  # known
            coarse, group = _merged(family, query.cells_at(family.cells))
            coarse = replace(coarse, limits=_limits_of_groups(limits, group, len(coarse.cells)))
            if not len(coarse.cells):
                continue  # nobody to tell apart
            if query.name == TOTAL and family.totals is not None and family.parent is not None:
                counts, certificate = _totals_pass(coarse, family.totals, passes)
            elif len(coarse.places):
                counts, certificate = _one_pass(coarse, passes, rng)
            else:
                continue  # nothing at this level measures it
            certificates.append(certificate)
            limits = _hold(limits, counts, group)
        counts, certificate = _one_pass(replace(family, limits=limits), passes, rng)
    except InfeasibleError:
        if not certificates:
            raise
        # What the passes held leaves no table; the facts themselves may.
        counts, certificate = _one_pass(family, passes, rng)
        certificate = replace(certificate, fallbacks=certificate.fallbacks + 1)
    return counts, chain([*certificates, certificate])


def _totals_pass(
    family: Family, measured: MeasuredTotals, passes: Passes
) -> tuple[IntArray, Certificate]:
    """Fit the children's totals to the parent's; `family` has one cell."""
    assert family.parent is not None
    lower, upper = np.zeros(len(family.children)), np.full(len(family.children), np.inf)
    if family.limits.allowed is not None:
        upper[~family.limits.allowed[:, 0]] = 0.0
    for row in family.limits.rows:
        if len(row.children) == 1:
            child = row.children[0]
            lower[child] = max(lower[child], row.lower)
            upper[child] = min(upper[child], row.upper)
    refuse_infeasible(
        family.parent,
        None,
        family.limits.allowed,
        family.limits.rows,
        children=family.children,
        cell_names=lambda cells: TOTAL,
        parent_name=family.name,
    )
    totals, certificate = fit(measured, float(family.parent[0]), lower, upper)
    _refuse_unproven(family, certificate, passes.residual)
    return round_family(totals[:, None], family.parent), certificate


def _refuse_unproven(family: Family, certificate: Certificate, residual: float) -> None:
    if not certificate.within(residual):
        raise CertificateError(
            f"{family.name}: its {len(family.children)} children could not be solved to full "
            f"precision (residual {certificate.kkt_residual:.1e}, gap {certificate.consistency_gap:.1e}"
            f"); nothing of it is released: please report it"
        )


def _one_pass(
    family: Family, passes: Passes, rng: BitSource | None
) -> tuple[IntArray, Certificate]:
    limits, parent = family.limits, family.parent
    refuse_infeasible(
        parent,
        limits.totals,
        limits.allowed,
        limits.rows,
        children=family.children,
        cell_names=lambda cells: family.label(family.cells[cells]),
        parent_name=family.name,
        cells=len(family.cells),
    )
    squares, b = _squares(family, parent, limits.totals)
    h, certificate = solve_family(
        squares, b, parent, limits.totals, allowed=limits.allowed, rows=limits.rows
    )
    _refuse_unproven(family, certificate, passes.residual)
    if certificate.consistency_gap > LARGEST_GAP:  # a plan may ask for less than full precision
        above, fixed = (None if x is None else x.astype(float) for x in (parent, limits.totals))
        counts = nearest_table(h, above, fixed, limits.rows, limits.allowed)
        _check_whole(family, counts)
        return counts, certificate
    if passes.rounding == "unbiased" and not limits.rows:
        if rng is None:
            raise CertificateError("unbiased rounding needs randomness; pass rng")
        counts = round_unbiased(h, parent, limits.totals, rng=rng)
    else:
        aware = passes.rounding != "cells"
        counts = round_family(
            h, parent, limits.totals, allowed=limits.allowed, rows=limits.rows, total_aware=aware
        )
    _check_whole(family, counts)
    return counts, certificate


def _squares(
    family: Family, parent: IntArray | None, totals: IntArray | None
) -> tuple[Squares, FloatArray]:
    """Return both sides of the least squares of a family, made to have one solution."""
    squares = Squares(family.places, family.weights)
    b = right_sides(family.places, family.weights, family.values)
    if tells_apart(family.places):
        return squares, b
    rough = rough_totals(family.places, family.weights, family.values)
    if totals is not None:
        rough = totals.astype(float)
    return pulled(squares, b, None if parent is None else parent.astype(float), rough)


def _check_whole(family: Family, counts: IntArray) -> None:
    """Check the integers themselves, whatever made them."""
    limits = family.limits
    wrong = [
        (counts < 0).any(),
        family.parent is not None and (counts.sum(axis=0) != family.parent).any(),
        limits.totals is not None and (counts.sum(axis=1) != limits.totals).any(),
        limits.allowed is not None and (counts[~limits.allowed] != 0).any(),
        largest_gap(limits.rows, counts) > 0,
    ]
    if any(wrong):
        raise CertificateError(
            f"{family.name}: its rounded children break a sum or a bound; nothing of it is "
            f"released: please report it"
        )


def _merged(family: Family, group: IntArray) -> tuple[Family, IntArray]:
    """Return the family over groups of its cells, and the group of each cell."""
    first, group = np.unique(group, return_index=True, return_inverse=True)[1:]
    count = len(first)
    places, answers = merge(family.places, group, count)
    parent = None
    if family.parent is not None:
        parent = np.bincount(group, family.parent, count).astype(np.int64)
    return (
        replace(
            family,
            cells=family.cells[first],
            parent=parent,
            places=places,
            weights=family.weights[answers],
        ),
        group,
    )


def _limits_of_groups(limits: Limits, group: IntArray, groups: int) -> Limits:
    """Carry limits over to groups of cells: a group is 0 where all its cells are."""
    allowed = None
    if limits.allowed is not None:
        allowed = np.zeros((len(limits.allowed), groups), bool)
        for g in range(groups):
            allowed[:, g] = limits.allowed[:, group == g].any(axis=1)
    size = np.bincount(group, minlength=groups)
    rows = []
    for row in limits.rows:
        inside = np.bincount(group[row.cells], minlength=groups)
        whole = np.flatnonzero(inside)
        if (inside[whole] == size[whole]).all():
            rows.append(replace(row, cells=whole))
        elif row.lower > 0:  # its groups hold more than it does: only the lower bound carries over
            rows.append(replace(row, cells=whole, upper=np.inf))
    return Limits(limits.totals, allowed, tuple(rows))


def _hold(limits: Limits, counts: IntArray, group: IntArray) -> Limits:
    """Hold the counts of the groups in the passes that follow."""
    if counts.shape[1] == 1:
        return replace(limits, totals=counts[:, 0])
    rows = [
        Row(np.array([c]), np.flatnonzero(group == g), counts[c, g], counts[c, g])
        for c in range(len(counts))
        for g in range(counts.shape[1])
    ]
    return replace(limits, totals=counts.sum(axis=1), rows=(*limits.rows, *rows))
