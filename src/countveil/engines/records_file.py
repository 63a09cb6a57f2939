"""Where the records of a plan are, before any engine opens them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from countveil.errors import RecordsError
from countveil.plan.plan_basis import PlanBasis

Kind = Literal["Parquet", "CSV", "query"]


@dataclass(frozen=True, slots=True)
class RecordsLocation:
    """A file, or a query with its database; `label` begins every message."""

    label: str
    kind: Kind
    path: Path | None


def locate(plan: PlanBasis) -> RecordsLocation:
    """Return where the records of a plan are; refuse a file that is missing or empty."""
    records = plan.records
    assert records is not None
    name = records.path if records.path is not None else records.database
    if name is None:
        return RecordsLocation(f"{plan.name}: records.query", "query", None)
    file = plan.folder / name
    if not file.is_file():
        what = "is a folder" if file.is_dir() else "does not exist"
        raise RecordsError(f"{file}: {what}; records.path and records.database must name a file")
    try:
        with file.open("rb") as stream:
            empty = not stream.read(1)
    except OSError as error:
        raise RecordsError(f"{file}: {error.strerror}; make it readable for this user") from error
    if empty:
        raise RecordsError(f"{file}: the file is empty; it should hold one row per {plan.unit}")
    if records.path is None:
        return RecordsLocation(f"{file}: records.query", "query", file)
    return RecordsLocation(str(file), "Parquet" if is_parquet(file) else "CSV", file)


def is_parquet(path: Path) -> bool:
    """Whether a path has the suffix of a Parquet file."""
    return path.suffix.lower() in (".parquet", ".pq")
