"""How much memory processes have held, as the system tells it."""

from __future__ import annotations

import os
from pathlib import Path


def peak_of(process: int | None = None) -> int:
    """Return the most bytes that a process has held so far, 0 if it is gone."""
    path = Path("/proc") / str(os.getpid() if process is None else process) / "status"
    try:
        lines = path.read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def children_of(process: int | None = None) -> list[int]:
    """Return the processes that a process started, and those that they started."""
    found: list[int] = []
    try:
        for task in (
            Path("/proc") / str(os.getpid() if process is None else process) / "task"
        ).iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *children_of(int(child))]
    except (FileNotFoundError, ProcessLookupError):
        pass  # it ended meanwhile, and has none
    return found
