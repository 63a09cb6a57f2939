"""Tables as files to hand on: Parquet, or CSV whose text no spreadsheet takes for a formula."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from countveil import storage
from countveil.errors import InputError
from countveil.measure import manifest
from countveil.schema.delimited import without_formulas

SUFFIXES = (".csv", ".parquet")


def write_tables(path: Path, tables: Iterable[pa.Table], about: Mapping[str, Any]) -> int:
    """Write tables of one layout below each other, whole or not at all; return how many rows.

    Parquet keeps `about` as metadata under the key countveil. In CSV, a text that begins as a formula
    does has an apostrophe before it.
    """
    refuse_target(path)
    rest = iter(tables)
    first = next(rest)
    rows = 0
    with storage.replacing(path) as temporary:
        if path.suffix == ".csv":
            writer: Any = pa.csv.CSVWriter(temporary, without_formulas(first).schema)
        else:
            layout = first.schema.with_metadata({"countveil": json.dumps(dict(about))})
            writer = pa.parquet.ParquetWriter(temporary, layout, compression="zstd")
        with writer:
            for table in chain([first], rest):
                writer.write_table(without_formulas(table) if path.suffix == ".csv" else table)
                rows += table.num_rows
    return rows


def refuse_target(path: Path) -> None:
    """Refuse a file of another kind, and one within a release: that holds what it lists alone."""
    if path.suffix not in SUFFIXES:
        raise InputError(
            f"{path}: intervals are written to a .csv or .parquet file; name one of these"
        )
    refuse_within_release(path)
    if path.is_dir() or not path.absolute().parent.is_dir():
        what = "is a folder" if path.is_dir() else "its folder does not exist"
        raise InputError(f"{path}: {what}; name a file in a folder that is there")


def refuse_within_release(path: Path) -> None:
    """Refuse a path within a release folder."""
    for place in path.resolve().parents:
        listing = place / manifest.NAME
        # Other programs have a file of that name, too.
        if listing.is_file() and manifest.FORMAT.encode() in listing.read_bytes():
            raise InputError(
                f"{path}: is within the release {place.name}, whose files are listed and hashed; name "
                f"another folder"
            )
