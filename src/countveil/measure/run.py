"""The run log beside the outputs: what happened when, how far, how fast; never a count."""

from __future__ import annotations

import dataclasses
import hmac
import json
import os
import re
import secrets
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from countveil.base import storage
from countveil.errors import FolderError
from countveil.measure import manifest
from countveil.measure.parts import Parts
from countveil.privacy.ledger import Claim

NAME = "log.jsonl"


@dataclass(frozen=True, slots=True)
class RunLog:
    """One line an event, in the internal folder of a run."""

    internal: Path

    def write(self, event: str, **facts: Any) -> None:
        """Append a line; facts never hold a count."""
        line = json.dumps({"at": time.time(), "process": os.getpid(), "event": event, **facts})
        with storage.open_private(self.internal / NAME, "a") as file:
            file.write(line + "\n")

    def write_stop(self, error: BaseException) -> None:
        """Say why a run stopped, if the disk takes another line: the error itself matters more."""
        with suppress(OSError):
            self.write("stopped", reason=type(error).__name__)

    def read(self) -> list[dict[str, Any]]:
        """Return the events, oldest first; a line torn by a crash is none."""
        path = self.internal / NAME
        events = []
        for line in storage.read_file(path).splitlines() if path.exists() else []:
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict) and isinstance(event.get("event"), str):
                events.append(event)
        return events


# One run into one folder: its identity, its finished parts, its log, all in the internal
# sibling.

STATE = "run.json"
_PARTS = "parts"
LOCK = "lock"
SIMULATION = "simulation-"  # begins the identifier of a release drawn from a seed
_KEYS = ("release", "restarted", "plan", "crosswalk", "randomness", "layout", "key", "records")
_FENCE = {"attempt": "0", "tokens": ""}  # of a run that no ledger gave an attempt to


# The identifier names a folder, and the others are keys and hashes.
_FORMS = {
    "release": r"[A-Za-z0-9-]{1,80}",
    "key": r"[0-9a-f]{64}",
    "records": r"[0-9a-f]{64}",
    "attempt": r"[0-9]{1,18}",
    "tokens": r"[0-9a-f ]*",
}


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
        """Whether the manifest, written last, is there; refuse one of something else."""
        path = self.folder / manifest.NAME
        if not path.exists():
            return False
        try:
            found = storage.read_json(path)["release"]
        except (ValueError, KeyError, TypeError):
            found = None
        if found != self.release:
            raise FolderError(
                f"{path}: is not of the release that was begun here; restore it from a backup, or take "
                f"it out of the folder"
            )
        return True

    @property
    def parts(self) -> Parts:
        """What was drawn so far, in a folder of this run alone."""
        return Parts(self.internal / _PARTS / self.release)

    def claim(self, measurements: str | None) -> Claim:
        """Return what this run shows the ledger for its next attempt."""
        state = self._state()
        held = tuple(state["tokens"].split())
        return Claim(int(state["attempt"]), held, secrets.token_hex(16), measurements)

    def expect(self, claim: Claim) -> None:
        """Keep the token of a claim durably, before the ledger sees it.

        Those it may already hold stay: a crash must not lose the one that the ledger committed.
        """
        tokens = " ".join((*claim.held, claim.token))
        _write_state(self.internal, {**self._state(), "tokens": tokens})

    def hold(self, attempt: int, claim: Claim) -> None:
        """Note the attempt that the ledger gave, before anything is drawn for it."""
        state = {**self._state(), "attempt": str(attempt), "tokens": claim.token}
        _write_state(self.internal, state)

    def log(self, event: str, **facts: Any) -> None:
        """Append a line to the run log; facts never hold a count."""
        RunLog(self.internal).write(event, **facts)

    def close(self) -> None:
        """Mark the run finished for good, then delete the parts its release now holds."""
        _write_state(self.internal, {**self._state(), "finished": "yes"})
        self.parts.clear()

    def discard(self) -> None:
        """Take back a new run that was never charged."""
        shutil.rmtree(self.internal)

    def _state(self) -> dict[str, str]:
        state = read_state(self.folder)
        if state is None:
            raise FolderError(f"{self.internal}: {STATE} is gone; restore it from a backup")
        return state


def internal_of(folder: Path) -> Path:
    """Return the sibling that holds whatever saw a record."""
    named = Path(os.path.abspath(folder))  # "." and ".." have no name of their own
    if not named.name:
        raise FolderError(
            f"{folder}: is the root of the file system, and a release has a folder beside it; name one "
            f"below"
        )
    return named.with_name(f"{named.name}-internal")


def is_copied_along(path: Path, folder: Path) -> bool:
    """Return whether a file is in the folder that holds a run, so that a copy of that takes it along.

    A run is two folders, OUT and OUT-internal: copying it means copying what they are in.
    """
    internal, where = storage.real(internal_of(folder)), storage.real(path)
    around = internal.parent
    if around == around.parent:  # nobody copies the root of a file system
        inside = (internal, storage.real(folder))
        return any(where.is_relative_to(place) for place in inside)
    return where.is_relative_to(around)


def release_of(folder: Path) -> str | None:
    """Return the identity of the run into a folder, None where there is none."""
    state = read_state(folder)
    return None if state is None else state["release"]


def refuse_links(folder: Path) -> None:
    """Refuse links in a release folder, and an internal one that is a link or holds one."""
    internal = internal_of(folder)
    named = Path(os.path.abspath(folder))
    storage.refuse_links([named, *named.rglob("*"), internal, *internal.rglob("*")])


def read_state(folder: Path) -> dict[str, str] | None:
    """Return what the internal folder says of a run, None where there is none."""
    path = internal_of(folder) / STATE
    if not path.exists():
        return None
    try:
        return _checked_state(storage.read_json(path))
    except ValueError as error:
        raise FolderError(
            f"{path}: not readable as a run; restore it from a backup, or begin anew with --restart "
            f"--charge-again (charged in full)"
        ) from error


def restarted_run(
    folder: Path, identity: Identity, records_hash: Callable[[bytes], str]
) -> Run | None:
    """Return the run that a restart began in a folder, if it is of the same plan and records."""
    try:
        state = read_state(folder)
    except FolderError:
        return None
    if (
        state is None
        or state["restarted"] != "yes"
        or {**state, **dataclasses.asdict(identity)} != state
        or not _same_records(state, records_hash)
    ):
        return None
    return Run(folder, internal_of(folder), state["release"], new=False)


def _checked_state(state: Any) -> dict[str, str]:
    """Return the facts of a run, all text; raise ValueError for what no run of ours has written."""
    facts = _FENCE | (state if isinstance(state, dict) else {})
    keys = (*_KEYS, *_FENCE, "finished")
    kept = {key: facts[key] for key in keys if isinstance(facts.get(key), str)}
    if len(kept) < len(keys):
        raise ValueError("a fact is missing, or is not text")
    for key, form in _FORMS.items():
        if not re.fullmatch(form, kept[key]):
            raise ValueError(f"{key} is not as it was written")
    return kept


@contextmanager
def opened(
    folder: Path,
    identity: Identity,
    records_hash: Callable[[bytes], str],
    *,
    restarted: bool = False,
) -> Iterator[Run]:
    """Begin a run, or take up the one this folder holds; refuse any other use of the folder.

    `records_hash(key)` is the keyed hash of the counts; `restarted` says that a run is begun anew.
    """
    internal = internal_of(folder)
    try:
        refuse_links(folder)
        _refuse_something_else(folder, internal)  # before anything is made
        made = not internal.exists()
        storage.make_folder(internal, 0o700)
        internal.chmod(0o700)
        if folder.exists():
            storage.try_writing(folder)
    except OSError as error:
        raise FolderError(
            f"{error.filename or internal}: cannot be made or written to ({error.strerror}); name "
            f"another folder"
        ) from error
    with storage.held(internal / LOCK):
        state = read_state(folder)
        new = state is None
        if state is None:
            _refuse_something_else(folder, internal)
            key = secrets.token_bytes(32)
            state = {
                "release": _new_release(identity),
                "restarted": "yes" if restarted else "no",
                **dataclasses.asdict(identity),
                "key": key.hex(),
                "records": records_hash(key),
                **_FENCE,
                "finished": "no",
            }
            _begin(internal, state, made)
        else:
            _refuse_another(folder, state, identity, records_hash)
        run = Run(folder, internal, state["release"], new)
        if new:
            _refuse_unlinkable(run)
        if not run.finished:
            storage.make_folder(run.parts.folder)
        for place in (internal, run.parts.folder):
            storage.sweep(place)
        run.log("attempt", release=run.release, new=new)
        yield run


def _new_release(identity: Identity) -> str:
    """Return an identifier that says of a simulation that it is one, also in the ledger."""
    seeded = identity.randomness.startswith("seeded:")
    return f"{SIMULATION if seeded else ''}{uuid.uuid4()}"


def _refuse_unlinkable(run: Run) -> None:
    """Refuse a file system that parts cannot be kept on, before anything is charged."""
    try:
        storage.make_folder(run.parts.folder)
        storage.try_linking(run.parts.folder)
    except OSError as error:
        run.discard()
        raise FolderError(
            f"{run.internal}: hard links cannot be made there ({error.strerror}), and draws are kept "
            f"by them; name a folder on another file system"
        ) from error


def _begin(internal: Path, state: dict[str, str], made: bool) -> None:
    try:
        _write_state(internal, state)
    except OSError as error:
        if made:
            shutil.rmtree(internal, ignore_errors=True)
        raise FolderError(
            f"{internal}: cannot be written ({error.strerror}); nothing was charged"
        ) from error


def _write_state(internal: Path, state: dict[str, str]) -> None:
    with storage.replacing_private(internal / STATE) as temporary:
        temporary.write_text(json.dumps(state, indent=2) + "\n")


def _same_records(state: dict[str, str], records_hash: Callable[[bytes], str]) -> bool:
    return hmac.compare_digest(records_hash(bytes.fromhex(state["key"])), state["records"])


def _refuse_something_else(folder: Path, internal: Path) -> None:
    """Refuse to begin where there is something that is no release of ours.

    What a run leaves that was killed before it had an identity is ours: a lock, half-written files.
    """
    if (internal / STATE).exists():
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
    if not _same_records(state, records_hash):
        raise FolderError(
            f"{folder}: was begun with other records; a second draw for changed records is a release "
            f"of its own: name a new folder, or restore the records"
        )
    if state["finished"] == "yes" and not (folder / manifest.NAME).exists():
        raise FolderError(
            f"{folder}: was finished, and its files are gone; drawing them again would be a second "
            f"draw: restore them, or name a new folder (charged as a release of its own)"
        )
