"""Where a run stands: read from its folders while it runs and after, disturbing nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from countveil.errors import InputError
from countveil.measure import manifest
from countveil.measure.run import LOCK, internal_of, release_of
from countveil.measure.run_log import RunLog

State = Literal[
    "begun",
    "measuring",
    "publishing",
    "measured",
    "estimating",
    "publishing estimates",
    "released",
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
    path = Path(folder)
    internal = internal_of(path)
    release = release_of(path)
    document = _manifest(path)
    if release is None and document is None:
        raise InputError(
            f"{folder}: no release was begun there; while records are counted for the first time, "
            f"nothing is written yet"
        )
    events = RunLog(internal).read()
    last = next((e for e in reversed(events) if e["event"] in ("progress", "level finished")), None)
    state = _state(document, events)
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
        release=str(release if document is None else document["release"]),
        state=state,
        charged=any(event["event"].startswith("charged") for event in events),
        attempts=sum(event["event"] == "attempt" for event in events),
        process=_holder(internal / LOCK),
        stopped_by=str(stops[-1].get("reason")) if stopped else None,
        **told,
    )


def _manifest(folder: Path) -> dict[str, Any] | None:
    try:
        document = json.loads((folder / manifest.NAME).read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return document if isinstance(document, dict) and "release" in document else None


def _state(document: dict[str, Any] | None, events: list[dict[str, Any]]) -> State:
    """Tell the state by what is written, and by the last step that the log has of it."""
    steps = [_STEPS.get(event.get("stage", event["event"])) for event in events]
    known = [step for step in steps if step is not None]
    last: State = known[-1] if known else "begun"
    if document is None:
        return last if last in ("begun", "measuring", "publishing") else "publishing"
    method = document.get("plan", {}).get("postprocess", {}).get("method", "none")
    finished = "estimates" in document or method != "top-down"
    if finished and last in ("begun", "measuring", "publishing", "measured"):
        return "released"  # nothing was to be made of the measurements, or its log is not here
    return "measured" if last in ("begun", "measuring", "publishing") else last


def _holder(lock: Path) -> int | None:
    """Return the process of this machine that holds a lock, without touching the lock."""
    try:
        inode = lock.stat().st_ino
        lines = Path("/proc/locks").read_text().splitlines()
    except FileNotFoundError:
        return None
    for line in lines:
        # "1: FLOCK  ADVISORY  WRITE 4711 fe:00:123456 0 EOF"; those that wait have "->" in front.
        parts = line.split()
        if parts[1] == "FLOCK" and parts[5].rsplit(":", 1)[-1] == str(inode):
            return int(parts[4])
    return None
