"""Add estimates to a release: their files, then the manifest that lists them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from countveil import storage
from countveil.measure import manifest
from countveil.postprocess.descent import refuse_other_measurements
from countveil.postprocess.error_columns import Errors
from countveil.postprocess.estimates import Estimates
from countveil.postprocess.publication import FOLDER as ESTIMATES
from countveil.postprocess.publication import clear, publish
from countveil.postprocess.table_files import FOLDER as TABLES
from countveil.release.attachment import remove_reports
from countveil.release.folder import Release
from countveil.release.verification import NOT_ASKED_FOR, REPORTS
from countveil.schema.plan import CONSTRAINTS, Plan

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
        names = publish(estimates, folder, errors if isinstance(errors, Errors) else None)
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
