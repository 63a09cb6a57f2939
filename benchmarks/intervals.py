"""Intervals by least squares and by replicates: time, memory, growth, coverage, and real blocks."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import interval_coverage, least_squares, replicate_intervals
from benchmarks.table import Part, run_parts

PARTS: dict[str, Part] = {
    "state": least_squares.state,
    "growth": least_squares.growth,
    "peer": least_squares.peer,
    "coverage": interval_coverage.coverage,
    "real": interval_coverage.real,
    "published": interval_coverage.published,
    "replicates": replicate_intervals.replicated_state,
    "replicate-coverage": replicate_intervals.replicate_coverage,
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument(
        "--part", choices=PARTS, action="append", help="run only this part; can be repeated"
    )
    parser.add_argument("--people", type=int, default=650_000, help="people of the state")
    parser.add_argument("--runs", type=int, default=2, help="runs of the state; the best counts")
    parser.add_argument("--releases", type=int, default=200, help="simulated releases")
    parser.add_argument("--count", type=int, default=100, help="replicates of the state")
    parser.add_argument(
        "--coverage-people", type=int, default=10_000, help="people of each replicated release"
    )
    parser.add_argument(
        "--coverage-count", type=int, default=60, help="replicates of each release for coverage"
    )
    parser.add_argument("--published", type=int, default=3, help="releases of the part published")
    parser.add_argument(
        "--published-people", type=int, default=100_000, help="people of the demo in that part"
    )
    parser.add_argument(
        "--data",
        type=Path,
        help="folder with ri_2010_block.csv: real needs it, published then uses it, too",
    )


def run(options: argparse.Namespace) -> None:
    """Run the requested parts, or all of them."""
    asked = [part for part in PARTS if part in (options.part or PARTS)]
    if options.data is None:
        asked = [part for part in asked if part != "real"]
    run_parts({part: PARTS[part] for part in asked}, options)
