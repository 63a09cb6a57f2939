"""Delimited text: column names, delimiter and rows of a file, and texts that no spreadsheet runs."""

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
# What a spreadsheet may begin a formula with, and what it may skip before one (OWASP, CSV injection).
_SPACE = "[ \u00a0]*"  # which some skip as well
_AT_BEGIN = rf"^({_SPACE}[=+\-@\t\r\n＝＋－＠])"
# One whose delimiter is none of ours cuts a text there, quoted or not, and the rest begins a cell.
_WITHIN = rf"([;|\t]{_SPACE})([=+\-@＝＋－＠])"
FORMULA = f"{_AT_BEGIN}|{_WITHIN}"


def read_header(path: Path) -> tuple[list[str], str]:
    """Return the names on the first line and the delimiter; raise ValueError with what is wrong."""
    with path.open("rb") as file:
        line = file.readline(_LONGEST_HEADER)
    try:
        header = re.split(r"[\r\n]", line.decode("utf-8-sig"), maxsplit=1)[0]
    except UnicodeDecodeError:
        raise ValueError("line 1 is not UTF-8 text; save the file as UTF-8") from None
    if not header.strip():
        raise ValueError("line 1 is empty; it holds the column names")
    delimiter = max(_DELIMITERS, key=header.count)
    try:
        names = next(csv.reader([header], delimiter=delimiter), [])
    except csv.Error:
        raise ValueError("line 1 cannot be read as column names") from None
    # Databases take upper and lower case for the same.
    if len({name.lower() for name in names}) != len(names) or "" in names or not names:
        raise ValueError("line 1 names a column twice or not at all; it holds the column names")
    return names, delimiter


def named_rows(numbers: NDArray[np.int64]) -> str:
    """Name rows as a reader counts them, the first below the header being row 1."""
    shown = ", ".join(str(int(n) + 1) for n in numbers[:5])
    more = f" and {len(numbers) - 5:,} more" if len(numbers) > 5 else ""
    return f"row{'s' if len(numbers) > 1 else ''} {shown}{more}"


def inert(text: str) -> str:
    """Return a text that no spreadsheet runs: an apostrophe before a formula makes it text."""
    return re.sub(_AT_BEGIN, r"'\1", re.sub(_WITHIN, r"\1'\2", text))


def without_formulas(table: pa.Table) -> pa.Table:
    """Return a table whose texts have an apostrophe wherever a spreadsheet would begin a formula."""
    columns = [
        _inert_column(column) if _is_text(column.type) else column for column in table.columns
    ]
    return pa.table(columns, names=[inert(name) for name in table.column_names])


def _inert_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    within = pc.replace_substring_regex(column.cast(pa.string()), _WITHIN, r"\1'\2")
    return pc.replace_substring_regex(within, _AT_BEGIN, r"'\1")


def _is_text(kind: pa.DataType) -> bool:
    text = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(text) or pa.types.is_large_string(text))
