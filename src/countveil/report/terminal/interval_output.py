"""Estimates with their intervals, as terminal tables and as files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from countveil.base import storage
from countveil.base.delimited import without_formulas
from countveil.errors import InputError
from countveil.estimate.area_files import AREA, GEOCODE
from countveil.estimate.result_tables import NUMBERS, UNITS
from countveil.measure import manifest
from countveil.report.terminal.terminal_tables import plain_table

# Terminal tables.

SHOWN = 20


@dataclass(frozen=True, eq=False, slots=True)
class Head:
    """The first rows of a query's estimates, and how many rows there are in all."""

    query: str
    first: pa.Table
    rows: int


def intervals_view(
    heads: Sequence[Head], level: str, confidence: float, notes: Sequence[str]
) -> RenderableType:
    """Return a table of the first rows of each query, and notes."""
    parts: list[RenderableType] = []
    for head in heads:
        parts += [Text(head.query, style="bold"), _table(head.first, level, confidence)]
        left = head.rows - min(SHOWN, head.first.num_rows)
        if left:
            parts.append(
                Text(f"… and {left:,} more; --to FILE.csv or FILE.parquet writes all", "dim")
            )
        parts.append(Text(""))
    return Group(*parts, *(Text(note) for note in notes))


def _table(estimates: pa.Table, level: str, confidence: float) -> Table:
    heads = {
        GEOCODE: level,
        AREA: "area",
        "standard_error": "standard error",
        "lower": f"{100 * confidence:g}% from",
        "upper": "to",
    }
    table = plain_table()
    for name in estimates.column_names:
        number = name in (UNITS, *NUMBERS)
        table.add_column(heads.get(name, name), justify="right" if number else "left")
    for row in estimates.slice(0, SHOWN).to_pylist():
        table.add_row(*(_shown(name, value) for name, value in row.items()))
    return table


def _shown(name: str, value: Any) -> Text:
    """Return a value as text, so that a name is never read as markup."""
    if name == "standard_error" and value == 0:
        return Text("exact")
    if isinstance(value, float):
        if not math.isfinite(value):
            return Text("not determined" if math.isnan(value) else "no limit")
        return Text(f"{value:,.1f}" if abs(value) < 1e6 else f"{value:,.0f}")
    return Text(f"{value:,}" if isinstance(value, int) else str(value))


# Files: Parquet, or CSV whose text no spreadsheet reads as a formula.

SUFFIXES = (".csv", ".parquet")


def write_tables(path: Path, tables: Iterable[pa.Table], about: Mapping[str, Any]) -> int:
    """Write tables of one layout one below the other, all or nothing; return the number of rows.

    Parquet keeps `about` as metadata under the key countveil. In CSV, text that starts like a formula
    is preceded by an apostrophe.
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
    """Refuse a file of another kind, a missing folder, and any file inside a release."""
    if path.suffix not in SUFFIXES:
        raise InputError(
            f"{path}: cannot write intervals to this kind of file; name a .csv or .parquet file"
        )
    refuse_within_release(path)
    if path.is_dir() or not path.absolute().parent.is_dir():
        what = f"{path} is a folder" if path.is_dir() else f"{path}: its folder does not exist"
        raise InputError(f"{what}; name a file in an existing folder")


def refuse_within_release(path: Path) -> None:
    """Refuse a path inside a release folder."""
    for folder in path.resolve().parents:
        manifest_path = folder / manifest.NAME
        # Other programs write a file of that name, too.
        if manifest_path.is_file() and manifest.FORMAT.encode() in manifest_path.read_bytes():
            raise InputError(
                f"{path} is inside the release {folder.name}, which may only hold the files that "
                f"its manifest lists; name another folder"
            )
