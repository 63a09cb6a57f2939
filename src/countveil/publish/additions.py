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

# Reports: check the release, write the report, then list it in the manifest.


def verified_but_reports(release: Release, ledger: str | Path | Ledger | None = None) -> Release:
    """Verify a release, except for its reports, which are about to be replaced; return it.

    A run that stops between writing a report and the manifest leaves a mismatch, which running it again
    fixes. Releases drawn from a seed are accepted.
    """
    reports = [name for name in REPORTS if (release.folder / name).is_file()]
    files = {**_others(release.manifest), **manifest.list_files(release.folder, reports)}
    document = {**release.manifest, "files": files}
    release = dataclasses.replace(release, manifest=document)
    release.verify(ledger, simulation=True)
    return release


def sweep(folder: Path) -> None:
    """Delete half-written files of killed runs, if no other process works on the release."""
    with _held(folder):
        storage.sweep(folder)


def attach(release: Release, reports: Mapping[str, bytes]) -> Release:
    """Replace the reports of a release, and list them with their hashes in the manifest.

    Parameters
    ----------
    release
        The release that the reports were made from.
    reports
        The content of each file, by name: `report.html`, and `report.pdf` if there is one.

    Returns
    -------
    Release
        The release with its reports.

    Raises
    ------
    FolderError
        If another process works on the release, or it changed after the reports were made.

    """
    with _held(release.folder):
        document = manifest.read(release.folder)
        if _but_reports(document) != _but_reports(release.manifest):
            raise FolderError(
                f"{release.folder}: {manifest.NAME} changed while the report was being made, so "
                f"nothing was written; run the same command again"
            )
        # Files first: if a run stops in between, running it again fixes the release.
        for name, data in reports.items():
            storage.write_bytes(release.folder / name, data)
        document["files"] = {
            **_others(document),
            **manifest.list_files(release.folder, list(reports)),
        }
        storage.write_json(release.folder / manifest.NAME, document)
        remove_reports(release.folder, but=reports)
    return dataclasses.replace(release, manifest=document)


def remove_reports(folder: Path, *, but: Mapping[str, bytes] | None = None) -> None:
    """Delete the reports of a release, except those in `but`."""
    for name in REPORTS:
        if name not in (but or {}):
            (folder / name).unlink(missing_ok=True)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold the lock that releasing and post-processing use."""
    internal = internal_of(folder)
    storage.make_folder(internal, 0o700)
    with storage.held(internal / LOCK):
        yield


def _others(document: dict[str, Any]) -> dict[str, Any]:
    return {name: facts for name, facts in document["files"].items() if name not in REPORTS}


def _but_reports(document: dict[str, Any]) -> str:
    return json.dumps({**document, "files": _others(document)}, sort_keys=True)


# Estimates: write their files, then the manifest that lists them.

# Files that the door does not write.
_LATER = ("estimates/", "tables/", f"{CONSTRAINTS}/", "microdata", *REPORTS)


def write_estimates(
    release: Release,
    plan: Plan,
    estimates: Estimates | None,
    *,
    errors: Errors | str | None = None,
) -> Release:
    """Replace the estimates, tables and files of public facts of a release.

    Parameters
    ----------
    release
        A release of counts.
    plan
        The plan that the estimates were made by.
    estimates
        The estimates; None deletes those of the release, for a plan with method "none".
    errors
        Standard errors and intervals, or the reason that there are none.

    Returns
    -------
    Release
        The release, read again.

    """
    folder = release.folder
    refuse_other_measurements(folder, plan, release.plan)
    public = {name: path.read_bytes() for name, path in plan.public_files.items()}
    listed = release.manifest["files"]
    measured = {name: facts for name, facts in listed.items() if not name.startswith(_LATER)}
    before = {name: facts for name, facts in listed.items() if name.startswith(f"{CONSTRAINTS}/")}
    # If a run stops before the last manifest, it leaves a valid release without estimates.
    _write_manifest(release, release.plan, {**measured, **before}, None)
    remove_reports(folder)  # they describe what is being replaced
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
            "information": estimates.information,
            "errors": _stated(errors),
        }
    _write_manifest(release, plan, {**measured, **manifest.list_files(folder, names)}, facts)
    storage.keep_only(folder / CONSTRAINTS, [Path(name).name for name in public])
    for name in (ESTIMATES, TABLES):
        storage.remove_empty(folder / name)
    return Release.read(folder)


def _stated(errors: Errors | str | None) -> dict[str, Any]:
    """Return the manifest entry for errors: their confidence, or why there are none."""
    if isinstance(errors, Errors):
        return {"confidence": errors.confidence}
    return {"none": errors or NOT_ASKED_FOR}


def is_current(release: Release, plan: Plan) -> bool:
    """Return whether a release already has the estimates of a plan.

    Parameters
    ----------
    release
        A release of counts.
    plan
        A plan with the same measurements.

    Returns
    -------
    bool
        True if plan and files of public facts are those that the estimates were made from.

    """
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
    """Rewrite the manifest for these files; hashes of the door's files are copied, not recomputed."""
    document = {
        **release.manifest,
        "plan": plan.public_document,
        "plan_sha256": plan.digest,
        "files": files,
    }
    document.pop("estimates", None)
    if estimates is not None:
        document["estimates"] = estimates
        document["files"] = document.pop("files")  # stays last
    storage.write_json(release.folder / manifest.NAME, document)
