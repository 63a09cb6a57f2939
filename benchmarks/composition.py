"""What certified budgets in (epsilon, delta) gain, next to dp_accounting, derived again."""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import numpy as np

from benchmarks import table
from countveil import Plan
from countveil.measure.manifest import cost_document
from countveil.plan.plans import require_counts
from countveil.plan.presets import PRESETS, read_preset

_PEER = """
import json, sys
from dp_accounting.pld import privacy_loss_distribution as pld
for line in sys.stdin:
    queries, rows, epsilon = json.loads(line)
    deltas = []
    for pessimistic in (True, False):
        whole = None
        for sigma2, count in queries:
            part = pld.from_discrete_gaussian_mechanism(
                sigma2**0.5, sensitivity=rows, pessimistic_estimate=pessimistic,
                value_discretization_interval=STEP)
            part = part.self_compose(count) if count > 1 else part
            whole = part if whole is None else whole.compose(part)
        deltas.append(whole.get_delta_for_epsilon(epsilon))
    print(json.dumps(deltas), flush=True)
"""

_TEXT = """
[release]
title = "Certified"
unit = "person"
neighbors = "{neighbors}"
preset = "{preset}"
[records]
redacted = true
[geography]
path = "places.csv"
levels = {levels}
[budget]
epsilon = "{epsilon}"
delta = "{delta}"
accounting = "certified"
"""
_RANDOM = """
[release]
title = "Random"
unit = "person"
neighbors = "{neighbors}"
[records]
redacted = true
max_rows = {rows}
[geography]
path = "places.csv"
levels = {levels}
[attributes]
A = ["a", "b", "c"]
B = ["x", "y"]
[budget]
epsilon = "{epsilon}"
delta = "{delta}"
accounting = "certified"
[budget.levels]
{level_shares}
[budget.queries."*"]
{query_shares}
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--plans", type=int, default=1000, help="random plans certified twice")
    parser.add_argument("--compared", type=int, default=40, help="of them next to dp_accounting")
    parser.add_argument("--peer", help="a Python that has dp_accounting installed")
    parser.add_argument("--step", type=float, default=1e-5, help="of the grid of dp_accounting")


def run(options: argparse.Namespace) -> None:
    """Print what certified budgets gain, how long they take, and whether all are derived again."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _presets(folder)
        (folder / "places.csv").write_text("level0,level1,level2,level3\na,b,c,d\n")
        _random_plans(folder, options)


def _presets(folder: Path) -> None:
    rows = []
    for preset in PRESETS:
        levels = list(read_preset(preset)["budget"]["levels"])
        (folder / "places.csv").write_text(",".join(levels) + "\n" + ",".join("x" * len(levels)))
        for epsilon, delta in (("17.16", "1e-10"), ("5", "1e-10"), ("1", "1e-6")):
            text = _TEXT.format(
                preset=preset,
                neighbors=read_preset(preset)["release"]["neighbors"],
                levels=json.dumps(levels),
                epsilon=epsilon,
                delta=delta,
            )
            start = time.process_time()
            certified = require_counts(Plan.parse(text, folder=folder), "composition")
            seconds = time.process_time() - start
            converted = _converted(text, folder)
            gain = float(certified.cost.rho / converted.cost.rho)
            rows.append(
                (
                    preset,
                    epsilon,
                    delta,
                    f"{float(converted.cost.rho):.6g}",
                    f"{float(certified.cost.rho):.6g}",
                    f"{100 * (1 - 1 / gain):.1f} %",
                    f"{seconds:.1f}",
                )
            )
    heads = ("plan", "epsilon", "delta", "rho converted", "certified", "less variance", "seconds")
    table.show("Budgets of the presets", heads, rows)


def _converted(text: str, folder: Path) -> Plan:
    text = text.replace('accounting = "certified"\n', "")
    return require_counts(Plan.parse(text, folder=folder), "composition")


def _random_plans(folder: Path, options: argparse.Namespace) -> None:
    draw = np.random.default_rng(1)
    seconds, gains, compared = [], [], []
    for number in range(options.plans):
        text = _random(draw)
        start = time.process_time()
        plan = require_counts(Plan.parse(text, folder=folder), "composition")
        seconds.append(time.process_time() - start)
        # What a release states; its plan has the rho, so it is derived again without a search.
        stated = json.loads(json.dumps(cost_document(plan.cost, plan)))
        again = plan.with_document(json.loads(json.dumps(plan.document)))
        if cost_document(again.cost, again) != stated:
            raise table.Missed(f"plan {number}: derived again, the manifest would differ")
        converted = _converted(text, folder)
        gains.append(float(plan.cost.rho / converted.cost.rho))
        if options.peer and number < options.compared:
            compared.append(plan)
    print(
        f"\n{options.plans:,} random plans: all certified again from what their manifests state; rho "
        f"{100 * (min(gains) - 1):.1f} to {100 * (max(gains) - 1):.1f} % above the conversion; "
        f"{np.median(seconds):.2f} seconds at the median, {max(seconds):.2f} at most"
    )
    if compared:
        _next_to_peer(compared, options)


def _random(draw: np.random.Generator) -> str:
    """Return a plan of one to four levels, one to five queries and at most three rows per person."""
    levels = [f"level{number}" for number in range(draw.integers(1, 5))]
    queries = draw.choice(["TOTAL", "A", "B", "A*B"], draw.integers(1, 5), replace=False)
    return _RANDOM.format(
        neighbors=draw.choice(["change-one", "add-remove"]),
        rows=draw.choice([1, 1, 1, 2, 3]),
        levels=json.dumps(levels),
        epsilon=f"{10 ** draw.uniform(-0.7, 1.3):.3g}",
        delta=f"1e-{draw.integers(5, 13)}",
        level_shares=_shares(levels, draw),
        query_shares=_shares(queries, draw),
    )


def _shares(names: Iterable[str], draw: np.random.Generator) -> str:
    names = list(names)
    parts = draw.integers(1, 12, len(names))
    return "\n".join(f'"{n}" = "{p}/{parts.sum()}"' for n, p in zip(names, parts, strict=True))


def _next_to_peer(plans: list[Plan], options: argparse.Namespace) -> None:
    lines, ours = [], []
    for plan in plans:
        cells = 2 if plan.neighbors == "change-one" else 1
        rows = plan.rows_per_person
        stated = Fraction(plan.document["budget"]["epsilon"])
        queries = [(float(item.mechanism.sigma2), cells) for item in plan.allocations]  # type: ignore[attr-defined]
        lines.append(json.dumps((queries, rows, float(stated))))
        (point,) = [item for item in plan.certified if item.epsilon == stated]
        ours.append(float(point.delta))
    program = _PEER.replace("STEP", repr(options.step))
    done = subprocess.run(
        [options.peer, "-c", program],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    inside = above = below = 0
    for delta, line in zip(ours, done.stdout.splitlines(), strict=True):
        pessimistic, optimistic = json.loads(line)
        below += delta < optimistic * (1 - 1e-6)
        above += delta > pessimistic * (1 + 1e-6)
        inside += optimistic * (1 - 1e-6) <= delta <= pessimistic * (1 + 1e-6)
    print(
        f"next to dp_accounting with steps of {options.step:g}: of {len(ours)} deltas {inside} lie "
        f"between its optimistic and its pessimistic estimate, {above} above, {below} below"
    )
    if below:
        raise table.Missed("a certified delta is below an optimistic estimate")
