"""A release folder: read it, verify it, package it."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from countveil import storage
from countveil.errors import InputError, LedgerError, VerificationError
from countveil.measure import manifest
from countveil.measure.measurement import LAYOUT, Measurements, path_of
from countveil.mechanisms.registry import from_parameters
from countveil.privacy.ledger import Ledger
from countveil.schema.plan import Plan

_DOS_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same bytes whenever it is packaged


@dataclass(frozen=True, slots=True)
class Verification:
    """What was checked, one sentence each; a failed check raises instead."""

    checks: tuple[str, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Release:
    """What is published: measurements, declared invariants, manifest."""

    folder: Path
    manifest: dict[str, Any]
    plan: Plan

    @classmethod
    def read(cls, folder: str | Path) -> Release:
        """Open a finished release."""
        path = Path(folder) / manifest.NAME
        try:
            document = json.loads(path.read_bytes())
        except OSError as error:
            raise VerificationError(
                f"{folder}: no finished release ({manifest.NAME}: {error.strerror}); an unfinished one "
                f"is finished by running `countveil release` again"
            ) from error
        except (ValueError, RecursionError) as error:
            raise VerificationError(f"{path}: not readable as JSON; restore the release") from error
        if not isinstance(document, dict) or document.get("format") != manifest.FORMAT:
            raise VerificationError(f"{path}: not a manifest of format {manifest.FORMAT!r}")
        try:
            plan = Plan.of(document["plan"], name=f"{path}: plan")
        except (KeyError, TypeError, AttributeError, InputError) as error:
            raise VerificationError(f"{path}: its plan does not check out: {error}") from error
        return cls(Path(folder), document, plan)

    @property
    def publishable(self) -> bool:
        """Whether its noise came from the operating system, not from a seed."""
        return self.manifest.get("publishable") is True

    @property
    def measurements(self) -> Measurements:
        """The noisy measurements, with the law of their noise."""
        mechanisms = {}
        for item in self.manifest["measurements"]:
            parameters = dict(item["mechanism"])
            mechanism = from_parameters(parameters.pop("name"), parameters)
            mechanisms[item["level"], item["query"]] = mechanism
        return Measurements(self.folder, self.plan, mechanisms)

    def verify(
        self, ledger: str | Path | Ledger | None = None, *, simulation: bool = False
    ) -> Verification:
        """Check files, hashes, costs and layout, and the ledger if one is named; raise on a fault.

        A release drawn from a seed fails, unless `simulation` says that it is one.
        """
        try:
            return Verification(tuple(self._checks(ledger, simulation)))
        except (KeyError, TypeError, AttributeError) as error:
            raise VerificationError(
                f"{self.folder}: {manifest.NAME} lacks or garbles {error}"
            ) from error
        except LedgerError:
            raise
        except (ValueError, InputError) as error:
            raise VerificationError(f"{self.folder}: {error}") from error
        except (pa.ArrowException, OSError) as error:
            raise VerificationError(f"{self.folder}: cannot be read ({error})") from error

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

    def _checks(self, ledger: str | Path | Ledger | None, simulation: bool) -> Iterator[str]:
        if not self.publishable and not simulation:
            self._fail(
                f"drawn from a seed ({self.manifest['randomness']}), so anyone can remove the noise; "
                f"release again without a seed"
            )
        yield self._check_files()
        yield self._check_costs()
        yield self._check_layout()
        if ledger is not None:
            yield self._check_ledger(ledger)

    def _check_files(self) -> str:
        listed = self.manifest["files"]
        for path in sorted(self.folder.rglob("*")):
            name = path.relative_to(self.folder).as_posix()
            if path.is_symlink():
                self._fail(f"{name} is a link; a release holds plain files only")
            if path.is_file() and name not in listed and name != manifest.NAME:
                self._fail(f"{name} is not listed in the manifest; take it out before publishing")
        for name, facts in listed.items():
            path = self.folder / name
            if not path.resolve().is_relative_to(self.folder.resolve()) or not path.is_file():
                self._fail(f"{name} is listed in the manifest and not there")
            if storage.sha256(path) != facts["sha256"]:
                self._fail(f"{name} changed since it was released; its hash differs")
        return f"{len(listed)} files have the hashes of the manifest, and no other file is there"

    def _check_costs(self) -> str:
        """Write the manifest again from its plan; what it states must be that."""
        plan, stated = self.plan, self.manifest
        if stated["plan_sha256"] != plan.digest:
            self._fail(
                "the plan in the manifest is not the one that was released; its hash differs"
            )
        if self.publishable != stated["randomness"].startswith("secure:"):
            self._fail(f"randomness is stated as {stated['randomness']!r}")
        again = manifest.describe(
            plan,
            {item["level"]: item["units"] for item in stated["levels"]},
            release=stated["release"],
            randomness=stated["randomness"],
            publishable=self.publishable,
            crosswalk_sha256=stated["crosswalk_sha256"],
        )
        for key, value in again.items():
            if key != "versions" and not _same(stated[key], value):
                self._fail(f"{key} is not stated as the plan gives it")
        return f"the noise of {len(plan.allocations)} queries costs {plan.cost}, as stated"

    def _check_layout(self) -> str:
        units = {item["level"]: item["units"] for item in self.manifest["levels"]}
        values = 0
        for level in self.plan.levels:
            if not self.plan.at(level):
                continue
            name = f"measurements/{level}.parquet"
            with pq.ParquetFile(path_of(self.folder, level)) as file:
                if not file.schema_arrow.equals(LAYOUT):
                    self._fail(f"{name} has other columns than the measurement layout")
                if file.metadata.num_rows != units[level] * len(self.plan.at(level)):
                    self._fail(f"{name} has a number of rows other than units times queries")
            seen = 0
            for batch in self.measurements.stream(level):
                geocodes = [item.geocodes for item in batch.values()]
                if any(not codes.equals(geocodes[0]) for codes in geocodes):
                    self._fail(f"{name}: its queries list different units")
                seen += len(geocodes[0])
                values += sum(item.values.size for item in batch.values())
            if seen != units[level]:
                self._fail(f"{name} has {seen} units, and the manifest {units[level]}")
        return f"{values:,} measurements lie in the noisy-measurement layout"

    def _check_ledger(self, ledger: str | Path | Ledger) -> str:
        book = ledger if isinstance(ledger, Ledger) else self.plan.ledger(ledger)
        charges = [line for line in book.charges() if line.release == self.manifest["release"]]
        if len(charges) != 1 or charges[0].cost != self.plan.cost:
            self._fail(f"{book.path} does not show its charge of {self.plan.cost} once")
        return f"{book.path} shows its charge of {self.plan.cost} once"

    def _fail(self, what: str) -> None:
        raise VerificationError(f"{self.folder}: {what}")


def _same(stated: Any, computed: Any) -> bool:
    """Compare two documents; floats may differ in the last digits from version to version."""
    if isinstance(computed, dict):
        return (
            isinstance(stated, dict)
            and list(stated) == list(computed)
            and all(_same(stated[key], value) for key, value in computed.items())
        )
    if isinstance(computed, list):
        return (
            isinstance(stated, list)
            and len(stated) == len(computed)
            and all(map(_same, stated, computed))
        )
    if isinstance(computed, float):
        return isinstance(stated, float) and math.isclose(stated, computed, rel_tol=1e-9)
    return bool(stated == computed)
