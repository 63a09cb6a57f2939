"""Small releases of trees to estimate from: a plan's text, places, random people, seeded noise."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from countveil import Plan, Seeded, measure
from countveil.engines import counts
from countveil.measure.measurements import Measurements
from countveil.plan.geography import Geography

HEAD = """
[release]
title = "A tree"
unit = "person"
neighbors = "change-one"
[records]
path = "people.csv"
one_row_per_person = true
[geography]
path = "places.csv"
"""


def plan_text(
    attributes: dict[str, list[str]],
    queries: dict[str, dict[str, int]],
    *,
    recodes: dict[str, tuple[str, dict[str, list[str]]]] | None = None,
    omit: dict[str, list[str]] | None = None,
    invariants: Sequence[tuple[str, str]] = (),
    zeros: Sequence[dict[str, list[str]]] = (),
    rho: str = "2",
) -> str:
    """Write a plan: the queries of each level with their weights; a level without any is unmeasured."""
    lines = [HEAD, f"levels = {json.dumps(list(queries))}", "[attributes]"]
    lines += [f"{name} = {json.dumps(categories)}" for name, categories in attributes.items()]
    for name, (of, groups) in (recodes or {}).items():
        lines += [f"[recodes.{name}]", f"of = {json.dumps(of)}"]
        lines += [f"omit = {json.dumps((omit or {}).get(name, []))}", f"[recodes.{name}.groups]"]
        lines += [f"{label} = {json.dumps(members)}" for label, members in groups.items()]
    measured = [level for level, chosen in queries.items() if chosen]
    lines += ["[budget]", f'rho = "{rho}"', "[budget.levels]"]
    lines += [f'{level} = "{int(level in measured)}/{len(measured)}"' for level in queries]
    for level in measured:
        whole = sum(queries[level].values())
        lines += [f"[budget.queries.{level}]"]
        lines += [f'"{query}" = "{part}/{whole}"' for query, part in queries[level].items()]
    for level, query in invariants:
        lines += ["[[invariants]]", f'level = "{level}"', f'query = "{query}"', 'reason = "known"']
    for zero in zeros:
        lines += ["[[structural_zeros]]", 'reason = "impossible"', "[structural_zeros.cells]"]
        lines += [f"{name} = {json.dumps(categories)}" for name, categories in zero.items()]
    return "\n".join([*lines, "[postprocess]", 'method = "none"', ""])


@dataclass(frozen=True)
class Tree:
    """A released tree, and the counts behind it: units of the lowest level × cells."""

    plan: Plan
    geography: Geography
    truth: np.ndarray
    measurements: Measurements

    def counted(self, level: str, query: str) -> np.ndarray:
        """Return a query of a level as counted: units × cells."""
        lowest, asked = self.plan.levels[-1], self.plan.schema.query(query)
        above = self.geography.ancestors(lowest, level)
        units = self.geography.units(level)
        summed = np.zeros((units, self.plan.schema.cells), np.int64)
        np.add.at(summed, above, self.truth)
        result = np.zeros((units, asked.cells), np.int64)
        counted = asked.cell_of >= 0
        np.add.at(result.T, asked.cell_of[counted], summed.T[counted])
        return result


def places(*levels: Sequence[int]) -> str:
    """Write a crosswalk from how many children each unit has, level by level from the top.

    The first number is how many units the top has.
    """
    codes = [("u",)]
    for children in levels:
        codes = [
            (*path, f"{path[-1]}{number + 1}")
            for path, count in zip(codes, children, strict=True)
            for number in range(count)
        ]
    names = [f"l{number}" for number in range(len(levels))]
    lines = [",".join(names), *(",".join(path[1:]) for path in codes)]
    return "\n".join(lines) + "\n"


def release(
    folder: Path, plan: str, crosswalk: str, *, seed: int = 1, truth: np.ndarray | None = None
) -> Tree:
    """Draw people, or take the counts given, and measure them with seeded noise."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.toml").write_text(plan)
    (folder / "places.csv").write_text(crosswalk)
    loaded = Plan.load(folder / "plan.toml")
    geography = loaded.geography()
    units, cells = geography.units(loaded.levels[-1]), loaded.schema.cells
    if truth is None:
        rng = np.random.default_rng(seed)
        truth = rng.poisson(1.5, (units, cells)) * loaded.possible
    unit, cell = np.nonzero(truth)
    built = counts.build(
        geography, cells, [(unit, cell, truth[unit, cell])], loaded.counting_digest
    )
    taken = measure.take(built, loaded, rng=Seeded(seed), ledger=None, to=folder / "out")
    return Tree(loaded, geography, truth, taken)
