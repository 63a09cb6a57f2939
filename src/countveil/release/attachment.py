"""Add a file made from a release to it: written, then listed in the manifest."""

from __future__ import annotations

import json

from countveil import storage
from countveil.measure import manifest
from countveil.release.folder import Release

REPORT = "report.html"


def attach(release: Release, name: str, data: bytes) -> Release:
    """Write a file of a release, in place of one of that name, and list it with its hash."""
    # Unlisted first: a run that stops in between leaves a release that verifies once it is run again.
    storage.write_bytes(release.folder / name, data)
    document = json.loads((release.folder / manifest.NAME).read_bytes())
    listed = {key: facts for key, facts in document["files"].items() if key != name}
    document["files"] = {**listed, **manifest.list_files(release.folder, [name])}
    storage.write_json(release.folder / manifest.NAME, document)
    return Release.read(release.folder)
