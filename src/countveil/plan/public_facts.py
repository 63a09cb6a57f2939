"""Public facts of a plan: invariants, constraints and structural zeros."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from countveil.base.numerics import IntArray
from countveil.errors import PlanError
from countveil.plan.attributes import choices
from countveil.plan.budget import query_named
from countveil.plan.plan_file import PlanFile
from countveil.plan.workload import Neighbors, Query, Schema

MOST_ZEROS = 200_000_000  # cells that structural zeros name in total
MOST_INVARIANT_QUERIES = 100  # different ones; every pair is compared
BOUNDS = ("at_least", "at_most", "exactly")


@dataclass(frozen=True, slots=True)
class Invariant:
    """A query of one level that is published exactly."""

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


@dataclass(frozen=True)
class StructuralZeros:
    """Blocks of cells of the full histogram in which no one can be.

    A block lists the numbers of its categories along each axis, None if it has all of them.
    """

    shape: tuple[int, ...]
    blocks: tuple[tuple[tuple[int, ...] | None, ...], ...]

    @cached_property
    def possible(self) -> NDArray[np.bool_]:
        """Which cells of the full histogram may hold people."""
        possible = np.ones(self.shape, bool)
        for block in self.blocks:
            index: list[Any] = [slice(None)] * len(block)  # whole axes as slices, which is faster
            chosen = {axis: numbers for axis, numbers in enumerate(block) if numbers is not None}
            for axis, numbers in zip(chosen, np.ix_(*chosen.values()), strict=True):
                index[axis] = numbers
            possible[tuple(index)] = False
        flat = possible.reshape(-1)
        flat.setflags(write=False)
        return flat

    def refined(self, kinds: Sequence[IntArray]) -> list[IntArray]:
        """Split the kinds of categories of each axis until every block treats those of one alike."""
        refined = []
        for axis, along in enumerate(kinds):
            kind, last = along.copy(), int(along.max())
            for block in {item[axis] for item in self.blocks}:
                inside = np.array(block or (), np.int64)
                _, part = np.unique(kind[inside], return_inverse=True)
                kind[inside] = last + 1 + part
                last += len(inside)
            refined.append(np.unique(kind, return_inverse=True)[1])
        return refined

    @property
    def cells_left(self) -> int:
        """The number of cells that may hold people."""
        return int(self.possible.sum()) if self.blocks else math.prod(self.shape)


def read_invariants(
    checked: PlanFile, schema: Schema, levels: tuple[str, ...], neighbors: Neighbors
) -> tuple[Invariant, ...]:
    """Resolve the invariants of a plan."""
    invariants: list[Invariant] = []
    seen: set[tuple[str, str]] = set()
    for number, item in enumerate(checked.invariants):
        where = f"invariants.{number}"
        if item.level not in levels:
            raise PlanError(
                f"{where}.level: unknown level {item.level!r}; choose from {choices(levels)}"
            )
        query = query_named(schema, item.query, where)
        if neighbors == "add-remove":
            raise PlanError(
                f"{where}: {item.query} of {item.level} cannot be public with add-remove neighbours: a "
                f"person who joins or leaves changes it, so no two neighbouring databases agree on it "
                f'and the guarantee would be empty; choose neighbors = "change-one", or remove the '
                f"invariant"
            )
        if (item.level, query.name) in seen:
            raise PlanError(f"{where}: {item.query} of {item.level} is listed twice; list it once")
        seen.add((item.level, query.name))
        invariants.append(Invariant(item.level, query, item.reason))
    different = len({item.query.name for item in invariants})
    if different > MOST_INVARIANT_QUERIES:
        raise PlanError(
            f"invariants: {different:,} different queries are public; the limit is "
            f"{MOST_INVARIANT_QUERIES}: remove those that are sums of others"
        )
    return tuple(invariants)


def read_constraints(
    checked: PlanFile, schema: Schema, levels: tuple[str, ...], folder: Path
) -> tuple[Constraint, ...]:
    """Resolve the constraints of a plan; their files are read later."""
    constraints = []
    for number, item in enumerate(checked.constraints):
        where = f"constraints.{number}"
        if item.level not in levels:
            raise PlanError(
                f"{where}.level: unknown level {item.level!r}; choose from {choices(levels)}"
            )
        query = query_named(schema, item.query, where)
        columns = [
            item.level if item.members is None else "group",
            *(name for name, _ in query.labels),
        ]
        if (item.members is not None and item.level == "group") or set(columns) & set(BOUNDS):
            raise PlanError(
                f"{where}: a level or attribute has the name of a column of its files (group, "
                f"{', '.join(BOUNDS)}); rename the level or attribute"
            )
        constraints.append(
            Constraint(
                item.level,
                query,
                next_to_plan(folder, item.path, f"{where}.path"),
                None
                if item.members is None
                else next_to_plan(folder, item.members, f"{where}.members"),
                item.reason,
            )
        )
    return tuple(constraints)


def next_to_plan(folder: Path, name: str, where: str) -> Path:
    """Return a file in the plan's folder; refuse one outside, because a copy is published."""
    path = folder / name
    inside = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
    if Path(name).is_absolute() or not inside:
        raise PlanError(
            f"{where}: {name!r} is outside the folder of the plan, and a copy of it would be "
            f"published; move the file next to the plan"
        )
    if os.path.exists(path) and not os.path.isfile(path):
        raise PlanError(f"{where}: {name!r} is not a plain file; name a CSV or Parquet file")
    return path


def read_structural_zeros(checked: PlanFile, schema: Schema) -> StructuralZeros:
    """Resolve the structural zeros of a plan; refuse more than can be marked quickly."""
    known = {
        item.name: {category: number for number, category in enumerate(item.categories)}
        for item in schema.attributes
    }
    blocks: list[tuple[tuple[int, ...] | None, ...]] = []
    named = 0
    for number, zero in enumerate(checked.structural_zeros):
        where = f"structural_zeros.{number}.cells"
        if not zero.cells:
            raise PlanError(f"{where}: empty; name categories of one or more attributes")
        for name, categories in zero.cells.items():
            if name not in known:
                raise PlanError(f"{where}.{name}: unknown attribute; choose from {choices(known)}")
            unknown = next((item for item in categories if item not in known[name]), None)
            if unknown is not None:
                raise PlanError(
                    f"{where}.{name}: unknown category {unknown!r}; choose from {choices(known[name])}"
                )
        block = tuple(
            tuple(sorted({numbers[category] for category in zero.cells[name]}))
            if name in zero.cells
            else None
            for name, numbers in known.items()
        )
        sizes = zip(schema.shape, block, strict=True)
        named += math.prod(size if some is None else len(some) for size, some in sizes)
        if named > MOST_ZEROS:
            raise PlanError(
                f"{where}: structural zeros name more than {MOST_ZEROS:,} cells in total, counting "
                f"repeats; merge them, or remove attributes"
            )
        blocks.append(block)
    zeros = StructuralZeros(schema.shape, tuple(blocks))
    if not zeros.cells_left:
        raise PlanError("structural_zeros: they exclude every cell; remove some of them")
    return zeros
