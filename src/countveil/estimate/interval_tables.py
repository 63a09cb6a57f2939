"""Intervals for all units of a level or for areas, in one layout for both methods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from countveil.base.intervals import checked
from countveil.errors import InputError
from countveil.estimate.area_files import AREA, GEOCODE, NamedAreas
from countveil.estimate.replication.replicate_errors import Replicates
from countveil.estimate.result_tables import (
    NUMBERS,
    QUERY,
    UNITS,
    estimate_table,
    refuse_reserved_names,
)
from countveil.estimate.unbiased import LeastSquares
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.plan.workload import Query

_AREAS = 256  # whose covariances are in memory at a time
_MOST_ROWS = 2**25

UnitsOrAreas = str | NamedAreas  # all units of a level, or areas made of units


def intervals_of(
    estimates: LeastSquares | Replicates, places: UnitsOrAreas, query: str, *, confidence: float
) -> Iterator[pa.Table]:
    """Yield tables of intervals, some places at a time, so that they need not all fit into memory.

    Parameters
    ----------
    estimates : LeastSquares or Replicates
        Where the intervals come from.
    places : str or NamedAreas
        A level, for all its units; or areas.
    query : str
        Attributes and recodes joined by `*`, or "TOTAL".
    confidence : float
        The confidence of the intervals.

    Yields
    ------
    pyarrow.Table
        A row per place and cell: geocode, or area and units; a column per attribute; and value (least
        squares) or estimate and bias (replicates), standard_error, lower, upper.

    """
    parsed = estimates.plan.schema.query(query)
    refuse_reserved_names(parsed)
    checked(confidence)
    if isinstance(estimates, LeastSquares):
        if isinstance(places, NamedAreas):
            return _areas(estimates, places, query, confidence)
        return _units(estimates, places, query, confidence)
    if isinstance(places, NamedAreas):
        return _replicated_areas(estimates, places, parsed, confidence)
    return _replicated_units(estimates, places, parsed, confidence)


def with_query_column(table: pa.Table, query: str, attributes: Sequence[str]) -> pa.Table:
    """Return a table in the layout of several queries: with the query's name and all attributes.

    Attributes are text, null if the query does not have them. Undetermined numbers are null too.
    """
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        name: table[name].cast(pa.string()) if name != UNITS else table[name]
        for name in (AREA, UNITS, GEOCODE)
        if name in table.column_names
    }
    columns[QUERY] = pa.repeat(query, table.num_rows)
    for name in attributes:
        has = name in table.column_names
        columns[name] = (
            table[name].cast(pa.string()) if has else pa.nulls(table.num_rows, pa.string())
        )
    for name in NUMBERS:
        if name in table.column_names:
            column = table[name]
            known = pc.is_finite(column) if pa.types.is_floating(column.type) else None
            columns[name] = (
                column if known is None else pc.if_else(known, column, pa.scalar(None, column.type))
            )
    return pa.table(columns)


def attributes_of(plan: Plan, queries: Sequence[str]) -> list[str]:
    """Return the attributes and recodes of queries, each once, in the order they are named."""
    return list(
        dict.fromkeys(name for query in queries for name, _ in plan.schema.query(query).labels)
    )


def rows_of(places: UnitsOrAreas, geography: Geography, query: Query) -> int:
    """Return how many rows a query has for all units of a level, or for areas."""
    number = len(places) if isinstance(places, NamedAreas) else geography.units(places)
    return number * query.cells


def _units(
    estimates: LeastSquares, level: str, query: str, confidence: float
) -> Iterator[pa.Table]:
    for part in estimates.batches(level, query):
        codes = estimates.geography.geocodes(level, part.start, part.stop)
        yield estimate_table(
            GEOCODE, codes, part.query, part.value, part.standard_error, confidence
        )


def _areas(
    estimates: LeastSquares, areas: NamedAreas, query: str, confidence: float
) -> Iterator[pa.Table]:
    determined = False
    for some in _cut(areas, _AREAS):
        part = estimates.areas(
            some, query, level=areas.level, confidence=confidence, undetermined=True
        )
        determined |= bool(np.isfinite(part.standard_error).any())
        yield _with_units(part.table(), some)
    if not determined:
        estimates.refuse_undetermined(query, areas.level)


def _replicated_units(
    replicates: Replicates, level: str, query: Query, confidence: float
) -> Iterator[pa.Table]:
    rows = rows_of(level, replicates.estimates.geography, query)
    if rows > _MOST_ROWS:
        raise InputError(
            f"query {query.name!r}: has {rows:,} rows at level {level}, and {_MOST_ROWS:,} is the "
            f"limit of replicates; ask for a query of fewer cells, or for areas"
        )
    yield replicates.interval(level, query.name, confidence=confidence)


def _replicated_areas(
    replicates: Replicates, areas: NamedAreas, query: Query, confidence: float
) -> Iterator[pa.Table]:
    table = replicates.areas(areas.units, query.name, level=areas.level, confidence=confidence)
    yield _with_units(table, areas.units)


def _cut(areas: NamedAreas, most: int) -> Iterator[dict[str, pa.StringArray]]:
    """Yield the areas, some at a time."""
    left = iter(areas.units.items())
    while some := dict(islice(left, most)):
        yield some


def _with_units(table: pa.Table, areas: dict[str, pa.StringArray]) -> pa.Table:
    """Add a column with the number of units of each area."""
    sizes = np.array([len(codes) for codes in areas.values()], np.int64)
    units = np.repeat(sizes, table.num_rows // len(sizes))
    return table.add_column(1, UNITS, pa.array(units))
