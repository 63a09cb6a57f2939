"""Add the report of a release to it: written, then listed in the manifest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from countveil import storage
from countveil.measure import manifest
from countveil.release.folder import Release

REPORT, REPORT_PDF = "report.html", "report.pdf"
REPORTS = (REPORT, REPORT_PDF)


def attach(release: Release, reports: Mapping[str, bytes]) -> Release:
    """Write reports of a release in place of those it had, and list them with their hashes."""
    # Unlisted first: a run that stops in between leaves a release that verifies once it is run again.
    for name, data in reports.items():
        storage.write_bytes(release.folder / name, data)
    document = json.loads((release.folder / manifest.NAME).read_bytes())
    listed = {key: facts for key, facts in document["files"].items() if key not in REPORTS}
    document["files"] = {**listed, **manifest.list_files(release.folder, list(reports))}
    storage.write_json(release.folder / manifest.NAME, document)
    remove_reports(release.folder, but=reports)
    return Release.read(release.folder)


def remove_reports(folder: Path, *, but: Mapping[str, bytes] | None = None) -> None:
    """Take away reports of what is replaced, all but some."""
    for name in REPORTS:
        if name not in (but or {}):
            (folder / name).unlink(missing_ok=True)
