"""Add estimates or a report to a release: files first, then the manifest that lists them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from countveil.base import storage
from countveil.errors import FolderError
from countveil.measure import manifest
from countveil.measure.run import LOCK, internal_of
from countveil.plan.plans import CONSTRAINTS, Plan
from countveil.postprocess.estimates import Estimates
from countveil.postprocess.topdown import refuse_other_measurements
from countveil.privacy.ledger import Ledger
from countveil.publish.columns import Errors
from countveil.publish.estimate_files import FOLDER as ESTIMATES
from countveil.publish.estimate_files import clear, write_estimate_files
from countveil.publish.release_folder import Release
from countveil.publish.table_files import FOLDER as TABLES
from countveil.publish.verification import NOT_ASKED_FOR, REPORTS

# Add the report of a release to it: checked, written, then listed in the manifest.


def refuse_damaged_but_reports(release: Release, ledger: str | Path | Ledger | None = None) -> None:
    """Verify a release as if its reports were listed as they are: they are about to be replaced.

    A run that stops between a report and the manifest leaves the two apart, and running it again mends
    that. A release drawn from a seed is reported on as one.
    """
    there = [name for name in REPORTS if (release.folder / name).is_file()]
    files = {**_others(release.manifest), **manifest.list_files(release.folder, there)}
    stated = {**release.manifest, "files": files}
    dataclasses.replace(release, manifest=stated).verify(ledger, simulation=True)


def sweep(folder: Path) -> None:
    """Delete what a killed run left half written, once nobody else works on the release."""
    with _held(folder):
        storage.sweep(folder)


def attach(release: Release, reports: Mapping[str, bytes]) -> Release:
    """Write reports of a release in place of those it had, and list them with their hashes.

    Refused while another process works on the release, and where it is another one by now than that
    the reports are of.
    """
    with _held(release.folder):
        document = Release.read(release.folder).manifest
        if _but_reports(document) != _but_reports(release.manifest):
            raise FolderError(
                f"{release.folder}: its {manifest.NAME} changed while the report was made; nothing was "
                f"written: run it again, for the report of what is there now"
            )
        # Files first: a run that stops in between leaves a release that running it again mends.
        for name, data in reports.items():
            storage.write_bytes(release.folder / name, data)
        document["files"] = {
            **_others(document),
            **manifest.list_files(release.folder, list(reports)),
        }
        storage.write_json(release.folder / manifest.NAME, document)
        remove_reports(release.folder, but=reports)
    return Release.read(release.folder)


def remove_reports(folder: Path, *, but: Mapping[str, bytes] | None = None) -> None:
    """Take away reports of what is replaced, all but some."""
    for name in REPORTS:
        if name not in (but or {}):
            (folder / name).unlink(missing_ok=True)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold the lock that releasing and post-processing hold."""
    internal = internal_of(folder)
    storage.make_folder(internal, 0o700)
    with storage.held(internal / LOCK):
        yield


def _others(stated: dict[str, Any]) -> dict[str, Any]:
    return {name: facts for name, facts in stated["files"].items() if name not in REPORTS}


def _but_reports(stated: dict[str, Any]) -> str:
    return json.dumps({**stated, "files": _others(stated)}, sort_keys=True)


# Add estimates to a release: their files, then the manifest that lists them.

# What the door did not write.
_LATER = ("estimates/", "tables/", f"{CONSTRAINTS}/", "microdata", *REPORTS)


def write_estimates(
    release: Release,
    plan: Plan,
    estimates: Estimates | None,
    *,
    errors: Errors | str | None = None,
) -> Release:
    """Write estimates, tables and public files into a release, in place of any it had.

    With no estimates those it had are taken out; the plan then asks for none. `errors` gives each count
    its standard error and interval, or says why there are none.
    """
    folder = release.folder
    refuse_other_measurements(folder, plan, release.plan)
    public = {name: path.read_bytes() for name, path in plan.public_files.items()}
    listed = release.manifest["files"]
    measured = {name: facts for name, facts in listed.items() if not name.startswith(_LATER)}
    before = {name: facts for name, facts in listed.items() if name.startswith(f"{CONSTRAINTS}/")}
    # A run that stops before the last manifest leaves a release without estimates, facts and all.
    _write_manifest(release, release.plan, {**measured, **before}, None)
    remove_reports(folder)  # they are of what is replaced now
    names = []
    if estimates is None:
        clear(folder)
    else:
        names = write_estimate_files(
            estimates, folder, errors if isinstance(errors, Errors) else None
        )
    for name, content in public.items():
        storage.make_folder((folder / name).parent)
        storage.write_bytes(folder / name, content)
        names.append(name)
    facts = None
    if estimates is not None:
        facts = {
            "method": plan.method,
            "certificate": [asdict(item) for item in estimates.certificate],
            "tables": [table.name for table in plan.tables],
            "microdata": plan.microdata,
            "errors": _stated(errors),
        }
    _write_manifest(release, plan, {**measured, **manifest.list_files(folder, names)}, facts)
    storage.keep_only(folder / CONSTRAINTS, [Path(name).name for name in public])
    for name in (ESTIMATES, TABLES):
        storage.remove_empty(folder / name)
    return Release.read(folder)


def _stated(errors: Errors | str | None) -> dict[str, Any]:
    """Return what the manifest says of errors: their confidence, or why there are none."""
    if isinstance(errors, Errors):
        return {"confidence": errors.confidence}
    return {"none": errors or NOT_ASKED_FOR}


def is_current(release: Release, plan: Plan) -> bool:
    """Whether the release holds what this plan asks for, from the same public files."""
    files = release.manifest["files"]
    return (
        ("estimates" in release.manifest) == (plan.method != "none")
        and release.manifest["plan_sha256"] == plan.digest
        and all(
            name in files and files[name]["sha256"] == storage.sha256(path)
            for name, path in plan.public_files.items()
        )
    )


def _write_manifest(
    release: Release, plan: Plan, files: dict[str, Any], estimates: dict[str, Any] | None
) -> None:
    """Write the manifest again for these files; hashes of what the door wrote are kept, not made."""
    old = manifest.read(release.folder)
    document = {**old, "plan": plan.public_document, "plan_sha256": plan.digest, "files": files}
    document.pop("estimates", None)
    if estimates is not None:
        document["estimates"] = estimates
        document["files"] = document.pop("files")  # stays last
    storage.write_json(release.folder / manifest.NAME, document)
