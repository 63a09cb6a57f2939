"""Add the report of a release to it: checked, written, then listed in the manifest."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from countveil import storage
from countveil.errors import FolderError
from countveil.measure import manifest
from countveil.measure.run import LOCK, internal_of
from countveil.privacy.ledger import Ledger
from countveil.release.folder import Release
from countveil.release.verification import REPORTS


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
