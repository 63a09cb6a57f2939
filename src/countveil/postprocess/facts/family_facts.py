"""Public facts as bounds: read from a plan and a release, summed up the tree, cut to a family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from countveil.base.numerics import IntArray
from countveil.errors import InfeasibleError, InputError
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.plan.workload import Query
from countveil.postprocess.estimates import Estimates
from countveil.postprocess.facts.fact_bounds import (
    UNBOUNDED,
    Bounds,
    GroupBound,
    in_words,
    read_bounds,
    read_groups,
    unbounded,
)
from countveil.postprocess.facts.feasibility import refuse_infeasible
from countveil.postprocess.facts.rows import Row
from countveil.postprocess.family import Limits

_VALUES = 4_000_000  # counts in memory at a time
_MANY = 5_000  # levels with more units are not checked unit by unit before a charge


@dataclass(frozen=True, eq=False, slots=True)
class LevelFacts:
    """All public facts about the units of a level."""

    bounds: tuple[Bounds, ...] = ()
    groups: tuple[GroupBound, ...] = ()

    def slice(self, start: int, stop: int) -> LevelFacts:
        """Return the facts of units start … stop - 1, numbered from 0."""
        groups = [
            GroupBound(g.query, g.cell, g.units - start, g.lower, g.upper, g.name)
            for g in self.groups
            if start <= g.units[0] and g.units[-1] < stop
        ]
        return LevelFacts(tuple(b.slice(start, stop) for b in self.bounds), tuple(groups))

    def limits(self, start: int, stop: int, cells: IntArray, parent: IntArray | None) -> Limits:
        """Return what the family of units start … stop - 1 must meet, over the cells of its parent."""
        totals: IntArray | None = None
        allowed: NDArray[np.bool_] | None = None
        rows: list[Row] = []
        for bound in self.bounds:
            lower, upper = bound.lower[start:stop], bound.upper[start:stop]
            one = bound.query.cells == 1 and bound.query.complete
            if totals is None and one and (lower == upper).all():
                totals = lower[:, 0].astype(np.int64)
                continue
            group = bound.query.cells_at(cells)
            zero = (upper == 0)[:, group] & (group >= 0)
            if zero.any():
                allowed = ~zero if allowed is None else allowed & ~zero
            most = np.full(bound.query.cells, UNBOUNDED, np.int64)
            if parent is not None:
                counted = group >= 0
                most = np.bincount(group[counted], parent[counted], bound.query.cells)
            binding = (upper > 0) & ((lower > 0) | (upper < most))
            for c, g in np.argwhere(binding):
                high = float(upper[c, g]) if upper[c, g] < UNBOUNDED else np.inf
                what = in_words(bound.query, bound.query.labels_of(int(g)))
                rows.append(
                    Row(np.array([c]), np.flatnonzero(group == g), float(lower[c, g]), high, what)
                )
        for item in self.groups:
            if start <= item.units[0] and item.units[-1] < stop:
                inside = np.flatnonzero(item.query.cells_at(cells) == item.cell)
                high = float(item.upper) if item.upper < UNBOUNDED else np.inf
                rows.append(Row(item.units - start, inside, float(item.lower), high, item.name))
        return Limits(totals, allowed, tuple(rows))


class KnownCounts(Protocol):
    """A source of the counts that a plan declares public."""

    def invariant(self, level: str, query: str) -> IntArray:
        """Return the exact counts of a public query, for all units of a level."""
        ...


def read_facts(
    plan: Plan, geography: Geography, known: KnownCounts | None
) -> dict[str, LevelFacts]:
    """Return the public facts of every measured level; refuse facts that contradict each other.

    Bounds of lower levels add up to bounds of the levels above, so that no parent gets a count that its
    children cannot have. A level that is not measured passes its bounds on to the next one below, as
    sums over groups of siblings. Without `known`, only the plan's files are read.
    """
    visited = plan.measured_levels
    facts = {level: LevelFacts() for level in visited}
    queries = [item.query for item in plan.invariants] + [item.query for item in plan.constraints]
    groups: dict[str, list[GroupBound]] = {level: [] for level in plan.levels}
    for item in plan.constraints:
        groups[item.level].extend(read_groups(item, geography, visited))
    for query in dict.fromkeys(queries):
        summed: Bounds | None = None
        for index in range(len(plan.levels) - 1, -1, -1):
            level = plan.levels[index]
            own = _own_bounds(plan, geography, known, level, query)
            bounds = _tightest(own if summed is None else [*own, summed])
            here = [group for group in groups[level] if group.query is query]
            if bounds is None and here:
                bounds = unbounded(query, geography.units(level))
            if bounds is None:
                summed = None
                continue
            _refuse_contradiction(geography, level, bounds)
            _refuse_contradictory_groups(level, bounds, here)
            _add(facts, plan, geography, visited, level, bounds, here)
            if index > 0:
                parents = geography.parents[index]
                summed = _add_up(bounds, here, parents, geography.units(plan.levels[index - 1]))
    return facts


def _add(
    facts: dict[str, LevelFacts],
    plan: Plan,
    geography: Geography,
    visited: Sequence[str],
    level: str,
    bounds: Bounds,
    groups: Sequence[GroupBound],
) -> None:
    """Add bounds to their level or, as groups of siblings, to the next measured one."""
    if level in visited:
        old = facts[level]
        facts[level] = LevelFacts((*old.bounds, bounds), (*old.groups, *groups))
        return
    later = [item for item in plan.levels[plan.levels.index(level) :] if item in visited]
    if not later:
        return
    below = later[0]
    holders = geography.ancestors(below, level)
    passed_on = []
    for unit, cell in np.argwhere((bounds.lower > 0) | (bounds.upper < UNBOUNDED)):
        first, last = np.searchsorted(holders, [unit, unit + 1])
        what = in_words(bounds.query, bounds.query.labels_of(int(cell)))
        passed_on.append(
            GroupBound(
                bounds.query,
                int(cell),
                np.arange(first, last),
                int(bounds.lower[unit, cell]),
                int(bounds.upper[unit, cell]),
                f"{what} of {level} {geography.geocodes(level)[int(unit)]}",
            )
        )
    facts[below] = LevelFacts(facts[below].bounds, (*facts[below].groups, *passed_on))


def _own_bounds(
    plan: Plan,
    geography: Geography,
    known: KnownCounts | None,
    level: str,
    query: Query,
) -> list[Bounds]:
    """Return the bounds that invariants and constraints put on a query at a level."""
    result = []
    if known is not None and any(
        item.level == level and item.query is query for item in plan.invariants
    ):
        exact = known.invariant(level, query.name).astype(np.int32)
        result.append(Bounds(query, exact, exact))
    for item in plan.constraints:
        if item.level == level and item.query is query and item.members is None:
            result.append(read_bounds(item, geography))
    return result


def _tightest(bounds: Sequence[Bounds]) -> Bounds | None:
    if not bounds:
        return None
    lower = np.max([item.lower for item in bounds], axis=0)
    upper = np.min([item.upper for item in bounds], axis=0)
    return Bounds(bounds[0].query, lower, upper)


def _add_up(bounds: Bounds, groups: Sequence[GroupBound], parents: IntArray, units: int) -> Bounds:
    """Add up the bounds of children into bounds of their parents; a group counts as one child.

    Groups that overlap, or have units of more than one parent, are left out.
    """
    lower, upper = bounds.lower.astype(np.int64), bounds.upper.astype(np.int64)
    low, high = (np.zeros((units, lower.shape[1]), np.int64) for _ in range(2))
    grouped = np.zeros(lower.shape, bool)
    for group in groups:
        where = (group.units, group.cell)
        if grouped[where].any() or len(np.unique(parents[group.units])) > 1:
            continue
        grouped[where] = True
        parent = parents[group.units[0]], group.cell
        low[parent] += max(group.lower, int(bounds.lower[where].sum(dtype=np.int64)))
        high[parent] += min(group.upper, int(bounds.upper[where].sum(dtype=np.int64)))
    np.add.at(low, parents, np.where(grouped, 0, lower))
    np.add.at(high, parents, np.where(grouped, 0, upper))
    if int(low.max(initial=0)) >= UNBOUNDED:
        raise InputError(
            f"the lower bounds on {bounds.query.name} add up to more than {UNBOUNDED:,}; lower them"
        )
    return Bounds(bounds.query, low.astype(np.int32), np.minimum(high, UNBOUNDED).astype(np.int32))


def _refuse_contradiction(geography: Geography, level: str, bounds: Bounds) -> None:
    bad = np.argwhere(bounds.lower > bounds.upper)
    if len(bad):
        unit, cell = bad[0]
        more = f" (and {len(bad) - 1} more such)" if len(bad) > 1 else ""
        raise InfeasibleError(
            f"{level} {geography.geocodes(level)[int(unit)]}: "
            f"{in_words(bounds.query, bounds.query.labels_of(int(cell)))} must be at least "
            f"{bounds.lower[unit, cell]:,} and at most {bounds.upper[unit, cell]:,}, by its own bounds "
            f"or those of the units in it{more}; check the invariants and constraints of that query"
        )


def _refuse_contradictory_groups(level: str, bounds: Bounds, groups: Sequence[GroupBound]) -> None:
    """Refuse a group whose bounds contradict each other or those of its units."""
    for group in groups:
        where = (group.units, group.cell)
        lower = max(group.lower, int(bounds.lower[where].sum(dtype=np.int64)))
        upper = min(group.upper, int(bounds.upper[where].sum(dtype=np.int64)))
        if lower > upper:
            raise InfeasibleError(
                f"{group.name}, of {level}: must be at least {lower:,} and at most {upper:,}, by its "
                f"own bounds or those of its units; check the constraints of that query"
            )


def refuse_impossible_units(plan: Plan, geography: Geography, facts: dict[str, LevelFacts]) -> None:
    """Refuse facts about several queries that no histogram of one unit can meet at once.

    Levels of many units are left to the descent; their bounds also appear in the levels above.
    """
    cells = np.flatnonzero(plan.possible)
    for level, known in facts.items():
        alone = len(known.bounds) < 2 and plan.possible.all()
        if alone or not known.bounds or geography.units(level) > _MANY:
            continue
        for unit, code in enumerate(geography.geocodes(level).to_pylist()):
            limits = known.limits(unit, unit + 1, cells, None)
            refuse_infeasible(
                None,
                limits.totals,
                limits.allowed,
                limits.rows,
                children=[code],
                cell_names=lambda inside: f"{len(inside):,} cells",
                parent_name=level,
                cells=len(cells),
            )


def broken_facts(estimates: Estimates, measurements: KnownCounts) -> str:
    """Return the name of a public fact that estimates break; an empty text if they keep them all."""
    plan, geography = estimates.plan, estimates.geography
    facts = read_facts(plan, geography, measurements)
    for level, known in facts.items():
        for bounds in known.bounds:
            step = max(1, _VALUES // bounds.query.cells)
            for start in range(0, geography.units(level), step):
                stop = min(start + step, geography.units(level))
                values = estimates.counts(level, bounds.query, start, stop)
                low, high = bounds.lower[start:stop], bounds.upper[start:stop]
                bad = np.argwhere((values < low) | (values > high))
                if len(bad):
                    unit, cell = bad[0]
                    what = in_words(bounds.query, bounds.query.labels_of(int(cell)))
                    return f"{what} of {level} {geography.geocodes(level)[start + int(unit)]}"
        for group in known.groups:
            first, last = int(group.units[0]), int(group.units[-1]) + 1
            values = estimates.counts(level, group.query, first, last)
            total = int(values[group.units - first, group.cell].sum())
            if not group.lower <= total <= group.upper:
                return group.name
    impossible = np.flatnonzero(~plan.possible)
    for level, histograms in estimates.levels.items():
        if len(impossible) and np.isin(histograms.cells, impossible).any():
            return f"a structural zero at level {level}"
    return ""
