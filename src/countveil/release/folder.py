"""A release folder: read it, verify it, package it."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from countveil import storage
from countveil.congenial.guarantee import PartialPrivacy
from countveil.congenial.wasserstein_mechanism import Wasserstein
from countveil.errors import InputError, VerificationError
from countveil.measure import manifest, one_table
from countveil.measure.measurement import Measurements
from countveil.measure.strategy import mechanism_for
from countveil.mechanisms.registry import from_parameters
from countveil.numerics import IntArray
from countveil.postprocess.certificate import LevelCertificate
from countveil.postprocess.estimates import Estimates
from countveil.postprocess.publication import read_estimates
from countveil.privacy.ledger import Ledger
from countveil.release.verification import Verification, refuse_odd_files, verify
from countveil.schema.geography import Geography, read_crosswalk
from countveil.schema.one_table import OneTable
from countveil.schema.plan import GEOGRAPHY, Plan

_DOS_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same bytes whenever it is packaged


@dataclass(frozen=True, eq=False, slots=True)
class Release:
    """What is published: measurements, declared invariants, estimates, tables, manifest."""

    folder: Path
    manifest: dict[str, Any]
    plan: Plan

    @classmethod
    def read(cls, folder: str | Path) -> Release:
        """Open a finished release."""
        document = manifest.read(folder)
        path = Path(folder) / manifest.NAME
        try:
            plan = Plan.of(document["plan"], folder=folder, name=f"{path}: plan")
        except InputError as error:
            raise VerificationError(f"{path}: its plan does not check out: {error}") from error
        if [item["level"] for item in document["levels"]] != list(plan.levels):
            raise VerificationError(f"{folder}: levels is not stated as the plan gives it")
        needed = ("cost",) if plan.one_table is None else ("guarantee", "table")
        for name in needed:
            if document.get(name) is None:
                raise VerificationError(f"{folder}: {manifest.NAME} lacks or garbles {name!r}")
        release = cls(Path(folder), document, plan)
        refuse_odd_files(release)
        return release

    @property
    def publishable(self) -> bool:
        """Whether its noise came from the operating system, not from a seed."""
        return self.manifest.get("publishable") is True

    @property
    def measurements(self) -> Measurements:
        """The noisy measurements, with the law of their noise."""
        stated = {
            (item["level"], item["query"]): item["mechanism"]
            for item in self.manifest["measurements"]
        }
        mechanisms = {}
        for item in self.plan.allocations:
            key, law = (item.level, item.query.name), mechanism_for(item)
            if stated.get(key) != {"name": law.name, **law.parameters}:
                raise VerificationError(
                    f"{self.folder}: measurements is not stated as the plan gives it: the noise of "
                    f"{item.query.name} at level {item.level}"
                )
            mechanisms[key] = from_parameters(law.name, law.parameters)
        units = {item["level"]: item["units"] for item in self.manifest["levels"]}
        return Measurements(self.folder, self.plan, mechanisms, units)

    @property
    def geography(self) -> Geography:
        """The places, with the parent of each."""
        lowest = self.manifest["levels"][-1]["units"]
        places = read_crosswalk(self.folder / GEOGRAPHY, self.plan.levels, lowest)
        for item in self.manifest["levels"]:
            if item["units"] != places.units(item["level"]):
                raise VerificationError(
                    f"{self.folder}: the crosswalk has {places.units(item['level']):,} units of "
                    f"{item['level']}, and the manifest {item['units']:,}"
                )
        return places

    @property
    def table(self) -> pa.Table:
        """The table drawn beside public information: geocode, count, and what the plan adds."""
        wanted = self._one_table
        table = one_table.read_columns(self.folder, wanted)
        units = {item["level"]: item["units"] for item in self.manifest["levels"]}
        if table.num_rows != units[wanted.level]:
            raise VerificationError(
                f"{self.folder}: the table has {table.num_rows:,} rows for {units[wanted.level]:,} "
                f"units of {wanted.level}; restore it as it was released"
            )
        return table

    @property
    def counts(self) -> IntArray:
        """The same as numbers: (units,), or (units, 2) with the part."""
        return one_table.counts_in(self.table, self._one_table)

    @property
    def mechanism(self) -> Wasserstein:
        """The law that the table was drawn from, given the confidential counts."""
        stated = self.manifest["table"]
        totals = [group["total"] for group in stated["subtotals"]] or [stated["total"]]
        known = None if stated["total"] is None else np.array(totals, np.int64)
        return one_table.mechanism_of(self.plan, known, self.geography)

    @property
    def guarantee(self) -> PartialPrivacy:
        """What a table drawn beside public information promises."""
        return one_table.guarantee_of(self.plan, self.mechanism)

    @property
    def _one_table(self) -> OneTable:
        if self.plan.one_table is None:
            raise InputError(
                f"{self.folder}: holds measurements, no table drawn beside public information"
            )
        return self.plan.one_table

    @property
    def certificate(self) -> tuple[LevelCertificate, ...]:
        """What proves the estimates good, level by level; empty where there are none."""
        stated = self.manifest.get("estimates", {}).get("certificate", [])
        return tuple(LevelCertificate(**item) for item in stated)

    @property
    def estimates(self) -> Estimates:
        """The consistent integers, read as published."""
        if "estimates" not in self.manifest:
            raise InputError(
                f"{self.folder}: holds measurements only; make estimates with `countveil postprocess`"
            )
        return read_estimates(self.folder, self.plan, self.geography, self.certificate)

    def verify(
        self, ledger: str | Path | Ledger | None = None, *, simulation: bool = False
    ) -> Verification:
        """Check files, costs, layout, sums and tables, and the ledger if named; raise on a fault.

        A release drawn from a seed fails, unless `simulation` says that it is one.
        """
        return verify(self, ledger, simulation=simulation)

    def package(self, to: str | Path) -> Path:
        """Zip what may be published, file by file from the manifest; verify it first."""
        self.verify()
        target = Path(to)
        if target.suffix != ".zip":
            raise InputError(f"{target}: a package is a zip file; give it a name that ends in .zip")
        names = sorted([manifest.NAME, *self.manifest["files"]])
        with (
            storage.replacing(target) as temporary,
            zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive,
        ):
            for name in names:
                entry = zipfile.ZipInfo(f"{self.folder.absolute().name}/{name}", _DOS_EPOCH)
                entry.external_attr = 0o644 << 16
                with (
                    archive.open(entry, "w", force_zip64=True) as sink,
                    (self.folder / name).open("rb") as file,
                ):
                    while chunk := file.read(1 << 20):
                        sink.write(chunk)
        return target
