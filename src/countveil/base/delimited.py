"""Delimited text: the header of a file, row numbers in messages, and protection from formulas."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_LONGEST_HEADER = 1_000_000
_DELIMITERS = ",;\t|"
# How a formula may begin in a spreadsheet (OWASP, CSV injection); some programs skip leading blanks.
_SPACE = "[ \u00a0]*"
_AT_BEGIN = rf"^({_SPACE}[=+\-@\t\r\n＝＋－＠])"
# A spreadsheet with another delimiter splits text here, quoted or not, and starts a new cell.
_WITHIN = rf"([;|\t]{_SPACE})([=+\-@＝＋－＠])"
FORMULA = f"{_AT_BEGIN}|{_WITHIN}"


def read_header(path: Path) -> tuple[list[str], str]:
    """Return the column names and the delimiter of a file; raise ValueError if line 1 has no names."""
    with path.open("rb") as file:
        line = file.readline(_LONGEST_HEADER)
    try:
        header = re.split(r"[\r\n]", line.decode("utf-8-sig"), maxsplit=1)[0]
    except UnicodeDecodeError:
        raise ValueError("line 1 is not UTF-8 text; save the file as UTF-8") from None
    if not header.strip():
        raise ValueError("line 1 is empty; write the column names there")
    delimiter = max(_DELIMITERS, key=header.count)
    try:
        names = next(csv.reader([header], delimiter=delimiter), [])
    except csv.Error:
        raise ValueError(
            "line 1 cannot be read as column names; write them there, separated by commas"
        ) from None
    # Databases ignore case.
    if len({name.lower() for name in names}) != len(names) or "" in names or not names:
        raise ValueError("line 1 repeats or omits a column name; give every column its own name")
    return names, delimiter


def named_rows(numbers: NDArray[np.int64]) -> str:
    """Return "rows 3, 8 and 2 more"; row 1 is the first row after the header."""
    first = ", ".join(str(int(n) + 1) for n in numbers[:5])
    more = f" and {len(numbers) - 5:,} more" if len(numbers) > 5 else ""
    return f"row{'s' if len(numbers) > 1 else ''} {first}{more}"


def without_formula(text: str) -> str:
    """Return a text with an apostrophe before anything that a spreadsheet would run as a formula."""
    return re.sub(_AT_BEGIN, r"'\1", re.sub(_WITHIN, r"\1'\2", text))


def without_formulas(table: pa.Table) -> pa.Table:
    """Return a table whose texts and column names are safe to open in a spreadsheet."""
    columns = [
        _column_without_formulas(column) if _is_text(column.type) else column
        for column in table.columns
    ]
    return pa.table(columns, names=[without_formula(name) for name in table.column_names])


def _column_without_formulas(column: pa.ChunkedArray) -> pa.ChunkedArray:
    within = pc.replace_substring_regex(column.cast(pa.string()), _WITHIN, r"\1'\2")
    return pc.replace_substring_regex(within, _AT_BEGIN, r"'\1")


def _is_text(kind: pa.DataType) -> bool:
    text = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(text) or pa.types.is_large_string(text))
