"""Check the declared public counts of a release: their layout, their places, and that they add up."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from countveil.errors import InputError
from countveil.measure.measurement import INVARIANTS, LAYOUT, values_of
from countveil.numerics import IntArray
from countveil.postprocess.bounds import refuse_many_values
from countveil.release.unpacked_size import refuse_swollen
from countveil.schema.geography import Geography
from countveil.schema.passes import cells_within, coarsens
from countveil.schema.plan import Plan
from countveil.schema.public_facts import Invariant
from countveil.schema.workload import Query

_Values = dict[str, NDArray[np.int32]]  # units × cells of each query, by its name


@dataclass(frozen=True, eq=False, slots=True)
class _Sum:
    """An invariant that must be the sum of a finer one, of its own level or of one below.

    `cell` is the cell of the coarse query for each cell of the fine one, and `together` holds what the
    units of a lower level add up to so far.
    """

    coarse: Invariant
    fine: Invariant
    cell: IntArray
    together: IntArray | None


def refuse_other_invariants(folder: Path, plan: Plan, geography: Geography) -> int:
    """Refuse invariants of other places or layout, or that do not add up; return how many there are.

    A level is read some units at a time; only sums for the levels above are held.
    """
    sums = [_sum(coarse, fine, geography) for coarse, fine in _pairs(plan)]
    values = 0
    for level in reversed(plan.levels):
        queries = [item.query for item in plan.invariants if item.level == level]
        if not queries:
            continue
        about = [item for item in sums if level in (item.coarse.level, item.fine.level)]
        above = {
            item.coarse.level: geography.ancestors(level, item.coarse.level)
            for item in about
            if item.fine.level == level
        }
        start = 0
        for parts in _groups(folder, level, queries, geography):
            stop = start + len(next(iter(parts.values())))
            for name, part in parts.items():
                values += part.size
                if part.min(initial=0) < 0:
                    _fail(level, f"{name} has a count below 0")
            for item in about:
                holders = above.get(item.coarse.level)
                _compare(item, level, parts, start, stop, holders)
            start = stop
    return values


def _pairs(plan: Plan) -> Iterator[tuple[Invariant, Invariant]]:
    """Yield each invariant with a finer one of its own level, and with one of a level below."""
    complete = [item for item in plan.invariants if item.query.complete]
    at = {level: {i.query.name: i for i in complete if i.level == level} for level in plan.levels}
    finer = _finer([item.query for item in complete])
    for coarse in complete:
        first = plan.levels.index(coarse.level)
        names = finer[coarse.query.name]
        own = at[coarse.level].keys() & (names - {coarse.query.name})
        below = next(
            (level for level in plan.levels[first + 1 :] if at[level].keys() & names), None
        )
        if own:
            yield coarse, _first(at[coarse.level], own)
        if below is not None:
            yield coarse, _first(at[below], names)


def _finer(queries: list[Query]) -> dict[str, set[str]]:
    """Return, for each query by name, those it can be added up from; levels share queries."""
    different = {query.name: query for query in queries}.values()
    return {
        coarse.name: {fine.name for fine in different if coarsens(coarse, fine)}
        for coarse in different
    }


def _first(invariants: dict[str, Invariant], names: Set[str]) -> Invariant:
    """Return the first invariant, in the order of the plan, that has one of some names."""
    return next(item for name, item in invariants.items() if name in names)


def _sum(coarse: Invariant, fine: Invariant, geography: Geography) -> _Sum:
    together = None
    if fine.level != coarse.level:
        units = geography.units(coarse.level)
        refuse_many_values(coarse.query, units)
        together = np.zeros((units, coarse.query.cells), np.int64)
    return _Sum(coarse, fine, cells_within(coarse.query, fine.query), together)


def _compare(
    item: _Sum, level: str, parts: _Values, start: int, stop: int, holders: IntArray | None
) -> None:
    """Add up the units of a level, or compare their sums, if the two are about that level."""
    coarse, fine = item.coarse, item.fine
    together = None
    if fine.level == level:
        part = parts[fine.query.name].astype(np.int64)
        cells = np.zeros((stop - start, coarse.query.cells), np.int64)
        np.add.at(cells.T, item.cell, part.T)
        if item.together is None or holders is None:
            together = cells
        else:
            np.add.at(item.together, holders[start:stop], cells)
    elif coarse.level == level and item.together is not None:
        together = item.together[start:stop]
    if together is not None and not np.array_equal(together, parts[coarse.query.name]):
        _fail(
            coarse.level,
            f"{coarse.query.name} is not the sum of {fine.query.name} of {fine.level}",
        )


def _groups(
    folder: Path, level: str, queries: list[Query], geography: Geography
) -> Iterator[_Values]:
    """Yield the values of some units at a time; refuse another layout, other places, or noise."""
    units = geography.units(level)
    name = f"{INVARIANTS}/{level}.parquet"
    with pq.ParquetFile(folder / name) as file:
        if not file.schema_arrow.equals(LAYOUT):
            _fail(level, "it has other columns than the measurement layout")
        if file.metadata.num_rows != units * len(queries):
            _fail(level, "it has a number of rows other than units times queries")
        refuse_swollen(folder, name, units * sum(query.cells for query in queries))
        start = 0
        for group in range(file.num_row_groups):
            table = file.read_row_group(group).combine_chunks()
            stop = start + table.num_rows // len(queries)
            parts = {}
            for number, query in enumerate(queries):
                part = table.slice(number * (stop - start), stop - start)
                if part["geocode"].combine_chunks() != geography.geocodes(level, start, stop):
                    _fail(level, "it lists other units than the crosswalk, or in another order")
                if pc.any(pc.not_equal(part["query"], query.name)).as_py():
                    _fail(level, "its queries are not the invariants of the plan, in its order")
                if pc.any(pc.not_equal(part["variance"], 0.0)).as_py():
                    _fail(level, "it has a variance, and invariants have no noise")
                parts[query.name] = values_of(part, query)
            if stop > start:
                yield parts
            start = stop
        if start != units:
            _fail(level, "its row groups do not hold whole units")


def _fail(level: str, what: str) -> NoReturn:
    raise InputError(f"{INVARIANTS}/{level}.parquet: {what}")
