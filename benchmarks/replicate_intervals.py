"""Replicated releases: time and memory for a state, and the coverage of their intervals."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.table import Missed, in_child, show, verdict
from countveil import Plan, Seeded, estimate, pipeline
from countveil.demo import starter
from countveil.demo.synthetic import PopulationShape
from countveil.engines.counts import Counts, exact_answers
from countveil.engines.engine import open_engine
from countveil.estimate.replication.replicate_intervals import METHODS
from countveil.plan.plans import require_counts
from countveil.publish import Release

_SEED = 1
_MOST_MINUTES = 10.0
_CONFIDENCE = 0.9
_ASKED = (0.87, 0.93)
_LEVELS = ("county", "tract", "block_group")
_SPARSE = "HISPANIC*CENRACE"  # most of its counts are 0
_QUERIES = ("TOTAL", "VOTINGAGE", _SPARSE)
_GROWTH = (40_000, 160_000)
_SIZES = {"0": (0, 0), "1-9": (1, 9), "10-99": (10, 99), "100+": (100, 2**31)}


def replicated_state(options: argparse.Namespace, folder: Path) -> None:
    """Replicate the release of a state, and of smaller ones, on all cores."""
    rows, minutes, memory = [], 0.0, []
    for people, count in (*((people, 20) for people in _GROWTH), (options.people, options.count)):
        release = _released(folder / f"state-{people}", people)
        done = in_child(partial(_replicate, release, count))
        blocks = PopulationShape.for_people(people).blocks
        minutes = done.result / 60
        memory.append(done.peak_mb)
        per_block = 1000 * done.result / count / blocks
        rows.append(
            (
                *(f"{people:,}", f"{blocks:,}", f"{count}", f"{done.result:,.0f}"),
                *(f"{per_block:.3f}", f"{done.peak_mb:,.0f}"),
            )
        )
    columns = ("people", "blocks", "replicates", "s", "ms per block and replicate", "peak MB")
    show(f"Replicates of whole releases, {len(os.sched_getaffinity(0))} processes", columns, rows)
    met = minutes <= _MOST_MINUTES
    print(
        f"  Target: {options.count} replicates of {options.people:,} people within "
        f"{_MOST_MINUTES:g} minutes: {minutes:.1f}: {verdict(met)}."
    )
    if not met:
        raise Missed(f"replicates took {minutes:.1f} minutes")


def replicate_coverage(options: argparse.Namespace, folder: Path) -> None:
    """Release a small place many times, replicate each release, and count the intervals that cover."""
    people = options.coverage_people
    place = starter.write_demo(folder / "place", people=people, seed=_SEED)
    held: dict[tuple[str, str, str, str], list[float]] = {}
    start = time.perf_counter()
    one = partial(_one_release, place, folder, options.coverage_count)
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        for done, found in enumerate(pool.map(one, range(1, options.releases + 1)), 1):
            for key, share in found.items():
                held.setdefault(key, []).append(share)
            if done % 5 == 0:
                took = time.perf_counter() - start
                print(f"  release {done} of {options.releases}, {took:,.0f} s", file=sys.stderr)
    rows, wrong = [], []
    for (level, query, size, method), shares in sorted(held.items()):
        mean = float(np.mean(shares))
        error = float(np.std(shares, ddof=1) / np.sqrt(len(shares)))
        rows.append((level, query, size, method, f"{100 * mean:.1f}", f"{100 * error:.1f}"))
        asked = level in _LEVELS and size == "all" and method == METHODS[0]
        # Whole numbers cannot be wrong one time in ten if the release leaves no doubt about a zero.
        most = 1.0 if query == _SPARSE else _ASKED[1] + 3 * error
        if asked and not _ASKED[0] - 3 * error <= mean <= most:
            wrong.append(f"{query} of {level}: {100 * mean:.1f} %")
    show(
        f"{options.releases} releases of {people:,} people, {options.coverage_count} replicates each: "
        f"{100 * _CONFIDENCE:g} percent intervals for what TopDown released",
        ("level", "query", "true size", "method", "covered %", "standard error"),
        rows,
    )
    print(
        f"  Target: {_ASKED} at {', '.join(_LEVELS)}, within three standard errors; of {_SPARSE}, most "
        f"of whose counts are 0 beyond doubt, the lower end alone: {verdict(not wrong)}."
    )
    if wrong:
        raise Missed("; ".join(wrong))


def _one_release(
    place: Path, folder: Path, count: int, seed: int
) -> dict[tuple[str, str, str, str], float]:
    plan, counts = _counted(place)
    to = folder / f"release-{seed}"
    pipeline.release(plan, to=to, rng=Seeded(seed), workers=1)
    release = Release.read(to)
    shares = _held(estimate.replicates(release, count=count, seed=seed, workers=1), counts)
    for path in (to, to.with_name(f"{to.name}-internal")):
        shutil.rmtree(path)
    return shares


@cache
def _counted(place: Path) -> tuple[Plan, Counts]:
    plan = require_counts(Plan.load(place), "a benchmark")
    return plan, open_engine("local").tabulate(plan)


def _released(folder: Path, people: int) -> Path:
    plan = require_counts(
        Plan.load(starter.write_demo(folder, people=people, seed=_SEED)), "a benchmark"
    )
    pipeline.release(plan, to=folder / "out", rng=Seeded(_SEED))
    return folder / "out"


def _replicate(out: Path, count: int) -> float:
    start = time.perf_counter()
    made = estimate.replicates(Release.read(out), count=count)
    made.interval("block", "TOTAL")
    return time.perf_counter() - start


def _held(made: estimate.Replicates, counts: Counts) -> dict[tuple[str, str, str, str], float]:
    """Return the share of intervals that contain the count, by level, query, true size and method."""
    found: dict[tuple[str, str, str, str], float] = {}
    for level in (*_LEVELS, "block"):
        units = counts.geography.units(level)
        for name in _QUERIES:
            query = made.plan.schema.query(name)
            exact = exact_answers(counts, level, 0, units, query).ravel()
            for method in METHODS:
                table = made.interval(level, name, confidence=_CONFIDENCE, method=method)
                inside = (table["lower"].to_numpy() <= exact) & (exact <= table["upper"].to_numpy())
                found[level, name, "all", method] = float(inside.mean())
                for size, (low, high) in _SIZES.items():
                    own = (exact >= low) & (exact <= high)
                    if own.any():
                        found[level, name, size, method] = float(inside[own].mean())
    return found
