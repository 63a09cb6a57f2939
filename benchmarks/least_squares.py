"""Least squares in two passes: the time, memory and growth of a state, and a peer."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, cg

from benchmarks.table import Missed, in_child, show, verdict
from countveil import estimate
from countveil.base.numerics import FloatArray
from countveil.base.randomness import Seeded
from countveil.demo import starter
from countveil.demo.synthetic import PopulationShape
from countveil.engines.engine import open_engine
from countveil.measure import Measurements, take
from countveil.plan.plans import Plan, require_counts

_SEED = 1
_MOST_SECONDS = 10.0
_BLOCKS = (6_250, 12_500, 25_000, 50_000)
_PER_BLOCK = 26  # people
_MOST_GROWTH = 1.2
_MOST_MEMORY_GROWTH = 1.5
_PEER_PEOPLE = 1_000
_PEER_GAP = 1e-6
_DISTRICTS = 38


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a piece of work, and how many numbers it produced."""

    numbers: int
    seconds: float
    cpu: float


def state(options: argparse.Namespace, folder: Path) -> None:
    """Estimate the full histogram of every unit, and other queries, in separate processes."""
    measured = _measured(folder, options.people)
    blocks = PopulationShape.for_people(options.people).blocks
    full = "*".join(item.name for item in measured.plan.schema.attributes)
    asked: dict[str, Callable[[], int]] = {
        f"{query} of all levels": partial(_everything, measured, query)
        for query in ("TOTAL", "HISPANIC*CENRACE", full)
    }
    asked[f"CENRACE of {_DISTRICTS} districts, with covariances"] = partial(_districts, measured)
    rows, seconds = [], 0.0
    for title, work in asked.items():
        runs = [in_child(partial(_timed, work)) for _ in range(options.runs)]
        best = min(runs, key=lambda run: run.result.seconds)
        rows.append(
            (
                *(title, f"{best.result.numbers:,}", f"{best.result.seconds:.2f}"),
                *(f"{best.result.cpu:.2f}", f"{max(run.peak_mb for run in runs):,.0f}"),
            )
        )
        if title.startswith(full):
            seconds = best.result.seconds
    columns = ("what", "estimates", "s", "processor s", "peak MB")
    show(
        f"A state of {options.people:,} people and {blocks:,} blocks: estimates with standard errors, "
        f"from the files of its measurements; best of {options.runs}; load average "
        f"{os.getloadavg()[0]:.1f}",
        columns,
        rows,
    )
    met = seconds < _MOST_SECONDS
    print(
        f"  Target: every cell of every unit of all levels below {_MOST_SECONDS:g} s: {seconds:.1f} s: "
        f"{verdict(met)}."
    )
    if not met:
        raise Missed(f"least squares for a state took {seconds:.1f} s")


def growth(options: argparse.Namespace, folder: Path) -> None:
    """Estimate every cell of every unit of ever larger states."""
    rows, cost, memory = [], [], []
    for blocks in _BLOCKS:
        # In a separate process, so that its memory is not counted with the estimates.
        measured = in_child(partial(_measured, folder, blocks * _PER_BLOCK)).result
        full = "*".join(item.name for item in measured.plan.schema.attributes)
        run = in_child(partial(_timed, partial(_everything, measured, full)))
        cost.append(1e3 * run.result.cpu / blocks)
        memory.append(run.peak_mb)
        rows.append(
            (
                *(f"{blocks:,}", f"{run.result.numbers:,}", f"{run.result.seconds:.1f}"),
                *(f"{run.result.cpu:.1f}", f"{cost[-1]:.3f}", f"{run.peak_mb:,.0f}"),
            )
        )
    columns = ("blocks", "estimates", "s", "processor s", "processor ms per block", "peak MB")
    show(f"Growth; load average {os.getloadavg()[0]:.1f}", columns, rows)
    time_met = max(cost) <= _MOST_GROWTH * cost[0]
    memory_met = max(memory) <= _MOST_MEMORY_GROWTH * memory[0]
    print(
        f"  Targets: a block takes at most {_MOST_GROWTH} times the processor time it takes at the "
        f"smallest size: {max(cost) / cost[0]:.2f}: {verdict(time_met)}; the memory of "
        f"{_BLOCKS[-1] // _BLOCKS[0]} times the blocks is at most {_MOST_MEMORY_GROWTH} times as much: "
        f"{max(memory) / memory[0]:.2f}: {verdict(memory_met)}."
    )
    if not (time_met and memory_met):
        raise Missed("least squares grows faster than the number of blocks")


def peer(options: argparse.Namespace, folder: Path) -> None:
    """Solve a small state by conjugate gradients as one sparse problem; compare with two passes."""
    measured = _measured(folder, _PEER_PEOPLE, invariants=False)
    plan = measured.plan
    full = "*".join(item.name for item in plan.schema.attributes)
    start = time.perf_counter()
    estimates = estimate.least_squares(measured, plan)
    parts = list(estimates.batches("block", full))
    value = np.concatenate([part.value for part in parts])
    error = np.concatenate([part.standard_error for part in parts])
    ours = time.perf_counter() - start
    rows, right = _normal_equations(measured, estimates.geography.units("block"))
    start = time.perf_counter()
    solved = _solve(rows, right)
    values_seconds = time.perf_counter() - start
    one = np.zeros(len(right))
    one[0] = 1.0
    start = time.perf_counter()
    column = _solve(rows, one)
    error_seconds = time.perf_counter() - start
    gap = float(np.abs(solved.reshape(value.shape) - value).max())
    apart = abs(float(np.sqrt(column[0])) - float(error[0, 0]))
    show(
        f"{len(value):,} blocks of {plan.schema.cells:,} cells, {value.size:,} unknowns",
        ("solver", "what", "s", "ratio"),
        [
            ("two passes", f"all values, {value.size:,} standard errors", f"{ours:.2f}", "1"),
            _against(ours, "all values", values_seconds),
            _against(ours, "one standard error", error_seconds),
        ],
    )
    met = gap < _PEER_GAP and apart < _PEER_GAP
    print(
        f"  The largest difference of a value is {gap:.1e}, of the standard error {apart:.1e}: "
        f"{verdict(met)}."
    )
    if not met:
        raise Missed("least squares and conjugate gradients differ")


def _measured(folder: Path, people: int, *, invariants: bool = True) -> Measurements:
    """Write and measure the demo's state."""
    print(f"measuring {people:,} people", file=sys.stderr, flush=True)
    name = f"state-{people}"
    plan = require_counts(
        Plan.load(starter.write_demo(folder / name, people=people, seed=_SEED)), "a benchmark"
    )
    if not invariants:
        document = {key: part for key, part in plan.document.items() if key != "invariants"}
        plan = plan.with_document(document)
    counts = open_engine("local").tabulate(plan)
    return take(counts, plan, rng=Seeded(_SEED), ledger=None, to=folder / f"{name}-measured")


def _timed(work: Callable[[], int]) -> Cost:
    start, used = time.perf_counter(), sum(os.times()[:2])
    numbers = work()
    return Cost(numbers, time.perf_counter() - start, sum(os.times()[:2]) - used)


def _everything(measured: Measurements, query: str) -> int:
    """Estimate a query for every unit of all levels; return how many numbers that is."""
    estimates = estimate.least_squares(measured, measured.plan)
    return sum(
        part.value.size
        for level in measured.plan.levels
        for part in estimates.batches(level, query)
    )


def _districts(measured: Measurements) -> int:
    """Divide the state into districts of neighbouring blocks, and estimate them together."""
    estimates = estimate.least_squares(measured, measured.plan)
    blocks = estimates.geography.geocodes("block").to_pylist()
    cut = np.array_split(np.array(blocks), _DISTRICTS)
    found = estimates.areas(
        {f"district {n}": list(codes) for n, codes in enumerate(cut)}, "CENRACE"
    )
    return int(found.covariance.size)


def _normal_equations(measured: Measurements, blocks: int) -> tuple[sp.csr_array, FloatArray]:
    """Return R and b of RᵀR x = b, where x are the cells of all blocks."""
    plan = measured.plan
    geography = plan.geography()
    rows, right = [], []
    for level in plan.levels:
        above = geography.ancestors("block", level)
        inside = sp.csr_array((np.ones(blocks), (above, np.arange(blocks))))
        for item in plan.at(level):
            found = measured.read(level, item.query.name)
            cells = len(item.query.cell_of)
            query = sp.csr_array((np.ones(cells), (item.query.cell_of, np.arange(cells))))
            scale = 1 / np.sqrt(found.mechanism.variance)
            rows.append(scale * sp.kron(inside, query, format="csr"))
            right.append(scale * found.values.reshape(-1))
    stacked = sp.csr_array(sp.vstack(rows))
    return stacked, stacked.T @ np.concatenate(right)


def _against(ours: float, what: str, seconds: float) -> tuple[str, ...]:
    return "SciPy's conjugate gradients", what, f"{seconds:.2f}", f"{seconds / ours:,.0f}"


def _solve(rows: sp.csr_array, right: FloatArray) -> FloatArray:
    size = len(right)
    normal = LinearOperator((size, size), matvec=lambda x: rows.T @ (rows @ x), dtype=float)
    solved, status = cg(normal, right, rtol=1e-12, maxiter=10_000)
    if status != 0:
        raise Missed("conjugate gradients did not converge")
    return np.asarray(solved)
