"""A part of a report: sentences, lists of numbers and pictures about one question."""

from __future__ import annotations

from dataclasses import dataclass

from countveil.report.charts import Picture

Cell = str | float | int | bool | None


@dataclass(frozen=True, slots=True)
class Listing:
    """A table of a page: what it lists, the names of its columns, and its rows."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, eq=False, slots=True)
class Section:
    """One lens: what it says in plain sentences, then the numbers and pictures behind them.

    Every number of a sentence is one of the section's listings or pictures.
    """

    name: str
    title: str
    sentences: tuple[str, ...]
    listings: tuple[Listing, ...] = ()
    pictures: tuple[Picture, ...] = ()
