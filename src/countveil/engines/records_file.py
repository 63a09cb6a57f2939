"""Where a plan says its records are, before any engine opens them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from countveil.errors import RecordsError
from countveil.schema.plan import Plan

Kind = Literal["Parquet", "CSV", "query"]


@dataclass(frozen=True, slots=True)
class Place:
    """A file, or a query with the database that it asks; `label` begins every message."""

    label: str
    kind: Kind
    path: Path | None


def locate(plan: Plan) -> Place:
    """Return where the records of a plan are; refuse a file that is not there or empty."""
    records = plan.records
    assert records is not None
    named = records.path if records.path is not None else records.database
    if named is None:
        return Place(f"{plan.name}: records.query", "query", None)
    file = plan.folder / named
    if not file.is_file():
        what = "is a folder" if file.is_dir() else "no such file"
        raise RecordsError(f"{file}: {what}; records.path and records.database name a file")
    try:
        with file.open("rb") as opened:
            empty = not opened.read(1)
    except OSError as error:
        raise RecordsError(f"{file}: {error.strerror}; make it readable for this user") from error
    if empty:
        raise RecordsError(f"{file}: the file is empty; it should hold one row per {plan.unit}")
    if records.path is None:
        return Place(f"{file}: records.query", "query", file)
    return Place(str(file), "Parquet" if is_parquet(file) else "CSV", file)


def is_parquet(path: Path) -> bool:
    """Whether a path is named as Parquet files are."""
    return path.suffix.lower() in (".parquet", ".pq")
