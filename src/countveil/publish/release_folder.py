"""A release folder, of counts or of one table: read it, verify it, package it."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from countveil.base import storage
from countveil.base.numerics import IntArray
from countveil.congenial.guarantee.partial_privacy import PartialPrivacy
from countveil.congenial.mechanism.wasserstein import Wasserstein
from countveil.errors import InputError, VerificationError
from countveil.measure import manifest, one_table
from countveil.measure.measurements import Measurements
from countveil.noise.mechanisms import from_parameters
from countveil.plan.geography import Geography, read_crosswalk
from countveil.plan.one_table_plan import OneTablePlan
from countveil.plan.plan_basis import GEOGRAPHY
from countveil.plan.plans import Plan
from countveil.postprocess.certificate import LevelCertificate
from countveil.postprocess.estimates import Estimates
from countveil.privacy.ledger import Ledger
from countveil.publish.estimate_files import read_estimates
from countveil.publish.verification import (
    Verification,
    counts_files,
    one_table_files,
    refuse_odd_files,
    verify_counts,
    verify_table,
)

_DOS_EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed date: the same release gives the same bytes


@dataclass(frozen=True, eq=False, repr=False)
class ReleaseFolder:
    """What both kinds of release share: the folder, its manifest, its plan and its places."""

    folder: Path
    manifest: dict[str, Any]
    plan: Plan | OneTablePlan

    @property
    def publishable(self) -> bool:
        """Whether its noise came from the operating system, not from a seed."""
        return self.manifest.get("publishable") is True

    @property
    def units(self) -> dict[str, int]:
        """The number of units of each level, as stated in the manifest."""
        return {item["level"]: item["units"] for item in self.manifest["levels"]}

    @cached_property
    def geography(self) -> Geography:
        """The places, with the parent of each."""
        units = self.units
        places = read_crosswalk(self.folder / GEOGRAPHY, tuple(units), list(units.values())[-1])
        for level, number in units.items():
            if number != places.units(level):
                raise VerificationError(
                    f"{self.folder}: the crosswalk has {places.units(level):,} units of {level}, "
                    f"but the manifest states {number:,}; restore the release"
                )
        self.plan.keep_places(places)
        return places


@dataclass(frozen=True, eq=False, repr=False)
class Release(ReleaseFolder):
    """A release of counts: measurements, invariants, estimates, tables and a manifest.

    Examples
    --------
    >>> from countveil import Plan, Seeded, pipeline
    >>> release = pipeline.release(Plan.load("plan.toml"), to="out", rng=Seeded(7))
    >>> release.estimates.table("state", "TOTAL").to_pydict()  # published exactly by this plan
    {'geocode': ['01', '02'], 'estimate': [1163, 837]}

    """

    plan: Plan

    def __repr__(self) -> str:
        tables = "" if "estimates" not in self.manifest else ", with estimates"
        drawn = "" if self.publishable else ", a simulation"
        return f"<Release {self.plan.title!r} in {self.folder}: {self.plan.cost}{tables}{drawn}>"

    @staticmethod
    def read(folder: str | Path) -> Release:
        """Open a finished release of counts.

        Parameters
        ----------
        folder
            The public folder, with `manifest.json` in it.

        Returns
        -------
        Release
            The release; its files are read when they are needed.

        Examples
        --------
        >>> from countveil import Plan, Release, Seeded, pipeline
        >>> _ = pipeline.release(Plan.load("plan.toml"), to="out", rng=Seeded(7))
        >>> Release.read("out").measurements.read("county", "TOTAL").values.shape
        (4, 1)

        """
        release = open_release(folder)
        if isinstance(release, TableRelease):
            raise InputError(
                f"{folder}: is a release of one table that agrees with public totals, and has no "
                f"measurements; use `countveil assess public` for its guarantee and `countveil "
                f"infer` for estimates"
            )
        return release

    @cached_property
    def measurements(self) -> Measurements:
        """The noisy measurements, with the law of their noise."""
        stated = {
            (item["level"], item["query"]): item["mechanism"]
            for item in self.manifest["measurements"]
        }
        mechanisms = {}
        for item in self.plan.allocations:
            key, law = (item.level, item.query.name), item.mechanism
            if stated.get(key) != {"name": law.name, **law.parameters}:
                raise VerificationError(
                    f"{self.folder}: the noise of {item.query.name} at level {item.level} in the "
                    f"manifest is not that of the plan; restore the release"
                )
            mechanisms[key] = from_parameters(law.name, law.parameters)
        return Measurements(self.folder, self.plan, mechanisms, self.units)

    @cached_property
    def certificate(self) -> tuple[LevelCertificate, ...]:
        """The certificates of the estimates, level by level; empty if there are no estimates."""
        stated = self.manifest.get("estimates", {}).get("certificate", [])
        return tuple(LevelCertificate(**item) for item in stated)

    @cached_property
    def estimates(self) -> Estimates:
        """The published estimates: whole numbers that add up."""
        if "estimates" not in self.manifest:
            raise InputError(
                f"{self.folder}: has measurements only; make estimates with `countveil postprocess`"
            )
        return read_estimates(self.folder, self.plan, self.geography, self.certificate)

    def verify(
        self, ledger: str | Path | Ledger | None = None, *, simulation: bool = False
    ) -> Verification:
        """Check the files, costs, layout, sums and tables of the release, and its charge.

        Parameters
        ----------
        ledger
            The ledger that was charged; without one, the charge is not checked.
        simulation
            Accept a release whose noise was drawn from a seed.

        Returns
        -------
        Verification
            One sentence per check.

        Raises
        ------
        VerificationError
            If a check fails.

        Examples
        --------
        >>> from countveil import Plan, Seeded, pipeline
        >>> release = pipeline.release(Plan.load("plan.toml"), to="out", rng=Seeded(7))
        >>> print(release.verify(simulation=True).checks[1])
        the noise of 11 queries costs rho = 1, as stated

        """
        return verify_counts(self, ledger, simulation=simulation)

    def package(self, to: str | Path) -> Path:
        """Verify the release, then zip the files that its manifest lists.

        Parameters
        ----------
        to
            The zip file to write.

        Returns
        -------
        Path
            The zip file.

        """
        self.verify()
        return write_package(self, to)


@dataclass(frozen=True, eq=False, repr=False)
class TableRelease(ReleaseFolder):
    """A release of one table that was drawn to agree with public totals."""

    plan: OneTablePlan

    def __repr__(self) -> str:
        drawn = "" if self.publishable else ", a simulation"
        return (
            f"<TableRelease {self.plan.title!r} in {self.folder}: one count per {self.plan.level}, "
            f"epsilon = {self.plan.epsilon} given public totals{drawn}>"
        )

    @staticmethod
    def read(folder: str | Path) -> TableRelease:
        """Open a finished release of one table; `folder` has `manifest.json` in it."""
        release = open_release(folder)
        if isinstance(release, Release):
            raise InputError(
                f"{folder}: is a release of counts, not of one table that agrees with public "
                f"totals; use `countveil intervals {folder}` for estimates with their errors"
            )
        return release

    @cached_property
    def table(self) -> pa.Table:
        """The table: geocode, count, and columns for the part and the previous counts, if any."""
        table = one_table.read_columns(self.folder, self.plan)
        units = self.units[self.plan.level]
        if table.num_rows != units:
            raise VerificationError(
                f"{self.folder}: the table has {table.num_rows:,} rows for {units:,} units of "
                f"{self.plan.level}; restore the release"
            )
        return table

    @property
    def counts(self) -> IntArray:
        """The counts of the table: shape (units,), or (units, 2) with a part."""
        return one_table.counts_in(self.table, self.plan)

    @cached_property
    def mechanism(self) -> Wasserstein:
        """The mechanism that the table was drawn with."""
        stated = self.manifest["table"]
        totals = [group["total"] for group in stated["subtotals"]] or [stated["total"]]
        known = None if stated["total"] is None else np.array(totals, np.int64)
        return one_table.mechanism_of(self.plan, known, self.geography)

    @property
    def guarantee(self) -> PartialPrivacy:
        """The guarantee of the release, given public information."""
        return one_table.guarantee_of(self.plan, self.mechanism)

    def verify(
        self, ledger: str | Path | Ledger | None = None, *, simulation: bool = False
    ) -> Verification:
        """Check the files, guarantee and table of the release, and its charge.

        Parameters and returns are those of `Release.verify`.
        """
        return verify_table(self, ledger, simulation=simulation)

    def package(self, to: str | Path) -> Path:
        """Verify the release, then zip the files that its manifest lists; return the zip file."""
        self.verify()
        return write_package(self, to)


AnyRelease: TypeAlias = Release | TableRelease


def open_release(folder: str | Path) -> AnyRelease:
    """Open a finished release folder of either kind.

    Parameters
    ----------
    folder
        The public folder, with `manifest.json` in it.

    Returns
    -------
    Release or TableRelease
        Depending on the method of its plan.

    Raises
    ------
    VerificationError
        If the release is unfinished, or its manifest is damaged.

    Examples
    --------
    >>> from countveil import Plan, Seeded, open_release, pipeline
    >>> _ = pipeline.release(Plan.load("plan.toml"), to="out", rng=Seeded(7))
    >>> open_release("out").manifest["randomness"]
    'seeded: 7 (a simulation, not publishable)'

    """
    document = manifest.read(folder)
    path = Path(folder) / manifest.NAME
    try:
        plan = Plan.of(document["plan"], folder=folder, name=f"{path}: plan")
    except InputError as error:
        raise VerificationError(f"{path}: its plan is not valid: {error}") from error
    if [item["level"] for item in document["levels"]] != list(plan.levels):
        raise VerificationError(
            f"{folder}: levels in the manifest differ from those of the plan; restore the release"
        )
    release: AnyRelease
    if isinstance(plan, OneTablePlan):
        _refuse_missing(folder, document, ("guarantee", "table"))
        release = TableRelease(Path(folder), document, plan)
        refuse_odd_files(release, one_table_files(plan))
    else:
        _refuse_missing(folder, document, ("cost",))
        release = Release(Path(folder), document, plan)
        refuse_odd_files(release, counts_files(release))
    return release


def _refuse_missing(folder: str | Path, document: dict[str, Any], keys: tuple[str, ...]) -> None:
    for key in keys:
        if document.get(key) is None:
            raise VerificationError(
                f"{folder}: {key!r} is missing or invalid in {manifest.NAME}; restore the release"
            )


def write_package(release: AnyRelease, to: str | Path) -> Path:
    """Zip the manifest and the files that it lists."""
    target = Path(to)
    if target.suffix != ".zip":
        raise InputError(f"{target}: a package is a zip file; name one that ends in .zip")
    names = sorted([manifest.NAME, *release.manifest["files"]])
    with (
        storage.replacing(target) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive,
    ):
        for name in names:
            entry = zipfile.ZipInfo(f"{release.folder.absolute().name}/{name}", _DOS_EPOCH)
            entry.external_attr = 0o644 << 16
            with (
                archive.open(entry, "w", force_zip64=True) as sink,
                (release.folder / name).open("rb") as file,
            ):
                while chunk := file.read(1 << 20):
                    sink.write(chunk)
    return target
