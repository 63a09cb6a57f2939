"""Estimates as tables: a row per unit or area and cell, with standard error and interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from countveil.base.intervals import normal_interval
from countveil.base.numerics import Array, FloatArray
from countveil.errors import InputError
from countveil.estimate.area_files import AREA, GEOCODE
from countveil.plan.attributes import choices
from countveil.plan.workload import Query
from countveil.postprocess.estimates import label_codes

UNITS, QUERY = "units", "query"
NUMBERS = ("value", "estimate", "bias", "standard_error", "lower", "upper")
COLUMNS = ("value", "standard_error", "lower", "upper")


def refuse_reserved_names(query: Query) -> None:
    """Refuse an attribute with the name of another column of the result."""
    reserved = (AREA, GEOCODE, UNITS, QUERY, *NUMBERS)
    for name, _ in query.labels:
        if name in reserved:
            raise InputError(
                f"query {query.name!r}: the result already has a column named {name}; ask for a query "
                f"without this attribute, or rename it in the plan"
            )


def labelled_rows(
    places: Mapping[str, Sequence[str]],
    query: Query | None,
    columns: Mapping[str, Array | pa.Array],
) -> pa.Table:
    """Return a row per place and cell: the place's names, a column per attribute, the numbers.

    `places` has one or more columns of names, `columns` an array per column of numbers; without a
    query, every place has one row.
    """
    labels = [] if query is None else label_codes(query)
    cells = 1 if query is None else query.cells
    for name, _, _ in labels:
        if name in (*places, *columns):
            raise InputError(
                f"the result already has a column named {name}, like an attribute of the plan; read "
                f"the numbers from its fields, or rename the attribute"
            )
    count = max(len(names) for names in places.values())
    place = np.repeat(np.arange(count, dtype=np.int32), cells)
    number = np.tile(np.arange(cells), count)
    table = {
        name: pa.DictionaryArray.from_arrays(place, pa.array(list(names)))
        for name, names in places.items()
    }
    for name, codes, categories in labels:
        table[name] = pa.DictionaryArray.from_arrays(codes[number], pa.array(categories))
    for name, values in columns.items():
        whole = values if isinstance(values, pa.Array) else pa.array(np.asarray(values).reshape(-1))
        table[name] = whole
    return pa.table(table)


def cell_number(query: Query, cell: str | Sequence[str]) -> int:
    """Return the number of a cell from its categories, one for each attribute of the query."""
    labels_of_cell = (cell,) if isinstance(cell, str) else tuple(cell)
    every = query.cell_labels()
    if labels_of_cell not in every:
        shown = choices(" × ".join(labels) for labels in every)
        form = "a category" if len(query.labels) == 1 else "a tuple, one category per attribute"
        raise InputError(
            f"query {query.name!r}: unknown cell {cell!r}; write {form}; choose from {shown}"
        )
    return every.index(labels_of_cell)


def cell_name(query: Query, number: int) -> str:
    """Return the name of a cell in a table."""
    return " × ".join(query.labels_of(number))


def final_values(value: FloatArray, standard_error: FloatArray) -> FloatArray:
    """Round the values of exact cells to integers, and set undetermined ones to NaN."""
    whole = np.where(standard_error == 0, np.rint(value) + 0.0, value)  # never -0
    return np.where(np.isinf(standard_error), np.nan, whole)


def estimate_table(
    place: str,
    names: Sequence[str] | pa.Array,
    query: Query,
    value: FloatArray,
    standard_error: FloatArray,
    confidence: float,
) -> pa.Table:
    """Return a row per place and cell: its name, a column per attribute, and COLUMNS."""
    reserved = (place, *COLUMNS)
    for name, _ in query.labels:
        if name in reserved:
            raise InputError(
                f"query {query.name!r}: the result already has a column named {name}; use `batches` "
                f"for the plain numbers, or rename the attribute"
            )
    places, cells = value.shape
    index = np.repeat(np.arange(places, dtype=np.int32), cells)
    columns: dict[str, pa.Array] = {place: pa.DictionaryArray.from_arrays(index, pa.array(names))}
    number = np.tile(np.arange(cells), places)
    for name, codes, categories in label_codes(query):
        columns[name] = pa.DictionaryArray.from_arrays(codes[number], pa.array(categories))
    lower, upper = normal_interval(value, standard_error, confidence)
    for name, numbers in zip(COLUMNS, (value, standard_error, lower, upper), strict=True):
        columns[name] = pa.array(numbers.reshape(-1))
    return pa.table(columns)
