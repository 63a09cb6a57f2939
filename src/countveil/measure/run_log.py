"""The run log beside the outputs: what happened when, how far, how fast; never a count."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from countveil import storage

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
