"""A run: one release into one folder, its identity, its parts and its log; never a count."""

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
    """The log of a run, one line per event, in its internal folder."""

    internal: Path

    def write(self, event: str, **facts: Any) -> None:
        """Append an event; facts never include a count."""
        line = json.dumps({"at": time.time(), "process": os.getpid(), "event": event, **facts})
        with storage.open_private(self.internal / NAME, "a") as file:
            file.write(line + "\n")

    def write_stop(self, error: BaseException) -> None:
        """Log why a run stopped; ignore a full disk, because the error itself matters more."""
        with suppress(OSError):
            self.write("stopped", reason=type(error).__name__)

    def read(self) -> list[dict[str, Any]]:
        """Return the events, oldest first; skip a line truncated by a crash."""
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


STATE = "run.json"
_PARTS = "parts"
LOCK = "lock"
SIMULATION = "simulation-"  # begins the identifier of a release drawn from a seed
_KEYS = ("release", "restarted", "plan", "crosswalk", "randomness", "layout", "key", "records")
_FENCE = {"attempt": "0", "tokens": ""}  # before a ledger has granted an attempt


# The identifier is also the name of a folder; the others are keys, hashes and numbers.
_FORMS = {
    "release": r"[A-Za-z0-9-]{1,80}",
    "key": r"[0-9a-f]{64}",
    "records": r"[0-9a-f]{64}",
    "attempt": r"[0-9]{1,18}",
    "tokens": r"[0-9a-f ]*",
}


@dataclass(frozen=True, slots=True)
class Identity:
    """What must not change between attempts at a release."""

    plan: str
    crosswalk: str
    randomness: str
    layout: str


@dataclass(frozen=True, slots=True)
class Run:
    """An unfinished release in `folder`; files derived from records are in `internal`."""

    folder: Path
    internal: Path
    release: str
    new: bool

    @property
    def finished(self) -> bool:
        """Whether the manifest, which is written last, exists; refuse one of another release."""
        path = self.folder / manifest.NAME
        if not path.exists():
            return False
        try:
            release = storage.read_json(path)["release"]
        except (ValueError, KeyError, TypeError):
            release = None
        if release != self.release:
            raise FolderError(
                f"{path}: belongs to another release than the one started here; restore it from a "
                f"backup, or remove it from the folder"
            )
        return True

    @property
    def parts(self) -> Parts:
        """What has been drawn so far, in a folder of this run."""
        return Parts(self.internal / _PARTS / self.release)

    def claim(self, measurements: str | None) -> Claim:
        """Return the claim with which this run requests its next attempt from the ledger."""
        state = self._state()
        tokens = tuple(state["tokens"].split())
        return Claim(int(state["attempt"]), tokens, secrets.token_hex(16), measurements)

    def expect(self, claim: Claim) -> None:
        """Store the token of a claim durably, before the ledger sees it.

        Earlier tokens are kept: a crash must not lose the one that the ledger committed.
        """
        tokens = " ".join((*claim.tokens, claim.token))
        _write_state(self.internal, {**self._state(), "tokens": tokens})

    def hold(self, attempt: int, claim: Claim) -> None:
        """Store the attempt that the ledger granted, before anything is drawn."""
        state = {**self._state(), "attempt": str(attempt), "tokens": claim.token}
        _write_state(self.internal, state)

    def log(self, event: str, **facts: Any) -> None:
        """Append an event to the run log; facts never include a count."""
        RunLog(self.internal).write(event, **facts)

    def close(self) -> None:
        """Mark the run finished, then delete the parts, which are now in the release."""
        _write_state(self.internal, {**self._state(), "finished": "yes"})
        self.parts.clear()

    def discard(self) -> None:
        """Delete a new run that was never charged."""
        shutil.rmtree(self.internal)

    def _state(self) -> dict[str, str]:
        state = read_state(self.folder)
        if state is None:
            raise FolderError(f"{self.internal}: {STATE} is missing; restore it from a backup")
        return state


def internal_of(folder: Path) -> Path:
    """Return the sibling folder for files derived from records: FOLDER-internal."""
    named = Path(os.path.abspath(folder))  # "." and ".." have no name of their own
    if not named.name:
        raise FolderError(
            f"{folder}: is the root of the file system, and a release needs a second folder next "
            f"to it; name a folder below the root"
        )
    return named.with_name(f"{named.name}-internal")


def copied_along(path: Path, folder: Path, plan_folder: Path) -> tuple[Path, str] | None:
    """Return the folder whose copy would include a run and a file, and what else is in it, or None.

    To copy a run, people copy its project: the smallest folder that contains OUT, OUT-internal and
    the plan. If that is the root of a file system, they copy the folder of the plan, or that of OUT.
    A copied plan finds the copied file by its relative path.
    """
    where = storage.real(path)
    run, plan = storage.real(internal_of(folder)).parent, storage.real(plan_folder)
    for place, what in (
        (Path(os.path.commonpath((run, plan))), "the release and its plan"),
        (run, "the release"),
        (plan, "the plan"),
    ):
        if place != place.parent and where.is_relative_to(place):
            return place, what
    inside = (storage.real(internal_of(folder)), storage.real(folder))
    return next(((place, "the release") for place in inside if where.is_relative_to(place)), None)


def release_of(folder: Path) -> str | None:
    """Return the identifier of the release in a folder, or None."""
    state = read_state(folder)
    return None if state is None else state["release"]


def refuse_links(folder: Path) -> None:
    """Refuse symbolic links in a release folder and its internal folder."""
    internal = internal_of(folder)
    named = Path(os.path.abspath(folder))
    storage.refuse_links([named, *named.rglob("*"), internal, *internal.rglob("*")])


def read_state(folder: Path) -> dict[str, str] | None:
    """Return the state of the run into a folder, or None."""
    path = internal_of(folder) / STATE
    if not path.exists():
        return None
    try:
        return _checked_state(storage.read_json(path))
    except ValueError as error:
        raise FolderError(
            f"{path}: not readable as a run; restore it from a backup, or start over with --restart "
            f"--charge-again (charged in full)"
        ) from error


def restarted_run(
    folder: Path, identity: Identity, records_hash: Callable[[bytes], str]
) -> Run | None:
    """Return the run that a restart began in a folder, if plan and records are the same."""
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
    """Return the state of a run, all text; raise ValueError if countveil did not write it."""
    facts = _FENCE | (state if isinstance(state, dict) else {})
    keys = (*_KEYS, *_FENCE, "finished")
    kept = {key: facts[key] for key in keys if isinstance(facts.get(key), str)}
    if len(kept) < len(keys):
        raise ValueError("a key is missing, or is not text")
    for key, form in _FORMS.items():
        if not re.fullmatch(form, kept[key]):
            raise ValueError(f"{key} has the wrong form")
    return kept


@contextmanager
def open_run(
    folder: Path,
    identity: Identity,
    records_hash: Callable[[bytes], str],
    *,
    restarted: bool = False,
) -> Iterator[Run]:
    """Begin a run, or resume the one in this folder; refuse a folder with anything else.

    `records_hash(key)` is the keyed hash of the counts; `restarted` marks a run that starts over.
    """
    internal = internal_of(folder)
    try:
        refuse_links(folder)
        _refuse_something_else(folder, internal)  # before creating anything
        made = not internal.exists()
        storage.make_folder(internal, 0o700)
        internal.chmod(0o700)
        if folder.exists():
            storage.try_writing(folder)
    except OSError as error:
        raise FolderError(
            f"{error.filename or internal}: cannot be created or written to ({error.strerror}); name "
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
    """Return a new identifier; that of a simulation says so, also in the ledger."""
    seeded = identity.randomness.startswith("seeded:")
    return f"{SIMULATION if seeded else ''}{uuid.uuid4()}"


def _refuse_unlinkable(run: Run) -> None:
    """Refuse a file system without hard links, before anything is charged."""
    try:
        storage.make_folder(run.parts.folder)
        storage.try_linking(run.parts.folder)
    except OSError as error:
        run.discard()
        raise FolderError(
            f"{run.internal}: this file system does not support hard links ({error.strerror}), "
            f"which keep draws safe; name a folder on another file system"
        ) from error


def _begin(internal: Path, state: dict[str, str], made: bool) -> None:
    try:
        _write_state(internal, state)
    except OSError as error:
        if made:
            shutil.rmtree(internal, ignore_errors=True)
        raise FolderError(
            f"{internal}: cannot be written ({error.strerror}); nothing was charged: name another "
            f"folder"
        ) from error


def _write_state(internal: Path, state: dict[str, str]) -> None:
    with storage.replacing_private(internal / STATE) as temporary:
        temporary.write_text(json.dumps(state, indent=2) + "\n")


def _same_records(state: dict[str, str], records_hash: Callable[[bytes], str]) -> bool:
    return hmac.compare_digest(records_hash(bytes.fromhex(state["key"])), state["records"])


def _refuse_something_else(folder: Path, internal: Path) -> None:
    """Refuse to begin in a folder with files that are not of a release.

    A lock or half-written files are accepted: a run that was killed early leaves them.
    """
    if (internal / STATE).exists():
        return
    if folder.exists() and (not folder.is_dir() or any(_foreign(folder.iterdir()))):
        raise FolderError(f"{folder}: has other files in it; name a new or empty folder")
    inside = (path for path in internal.rglob("*") if path.is_file() and path.name != LOCK)
    if internal.exists() and (not internal.is_dir() or any(_foreign(inside))):
        raise FolderError(f"{internal}: has other files in it; name another folder")


def _foreign(paths: Iterable[Path]) -> Iterator[Path]:
    return (path for path in paths if not storage.is_temporary(path))


def _refuse_another(
    folder: Path, state: dict[str, str], identity: Identity, records_hash: Callable[[bytes], str]
) -> None:
    for what, stored, now in (
        ("another plan, or other files named in it", state["plan"], identity.plan),
        ("another crosswalk", state["crosswalk"], identity.crosswalk),
        ("other randomness", state["randomness"], identity.randomness),
        ("another version of countveil", state["layout"], identity.layout),
    ):
        if stored != now:
            raise FolderError(
                f"{folder}: was started with {what}; name a new folder (charged as a new release), or "
                f"restore what it was started with"
            )
    if not _same_records(state, records_hash):
        raise FolderError(
            f"{folder}: was started with other records, and a draw for changed records is a new "
            f"release; name a new folder (charged as a new release), or restore the records"
        )
    if state["finished"] == "yes" and not (folder / manifest.NAME).exists():
        raise FolderError(
            f"{folder}: was finished, but its files are missing, and drawing again would be a "
            f"second draw; restore them, or name a new folder (charged as a new release)"
        )
