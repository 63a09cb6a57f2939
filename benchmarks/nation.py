"""A synthetic nation from records to tables: it can be stopped and resumed, and is extrapolated."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import stages
from benchmarks.stages import Said, Work
from benchmarks.table import show
from countveil.base import storage
from countveil.demo.synthetic import NATION, PopulationShape

_PEOPLE = 26  # per block
_SEED = 1  # of the people; the noise is secure
_JOURNAL = "journal.json"
_EVERY = 2.0  # seconds between two readings of the disk
_REHEARSAL = 5_000  # blocks


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument(
        "--blocks", type=int, default=50_000, help=f"blocks; the nation has {NATION.blocks:,}"
    )
    parser.add_argument(
        "--to", type=Path, default=None, help="folder to keep; a temporary one by default"
    )
    parser.add_argument(
        "--resume", action="store_true", help="resume what an earlier run left in the folder"
    )
    parser.add_argument("--workers", type=int, default=2, help="processes that solve families")


def run(options: argparse.Namespace) -> None:
    """Run in the named folder, or in a temporary one."""
    if options.to is None:
        if options.resume:
            sys.exit("--resume needs a folder to resume; name it with --to")
        with tempfile.TemporaryDirectory(prefix="countveil-nation-") as name:
            _run(Path(name), options.blocks, options.workers)
        return
    if not options.resume and options.to.exists() and any(options.to.iterdir()):
        sys.exit(f"{options.to} is not empty; add --resume to continue it, or name another folder")
    options.to.mkdir(parents=True, exist_ok=True)
    _run(options.to, options.blocks, options.workers)


_KEPT = ("blocks", "attempts", "rehearsal", "peak_disk", "said")


@dataclass(slots=True)
class Journal:
    """What every attempt has taken so far; written continuously, because the run may be killed."""

    path: Path
    blocks: int
    attempts: list[dict[str, dict[str, Any]]] = field(default_factory=list)
    rehearsal: dict[str, float] = field(default_factory=dict)  # peak memory of the stages
    peak_disk: int = 0
    said: list[Said] = field(default_factory=list)

    @classmethod
    def open(cls, folder: Path, blocks: int) -> Journal:
        """Read the journal of a folder, or start one, and add an attempt."""
        journal = cls(folder / _JOURNAL, blocks)
        if journal.path.exists():
            stored = json.loads(journal.path.read_bytes())
            if stored["blocks"] != blocks:
                sys.exit(
                    f"{folder} was started with --blocks {stored['blocks']}; use the same number"
                )
            for name in _KEPT:
                setattr(journal, name, stored[name])
        journal.attempts.append({})
        return journal

    def hear(self, work: Work, said: Said) -> None:
        """Record the stages of a process at every line it prints."""
        for stage in work.stages.values():
            self.attempts[-1][stage.name] = asdict(stage)
        if "checks" in said:
            self.said.append(said)
        self.write()

    def watch(self) -> None:
        """Monitor the disk from now on."""

        def look() -> None:
            while True:
                self.peak_disk = max(self.peak_disk, sum(_sizes(self.path.parent).values()))
                time.sleep(_EVERY)

        threading.Thread(target=look, daemon=True).start()

    def write(self) -> None:
        """Write the journal, so that it survives an interruption."""
        storage.write_json(self.path, {name: getattr(self, name) for name in _KEPT})

    def together(self) -> Work:
        """Add up the attempts."""
        work = Work()
        for attempt in self.attempts:
            for item in attempt.values():
                stage = work.stage(item["name"])
                stage.seconds += item["seconds"]
                stage.cpu += item["cpu"]
                stage.peak_mb = max(stage.peak_mb, item["peak_mb"])
        return work


def _run(folder: Path, blocks: int, workers: int) -> None:
    people = _PEOPLE * blocks
    shape = PopulationShape.for_people(people)
    journal = Journal.open(folder, blocks)
    small = min(_REHEARSAL, blocks // 4)
    if not journal.rehearsal:
        journal.rehearsal = _rehearse(folder / "rehearsal", small, workers)
        journal.write()
    journal.watch()
    place = folder / "nation"
    if not place.exists():
        # Not resumed but started over: it takes a second for a million people.
        part = folder / "nation.part"
        shutil.rmtree(part, ignore_errors=True)
        stages.population(part, people=people, seed=_SEED, heard=journal.hear)
        part.rename(place)
    stages.release(
        place / "plan.toml",
        folder / "release",
        seed=None,
        workers=workers,
        ledger=folder / "ledger.sqlite",
        verify=True,
        heard=journal.hear,
    )
    work, factor = journal.together(), NATION.blocks / shape.blocks
    title = (
        f"{people:,} people, {shape.blocks:,} blocks, {shape.states} states, {workers} workers, "
        f"{len(journal.attempts)} attempt(s); load average {os.getloadavg()[0]:.1f}"
    )
    stages.show_stages(title, work, shape.blocks)
    if len(journal.attempts) > 1:
        print("  The processor time of a killed stage is unknown and left out.")
    _show_certificate(journal.said[-1])
    _show_disk(folder, journal.peak_disk, factor)
    _show_nation(work, shape.blocks, journal.rehearsal, small)


def _rehearse(folder: Path, blocks: int, workers: int) -> dict[str, float]:
    """Run a small nation to compile the kernels and to measure the memory that does not grow."""
    print(f"rehearsing with {blocks:,} blocks", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    place, to = folder / "nation", folder / "release"
    first = stages.population(place, people=_PEOPLE * blocks, seed=_SEED)
    rest = stages.release(
        place / "plan.toml",
        to,
        seed=None,
        workers=workers,
        ledger=folder / "ledger.sqlite",
        verify=True,
    )
    shutil.rmtree(folder)
    return {stage.name: stage.peak_mb for work in (first, rest) for stage in work.stages.values()}


def _show_certificate(said: Said) -> None:
    rows = [
        (
            item["level"],
            *(f"{item['families']:,}", f"{item['iterations'] / item['families']:,.2f}"),
            *(str(item["most_iterations"]), str(item["fallbacks"])),
            *(f"{item['kkt_residual']:.0e}", f"{item['consistency_gap']:.0e}"),
        )
        for item in said["certificate"]
    ]
    columns = ("level", "families", "iterations", "most", "fallbacks", "residual", "gap")
    show("The certificate", columns, rows)
    for check in said["checks"]:
        print(f"  Verified: {check}.")


def _sizes(folder: Path) -> dict[str, int]:
    """Return the bytes of every part of the folder."""
    sizes: dict[str, int] = {}
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                parts = path.relative_to(folder).parts
                name = "/".join(parts[: min(2, len(parts) - 1)]) or "journal, ledger"
                sizes[name] = sizes.get(name, 0) + path.stat().st_size
        except OSError:
            continue  # renamed or deleted meanwhile
    return sizes


def _show_disk(folder: Path, peak: int, factor: float) -> None:
    sizes = _sizes(folder)
    rows = [(name, size) for name, size in sorted(sizes.items())]
    rows += [("all", sum(sizes.values())), ("peak", max(peak, sum(sizes.values())))]
    shown = [(name, f"{size / 1e6:,.1f}", f"{factor * size / 1e9:,.1f}") for name, size in rows]
    show("Disk", ("folder", "MB", "GB, whole nation"), shown)


def _show_nation(work: Work, blocks: int, rehearsal: dict[str, float], small: int) -> None:
    """Extrapolate to the whole nation: time by blocks, memory by its growth since the rehearsal."""
    rows, hours, peaks = [], [], []
    for stage in [item for item in work.stages.values() if item.seconds > 0]:
        times = 1.0 if stage.name == "start" else NATION.blocks / blocks
        hours.append((times * stage.seconds / 3600, times * stage.cpu / 3600))
        a_block = max(0.0, stage.peak_mb - rehearsal[stage.name]) / (blocks - small)
        peaks.append((stage.peak_mb + a_block * (NATION.blocks - blocks)) / 1024)
        cells = (f"{value:,.2f}" for value in (*hours[-1], stage.peak_mb / 1024, peaks[-1]))
        rows.append((stage.name, *cells, f"{1024 * a_block:,.2f}"))
    together = (*map(sum, zip(*hours, strict=True)), work.peak_mb / 1024, max(peaks))
    rows.append(("all", *(f"{value:,.2f}" for value in together), ""))
    show(
        f"The nation, {NATION.blocks:,} blocks: time {NATION.blocks / blocks:,.1f} times as long; "
        f"memory by its growth from {small:,} to {blocks:,} blocks",
        ("stage", "hours", "processor hours", "GB, measured", "GB, if linear", "KB per block"),
        rows,
    )
