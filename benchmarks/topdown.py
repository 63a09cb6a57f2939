"""TopDown: its solver compared with four others; the time, memory and growth of a state."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from benchmarks import families, solvers, stages
from benchmarks.table import Missed, Part, run_parts, show, verdict
from countveil.base.randomness import Seeded
from countveil.demo import starter
from countveil.demo.synthetic import PopulationShape
from countveil.engines.engine import open_engine
from countveil.measure import take
from countveil.plan.plans import Plan, require_counts

PARTS = ("solver", "state", "growth")
_SEED = 1
_WARM_UP = 2_000  # people
_MOST_SECONDS = 20.0
_MOST_MB = 1500.0
_TIMES = (1, 2, 4, 8)
_MOST_GROWTH = 1.2


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument(
        "--part", choices=PARTS, action="append", help="run only this part; can be repeated"
    )
    parser.add_argument("--people", type=int, default=650_000, help="people of the state")
    parser.add_argument("--families", type=int, default=60, help="families to solve per level")
    parser.add_argument("--no-peers", action="store_true", help="solve only with countveil")
    parser.add_argument(
        "--peer-seconds", type=float, default=30.0, help="time limit of a peer for one family"
    )
    parser.add_argument("--workers", type=int, default=2, help="processes of a release")
    parser.add_argument("--runs", type=int, default=1, help="runs of the state; the best counts")


def run(options: argparse.Namespace) -> None:
    """Run the requested parts, or all of them."""
    parts = options.part or PARTS
    every: dict[str, Part] = {
        "solver": _solver,
        "state": _state,
        "growth": _growth,
    }
    run_parts({name: part for name, part in every.items() if name in parts}, options)


def _write_state(folder: Path, people: int) -> Path:
    print(f"writing {people:,} people", file=sys.stderr, flush=True)
    return starter.write_demo(folder / f"state-{people}", people=people, seed=_SEED)


def _solver(options: argparse.Namespace, folder: Path) -> None:
    plan = require_counts(Plan.load(_write_state(folder, options.people)), "a benchmark")
    counts = open_engine("local").tabulate(plan)
    measurements = take(counts, plan, rng=Seeded(_SEED), ledger=None, to=folder / "measured")
    print("solving the state to capture its families", file=sys.stderr, flush=True)
    caught = families.catch(measurements, plan, counts.geography, options.families)
    solvers.compare(caught, folder, with_peers=not options.no_peers, limit=options.peer_seconds)


def _warm_up(folder: Path, workers: int) -> None:
    print("warming up: the first run compiles the kernels", file=sys.stderr, flush=True)
    plan = _write_state(folder, _WARM_UP)
    stages.release(plan, folder / "warm", seed=_SEED, workers=workers)


def _release(folder: Path, people: int, workers: int) -> stages.Work:
    """Release a state once, in a fresh process, and delete it."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        plan = _write_state(Path(name), people)
        to = Path(name) / "release"
        return stages.release(plan, to, seed=_SEED, workers=workers, title=f"{people:,}: ")


def _state(options: argparse.Namespace, folder: Path) -> None:
    _warm_up(folder, options.workers)
    runs = [_release(folder, options.people, options.workers) for _ in range(options.runs)]
    best = min(runs, key=lambda work: work.seconds)
    blocks = PopulationShape.for_people(options.people).blocks
    title = (
        f"A state of {options.people:,} people and {blocks:,} blocks, {options.workers} workers, best "
        f"of {options.runs}, kernels compiled before; load average {os.getloadavg()[0]:.1f}"
    )
    stages.show_stages(title, best, blocks)
    peak = max(work.peak_mb for work in runs)
    fast, small = best.seconds < _MOST_SECONDS, peak < _MOST_MB
    print(
        f"  Targets: below {_MOST_SECONDS:g} s: {best.seconds:.1f} s: {verdict(fast)}; "
        f"below {_MOST_MB:,.0f} MB, all processes: {peak:,.0f} MB: {verdict(small)}."
    )
    if not (fast and small):
        raise Missed(f"a state took {best.seconds:.1f} s and {peak:,.0f} MB")


def _growth(options: argparse.Namespace, folder: Path) -> None:
    _warm_up(folder, options.workers)
    rows, cost, memory = [], [], []
    for times in _TIMES:
        people = times * options.people
        blocks = PopulationShape.for_people(people).blocks
        work = _release(folder, people, options.workers)
        # Processor time, because other work may keep the cores busy.
        cost.append(1e3 * work.cpu / blocks)
        memory.append(work.peak_mb / blocks)
        rows.append(
            (
                *(f"{times} ×", f"{people:,}", f"{blocks:,}"),
                *(f"{work.seconds:,.1f}", f"{work.cpu:,.1f}", f"{1e3 * work.seconds / blocks:.3f}"),
                *(f"{cost[-1]:.3f}", f"{work.peak_mb:,.0f}", f"{1024 * memory[-1]:.1f}"),
            )
        )
    columns = (
        *("size", "people", "blocks", "s", "processor s", "ms per block", "processor ms per block"),
        *("peak MB", "KB per block"),
    )
    show(f"Growth, {options.workers} workers; load average {os.getloadavg()[0]:.1f}", columns, rows)
    time_met, memory_met = (max(per) <= _MOST_GROWTH * per[0] for per in (cost, memory))
    print(
        f"  Targets: a block needs at most {_MOST_GROWTH} times what it needs at the smallest size. "
        f"Processor time: {_range(cost)}: {verdict(time_met)}; memory: {_range(memory)}: "
        f"{verdict(memory_met)}. Below 1, the fixed cost of a run is shared by more blocks."
    )
    if not (time_met and memory_met):
        raise Missed("the cost of a block grows with the number of blocks")


def _range(per_block: list[float]) -> str:
    relative = [value / per_block[0] for value in per_block]
    return f"{min(relative):.2f} to {max(relative):.2f}"
