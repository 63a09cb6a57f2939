"""Shared by all benchmarks: the machine, aligned tables, and runs in separate processes."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import resource
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

T = TypeVar("T")
Part = Callable[[argparse.Namespace, Path], None]


class Missed(Exception):
    """A benchmark missed a target or disproved a claim; the run exits with status 1."""


@dataclass(frozen=True, slots=True)
class Run(Generic[T]):
    """What a function returned, how long it took, and the peak memory of its process."""

    result: T
    seconds: float
    peak_mb: float


def run_parts(parts: Mapping[str, Part], options: argparse.Namespace) -> None:
    """Run parts of a benchmark, each in its own folder, and all even if one misses its target."""
    missed = []
    for part in parts.values():
        try:
            with tempfile.TemporaryDirectory(prefix="countveil-") as folder:
                part(options, Path(folder))
        except Missed as error:
            missed.append(str(error))
    if missed:
        raise Missed("; ".join(missed))


def machine() -> str:
    """Return the processor, its cores, Python, NumPy and the date, in one line."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return (
        f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"NumPy {np.__version__}, {date.today().isoformat()}"
    )


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print an aligned table, with numbers right-aligned and text left-aligned."""
    print(f"\n{title}")
    cells = [tuple(columns), *(tuple(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    numeric = [
        all(not text or text[0] in "0123456789-" for text in column)
        for column in zip(*(tuple(row) for row in rows), strict=True)
    ] or [False] * len(columns)
    for row in cells:
        padded = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        )
        print("  " + "  ".join(padded).rstrip(), flush=True)


def verdict(met: bool) -> str:
    """Say whether a target was met."""
    return "met" if met else "MISSED"


def best_seconds(function: Callable[[], object], repeats: int) -> float:
    """Return the time of the fastest of several runs: the others were disturbed."""
    shortest = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        shortest = min(shortest, time.perf_counter() - start)
    return shortest


def in_child(function: Callable[[], T]) -> Run[T]:
    """Run a function in a forked process, so that its peak memory is measured alone."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_report, args=(function, sender))
    child.start()
    sender.close()
    try:
        outcome: Run[T] | str = receiver.recv()
    except EOFError:
        child.join()
        raise RuntimeError(f"the child process ended with status {child.exitcode}") from None
    child.join()
    if isinstance(outcome, str):
        raise RuntimeError(f"the child process failed\n{outcome}")
    return outcome


def _report(function: Callable[[], T], sender: Connection) -> None:
    try:
        start = time.perf_counter()
        result = function()
        seconds = time.perf_counter() - start
        peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        sender.send(Run(result, seconds, peak_kb / 1024))
    except BaseException:
        sender.send(traceback.format_exc())
