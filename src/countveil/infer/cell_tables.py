"""Estimates laid out for reading: a row per place and cell, with its standard error and interval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from countveil.errors import InputError
from countveil.infer.interval import normal_interval
from countveil.numerics import FloatArray
from countveil.postprocess.estimates import label_codes
from countveil.schema.workload import Query

COLUMNS = ("value", "standard_error", "lower", "upper")


def settled(value: FloatArray, standard_error: FloatArray) -> FloatArray:
    """Return values with what is known of their kind: exact counts are whole, others may be none."""
    whole = np.where(standard_error == 0, np.rint(value) + 0.0, value)  # never -0
    return np.where(np.isinf(standard_error), np.nan, whole)


def laid_out(
    place: str,
    names: Any,
    query: Query,
    value: FloatArray,
    standard_error: FloatArray,
    confidence: float,
) -> pa.Table:
    """Return a row per place and cell: the place, a column per attribute, and COLUMNS."""
    taken = (place, *COLUMNS)
    for name, _ in query.labels:
        if name in taken:
            raise InputError(
                f"query {query.name!r}: the name {name} is taken by a column of the result; use "
                f"`batches` for the plain numbers, or rename the attribute"
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
