"""Work in a separate process, with the seconds, processor seconds and peak memory of its stages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.table import show
from countveil.engines.workers import children_of

_EVERY = 0.05  # seconds between two readings of memory
_PAGE = os.sysconf("SC_PAGE_SIZE")

Said = dict[str, Any]


@dataclass(slots=True)
class Stage:
    """A stage: its time so far, its processor time once it has ended, and its peak memory."""

    name: str
    seconds: float = 0.0
    cpu: float = 0.0
    peak_mb: float = 0.0


@dataclass(slots=True)
class Work:
    """The stages so far, in order, and the other lines that the process printed."""

    stages: dict[str, Stage] = field(default_factory=dict)
    said: list[Said] = field(default_factory=list)

    def stage(self, name: str) -> Stage:
        """Return a stage, creating it if necessary."""
        return self.stages.setdefault(name, Stage(name))

    @property
    def seconds(self) -> float:
        """The time of all stages in seconds."""
        return sum(stage.seconds for stage in self.stages.values())

    @property
    def cpu(self) -> float:
        """The processor time of all stages in seconds."""
        return sum(stage.cpu for stage in self.stages.values())

    @property
    def peak_mb(self) -> float:
        """The largest peak memory of any stage."""
        return max((stage.peak_mb for stage in self.stages.values()), default=0.0)


def population(
    folder: Path,
    *,
    people: int,
    seed: int,
    blocks: int | None = None,
    heard: Callable[[Work, Said], None] = lambda work, said: None,
) -> Work:
    """Write the demo's plan and population."""
    question: Said = {"do": "population", "to": str(folder), "people": people, "seed": seed}
    question["blocks"] = blocks
    return work(question, heard=heard)


def release(
    plan: Path,
    to: Path,
    *,
    seed: int | None,
    workers: int,
    engine: str = "local",
    environment: Mapping[str, str] | None = None,
    ledger: Path | None = None,
    verify: bool = False,
    title: str = "",
    heard: Callable[[Work, Said], None] = lambda work, said: None,
) -> Work:
    """Release a plan with seeded noise, or with secure noise if `seed` is None."""
    question = {
        "do": "release",
        "plan": str(plan),
        "to": str(to),
        "seed": seed,
        "ledger": None if ledger is None else str(ledger),
        "workers": workers,
        "engine": engine,
        "verify": verify,
    }
    return work(question, title, heard, environment)


def work(
    question: Said,
    title: str = "",
    heard: Callable[[Work, Said], None] = lambda work, said: None,
    environment: Mapping[str, str] | None = None,
) -> Work:
    """Run a request in a fresh process; call `heard` with every line it prints."""
    found = Work()
    command = [sys.executable, "-m", "benchmarks._stages_child", json.dumps(question)]
    # The child ends when its pipe closes: it must not outlive a benchmark that was killed.
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as child:
        assert child.stdout is not None
        current, over, begun = [found.stage("start")], threading.Event(), time.perf_counter()
        watcher = threading.Thread(target=_watch, args=(child.pid, current, over), daemon=True)
        watcher.start()
        for line in child.stdout:
            said = json.loads(line)
            if "begin" in said:
                current[0], begun = found.stage(said["begin"]), time.perf_counter()
            elif "end" in said:
                ended = found.stage(said["end"])
                ended.seconds, ended.cpu = said["seconds"], said["cpu"]
            elif "progress" in said:
                current[0].seconds = time.perf_counter() - begun
                count = f"{said['done']:,} of {said['units']:,}"
                print(f"  {title}{said['progress']}: {count}", file=sys.stderr, flush=True)
            else:
                found.said.append(said)
            heard(found, said)
        status = child.wait()
        over.set()
        watcher.join()
    if status != 0:
        raise RuntimeError(f"the child process ended with status {status}")
    return found


def _watch(process: int, current: list[Stage], over: threading.Event) -> None:
    while not over.wait(_EVERY):
        resident = tree_bytes(process) / 2**20
        current[0].peak_mb = max(current[0].peak_mb, resident)


def tree_bytes(process: int) -> int:
    """Return the resident memory of a process and its descendants; shared pages count in each."""
    parents, resident = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # The name of a program may contain anything, but ends with the last parenthesis.
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                pages = (entry / "statm").read_text().split()[1]
            except (OSError, IndexError):
                continue  # it has ended
            parents[int(entry.name)], resident[int(entry.name)] = int(parent), int(pages)
    inside, new = {process}, {process}
    while new:
        new = {number for number, parent in parents.items() if parent in new} - inside
        inside |= new
    return _PAGE * sum(resident.get(number, 0) for number in inside)


def tree_cpu(process: int) -> float:
    """Return the processor seconds of a process and its descendants, including those that ended."""
    ticks = 0
    for number in (process, *children_of(process)):
        try:
            text = Path(f"/proc/{number}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended, and its parent counts it
        ticks += sum(map(int, text.rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def show_stages(title: str, found: Work, blocks: int) -> None:
    """Print the stages with blocks per second, and their sum."""
    rows = [
        (
            stage.name,
            *(f"{stage.seconds:,.2f}", f"{stage.cpu:,.2f}", f"{blocks / stage.seconds:,.0f}"),
            f"{stage.peak_mb:,.0f}",
        )
        for stage in found.stages.values()
        if stage.seconds > 0
    ]
    total = (f"{found.seconds:,.2f}", f"{found.cpu:,.2f}", f"{blocks / found.seconds:,.0f}")
    rows.append(("all", *total, f"{found.peak_mb:,.0f}"))
    show(title, ("stage", "s", "processor s", "blocks/s", "peak MB"), rows)
