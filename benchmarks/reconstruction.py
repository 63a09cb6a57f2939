"""What exact tables would give away: the starter plan, the demo, and a state's blocks.

Each case runs in a process of its own, so that its memory is measured alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.accuracy import blocks_plan
from benchmarks.table import Part, in_child, run_parts, show
from countveil import Plan, open_engine
from countveil.assess.intruder.ladder import LevelRisk
from countveil.assess.reconstruction import Reconstruction, reconstruct, record_risks
from countveil.demo import starter
from countveil.plan.plans import require_counts

PARTS = ("starter", "demo", "blocks")
_CASES = {
    "as P2 and P4": ("RACE", "AGE*RACE"),
    "race and age apart": ("RACE", "AGE"),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--part", choices=PARTS, action="append", help="run this part only; may be repeated"
    )
    parser.add_argument("--people", type=int, default=100_000, help="people of the demo")
    parser.add_argument(
        "--blocks",
        type=Path,
        help="CSV file of a state's blocks with columns GEOID, pop_RACE and vap_RACE; synthetic people "
        "by default",
    )


def run(options: argparse.Namespace) -> None:
    """Count the databases of every block."""
    parts: dict[str, Part] = {"starter": _starter, "demo": _demo, "blocks": _blocks}
    run_parts({name: parts[name] for name in options.part or PARTS}, options)


def _starter(options: argparse.Namespace, folder: Path) -> None:
    """The plan that `countveil init` writes, with its 2,000 people."""
    path, *_ = starter.write_start(folder / "start", people=2_000, seed=1)
    _show("The starter plan, 2,000 people", path, {"its own": ()})


def _demo(options: argparse.Namespace, folder: Path) -> None:
    """P1 to P5 of the synthetic population of `countveil demo`."""
    path = starter.write_demo(folder / "demo", people=options.people, seed=2020)
    _show(f"The demo, {options.people:,} people", path, {"P1 to P5": ()})


def _blocks(options: argparse.Namespace, folder: Path) -> None:
    """Blocks of a state, real ones if a file is named."""
    title, path = blocks_plan(options.blocks, folder)
    _show(title, path, _CASES)


def _show(title: str, path: Path, cases: Mapping[str, tuple[str, ...]]) -> None:
    rows, classes = [], []
    for name, tables in cases.items():
        ran = in_child(partial(_reconstructed, path, tables))
        found, risks = ran.result
        one, people = found.one_units / found.units, found.one_people / found.people
        rows.append(
            (
                *(name, ", ".join(found.tables), f"{found.units:,}", f"{one:.2%}", f"{people:.2%}"),
                *(f"{found.certain / found.people:.2%}", f"{found.differing / found.people:.2%}"),
                *(f"{found.widest:,}", f"{found.lower_bounds:,}"),
                *(f"{ran.seconds:.1f}", f"{ran.peak_mb:.0f}"),
            )
        )
        classes.append((name, *(f"{item.units:,}" for item in found.classes)))
    show(
        f"{title}: what exact tables would give away",
        (
            *("tables", "names", "places", "one database", "people", "certain", "differing"),
            *("widest cell", "lower bounds", "seconds", "peak MB"),
        ),
        rows,
    )
    ends = ["1", *(f"to {item.most:,}" for item in found.classes[1:-1]), "more"]
    show("  Places by the number of databases", ("tables", *ends), classes)
    worst = risks[0]
    print(
        f"  From a release of the plan, someone who knows everyone else and gives the true one of two "
        f"records {worst.prior:g} reaches {worst.posterior:.4f} on average."
    )


def _reconstructed(path: Path, tables: Sequence[str]) -> tuple[Reconstruction, list[LevelRisk]]:
    plan = require_counts(Plan.load(path), "a benchmark")
    counts = open_engine("local").tabulate(plan)
    level = plan.levels[-1]
    found = reconstruct(plan, counts.levels[level], level=level, audience="internal", tables=tables)
    return found, record_risks(plan, geography=counts.geography)
