"""Data files that the reader brings: CSV as published elsewhere, checked before it is used."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from countveil.errors import InputError

_LARGEST = 200_000_000  # bytes
_WHOLE = re.compile(r"[+-]?[0-9]{1,9}(\.0*)?")


def reader_file(folder: Path | None, name: str) -> Path | None:
    """Return a file of the reader's folder; None without the folder or the file."""
    path = None if folder is None else folder / name
    if path is None or not path.exists():
        return None
    if not path.is_file():
        raise InputError(f"{path}: not a plain file; put the published file there")
    if path.stat().st_size > _LARGEST:
        raise InputError(
            f"{path}: has {path.stat().st_size:,} bytes, and {_LARGEST:,} is the limit; check that it "
            f"is the published file"
        )
    return path


def read_rows(path: Path) -> list[list[str]]:
    """Return the rows of a CSV file, cells without blanks around them; skip blank lines."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return [[cell.strip() for cell in row] for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{path}: cannot be read as CSV ({error}); check that it is the published file"
        ) from error


def read_records(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """Return the rows of a CSV file with a header that names these columns, and others or none."""
    header, *rows = read_rows(path) or [[]]
    missing = [name for name in columns if header.count(name) != 1]
    if missing:
        raise InputError(
            f"{path}: column {missing[0]!r} is missing or repeated; the header must name "
            f"{', '.join(columns)} once each"
        )
    if not rows:
        raise InputError(f"{path}: has no rows; check that it is the published file")
    refuse_other_widths(path, rows, len(header), first=2)
    return [dict(zip(header, row, strict=True)) for row in rows]


def refuse_other_widths(
    path: Path, rows: Sequence[Sequence[str]], fields: int, *, first: int = 1
) -> None:
    """Refuse rows with more or fewer fields; the first row has the number `first`."""
    for number, row in enumerate(rows, start=first):
        if len(row) != fields:
            raise InputError(f"{path}: row {number} has {len(row)} fields instead of {fields}")


def whole_number(path: Path, column: str, text: str, *, least: int | None = None) -> int:
    """Return a cell as a whole number; refuse other text, and numbers below `least`."""
    if not _WHOLE.fullmatch(text) or (least is not None and float(text) < least):
        bound = "" if least is None else f" of {least} or more"
        raise InputError(
            f"{path}: {column} {text[:40]!r} is not allowed; it must be a whole number{bound}"
        )
    return int(float(text))
