"""Time and memory of counting millions of people at six levels, compared with bare DuckDB."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import duckdb
import pyarrow.compute  # noqa: F401  loaded before a process is timed, like everything it needs

from benchmarks.table import Run, in_child, show, verdict
from countveil.demo.synthetic import LEVELS, Population, write_population
from countveil.engines.engine import open_engine
from countveil.engines.local import local_engine  # noqa: F401
from countveil.plan.plans import Plan

_PLAN = """
[release]
title = "Synthetic people"
preset = "pl94-2020"

[records]
path = "people.parquet"
one_row_per_person = true

[geography]
path = "blocks.csv"
"""
_ATTRIBUTES = "HHGQ, VOTINGAGE, HISPANIC, CENRACE"
_BARE_MEMORY = "800MB"
_MOST_RATIO = 1.5
_MOST_MB = 1000
_MOST_GROWTH = 1.25  # of seconds per million people, from the smallest population to the largest

Sizes = dict[str, int]  # cells that are not zero, by level


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument(
        "--people", type=int, nargs="+", default=[10**6, 10**7, 3 * 10**7], help="sizes to run"
    )
    parser.add_argument(
        "--tabulate-repeats",
        type=int,
        default=3,
        help="runs of each size; the best counts",
    )


def run(options: argparse.Namespace) -> None:
    """Write populations to a temporary folder and count each in both ways."""
    rows, ratios, peaks, growth = [], [], [], []
    for people in options.people:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            written = in_child(lambda: write_population(folder, people=people, seed=7)).result  # noqa: B023
            ours, bare = _both(written, folder, options.tabulate_repeats)
        if ours.result != bare.result:
            raise AssertionError(f"the counts differ: {ours.result} and {bare.result}")
        ratios.append(ours.seconds / bare.seconds)
        peaks.append(ours.peak_mb)
        growth.append(1e6 * ours.seconds / people)
        rows.append(
            (
                *(f"{people:,}", f"{written.shape.blocks:,}"),
                *(f"{ours.seconds:.2f}", f"{bare.seconds:.2f}", f"{ratios[-1]:.2f}"),
                *(f"{ours.peak_mb:,.0f}", f"{bare.peak_mb:,.0f}", f"{growth[-1]:.3f}"),
            )
        )
    columns = (
        *("people", "blocks", "ours s", "bare s", "ours / bare"),
        *("ours MB", "bare MB", "ours s per million"),
    )
    title = (
        f"The pl94-2020 preset, best of {options.tabulate_repeats}, DuckDB {duckdb.__version__}, "
        f"{os.cpu_count()} threads; bare DuckDB is limited to {_BARE_MEMORY}"
    )
    show(title, columns, rows)
    print(
        f"  Targets: ours / bare at most {_MOST_RATIO}: {verdict(max(ratios) <= _MOST_RATIO)}; "
        f"below {_MOST_MB:,} MB: {verdict(max(peaks) < _MOST_MB)}; seconds per million, the largest "
        f"population over the smallest, at most {_MOST_GROWTH}: {growth[-1] / growth[0]:.2f}: "
        f"{verdict(growth[-1] <= _MOST_GROWTH * growth[0])}."
    )


def _both(population: Population, folder: Path, repeats: int) -> tuple[Run[Sizes], Run[Sizes]]:
    """Run both in turn; keep the shortest time and the largest memory of each."""
    runs = [
        (in_child(lambda: _ours(folder)), in_child(lambda: _bare(population, folder)))
        for _ in range(repeats)
    ]
    ours, bare = (
        Run(some[0].result, min(r.seconds for r in some), max(r.peak_mb for r in some))
        for some in zip(*runs, strict=True)
    )
    return ours, bare


def _ours(folder: Path) -> Sizes:
    counts = open_engine("local").tabulate(Plan.parse(_PLAN, folder=folder))
    return {level: len(counts.levels[level].cells) for level in LEVELS}


def _bare(population: Population, folder: Path) -> Sizes:
    """Group the records by each level, without checks and without the zero-based layout."""
    with tempfile.TemporaryDirectory(dir=folder) as spill:
        config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": _BARE_MEMORY,
            "threads": os.cpu_count() or 1,
            "temp_directory": spill,
            "preserve_insertion_order": False,
        }
        with duckdb.connect(config=config) as connection:
            connection.execute(
                "CREATE TEMP TABLE crosswalk AS SELECT * FROM "
                f"read_csv('{population.crosswalk}', all_varchar = true, header = true)"
            )
            sizes = {}
            for level in LEVELS:
                joined = "" if level == "block" else "JOIN crosswalk USING (block)"
                connection.execute(
                    f"CREATE TEMP TABLE by_{level} AS SELECT {level}, {_ATTRIBUTES}, count(*) AS n "
                    f"FROM read_parquet('{population.records}') {joined} GROUP BY ALL"
                )
                size = connection.execute(f"SELECT count(*) FROM by_{level}").fetchall()
                sizes[level] = int(size[0][0])
            return sizes
