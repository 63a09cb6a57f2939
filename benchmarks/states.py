"""Fifty-one states of a nation with two counties each, solved to full precision, draw after draw."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import table
from countveil import Plan, Seeded, measure, open_engine, postprocess
from countveil.errors import CertificateError
from countveil.plan.plans import require_counts
from countveil.postprocess.certificate import LARGEST_GAP, LARGEST_RESIDUAL

_PLAN = """
release = { title = "States", preset = "pl94-2020", unit = "person", neighbors = "change-one" }
records = { path = "counts.parquet", counts = "n", one_row_per_person = true }
geography = { path = "states.csv", levels = ["nation", "state", "county"] }
[budget.levels]
nation = "104/1991"
state = "1440/1991"
county = "447/1991"
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--draws", type=int, default=10, help="releases of each size")
    parser.add_argument(
        "--counts",
        type=Path,
        help="Parquet file with state, the preset's attributes and n; simulated by default",
    )
    parser.add_argument(
        "--scales", type=float, nargs="+", default=[1.0, 1.55, 4.7], help="factors for the counts"
    )


def run(options: argparse.Namespace) -> None:
    """Release states at several sizes with seeded noise; every family must meet its certificate."""
    rows, failures = [], 0
    for scale in options.scales:
        with tempfile.TemporaryDirectory() as folder:
            row, failed = _draws(Path(folder), options.counts, scale, options.draws)
        rows.append(row)
        failures += failed
    head = [
        "people",
        "draws",
        "failed",
        "fallbacks",
        "worst residual",
        "worst gap",
        "farthest sum",
        "s",
        "longest",
    ]
    table.show("51 states of two counties, 2,016 cells, pl94-2020, seeded noise", head, rows)
    if failures:
        raise table.Missed(f"{failures} draws could not be solved to full precision")


def _draws(folder: Path, source: Path | None, scale: float, draws: int) -> tuple[list[str], int]:
    """Release states of one size; return a row of the table and the number of failed draws."""
    plan, people = _write(folder, source, scale)
    counts = open_engine("local").tabulate(plan)
    residuals, gaps, farthest, seconds, fallbacks, failed = [0.0], [0.0], [0.0], [], 0, 0
    for seed in range(draws):
        to = folder / f"out{seed}"
        taken = measure.take(counts, plan, rng=Seeded(seed), ledger=None, to=to)
        start = time.perf_counter()
        try:
            estimates = postprocess.top_down(taken, plan)
        except CertificateError as error:
            print(f"seed {seed}: {error}", flush=True)
            failed += 1
            continue
        finally:
            seconds.append(time.perf_counter() - start)
        residuals += [item.kkt_residual for item in estimates.certificate]
        gaps += [item.consistency_gap for item in estimates.certificate]
        farthest += [max(item.largest_departure.values()) for item in estimates.certificate]
        fallbacks += sum(item.fallbacks for item in estimates.certificate)
        assert estimates.consistency_gap() == 0
    row = [
        f"{people:,}",
        f"{draws}",
        f"{failed}",
        f"{fallbacks}",
        f"{max(residuals):.1e} of {LARGEST_RESIDUAL:.0e}",
        f"{max(gaps):.1e} of {LARGEST_GAP:.0e}",
        f"{max(farthest):.2f}",
        f"{np.mean(seconds):.1f}",
        f"{max(seconds):.1f}",
    ]
    return row, failed


def _write(folder: Path, source: Path | None, scale: float) -> tuple[Plan, int]:
    """Write plan, crosswalk and counts."""
    empty = require_counts(Plan.parse(_PLAN, folder=folder), "a benchmark")
    counts = _simulated(empty) if source is None else pq.read_table(source)
    n = np.rint(counts["n"].to_numpy() * scale).astype(np.int64)
    # Two counties per state, so that states are estimated with what is measured below them.
    first = np.random.default_rng(1).binomial(n, 0.6)
    names, state = ["state", "n"], counts["state"]
    halves = [
        counts.drop_columns(names)
        .append_column("county", pc.binary_join_element_wise(state, part, "-"))
        .append_column("n", pa.array(people))
        for part, people in (("1", first), ("2", n - first))
    ]
    pq.write_table(pa.concat_tables(halves), folder / "counts.parquet")
    lines = [
        f"US,{code},{code}-{part}\n" for code in sorted(set(state.to_pylist())) for part in (1, 2)
    ]
    (folder / "states.csv").write_text("nation,state,county\n" + "".join(lines))
    return empty, int(n.sum())


def _simulated(plan: Plan) -> pa.Table:
    """Return counts of 51 states with 211 million people, most of them in a few cells."""
    rng = np.random.default_rng(0)
    shares = rng.gamma(0.15, size=plan.schema.cells)
    sizes = rng.gamma(0.8, size=51)
    mean = 211e6 * np.outer(sizes / sizes.sum(), shares / shares.sum())
    state, cell = np.nonzero(counts := rng.poisson(mean))
    codes = np.unravel_index(cell, plan.schema.shape)
    columns = {
        item.name: np.array(item.categories)[code]
        for item, code in zip(plan.schema.attributes, codes, strict=True)
    }
    names = np.array([f"{number:02d}" for number in range(51)])
    return pa.table({"state": names[state], **columns, "n": counts[state, cell]})
