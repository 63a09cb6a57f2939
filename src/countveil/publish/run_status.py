"""The status of a run, read from its folders without disturbing it."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from countveil.base import storage
from countveil.errors import FolderError, InputError
from countveil.measure import manifest, one_estimate
from countveil.measure.run import LOCK, STATE, RunLog, internal_of, release_of

State = Literal[
    "begun",
    "measuring",
    "publishing",
    "measured",
    "estimating",
    "publishing estimates",
    "released",
    "manifest gone",
    "manifest unreadable",
]
# The state after a line of the log, by its stage or its event.
_STEPS: dict[str, State] = {
    "measuring": "measuring",
    "drawn": "publishing",
    "finished": "measured",
    "estimating": "estimating",
    "estimated": "publishing estimates",
    "released": "released",
}
_FORMATS = (manifest.FORMAT, one_estimate.FORMAT)
_LOCKS = Path("/proc/locks")
_TEXTS = ("event", "stage", "level", "engine", "reason")
_WHOLE = ("done", "units", "memory", "worker_memory", "retries")
_NUMBERS = ("per_second", "seconds_left")
_LARGEST = 2**63


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The status of a run; values that its log does not have are None."""

    release: str
    state: State
    charged: bool
    attempts: int
    process: int | None  # the process on this machine that holds the lock of the folder
    level: str | None = None
    done: int | None = None
    units: int | None = None
    per_second: float | None = None
    seconds_left: float | None = None
    engine: str | None = None
    memory: int | None = None
    worker_memory: int | None = None
    retries: int | None = None
    stopped_by: str | None = None


def status_of(folder: str | Path) -> RunStatus:
    """Return the status of the run into a folder.

    Parameters
    ----------
    folder
        The release folder, finished or not.

    Returns
    -------
    RunStatus
        The state, progress, speed and memory of the run, as far as known.

    """
    path = Path(os.path.abspath(folder))
    if not path.name:
        raise InputError(f"{folder}: not a release folder; name one, such as out")
    internal = internal_of(path)
    release = release_of(path)
    finished = release is not None and _finished(internal)  # read before the manifest: marked last
    document = _manifest(path)
    if release is None and not document:
        foreign = "" if document is None else f"its {manifest.NAME} is not from countveil, and "
        raise InputError(
            f"{folder}: {foreign}no release was started there; if one is counting its records for the "
            f"first time, wait: it has written nothing yet"
        )
    events = _events(internal)
    last = next((e for e in reversed(events) if e["event"] in ("progress", "level finished")), None)
    state = _state(document, events, finished=finished)
    facts: dict[str, Any] = {}
    if last is not None and state in ("measuring", "estimating"):
        facts = {key: last.get(key) for key in ("level", "done", "units", "per_second")}
        facts["seconds_left"] = last.get("seconds_left")
    if last is not None:
        facts |= {key: last.get(key) for key in ("engine", "memory", "worker_memory", "retries")}
    # A stop belongs to the latest attempt only if no attempt began after it.
    stops = [event for event in events if event["event"] in ("stopped", "attempt", "released")]
    stopped = bool(stops) and stops[-1]["event"] == "stopped"
    return RunStatus(
        release=str(document["release"] if document else release),
        state=state,
        charged=any(event["event"].startswith("charged") for event in events),
        attempts=sum(event["event"] == "attempt" for event in events),
        process=_holder(internal / LOCK),
        stopped_by=stops[-1].get("reason", "something") if stopped else None,
        **facts,
    )


def _manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a folder, or None; empty if it is not from countveil."""
    try:
        document = storage.read_json(folder / manifest.NAME)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (FolderError, ValueError):
        return {}
    ours = (
        isinstance(document, dict)
        and document.get("format") in _FORMATS
        and isinstance(document.get("release"), str)
    )
    return document if ours else {}


def _finished(internal: Path) -> bool:
    """Return whether a run with a readable state was marked finished."""
    return str(storage.read_json(internal / STATE)["finished"]) == "yes"


def _events(internal: Path) -> list[dict[str, Any]]:
    """Return the events of the log, oldest first, without facts that countveil cannot have written."""
    events = (
        {key: value for key, value in event.items() if _as_written(key, value)}
        for event in RunLog(internal).read()
    )
    return [event for event in events if "event" in event]


def _as_written(key: str, value: object) -> bool:
    """Return whether a fact has a known name and the type that countveil writes."""
    if key in _TEXTS:
        return isinstance(value, str) and value.isprintable()
    if isinstance(value, float):
        return key in _NUMBERS and math.isfinite(value) and value >= 0
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    return key in (*_WHOLE, *_NUMBERS) and 0 <= value < _LARGEST


def _state(
    document: dict[str, Any] | None, events: list[dict[str, Any]], *, finished: bool
) -> State:
    """Return the state, from the files that exist and the last step in the log."""
    if document is None and finished:
        return "manifest gone"
    if document == {}:
        return "manifest unreadable"
    steps = [_STEPS.get(event.get("stage", event["event"])) for event in events]
    known = [step for step in steps if step is not None]
    last: State = known[-1] if known else "begun"
    if document is None:
        return last if last in ("begun", "measuring", "publishing") else "publishing"
    complete = "estimates" in document or _method(document) != "top-down"
    if complete and last in ("begun", "measuring", "publishing", "measured"):
        return "released"  # the plan has no estimates, or the log is elsewhere
    return "measured" if last in ("begun", "measuring", "publishing") else last


def _method(document: dict[str, Any]) -> object:
    """Return the post-processing method of the plan in a manifest, None if it has none."""
    value: object = document
    for key in ("plan", "postprocess", "method"):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _holder(lock: Path) -> int | None:
    """Return the process on this machine that holds a lock, without touching the lock."""
    try:
        ours = lock.stat()
        lines = _LOCKS.read_text().splitlines()
    except FileNotFoundError:
        return None
    for line in lines:
        # "1: FLOCK  ADVISORY  WRITE 4711 fe:00:123456 0 EOF"; waiting processes have "->" in front.
        # On some file systems the device differs from that of stat, so only the inode is compared.
        parts = line.split()
        if parts[1] == "FLOCK" and parts[5].rsplit(":", 1)[-1] == str(ours.st_ino):
            process = int(parts[4])
            if _may_have_open(process, ours):
                return process
    return None


def _may_have_open(process: int, file: os.stat_result) -> bool:
    """Return whether a process has a file open, or may have if its descriptors are unreadable."""
    try:
        return any(_is_same(path, file) for path in _descriptors(process))
    except PermissionError:
        return True  # of another user
    except (FileNotFoundError, ProcessLookupError):
        return False  # it has ended


def _descriptors(process: int) -> list[Path]:
    return list(Path(f"/proc/{process}/fd").iterdir())


def _is_same(descriptor: Path, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(descriptor.stat(), file)
    except FileNotFoundError:
        return False  # it was closed
