"""Columns of published files: units by their codes, cells by the categories of each attribute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from countveil.numerics import IntArray
from countveil.schema.geography import Geography
from countveil.schema.workload import Schema

GROUP = 1 << 20  # rows of a row group
FORMAT: dict[str, Any] = {"compression": "zstd", "dictionary_pagesize_limit": 1 << 24}


def coded(name: str) -> pa.Field:
    """Describe a column of text that is stored as codes of a dictionary."""
    return pa.field(name, pa.dictionary(pa.int32(), pa.string()), nullable=False)


def unit_codes(geography: Geography, level: str, units: IntArray) -> pa.DictionaryArray:
    """Return the codes of units of a level, given in order and perhaps repeated."""
    new = np.diff(units, prepend=-1) > 0
    codes = geography.geocodes(level).take(pa.array(units[new]))
    return pa.DictionaryArray.from_arrays((np.cumsum(new) - 1).astype(np.int32), codes)


def categories(schema: Schema, cells: IntArray) -> list[pa.DictionaryArray]:
    """Return the category of each cell, a column per attribute."""
    codes = np.unravel_index(cells, schema.shape) if schema.shape else ()
    return [
        pa.DictionaryArray.from_arrays(code.astype(np.int32), pa.array(attribute.categories))
        for attribute, code in zip(schema.attributes, codes, strict=True)
    ]
