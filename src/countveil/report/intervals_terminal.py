"""Estimates with their intervals as tables for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from countveil.infer.area_files import AREA, GEOCODE
from countveil.infer.taken_names import NUMBERS, UNITS

SHOWN = 20


@dataclass(frozen=True, eq=False, slots=True)
class Head:
    """The first rows of a query of places, and how many rows it has in all."""

    query: str
    first: pa.Table
    rows: int


def intervals_view(
    heads: Sequence[Head], level: str, confidence: float, notes: Sequence[str]
) -> RenderableType:
    """Return a table for each query, the first rows of it, and notes."""
    parts: list[RenderableType] = []
    for head in heads:
        parts += [Text(head.query, style="bold"), _table(head.first, level, confidence)]
        left = head.rows - min(SHOWN, head.first.num_rows)
        if left:
            parts.append(Text(f"and {left:,} more; --to FILE.csv or FILE.parquet has all", "dim"))
        parts.append(Text(""))
    return Group(*parts, *(Text(note) for note in notes))


def _table(found: pa.Table, level: str, confidence: float) -> Table:
    heads = {
        GEOCODE: level,
        AREA: "area",
        "standard_error": "standard error",
        "lower": f"{100 * confidence:g}% from",
        "upper": "to",
    }
    table = Table(box=None, pad_edge=False)
    for name in found.column_names:
        number = name in (UNITS, *NUMBERS)
        table.add_column(heads.get(name, name), justify="right" if number else "left")
    for row in found.slice(0, SHOWN).to_pylist():
        table.add_row(*(_shown(name, value) for name, value in row.items()))
    return table


def _shown(name: str, value: Any) -> Text:
    """Return a value as text: names are never taken for markup."""
    if name == "standard_error" and value == 0:
        return Text("exact")
    if isinstance(value, float):
        if not math.isfinite(value):
            return Text("not determined" if math.isnan(value) else "no limit")
        return Text(f"{value:,.1f}" if abs(value) < 1e6 else f"{value:,.0f}")
    return Text(f"{value:,}" if isinstance(value, int) else str(value))
