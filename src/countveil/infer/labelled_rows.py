"""Results of several columns laid out for reading: a row per place and cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from countveil.errors import InputError
from countveil.postprocess.estimates import label_codes
from countveil.schema.attributes import listed
from countveil.schema.workload import Query


def labelled_rows(
    places: Mapping[str, Sequence[str]], query: Query | None, columns: Mapping[str, Any]
) -> pa.Table:
    """Return a row per place and cell: what names the place, a column per attribute, the numbers.

    `places` has one or more names for each place, `columns` an array for each number; without a query
    every place has one row.
    """
    labels = [] if query is None else label_codes(query)
    cells = 1 if query is None else query.cells
    for name, _, _ in labels:
        if name in (*places, *columns):
            raise InputError(
                f"the name {name} of an attribute is taken by a column of the result; read the numbers "
                f"from its fields, or rename the attribute"
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
    """Return the number of a cell named by its categories, one for each attribute of the query."""
    wanted = (cell,) if isinstance(cell, str) else tuple(cell)
    every = query.cell_labels()
    if wanted not in every:
        shown = listed(" × ".join(labels) for labels in every)
        form = "a category" if len(query.labels) == 1 else "a tuple, a category of each attribute"
        raise InputError(
            f"query {query.name!r}: no cell {cell!r}; name it as {form}; choose from {shown}"
        )
    return every.index(wanted)


def cell_name(query: Query, number: int) -> str:
    """Return how a cell is called in a table."""
    return " × ".join(query.labels_of(number))
