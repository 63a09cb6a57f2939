"""One run into one folder: its identity, its finished parts, its log, all in the internal sibling."""

from __future__ import annotations

import dataclasses
import hmac
import json
import os
import secrets
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from countveil import storage
from countveil.errors import FolderError
from countveil.measure import manifest
from countveil.measure.parts import Parts
from countveil.measure.run_log import RunLog

_STATE = "run.json"
_PARTS = "parts"
LOCK = "lock"
_KEYS = ("release", "plan", "crosswalk", "randomness", "layout", "key", "records", "finished")


@dataclass(frozen=True, slots=True)
class Identity:
    """What must not change between the first attempt and the last."""

    plan: str
    crosswalk: str
    randomness: str
    layout: str


@dataclass(frozen=True, slots=True)
class Run:
    """A release under way in `folder`, with what saw records in `internal`."""

    folder: Path
    internal: Path
    release: str
    new: bool

    @property
    def finished(self) -> bool:
        """Whether the manifest, written last, is there."""
        return (self.folder / manifest.NAME).exists()

    @property
    def parts(self) -> Parts:
        """What was drawn so far."""
        return Parts(self.internal / _PARTS)

    def log(self, event: str, **facts: Any) -> None:
        """Append a line to the run log; facts never hold a count."""
        RunLog(self.internal).write(event, **facts)

    def close(self) -> None:
        """Mark the run finished for good, then delete the parts its release now holds."""
        state = _read_state(self.folder)
        storage.write_json(self.internal / _STATE, {**(state or {}), "finished": "yes"})
        self.parts.clear()

    def discard(self) -> None:
        """Take back a new run that was never charged."""
        shutil.rmtree(self.internal)


def internal_of(folder: Path) -> Path:
    """Return the sibling that holds whatever saw a record."""
    named = Path(os.path.abspath(folder))  # "." and ".." have no name of their own
    return named.with_name(f"{named.name}-internal")


def release_of(folder: Path) -> str | None:
    """Return the identity of the run into a folder, None where there is none."""
    state = _read_state(folder)
    return None if state is None else state["release"]


def refuse_links(folder: Path) -> None:
    """Refuse links in a release folder, and an internal one that is a link or holds one."""
    internal = internal_of(folder)
    storage.refuse_links([internal, *internal.rglob("*"), *folder.rglob("*")])


def _read_state(folder: Path) -> dict[str, str] | None:
    """Return what the internal folder says of a run, None where there is none."""
    path = internal_of(folder) / _STATE
    if not path.exists():
        return None
    try:
        state = json.loads(path.read_bytes())
        return {key: str(state[key]) for key in _KEYS}
    except (ValueError, KeyError, TypeError) as error:
        raise FolderError(f"{path}: not readable as a run; restore it from a backup") from error


@contextmanager
def opened(folder: Path, identity: Identity, records_hash: Callable[[bytes], str]) -> Iterator[Run]:
    """Begin a run, or take up the one this folder holds; refuse any other use of the folder.

    `records_hash(key)` is the keyed hash of the counts.
    """
    internal = internal_of(folder)
    try:
        refuse_links(folder)
        _refuse_something_else(folder, internal)  # before anything is made
        made = not internal.exists()
        storage.make_folder(internal, 0o700)
        internal.chmod(0o700)
        storage.make_folder(internal / _PARTS)
    except OSError as error:
        raise FolderError(
            f"{internal}: cannot be made ({error.strerror}); name another folder"
        ) from error
    with storage.held(internal / LOCK):
        state = _read_state(folder)
        new = state is None
        if state is None:
            _refuse_something_else(folder, internal)
            key = secrets.token_bytes(32)
            state = {
                "release": str(uuid.uuid4()),
                **dataclasses.asdict(identity),
                "key": key.hex(),
                "records": records_hash(key),
                "finished": "no",
            }
            _begin(internal, state, made)
        else:
            _refuse_another(folder, state, identity, records_hash)
        for place in (internal, internal / _PARTS):
            storage.sweep(place)
        run = Run(folder, internal, state["release"], new)
        run.log("attempt", release=run.release, new=new)
        yield run


def _begin(internal: Path, state: dict[str, str], made: bool) -> None:
    try:
        storage.write_json(internal / _STATE, state)
    except OSError as error:
        if made:
            shutil.rmtree(internal, ignore_errors=True)
        raise FolderError(
            f"{internal}: cannot be written ({error.strerror}); nothing was charged"
        ) from error


def _refuse_something_else(folder: Path, internal: Path) -> None:
    """Refuse to begin where there is something that is no release of ours.

    What a run leaves that was killed before it had an identity is ours: a lock, half-written files.
    """
    if (internal / _STATE).exists():
        return
    if folder.exists() and (not folder.is_dir() or any(_foreign(folder.iterdir()))):
        raise FolderError(f"{folder}: holds something else; name a new or empty folder")
    inside = (path for path in internal.rglob("*") if path.is_file() and path.name != LOCK)
    if internal.exists() and (not internal.is_dir() or any(_foreign(inside))):
        raise FolderError(f"{internal}: holds something else; name another folder")


def _foreign(paths: Iterable[Path]) -> Iterator[Path]:
    return (path for path in paths if not storage.is_temporary(path))


def _refuse_another(
    folder: Path, state: dict[str, str], identity: Identity, records_hash: Callable[[bytes], str]
) -> None:
    for what, stored, now in (
        ("another plan, or other files that it names", state["plan"], identity.plan),
        ("another crosswalk", state["crosswalk"], identity.crosswalk),
        ("other randomness", state["randomness"], identity.randomness),
        ("another version of countveil", state["layout"], identity.layout),
    ):
        if stored != now:
            raise FolderError(
                f"{folder}: was begun with {what}; name a new folder (charged as a release of its "
                f"own), or go back to what it was begun with"
            )
    if not hmac.compare_digest(records_hash(bytes.fromhex(state["key"])), state["records"]):
        raise FolderError(
            f"{folder}: was begun with other records; a second draw for changed records is a release "
            f"of its own: name a new folder, or restore the records"
        )
    if state["finished"] == "yes" and not (folder / manifest.NAME).exists():
        raise FolderError(
            f"{folder}: was finished, and its files are gone; drawing them again would be a second "
            f"draw: restore them, or name a new folder (charged as a release of its own)"
        )
