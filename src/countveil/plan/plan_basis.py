"""What every plan states: who is counted, where, by which attributes, and what is public."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from countveil.errors import PlanError
from countveil.plan.geography import Geography, read_crosswalk
from countveil.plan.plan_file import RecordsSection
from countveil.plan.public_facts import Invariant
from countveil.plan.workload import Neighbors, Schema

GEOGRAPHY = "geography.parquet"

_PUBLIC_RECORD_KEYS = (
    "one_row_per_person",
    "max_rows",
    "missing",
    "real_ids",
    "public_tables",
    "each_person_alone",
)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PlanBasis:
    """The part that a plan of counts and a plan of one table share."""

    name: str
    folder: Path
    document: Mapping[str, Any]
    title: str
    unit: str
    neighbors: Neighbors
    schema: Schema
    levels: tuple[str, ...]
    invariants: tuple[Invariant, ...]
    rows_per_person: int
    records: RecordsSection | None
    crosswalk: Path | None
    ledger_path: Path

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without caches: a worker that is sent a plan needs no crosswalk."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @property
    def chosen_from_records(self) -> bool:
        """Whether the budget was chosen by looking at records, which no guarantee covers."""
        return bool(self.document.get("budget", {}).get("chosen_from"))

    @property
    def attests_each_person_alone(self) -> bool:
        """Whether the curator attests that each person's rows depend on that person alone."""
        return bool(self.document.get("records", {}).get("each_person_alone"))

    @property
    def dataset(self) -> str:
        """The name of the data set in the ledger."""
        return str(self.document["release"].get("dataset") or self.title)

    @property
    def public_document(self) -> dict[str, Any]:
        """The plan as it may be published, without the location of the records."""
        document = dict(self.document)
        if "records" in document:
            records = document["records"]
            document["records"] = {
                key: records[key] for key in _PUBLIC_RECORD_KEYS if key in records
            } | {"redacted": True}
        if "path" in document["geography"]:
            document["geography"] = {**document["geography"], "path": GEOGRAPHY}
        document |= self._public_sections()
        document.pop("ledger", None)
        return document

    def _public_sections(self) -> dict[str, Any]:
        """Return sections that change when published: files have new names."""
        return {}

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the published plan."""
        return _sha256(self.public_document)

    @cached_property
    def measuring_digest(self) -> str:
        """The SHA-256 of the parts that determine the measurements, without post-processing."""
        later = ("postprocess", "constraints", "structural_zeros")
        return _sha256({k: v for k, v in self.public_document.items() if k not in later})

    @cached_property
    def counting_digest(self) -> str:
        """The SHA-256 of the parts that determine counts: levels, categories, rows per person."""
        records = self.document.get("records", {})
        policy = [self.rows_per_person, records.get("missing", "refuse")]
        return _sha256([self.levels, self.document["attributes"], policy])

    def geography(self) -> Geography:
        """Return the places of the crosswalk, which is read once per plan."""
        return self._geography

    def places(self) -> Geography | None:
        """Return the places of the crosswalk; None if the plan has none, or its file is not there."""
        if self.crosswalk is None or not self.crosswalk.is_file():
            return None
        return self._geography

    def keep_places(self, places: Geography) -> None:
        """Use places that were read from the crosswalk already, so that it is not read again."""
        self.__dict__.setdefault("_geography", places)

    def share_places(self, other: PlanBasis) -> None:
        """Use the places that another plan has read, if both have the same crosswalk and levels."""
        if self.crosswalk == other.crosswalk and self.levels == other.levels:
            places = vars(other).get("_geography")
            if places is not None:
                self.keep_places(places)

    @cached_property
    def _geography(self) -> Geography:
        if self.crosswalk is None:
            raise PlanError(
                f"{self.name}: geography.path is missing. Add it to [geography], for example path "
                f'= "blocks.csv".'
            )
        return read_crosswalk(self.crosswalk, self.levels)


def _sha256(document: Any) -> str:
    # Keys are not sorted: the order of attributes, groups and queries determines the order of cells.
    return hashlib.sha256(json.dumps(document, ensure_ascii=True).encode()).hexdigest()
