"""Intervals of all units of a level or of areas, laid out alike whatever method made them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from countveil.errors import InputError
from countveil.infer.area_files import AREA, GEOCODE, NamedAreas
from countveil.infer.cell_tables import laid_out
from countveil.infer.interval import checked
from countveil.infer.spread import Replicates
from countveil.infer.taken_names import NUMBERS, QUERY, UNITS, refuse_taken_names
from countveil.infer.two_pass import LeastSquares
from countveil.schema.geography import Geography
from countveil.schema.plan import Plan
from countveil.schema.workload import Query

_AREAS = 256  # whose covariances are held at a time
_MOST_ROWS = 2**25

Places = str | NamedAreas  # all units of a level, or areas made of some


def intervals_of(
    found: LeastSquares | Replicates, places: Places, query: str, *, confidence: float
) -> Iterator[pa.Table]:
    """Yield a row per place and cell: geocode or area and units, categories, and the numbers.

    Numbers are value, standard_error, lower and upper by least squares; of replicates estimate, bias,
    standard_error, lower and upper. Some places come after others, so that all need not be held.
    """
    asked = found.plan.schema.query(query)
    refuse_taken_names(asked)
    checked(confidence)
    if isinstance(found, LeastSquares):
        if isinstance(places, NamedAreas):
            return _areas(found, places, query, confidence)
        return _units(found, places, query, confidence)
    if isinstance(places, NamedAreas):
        return _replicated_areas(found, places, asked, confidence)
    return _replicated_units(found, places, asked, confidence)


def together(table: pa.Table, query: str, attributes: Sequence[str]) -> pa.Table:
    """Return a table as one of several queries: with the query's name, and all attributes as text.

    An attribute that the query does not have is null, and so are numbers that are not determined.
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


def rows_of(places: Places, geography: Geography, query: Query) -> int:
    """Return how many rows a query of places has."""
    number = len(places) if isinstance(places, NamedAreas) else geography.units(places)
    return number * query.cells


def _units(found: LeastSquares, level: str, query: str, confidence: float) -> Iterator[pa.Table]:
    for part in found.batches(level, query):
        codes = found.geography.geocodes(level, part.start, part.stop)
        yield laid_out(GEOCODE, codes, part.query, part.value, part.standard_error, confidence)


def _areas(
    found: LeastSquares, areas: NamedAreas, query: str, confidence: float
) -> Iterator[pa.Table]:
    known = False
    for some in _cut(areas, _AREAS):
        asked = found.areas(
            some, query, level=areas.level, confidence=confidence, undetermined=True
        )
        known |= bool(np.isfinite(asked.standard_error).any())
        yield _with_units(asked.table(), some)
    if not known:
        found.refuse_undetermined(query, areas.level)


def _replicated_units(
    made: Replicates, level: str, query: Query, confidence: float
) -> Iterator[pa.Table]:
    rows = rows_of(level, made.estimates.geography, query)
    if rows > _MOST_ROWS:
        raise InputError(
            f"query {query.name!r}: has {rows:,} rows at level {level}, and {_MOST_ROWS:,} is the "
            f"limit of replicates; ask for a query of fewer cells, or for areas"
        )
    yield made.interval(level, query.name, confidence=confidence)


def _replicated_areas(
    made: Replicates, areas: NamedAreas, query: Query, confidence: float
) -> Iterator[pa.Table]:
    found = made.areas(areas.units, query.name, level=areas.level, confidence=confidence)
    yield _with_units(found, areas.units)


def _cut(areas: NamedAreas, most: int) -> Iterator[dict[str, pa.StringArray]]:
    """Yield the areas, some at a time."""
    left = iter(areas.units.items())
    while some := dict(islice(left, most)):
        yield some


def _with_units(table: pa.Table, areas: dict[str, pa.StringArray]) -> pa.Table:
    """Return the table with how many units each area has, beside its name."""
    sizes = np.array([len(codes) for codes in areas.values()], np.int64)
    units = np.repeat(sizes, table.num_rows // len(sizes))
    return table.add_column(1, UNITS, pa.array(units))
