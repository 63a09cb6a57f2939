"""What is observed at each level: queries with the weight of their noise, or exactly, by views."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from countveil.infer.attribute_parts import Part, View, take_apart
from countveil.measure.measurement import Measurements
from countveil.numerics import FloatArray, IntArray
from countveil.schema.plan import Plan
from countveil.schema.workload import Query, Schema

_NO_NOISE = 1e-12  # a variance below it: the noise is 0 but for a chance smaller than that


@dataclass(frozen=True, eq=False, slots=True)
class Observation:
    """A query that is observed at a level: through one view of each attribute.

    `weight` is one over the variance of its noise, None where it is exact. `first` is where its values
    begin among those measured at the level, None where it is an invariant. `scale` makes QᵀQ at most 1.
    """

    query: Query
    views: tuple[int, ...]
    weight: float | None
    first: int | None
    scale: float


@dataclass(frozen=True, eq=False, slots=True)
class Axis:
    """One attribute: its views (0: all added up, 1: each category, then others) and its parts.

    `zeros` are the views of categories that structural zeros treat alike; empty where that is all.
    """

    name: str
    views: tuple[View, ...]
    names: dict[str, int]
    zeros: tuple[int, ...]
    parts: tuple[Part, ...]

    @property
    def categories(self) -> int:
        """How many categories the attribute has."""
        return len(self.views[0].group)

    def view_of(self, query: Query) -> int:
        """Return which of the views an observed query takes."""
        return next((self.names[name] for name, _ in query.labels if name in self.names), 0)


@dataclass(frozen=True, eq=False, slots=True)
class Observed:
    """The observations of every level, and the attributes taken apart so that none is mixed."""

    schema: Schema
    levels: tuple[str, ...]
    observations: dict[str, tuple[Observation, ...]]
    axes: tuple[Axis, ...]
    possible: FloatArray | None  # of the categories that zeros treat alike: 1 or 0; None: no zeros

    @classmethod
    def of(cls, measurements: Measurements, plan: Plan) -> Observed:
        """Return what a release observed, beside the invariants and structural zeros of a plan."""
        schema = plan.schema
        queries = [item.query for item in plan.allocations]
        queries += [item.query for item in plan.invariants]
        used = {name for query in queries for name, _ in query.labels}
        axes, kept = [], []
        grid = plan.possible.reshape(schema.shape)
        for number in range(len(schema.shape)):
            alike, first = _alike_in_zeros(grid, number)
            axes.append(_axis(schema, number, used, alike))
            kept.append(first)
        possible = None if plan.possible.all() else grid[np.ix_(*kept)].astype(float)
        found = {
            level: tuple(_observations(measurements, plan, level, axes)) for level in plan.levels
        }
        return cls(schema, plan.levels, found, tuple(axes), possible)


def view_for(schema: Schema, query: Query, axis: Axis) -> View:
    """Return how any query of the schema looks at an attribute."""
    for recode in schema.recodes:
        if recode.of == axis.name and any(name == recode.name for name, _ in query.labels):
            attribute = next(item for item in schema.attributes if item.name == axis.name)
            return View(np.array(recode.group_of(attribute)), len(recode.groups))
    return axis.views[axis.view_of(query)]


def factor_order(query: Query, schema: Schema) -> list[int]:
    """Return which attribute each factor of a query is about."""
    of = {item.name: item.name for item in schema.attributes}
    of |= {item.name: item.of for item in schema.recodes}
    names = [item.name for item in schema.attributes]
    return [names.index(of[name]) for name, _ in query.labels]


def _alike_in_zeros(grid: NDArray[np.bool_], number: int) -> tuple[IntArray, IntArray]:
    """Number the categories that structural zeros treat alike, and name one of each number."""
    categories = grid.shape[number]
    if grid.all():
        return np.zeros(categories, np.int64), np.zeros(1, np.int64)
    rows = np.moveaxis(grid, number, 0).reshape(categories, -1)
    _, first, alike = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return alike.reshape(-1), first


def _axis(schema: Schema, number: int, used: set[str], alike: IntArray) -> Axis:
    """Return an attribute with the views that are used."""
    attribute = schema.attributes[number]
    categories = len(attribute.categories)
    views = [View.whole(categories), View.each(categories)]
    names = {attribute.name: 1}
    for recode in schema.recodes:
        if recode.of == attribute.name and recode.name in used:
            names[recode.name] = len(views)
            views.append(View(np.array(recode.group_of(attribute)), len(recode.groups)))
    zeros = []
    if alike.any():
        for kind in range(int(alike.max()) + 1):
            zeros.append(len(views))
            views.append(View.only(np.flatnonzero(alike == kind), categories))
    return Axis(attribute.name, tuple(views), names, tuple(zeros), tuple(take_apart(views)))


def _observations(
    measurements: Measurements, plan: Plan, level: str, axes: list[Axis]
) -> Iterator[Observation]:
    first = 0
    for item in plan.at(level):
        variance = measurements.mechanisms[level, item.query.name].variance
        weight = None if variance < _NO_NOISE else 1 / variance
        yield _observation(item.query, axes, weight, first)
        first += item.query.cells
    for fixed in plan.invariants:
        if fixed.level == level:
            yield _observation(fixed.query, axes, None, None)


def _observation(
    query: Query, axes: list[Axis], weight: float | None, first: int | None
) -> Observation:
    views = tuple(axis.view_of(query) for axis in axes)
    return Observation(query, views, weight, first, 1 / query.largest_cell)
