"""One family from measurements to integers: each pass solved, rounded and checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from countveil.base.numerics import FloatArray, IntArray
from countveil.base.randomness import BitSource
from countveil.errors import CertificateError, InfeasibleError
from countveil.plan.passes import Passes, coarsens
from countveil.plan.workload import TOTAL, Query
from countveil.postprocess.certificate import LARGEST_GAP, Certificate, combine_passes
from countveil.postprocess.facts.feasibility import refuse_infeasible
from countveil.postprocess.facts.rows import Row, largest_gap
from countveil.postprocess.family_information import FamilyInformation
from countveil.postprocess.pass_rule import pushed_farthest, totals_come_first
from countveil.postprocess.rounding.controlled_rounding import nearest_table, round_family
from countveil.postprocess.rounding.dependent_rounding import round_unbiased
from countveil.postprocess.rounding.kept_sums import departures
from countveil.postprocess.solver.nonnegative import CertifiedSolution, solve_family


@dataclass(frozen=True, eq=False, slots=True)
class Limits:
    """What a family must meet in addition to its parent: totals, cells that are 0, other bounds."""

    totals: IntArray | None = None
    allowed: NDArray[np.bool_] | None = None
    rows: tuple[Row, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class MovableParent:
    """What a family needs if its facts leave no table that adds up to its parent.

    `cells` are all cells that may have people, `limits` the facts about the children over them. `kept`
    are the queries of public facts at the levels above: the parent's sums of those stay as they are.
    """

    cells: IntArray
    limits: Limits
    kept: tuple[Query, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Family:
    """The children of one parent, over the cells that may have people.

    `cells` are cells of the full histogram, and `information` is what is known about the children over
    them. `parent` is None at the top. `keep` are the queries that rounding keeps, `first` those that
    may have to be estimated first, if the plan leaves that to the rule. `movable_parent` is called only
    if the facts leave no table that adds up to the parent. `label` names cells in messages.
    """

    name: str
    children: Sequence[str]
    cells: IntArray
    parent: IntArray | None
    information: FamilyInformation
    limits: Limits
    label: Callable[[IntArray], str]
    keep: tuple[Query, ...] = ()
    first: tuple[Query, ...] = ()
    movable_parent: Callable[[], MovableParent | None] = lambda: None


@dataclass(frozen=True, eq=False, slots=True)
class SolvedFamily:
    """The integer histograms of the children, children × cells, over some cells, certified."""

    cells: IntArray
    counts: IntArray
    certificate: Certificate


def solve(family: Family, passes: Passes, *, rng: BitSource | None = None) -> SolvedFamily:
    """Return the integer histograms of the children, with the certificate of their solution.

    They are over the family's cells; if the facts leave no table that adds up to the parent, over those
    of `family.movable_parent()`. The parent must then follow its children, and the certificate says so
    (`moved_parents`).
    """
    try:
        return SolvedFamily(family.cells, *_in_passes(family, passes, rng))
    except InfeasibleError as error:
        movable = family.movable_parent()
        if movable is None or family.parent is None:
            raise
        try:
            return SolvedFamily(movable.cells, *_moving_the_parent(family, movable, passes))
        except InfeasibleError:
            raise error from None  # the facts alone leave no table


class _Rounded(NamedTuple):
    """Integers, children × cells, and the certificate of the solution they were rounded from."""

    counts: IntArray
    certificate: Certificate


def _moving_the_parent(family: Family, movable: MovableParent, passes: Passes) -> _Rounded:
    """Solve without the facts, then take the nearest table of integers that meets them all.

    The parent's histogram was chosen before its children's facts were used, and not every histogram
    with the right sums can be divided so that each child meets several facts at once.
    """
    assert family.parent is not None
    squares, b = family.information.equations(family.parent, None)
    h, certificate = solve_family(squares, b, family.parent)
    _refuse_unproven(family, certificate, passes.residual)
    where, cells = np.searchsorted(movable.cells, family.cells), len(movable.cells)
    table, parent = np.zeros((len(h), cells)), np.zeros(cells, np.int64)
    table[:, where], parent[where] = h, family.parent
    rows = [*movable.limits.rows]
    everyone = np.arange(len(h))
    for query in movable.kept:
        group = query.cells_at(movable.cells)
        sums = np.bincount(group[group >= 0], parent[group >= 0], query.cells)
        rows += [
            Row(everyone, np.flatnonzero(group == g), float(number), float(number), query.name)
            for g, number in enumerate(sums)
        ]
    limits = replace(movable.limits, rows=tuple(rows))
    totals = None if limits.totals is None else limits.totals.astype(float)
    counts = nearest_table(table, None, totals, limits.rows, limits.allowed)
    _check_whole(replace(family, parent=None, limits=limits), counts)
    certificate = replace(certificate, fallbacks=certificate.fallbacks + 1, moved_parents=1)
    return _Rounded(counts, _departing(certificate, family.keep, movable.cells, table, counts))


def _departing(
    certificate: Certificate,
    keep: Sequence[Query],
    cells: IntArray,
    h: FloatArray,
    counts: IntArray,
) -> Certificate:
    """Return a certificate that states how far rounding moved the sums of some queries."""
    groups = [query.cells_at(cells) for query in keep]
    off = departures(h, counts, np.array(groups, np.int64).reshape(len(groups), h.shape[1]))
    largest = dict(zip([query.name for query in keep], off.tolist(), strict=True))
    return replace(certificate, largest_departure=largest)


def _in_passes(family: Family, passes: Passes, rng: BitSource | None) -> _Rounded:
    """Solve the queries of the first passes, hold each result, then solve the whole histogram."""
    limits = family.limits
    certificates: list[Certificate] = []
    try:
        for query in passes.first or _totals_first(family, passes):
            limits = _after_pass(family, limits, query, passes, rng, certificates)
        last = replace(family, limits=limits)
        solution = _solved(last, passes)
        pushed = _pushed(last, passes, solution)
        if pushed is not None:
            limits = _after_pass(family, limits, pushed, passes, rng, certificates)
            last = replace(family, limits=limits)
            solution = _solved(last, passes)
        counts, certificate = _rounded(last, passes, solution, rng)
    except InfeasibleError:
        if not certificates:
            raise
        # The results of earlier passes leave no table; the facts alone may.
        counts, certificate = _rounded(family, passes, _solved(family, passes), rng)
        certificate = replace(certificate, fallbacks=certificate.fallbacks + 1)
    return _Rounded(counts, combine_passes([*certificates, certificate]))


def _totals_first(family: Family, passes: Passes) -> tuple[Query, ...]:
    """Return a pass over totals if the plan leaves it to the rule, and the rule wants one."""
    totals = tuple(query for query in family.first if query.name == TOTAL)
    if not passes.automatic or not totals:
        return ()
    return totals if totals_come_first(family.information.unbiased(totals[0])) else ()


def _pushed(family: Family, passes: Passes, solution: CertifiedSolution) -> Query | None:
    """Return the query that needs a pass of its own, by the rule, after a solution without one."""
    if not passes.automatic:
        return None
    queries = [query for query in family.first if query.name != TOTAL]
    unbiased = [(query, family.information.unbiased(query)) for query in queries]
    return pushed_farthest(unbiased, solution.h, family.cells)


def _after_pass(
    family: Family,
    limits: Limits,
    query: Query,
    passes: Passes,
    rng: BitSource | None,
    certificates: list[Certificate],
) -> Limits:
    """Estimate the sums of a query, add the certificate to the others, and return limits with them."""
    if query.name == TOTAL and limits.totals is not None:
        return limits  # known
    if not len(family.cells):
        return limits  # the parent has no one
    merged = _merged(family, limits, query)
    if merged is None:
        return limits  # not measured
    coarse, group = merged
    counts, certificate = _rounded(coarse, passes, _solved(coarse, passes), rng)
    certificates.append(certificate)
    return _hold(limits, counts, group)


def _refuse_unproven(family: Family, certificate: Certificate, residual: float) -> None:
    if not certificate.within(residual):
        raise CertificateError(
            f"{family.name}: the solver did not reach full precision for its {len(family.children)} "
            f"children (residual {certificate.kkt_residual:.1e}, gap "
            f"{certificate.consistency_gap:.1e}); nothing was released. Please report this"
        )


def _solved(family: Family, passes: Passes) -> CertifiedSolution:
    """Refuse what no table can meet, solve and certify."""
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
    squares, b = family.information.equations(parent, limits.totals)
    h, certificate = solve_family(
        squares, b, parent, limits.totals, allowed=limits.allowed, rows=limits.rows
    )
    _refuse_unproven(family, certificate, passes.residual)
    return CertifiedSolution(h, certificate)


def _rounded(
    family: Family, passes: Passes, solution: CertifiedSolution, rng: BitSource | None
) -> _Rounded:
    """Round a solution, and check the integers."""
    limits, parent = family.limits, family.parent
    h, certificate = solution
    if certificate.consistency_gap > LARGEST_GAP:  # a plan may accept less than full precision
        above, fixed = (None if x is None else x.astype(float) for x in (parent, limits.totals))
        counts = nearest_table(h, above, fixed, limits.rows, limits.allowed)
        _check_whole(family, counts)
        return _Rounded(counts, _departing(certificate, family.keep, family.cells, h, counts))
    if passes.rounding == "unbiased" and not limits.rows:
        if rng is None:
            raise CertificateError("unbiased rounding needs randomness; pass rng")
        counts = round_unbiased(h, parent, limits.totals, rng=rng)
    else:
        groups = [query.cells_at(family.cells) for query in family.keep]
        keep = groups if passes.rounding == "queries" else ()
        counts = round_family(
            h,
            parent,
            limits.totals,
            allowed=limits.allowed,
            rows=limits.rows,
            total_aware=passes.rounding != "cells",
            keep=keep,
        )
        certificate = _departing(certificate, family.keep, family.cells, h, counts)
    _check_whole(family, counts)
    return _Rounded(counts, certificate)


def _check_whole(family: Family, counts: IntArray) -> None:
    """Check the integers themselves, independently of how they were made."""
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
            f"{family.name}: its rounded children break a sum or a bound; nothing was released. "
            f"Please report this"
        )


class _Merged(NamedTuple):
    """A family over groups of its cells, and the group of each cell."""

    family: Family
    group: IntArray


def _merged(family: Family, limits: Limits, query: Query) -> _Merged | None:
    """Return the family over the sums of a query; None if nothing is known about them."""
    sums = query.cells_at(family.cells)
    _, first, group = np.unique(sums, return_index=True, return_inverse=True)
    count = len(first)
    information = family.information.about(query, group, count)
    if information is None:
        return None
    parent = None
    if family.parent is not None:
        parent = np.bincount(group, family.parent, count).astype(np.int64)
    coarse = replace(
        family,
        cells=family.cells[first],
        parent=parent,
        information=information,
        keep=tuple(item for item in family.keep if coarsens(item, query)),
        limits=_limits_of_groups(limits, group, count),
    )
    return _Merged(coarse, group)


def _limits_of_groups(limits: Limits, group: IntArray, groups: int) -> Limits:
    """Translate limits to groups of cells; a group is 0 if all its cells are."""
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
        elif row.lower > 0:  # its groups have other cells too: only the lower bound still applies
            rows.append(replace(row, cells=whole, upper=np.inf))
    return Limits(limits.totals, allowed, tuple(rows))


def _hold(limits: Limits, counts: IntArray, group: IntArray) -> Limits:
    """Fix the counts of the groups for the following passes."""
    if counts.shape[1] == 1:
        return replace(limits, totals=counts[:, 0])
    rows = [
        Row(np.array([c]), np.flatnonzero(group == g), counts[c, g], counts[c, g])
        for c in range(len(counts))
        for g in range(counts.shape[1])
    ]
    return replace(limits, totals=counts.sum(axis=1), rows=(*limits.rows, *rows))
