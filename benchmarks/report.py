"""The report of a release: seconds and memory as a state grows, compared with the release."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks import stages
from benchmarks.table import Missed, show

_BLOCKS_PER_PERSON = 25_000 / 650_000
_MOST_SECONDS = 15.0
_STAGES = ("start", "public", "pdf", "internal")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument(
        "--people",
        type=int,
        nargs="+",
        default=[160_000, 325_000, 650_000],
        help="people of each state",
    )


def run(options: argparse.Namespace) -> None:
    """Release states of growing size, then write their reports in another process."""
    rows, public = [], 0.0
    with tempfile.TemporaryDirectory() as place:
        for people in options.people:
            folder = Path(place) / f"state-{people}"
            stages.population(folder, people=people, seed=2020)
            plan, out = folder / "plan.toml", folder / "out"
            made = stages.release(plan, out, seed=1, workers=2)
            done = stages.work({"do": "reports", "plan": str(plan), "out": str(out)})
            row = [f"{people:,}", f"{people * _BLOCKS_PER_PERSON:,.0f}", f"{made.seconds:.1f}"]
            for name in _STAGES:
                row += [f"{done.stage(name).seconds:.1f}", f"{done.stage(name).peak_mb:,.0f}"]
            rows.append([*row, f"{done.said[-1]['bytes'] / 1000:,.0f}"])
            public = done.stage("start").seconds + done.stage("public").seconds
    heads = ["people", "blocks", "release s"]
    heads += [f"{name} {what}" for name in _STAGES for what in ("s", "MB")]
    show("The report of a state", [*heads, "page kB"], rows)
    if public > _MOST_SECONDS:
        raise Missed(f"the public report took {public:.1f} s; the target is {_MOST_SECONDS:g}")
