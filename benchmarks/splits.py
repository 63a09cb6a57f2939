"""The best split of a budget: what it saves, how long it takes, and whether its forecasts hold."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from benchmarks.accuracy import blocks_plan, clinics_plan
from benchmarks.table import Missed, show, verdict
from countveil import Plan, Seeded
from countveil.assess.choose.optimal_split import BestSplit, best_split
from countveil.assess.published.many_releases import SimulatedReleases, _SideBySide, side_by_side
from countveil.demo.starter import write_demo, write_start
from countveil.estimate.unbiased import LeastSquares
from countveil.plan.accuracy_target import Target
from countveil.plan.plans import require_counts
from countveil.tree.observed_levels import Observed
from countveil.tree.tree_shape import Tree

_PL94_SECONDS, _TEN_SECONDS = 10, 60
_WITHIN = 0.03
_FEWEST = 10_000  # values behind a simulated standard error, which is then good to 0.7 %
_SIMULATED = 3_000_000  # cells of all lowest units, up to which releases are simulated
_VALUES = 20_000_000  # counts of the releases that are simulated together

_TEN = """
release = {{ title = "Ten attributes", unit = "person", neighbors = "add-remove" }}
records = {{ redacted = true }}
geography = {{ path = "places.csv", levels = ["state", "county"] }}
[attributes]
{attributes}
[budget]
rho = "1"
levels = {{ state = "1/2", county = "1/2" }}
[budget.queries."*"]
{queries}
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--releases", type=int, default=200, help="simulated releases of a plan")
    parser.add_argument("--people", type=int, default=300_000, help="in the state of pl94-2020")
    parser.add_argument("--blocks", type=Path, help="a file of a state's blocks; else made up")


def run(options: argparse.Namespace) -> None:
    """Print rho and errors before and after, times, and forecasts next to simulated errors."""
    with tempfile.TemporaryDirectory() as name:
        cases = _cases(Path(name), options)
        rows, simulated, seconds = [], [], {}
        for title, (plan, targets) in cases.items():
            start = time.process_time()
            best = best_split(plan, targets)
            seconds[title] = time.process_time() - start
            least = best_split(plan, _at_todays_margins(plan, targets), minimise="rho")
            for number, row in enumerate(best.table.to_pylist()):
                first = number == 0
                rows.append(
                    (
                        title if first else "",
                        f"{len(best.shares)}" if first else "",
                        f"{float(plan.cost.rho):.3g}" if first else "",
                        f"{least.after:.3g}" if first else "",
                        f"{row['level']} {row['query']}",
                        f"{row['margin_before']:.3g}",
                        f"{row['margin_after']:.3g}",
                        f"{100 * (best.gap + best.rounding_loss):.2f} %" if first else "",
                        f"{seconds[title]:.1f}" if first else "",
                    )
                )
            size = plan.geography().units(plan.levels[-1]) * plan.schema.cells
            if size < _SIMULATED:
                simulated += _forecasts(title, best, options.releases)
        columns = ("plan", "queries", "rho", "same errors with", "table", "± now", "± best")
        show("Best splits", (*columns, "loss at most", "seconds"), rows)
        show(
            f"Standard errors, and those of at least {options.releases} simulated releases",
            ("plan", "table", "values", "forecast", "simulated", "apart"),
            [item.row for item in simulated],
        )
        apart = max(abs(item.apart) for item in simulated)
        fast = seconds["pl94-2020"] <= _PL94_SECONDS and seconds["ten attributes"] <= _TEN_SECONDS
        print(
            f"  Forecasts within {100 * _WITHIN:.0f} %: {verdict(apart <= _WITHIN)}. pl94-2020 within "
            f"{_PL94_SECONDS} and ten attributes within {_TEN_SECONDS} seconds of processor time: "
            f"{verdict(fast)}."
        )
        if apart > _WITHIN or not fast:
            raise Missed("a forecast or a time")


def _cases(folder: Path, options: argparse.Namespace) -> dict[str, tuple[Plan, list[str]]]:
    """Return plans by name, each with its tables that matter."""
    write_start(folder / "start", people=2000, seed=1)
    (folder / "blocks").mkdir()
    title, blocks = blocks_plan(options.blocks, folder / "blocks")
    demo = write_demo(folder / "demo", people=options.people, seed=1)
    return {
        "starter": (
            _loaded(folder / "start" / "plan.toml"),
            ["block TOTAL within 5", "county TOTAL within 8", "tract RACE"],
        ),
        "clinics": (
            clinics_plan(folder / "clinics"),
            ["zip Diagnosis", "county Age*Sex", "zip TOTAL weight 2"],
        ),
        title: (_loaded(blocks), ["block TOTAL", "tract RACE", "county AGE*RACE"]),
        "pl94-2020": (
            _loaded(demo),
            ["block TOTAL", "tract CENRACE", "county HISPANIC*CENRACE", "block_group VOTINGAGE"],
        ),
        "ten attributes": (
            _ten_attributes(folder / "ten"),
            ["county A0*A1", "county A2*A3", "state A4*A5", "county TOTAL"],
        ),
    }


def _loaded(path: Path) -> Plan:
    return require_counts(Plan.load(path), "a benchmark")


def _ten_attributes(folder: Path) -> Plan:
    """Return a plan of two levels that measures all pairs of ten attributes."""
    folder.mkdir()
    names = [f"A{number}" for number in range(10)]
    pairs = [f"{a}*{b}" for a, b in combinations(names, 2)]
    counties = "".join(f"S,C{number}\n" for number in range(60))
    (folder / "places.csv").write_text("state,county\n" + counties)
    text = _TEN.format(
        attributes="\n".join(f"{name} = {json.dumps(['a', 'b', 'c'])}" for name in names),
        queries="\n".join(f'"{query}" = "1/{len(pairs) + 1}"' for query in ("TOTAL", *pairs)),
    )
    return require_counts(Plan.parse(text, folder=folder), "a benchmark")


def _at_todays_margins(plan: Plan, targets: Sequence[str]) -> list[Target]:
    """Return the targets with the errors that the plan has today as their margins."""
    aims = [Target.parse(text) for text in targets]
    today = best_split(plan, aims, minimise="worst").table.to_pylist()
    return [
        Target(aim.query, aim.level, row["margin_before"], aim.weight, aim.confidence)
        for aim, row in zip(aims, today, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Forecast:
    """A standard error as forecast, and over units, cells and simulated releases."""

    plan: str
    table: str
    values: int
    forecast: float
    simulated: float

    @property
    def apart(self) -> float:
        return self.simulated / self.forecast - 1

    @property
    def row(self) -> tuple[str, ...]:
        numbers = f"{self.values:,}", f"{self.forecast:.4g}", f"{self.simulated:.4g}"
        return self.plan, self.table, *numbers, f"{100 * self.apart:.1f} %"


def _forecasts(title: str, best: BestSplit, least: int) -> list[_Forecast]:
    """Simulate releases of empty places: estimates are unbiased, so their values are errors."""
    plan = best.plan
    geography = plan.geography()
    targets = best.table.to_pylist()
    fewest = min(
        geography.units(row["level"]) * plan.schema.query(row["query"]).cells for row in targets
    )
    releases = max(least, -(-_FEWEST // fewest))
    units = geography.units(plan.levels[-1])
    together = max(1, min(releases, _VALUES // (units * plan.schema.cells)))
    squares, numbers = np.zeros(len(targets)), np.zeros(len(targets), int)
    rng = Seeded(1)
    for start in range(0, releases, together):
        copies = min(together, releases - start)
        empty = np.zeros((copies, units, plan.schema.cells), np.int64)
        drawn = SimulatedReleases.draw(plan, geography, empty, rng=rng)
        places = side_by_side(geography, copies)
        fit = LeastSquares(
            _SideBySide(drawn),  # type: ignore[arg-type]
            plan,
            places,
            0.9,
            Observed.planned(plan),
            Tree.of(places),
            None,
            _upward=[],
        )
        for number, row in enumerate(targets):
            for part in fit.batches(row["level"], row["query"]):
                squares[number] += float((part.value**2).sum())
                numbers[number] += part.value.size
    return [
        _Forecast(
            title,
            f"{row['level']} {row['query']}",
            int(number),
            row["standard_error_after"],
            float(np.sqrt(total / number)),
        )
        for row, total, number in zip(targets, squares, numbers, strict=True)
    ]
