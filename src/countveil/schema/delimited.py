"""Delimited text: the column names of a file, and the delimiter they are written with."""

from __future__ import annotations

import csv
import re
from pathlib import Path

_LONGEST_HEADER = 1_000_000
_DELIMITERS = ",;\t|"


def read_header(path: Path) -> tuple[list[str], str]:
    """Return the names on the first line and the delimiter; raise ValueError with what is wrong."""
    with path.open("rb") as file:
        line = file.readline(_LONGEST_HEADER)
    try:
        header = re.split(r"[\r\n]", line.decode("utf-8-sig"), maxsplit=1)[0]
    except UnicodeDecodeError:
        raise ValueError("line 1 is not UTF-8 text; save the file as UTF-8") from None
    delimiter = max(_DELIMITERS, key=header.count)
    try:
        names = next(csv.reader([header], delimiter=delimiter), [])
    except csv.Error:
        raise ValueError("line 1 cannot be read as column names") from None
    # Databases take upper and lower case for the same.
    if len({name.lower() for name in names}) != len(names) or "" in names or not names:
        raise ValueError("line 1 names a column twice or not at all; it holds the column names")
    return names, delimiter
