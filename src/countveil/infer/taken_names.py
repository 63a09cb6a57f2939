"""Columns of tables of intervals, and attributes that would be confused with them."""

from __future__ import annotations

from countveil.errors import InputError
from countveil.infer.area_files import AREA, GEOCODE
from countveil.schema.workload import Query

UNITS, QUERY = "units", "query"
NUMBERS = ("value", "estimate", "bias", "standard_error", "lower", "upper")


def refuse_taken_names(query: Query) -> None:
    """Refuse an attribute whose name is that of a column of the result."""
    taken = (AREA, GEOCODE, UNITS, QUERY, *NUMBERS)
    for name, _ in query.labels:
        if name in taken:
            raise InputError(
                f"query {query.name!r}: the name {name} is taken by a column of the result; ask for a "
                f"query without it, or rename the attribute in the plan"
            )
