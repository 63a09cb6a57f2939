"""Intervals: least squares over a whole tree: its time, memory, growth, coverage; real blocks too."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import interval_coverage, least_squares
from benchmarks.table import Missed

PARTS: dict[str, Callable[[argparse.Namespace, Path], None]] = {
    "state": least_squares.state,
    "growth": least_squares.growth,
    "peer": least_squares.peer,
    "coverage": interval_coverage.coverage,
    "real": interval_coverage.real,
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument(
        "--part", choices=PARTS, action="append", help="run this part only; may be given again"
    )
    parser.add_argument("--people", type=int, default=650_000, help="people of the state")
    parser.add_argument("--runs", type=int, default=2, help="runs of the state; the best counts")
    parser.add_argument("--releases", type=int, default=200, help="simulated releases")
    parser.add_argument(
        "--data", type=Path, help="folder with ri_2010_block.csv; without it, no part real"
    )


def run(options: argparse.Namespace) -> None:
    """Run the parts asked for; all of them if none is."""
    missed = []
    for part, function in PARTS.items():
        if part not in (options.part or PARTS) or (part == "real" and options.data is None):
            continue
        try:
            with tempfile.TemporaryDirectory(prefix="countveil-") as folder:
                function(options, Path(folder))
        except Missed as error:
            missed.append(str(error))
    if missed:
        raise Missed("; ".join(missed))
