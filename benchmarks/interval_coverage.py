"""Coverage of least-squares intervals: simulated releases, and Rhode Island's blocks."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks import accuracy
from benchmarks.table import Missed, show, verdict
from countveil import estimate, pipeline
from countveil.base.numerics import IntArray
from countveil.base.randomness import Seeded
from countveil.demo import starter
from countveil.engines.counts import Counts, build
from countveil.engines.engine import open_engine
from countveil.measure import take
from countveil.plan.plans import Plan, require_counts
from countveil.plan.workload import Query
from countveil.publish.release_folder import Release

_SEED = 1
_COVERAGE_PEOPLE = 20_000
_CONFIDENCE = 0.9
_WITHIN = 3.0  # standard errors
_LEAST_COVERED, _MOST_COVERED = 88.0, 93.0  # percent of published intervals


def coverage(options: argparse.Namespace, folder: Path) -> None:
    """Measure a small state many times, and count how often intervals contain the truth."""
    plan = require_counts(
        Plan.load(starter.write_demo(folder / "state", people=_COVERAGE_PEOPLE, seed=_SEED)),
        "a benchmark",
    )
    counts = open_engine("local").tabulate(plan)
    queries = ("TOTAL", "VOTINGAGE", "HISPANIC*CENRACE")
    held: dict[tuple[str, str], list[float]] = {}
    size: dict[tuple[str, str], int] = {}
    for seed in range(1, options.releases + 1):
        if seed % 10 == 0:
            print(f"  release {seed} of {options.releases}", file=sys.stderr, flush=True)
        to = folder / f"release-{seed}"
        estimates = estimate.least_squares(
            take(counts, plan, rng=Seeded(seed), ledger=None, to=to), plan
        )
        for query in queries:
            asked = plan.schema.query(query)
            for level in plan.levels:
                inside, noisy = _inside(estimates, counts, level, asked)
                if noisy.any():
                    held.setdefault((query, level), []).append(float(inside[noisy].mean()))
                    size[query, level] = int(noisy.sum())
                if not inside[~noisy].all():
                    raise Missed(f"{query} of {level}: an exact value differs from the count")
        for path in (to, to.with_name(f"{to.name}-internal")):
            shutil.rmtree(path)
    rows, worst = [], 0.0
    for (query, level), shares in held.items():
        mean, spread = float(np.mean(shares)), float(np.std(shares, ddof=1))
        error = spread / np.sqrt(len(shares))
        away = (mean - _CONFIDENCE) / error
        worst = max(worst, abs(away))
        rows.append(
            (
                *(query, level, f"{size[query, level]:,}", f"{100 * mean:.2f}"),
                *(f"{100 * error:.2f}", f"{away:.1f}"),
            )
        )
    columns = ("query", "level", "intervals", "covered %", "standard error", "away")
    show(
        f"{options.releases} releases of {_COVERAGE_PEOPLE:,} people: {100 * _CONFIDENCE:g} percent "
        f"intervals, exact values excluded",
        columns,
        rows,
    )
    met = worst < _WITHIN
    print(f"  Target: all within {_WITHIN:g} standard errors: at most {worst:.1f}: {verdict(met)}.")
    if not met:
        raise Missed("intervals do not cover as often as they say")


_RHODE_ISLAND = """
[release]
title = "Rhode Island 2010"
unit = "person"
neighbors = "change-one"
[geography]
path = "blocks.csv"
levels = ["state", "county", "tract", "block_group", "block"]
[attributes]
VOTINGAGE = ["under 18", "18 and over"]
GROUP = ["white", "black", "hisp", "aian", "asian", "nhpi", "other", "two"]
[budget]
rho = "2.56"
[budget.levels]
state = "1544/4099"
county = "447/4099"
tract = "687/4099"
block_group = "1256/4099"
block = "165/4099"
[budget.queries."*"]
TOTAL = "4/10"
GROUP = "3/10"
"VOTINGAGE*GROUP" = "3/10"
[[invariants]]
level = "state"
query = "TOTAL"
reason = "apportionment"
[postprocess]
method = "none"
"""


def real(options: argparse.Namespace, folder: Path) -> None:
    """Estimate Rhode Island's counties and 1,000 scattered blocks, and compare with the counts."""
    plan, counts, truth = _rhode_island(options.data / "ri_2010_block.csv", folder)
    measured = take(counts, plan, rng=Seeded(_SEED), ledger=None, to=folder / "release")
    start = time.perf_counter()
    estimates = estimate.least_squares(measured, plan)
    geography = estimates.geography
    codes = np.array(geography.geocodes("block").to_pylist())
    chosen = np.sort(np.random.default_rng(_SEED).choice(len(codes), 1_000, replace=False))
    counties = geography.ancestors("block", "county")
    names = geography.geocodes("county").to_pylist()
    areas = {f"county {code}": np.flatnonzero(counties == n) for n, code in enumerate(names)}
    areas["1,000 blocks"] = chosen
    rows, hits, cells = [], 0, 0
    for query in ("TOTAL", "VOTINGAGE*GROUP"):
        asked = plan.schema.query(query)
        found = estimates.areas({name: list(codes[units]) for name, units in areas.items()}, query)
        for number, (name, units) in enumerate(areas.items()):
            exact = _summed(asked, truth[units].sum(axis=0))
            inside = (found.lower[number] <= exact) & (exact <= found.upper[number])
            hits, cells = hits + int(inside.sum()), cells + len(exact)
            if query == "TOTAL":
                rows.append(
                    (
                        *(
                            name,
                            f"{len(units):,}",
                            f"{exact[0]:,}",
                            f"{found.value[number, 0]:,.1f}",
                        ),
                        *(
                            f"{found.standard_error[number, 0]:.1f}",
                            f"{found.lower[number, 0]:,.1f}",
                        ),
                        *(f"{found.upper[number, 0]:,.1f}", "yes" if inside[0] else "no"),
                    )
                )
    columns = (
        "area",
        "blocks",
        "count",
        "estimate",
        "standard error",
        "lower",
        "upper",
        "contains it",
    )
    show(f"Rhode Island, {truth.sum():,} people in {len(truth):,} blocks: totals", columns, rows)
    print(
        f"  Of the {cells} intervals of these areas, totals and cells of VOTINGAGE*GROUP, {hits} "
        f"contain the count. All took {time.perf_counter() - start:.1f} s."
    )


def published(options: argparse.Namespace, folder: Path) -> None:
    """Release places a few times; count how often the intervals of `estimates/` hold.

    The demo, and visits to clinics with all cells measured; with `--data` a state's blocks, for which
    the target holds.
    """
    demo = starter.write_demo(folder / "demo", people=options.published_people, seed=1)
    places = {
        f"Demo, {options.published_people:,} people": require_counts(
            Plan.load(demo), "a benchmark"
        ),
        "Visits to 60 clinics": accuracy.clinics_plan(folder / "visits"),
    }
    overall = {}
    for title, plan in places.items():
        overall[title] = _published_coverage(title, plan, options.published, folder / title)
    if options.data is None:
        return
    title, path = accuracy.blocks_plan(options.data / "ri_2010_block.csv", folder)
    plan = require_counts(Plan.load(path), "a benchmark")
    covered = _published_coverage(title, plan, options.published, folder / title)
    met = _LEAST_COVERED <= covered <= _MOST_COVERED
    print(
        f"  Target: {_LEAST_COVERED:g} to {_MOST_COVERED:g} percent over all levels of {title}: "
        f"{verdict(met)}."
    )
    if not met:
        raise Missed("published intervals do not cover as often as they say")


def _published_coverage(title: str, plan: Plan, releases: int, folder: Path) -> float:
    """Show the coverage of a plan's published intervals by level; return it over all levels."""
    counts = open_engine("local").tabulate(plan)
    held: dict[str, list[NDArray[np.bool_]]] = {level: [] for level in plan.levels}
    for seed in range(1, releases + 1):
        out = folder / f"published-{seed}"
        release = pipeline.release(plan, to=out, rng=Seeded(seed))
        assert isinstance(release, Release)
        for level in plan.levels:
            held[level].append(_published_inside(out, level, counts, plan))
    rows, everywhere = [], []
    for level, parts in held.items():
        inside = np.concatenate(parts)
        everywhere.append(inside)
        share = f"{100 * inside.mean():.1f}" if len(inside) else ""
        rows.append((level, f"{len(inside) // releases:,}", share))
    overall = float(100 * np.concatenate(everywhere).mean())
    rows.append(("all levels", "", f"{overall:.1f}"))
    columns = ("level", "listed counts", "covered %")
    show(f"{title}: {100 * _CONFIDENCE:g} percent intervals of estimates/", columns, rows)
    return overall


def _published_inside(out: Path, level: str, counts: Counts, plan: Plan) -> NDArray[np.bool_]:
    """Return which published intervals of a level contain the count; exact counts are left out."""
    table = pq.read_table(out / "estimates" / f"{level}.parquet")
    codes = counts.geography.geocodes(level).to_pylist()
    unit = pc.index_in(table["geocode"].cast("string"), pa.array(codes)).to_numpy()
    cell = np.zeros(len(table), np.int64)
    for attribute in plan.schema.attributes:
        place = pc.index_in(
            table[attribute.name].cast("string"), pa.array(list(attribute.categories))
        )
        cell = cell * len(attribute.categories) + place.to_numpy()
    truth = np.zeros((len(codes), plan.schema.cells), np.int64)
    units, cells, people = counts.entries(level, 0, len(codes))
    truth[units, cells] = people
    lower, upper, error = (table[name].to_numpy() for name in ("lower", "upper", "standard_error"))
    exact = truth[unit, cell]
    inside: NDArray[np.bool_] = ((lower <= exact) & (exact <= upper))[error > 0]
    return inside


def _inside(
    estimates: estimate.LeastSquares, counts: Counts, level: str, query: Query
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which intervals of a level contain the count, and which belong to a noisy value."""
    inside, noisy = [], []
    for part in estimates.batches(level, query.name):
        unit, cell, count = counts.entries(level, part.start, part.stop)
        truth = np.zeros(part.value.shape, np.int64)
        np.add.at(truth, (unit, query.cell_of[cell]), count)
        lower, upper = part.interval(_CONFIDENCE)
        inside.append((lower <= truth) & (truth <= upper))
        noisy.append(part.standard_error > 0)
    return np.concatenate(inside), np.concatenate(noisy)


def _rhode_island(path: Path, folder: Path) -> tuple[Plan, Counts, IntArray]:
    """Read the blocks of Rhode Island; return the plan, the counts, and an array of blocks × cells."""
    codes = pyarrow.csv.ConvertOptions(column_types={"GEOID": "string"})
    table = pyarrow.csv.read_csv(path, convert_options=codes)
    blocks = table["GEOID"].to_pylist()
    lines = [",".join((b[:2], b[:5], b[:11], b[:12], b)) for b in blocks]
    (folder / "blocks.csv").write_text(
        "\n".join(["state,county,tract,block_group,block", *lines]) + "\n"
    )
    plan = require_counts(Plan.parse(_RHODE_ISLAND, folder=folder), "a benchmark")
    geography = plan.geography()
    groups = plan.schema.attributes[1].categories
    everyone, adults = (
        np.stack([table[f"{kind}_{group}"].to_numpy() for group in groups], axis=1)
        for kind in ("pop", "vap")
    )
    counted = np.concatenate([everyone - adults, adults], axis=1).astype(np.int64)
    place = {code: number for number, code in enumerate(blocks)}
    order = [place[code] for code in geography.geocodes("block").to_pylist()]
    truth = counted[order]
    unit, cell = np.nonzero(truth)
    entries = [(unit, cell, truth[unit, cell])]
    return plan, build(geography, plan.schema.cells, entries, plan.counting_digest), truth


def _summed(query: Query, cells: IntArray) -> IntArray:
    """Add up the cells of the full histogram to those of a query."""
    result = np.zeros(query.cells, np.int64)
    np.add.at(result, query.cell_of, cells)
    return result
