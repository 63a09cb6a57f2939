"""Columns of published files: units by code, cells by category, and the error of each count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from countveil.base.intervals import count_interval
from countveil.base.numerics import FloatArray, IntArray
from countveil.plan.geography import Geography
from countveil.plan.workload import Schema

GROUP = 1 << 20  # rows of a row group
FORMAT: dict[str, Any] = {"compression": "zstd", "dictionary_pagesize_limit": 1 << 24}


def dictionary_column(name: str) -> pa.Field:
    """Return a text column that is stored as a dictionary."""
    return pa.field(name, pa.dictionary(pa.int32(), pa.string()), nullable=False)


def unit_codes(geography: Geography, level: str, units: IntArray) -> pa.DictionaryArray:
    """Return the codes of sorted units of a level, which may be repeated."""
    new = np.diff(units, prepend=-1) > 0
    codes = geography.geocodes(level).take(pa.array(units[new]))
    return pa.DictionaryArray.from_arrays((np.cumsum(new) - 1).astype(np.int32), codes)


def categories(schema: Schema, cells: IntArray) -> list[pa.DictionaryArray]:
    """Return the categories of each cell, one column per attribute."""
    codes = np.unravel_index(cells, schema.shape) if schema.shape else ()
    return [
        pa.DictionaryArray.from_arrays(code.astype(np.int32), pa.array(attribute.categories))
        for attribute, code in zip(schema.attributes, codes, strict=True)
    ]


# Errors of published estimates: a standard error and an interval for each count.

DETERMINED = pa.field("determined", pa.bool_(), nullable=False)  # by the measurements
COLUMNS = (
    pa.field("standard_error", pa.float64()),
    pa.field("lower", pa.int32()),
    pa.field("upper", pa.int32()),
)
_MOST = 2**31 - 1
_CLEAR = (
    1.8  # standard errors above 0: with 2, the listed cells of a state's blocks were covered 94 %
)

Unbiased = tuple[int, int, FloatArray, FloatArray]  # start, stop, values, standard errors


@dataclass(frozen=True, eq=False, slots=True)
class Errors:
    """Unbiased estimates of all cells of a level, some units at a time, or None for a level.

    Intervals are for the count itself: whole numbers of at least 0, with this confidence. Cells whose
    estimate is 0 are not published, so a published cell may be above 0 only because of noise. Unless
    its estimate is clearly above 0, its interval therefore includes 0.
    """

    confidence: float
    batches: Callable[[str], Iterator[Unbiased] | None]

    def columns(self, estimate: IntArray, value: FloatArray, error: FloatArray) -> list[pa.Array]:
        """Return standard errors and both ends of intervals; null if a count is not determined."""
        known = np.isfinite(error)
        ends = count_interval(
            np.where(known, value, 0.0), np.where(known, error, 0.0), self.confidence
        )
        ends = ends._replace(lower=np.where(estimate <= _CLEAR * error, 0.0, ends.lower))
        lower, upper = (
            pa.array(np.minimum(end, _MOST).astype(np.int32), mask=~known) for end in ends
        )
        return [pa.array(np.where(known, error, 0.0), mask=~known), lower, upper]


def without_errors(rows: int) -> list[pa.Array]:
    """Return the error columns of counts that are not determined: all null."""
    return [pa.nulls(rows, column.type) for column in COLUMNS]
