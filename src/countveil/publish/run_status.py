"""Where a run stands: read from its folders while it runs and after, disturbing nothing."""

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
# What a line of the log says of the state from then on, by its stage or its event.
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
class Standing:
    """What is known of a run; None where its log does not tell."""

    release: str
    state: State
    charged: bool
    attempts: int
    process: int | None  # who holds the folder's lock on this machine
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


def standing_of(folder: str | Path) -> Standing:
    """Say where the run into a folder stands."""
    path = Path(os.path.abspath(folder))
    if not path.name:
        raise InputError(f"{folder}: is no release folder; name one, such as out")
    internal = internal_of(path)
    release = release_of(path)
    finished = release is not None and _finished(internal)  # asked first: it is marked last
    document = _manifest(path)
    if release is None and not document:
        there = "" if document is None else f"its {manifest.NAME} is none of countveil's, and "
        raise InputError(
            f"{folder}: {there}no release was begun there; while records are counted for the first "
            f"time, nothing is written yet"
        )
    events = _events(internal)
    last = next((e for e in reversed(events) if e["event"] in ("progress", "level finished")), None)
    state = _state(document, events, finished=finished)
    told: dict[str, Any] = {}
    if last is not None and state in ("measuring", "estimating"):
        told = {key: last.get(key) for key in ("level", "done", "units", "per_second")}
        told["seconds_left"] = last.get("seconds_left")
    if last is not None:
        told |= {key: last.get(key) for key in ("engine", "memory", "worker_memory", "retries")}
    # A line is of the latest attempt only if none began since.
    stops = [event for event in events if event["event"] in ("stopped", "attempt", "released")]
    stopped = bool(stops) and stops[-1]["event"] == "stopped"
    return Standing(
        release=str(document["release"] if document else release),
        state=state,
        charged=any(event["event"].startswith("charged") for event in events),
        attempts=sum(event["event"] == "attempt" for event in events),
        process=_holder(internal / LOCK),
        stopped_by=stops[-1].get("reason", "something") if stopped else None,
        **told,
    )


def _manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a folder: None where there is none, empty where it is none of ours."""
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
    """Whether a run, which `release_of` has found readable, was marked finished for good."""
    return str(storage.read_json(internal / STATE)["finished"]) == "yes"


def _events(internal: Path) -> list[dict[str, Any]]:
    """Return the events of the log, oldest first, without what no run of ours can have written."""
    written = (
        {key: value for key, value in event.items() if _as_written(key, value)}
        for event in RunLog(internal).read()
    )
    return [event for event in written if "event" in event]


def _as_written(key: str, value: object) -> bool:
    """Whether a fact is one that is asked for, of the type that it is written with."""
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
    """Tell the state by what is written, and by the last step that the log has of it."""
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
        return "released"  # nothing was to be made of the measurements, or its log is not here
    return "measured" if last in ("begun", "measuring", "publishing") else last


def _method(document: dict[str, Any]) -> object:
    """Return what a manifest's plan makes of the measurements, nothing where it does not say."""
    found: object = document
    for key in ("plan", "postprocess", "method"):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _holder(lock: Path) -> int | None:
    """Return the process of this machine that holds a lock, without touching the lock."""
    try:
        ours = lock.stat()
        lines = _LOCKS.read_text().splitlines()
    except FileNotFoundError:
        return None
    for line in lines:
        # "1: FLOCK  ADVISORY  WRITE 4711 fe:00:123456 0 EOF"; those that wait have "->" in front.
        # Its device is not what stat says on some file systems, and inodes are unique on one only.
        parts = line.split()
        if parts[1] == "FLOCK" and parts[5].rsplit(":", 1)[-1] == str(ours.st_ino):
            process = int(parts[4])
            if _may_have_open(process, ours):
                return process
    return None


def _may_have_open(process: int, file: os.stat_result) -> bool:
    """Whether a process has a file open, as far as its descriptors can be read."""
    try:
        return any(_is_same(path, file) for path in _descriptors(process))
    except PermissionError:
        return True  # of another user
    except (FileNotFoundError, ProcessLookupError):
        return False  # it ended meanwhile


def _descriptors(process: int) -> list[Path]:
    return list(Path(f"/proc/{process}/fd").iterdir())


def _is_same(descriptor: Path, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(descriptor.stat(), file)
    except FileNotFoundError:
        return False  # closed meanwhile
