"""What is public beside the release: invariants, constraints and structural zeros of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from countveil.errors import PlanError
from countveil.schema.allocation import query_named
from countveil.schema.attributes import listed
from countveil.schema.plan_file import PlanFile
from countveil.schema.workload import Neighbors, Query, Schema

BOUNDS = ("at_least", "at_most", "exactly")


@dataclass(frozen=True, slots=True)
class Invariant:
    """A query of one level that is published as counted."""

    level: str
    query: Query
    reason: str


@dataclass(frozen=True, slots=True)
class Constraint:
    """Bounds on a query of one level, for units or for groups of siblings, from a public file."""

    level: str
    query: Query
    path: Path
    members: Path | None
    reason: str


def read_invariants(
    checked: PlanFile, schema: Schema, levels: tuple[str, ...], neighbors: Neighbors
) -> tuple[Invariant, ...]:
    """Resolve the invariants of a plan."""
    invariants: list[Invariant] = []
    for number, item in enumerate(checked.invariants):
        where = f"invariants.{number}"
        if item.level not in levels:
            raise PlanError(f"{where}.level: no level {item.level!r}; choose from {listed(levels)}")
        query = query_named(schema, item.query, where)
        if neighbors == "add-remove":
            raise PlanError(
                f"{where}: {item.query} of {item.level} is fixed beside add-remove neighbours; a "
                f"person who joins or leaves changes it, so no two neighbouring databases agree on it "
                f'and the guarantee would be empty: choose neighbors = "change-one", or drop the '
                f"invariant"
            )
        if any(other.level == item.level and other.query is query for other in invariants):
            raise PlanError(f"{where}: {item.query} of {item.level} is listed twice; list it once")
        invariants.append(Invariant(item.level, query, item.reason))
    return tuple(invariants)


def read_constraints(
    checked: PlanFile, schema: Schema, levels: tuple[str, ...], folder: Path
) -> tuple[Constraint, ...]:
    """Resolve the constraints of a plan; their files are read when they are needed."""
    constraints = []
    for number, item in enumerate(checked.constraints):
        where = f"constraints.{number}"
        if item.level not in levels:
            raise PlanError(f"{where}.level: no level {item.level!r}; choose from {listed(levels)}")
        query = query_named(schema, item.query, where)
        columns = [
            item.level if item.members is None else "group",
            *(name for name, _ in query.labels),
        ]
        if (item.members is not None and item.level == "group") or set(columns) & set(BOUNDS):
            raise PlanError(
                f"{where}: its files have the columns group, {', '.join(BOUNDS)}, so a level or "
                f"attribute of that name cannot be told apart; rename it"
            )
        constraints.append(
            Constraint(
                item.level,
                query,
                beside_plan(folder, item.path, f"{where}.path"),
                None
                if item.members is None
                else beside_plan(folder, item.members, f"{where}.members"),
                item.reason,
            )
        )
    return tuple(constraints)


def beside_plan(folder: Path, name: str, where: str) -> Path:
    """Return a file of the plan's folder; refuse one outside, as what a plan names is published."""
    path = folder / name
    if Path(name).is_absolute() or not path.resolve().is_relative_to(folder.resolve()):
        raise PlanError(
            f"{where}: {name!r} lies outside the folder of the plan, and a copy of it is published; "
            f"put the file beside the plan"
        )
    return path


def read_structural_zeros(checked: PlanFile, schema: Schema) -> NDArray[np.bool_]:
    """Return which cells of the full histogram may hold people."""
    possible = np.ones(schema.shape, bool)
    known = {item.name: item.categories for item in schema.attributes}
    for number, zero in enumerate(checked.structural_zeros):
        where = f"structural_zeros.{number}.cells"
        if not zero.cells:
            raise PlanError(f"{where}: names no attribute; name categories of one or more")
        chosen = []
        for attribute in schema.attributes:
            categories = zero.cells.get(attribute.name, attribute.categories)
            for category in categories:
                if category not in attribute.categories:
                    raise PlanError(
                        f"{where}.{attribute.name}: no category {category!r}; choose from "
                        f"{listed(attribute.categories)}"
                    )
            chosen.append([attribute.categories.index(category) for category in categories])
        for name in zero.cells:
            if name not in known:
                raise PlanError(f"{where}.{name}: no such attribute; choose from {listed(known)}")
        possible[np.ix_(*chosen)] = False
    if not possible.any():
        raise PlanError("structural_zeros: no cell is left; take some of them out")
    flat = possible.reshape(-1)
    flat.setflags(write=False)
    return flat
