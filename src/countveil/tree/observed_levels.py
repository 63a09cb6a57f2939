"""What is observed at each level: queries, through a view of each attribute, noisy or exact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from countveil.base.numerics import FloatArray, IntArray
from countveil.measure.measurements import Measured
from countveil.noise.law import Mechanism
from countveil.plan.plans import Plan
from countveil.plan.workload import Query, Schema
from countveil.tree.attribute_parts import AttributePart, AttributeView, split_attribute

_NO_NOISE = 1e-12  # below this variance, the noise is 0 except with an even smaller probability


@dataclass(frozen=True, eq=False, slots=True)
class Observation:
    """A query observed at a level, through one view of each attribute.

    `weight` is one over the variance of its noise, None if it is exact. `first` is the position of its
    first value among those measured at the level, None if it is an invariant. `scale` brings QᵀQ down
    to at most 1.
    """

    query: Query
    views: tuple[int, ...]
    weight: float | None
    first: int | None
    scale: float


@dataclass(frozen=True, eq=False, slots=True)
class AttributeAxis:
    """One attribute: its views (0 adds up all, 1 is each category, then others) and its parts.

    `zeros` are the views of categories that structural zeros treat alike; empty if they treat all
    categories alike.
    """

    name: str
    views: tuple[AttributeView, ...]
    names: dict[str, int]
    zeros: tuple[int, ...]
    parts: tuple[AttributePart, ...]

    @property
    def categories(self) -> int:
        """The number of categories of the attribute."""
        return len(self.views[0].group)

    def view_of(self, query: Query) -> int:
        """Return the number of the view through which an observed query looks at the attribute."""
        return next((self.names[name] for name, _ in query.labels if name in self.names), 0)


@dataclass(frozen=True, eq=False, slots=True)
class Observed:
    """The observations of every level, and attributes split so that none of them mixes parts."""

    schema: Schema
    levels: tuple[str, ...]
    observations: dict[str, tuple[Observation, ...]]
    axes: tuple[AttributeAxis, ...]
    possible: FloatArray | None  # 1 or 0 for categories that zeros treat alike; None: no zeros

    @classmethod
    def of(cls, measurements: Measured, plan: Plan) -> Observed:
        """Return what a release observed, with the invariants and structural zeros of a plan."""
        return cls._of(plan, measurements.mechanisms)

    @classmethod
    def planned(cls, plan: Plan) -> Observed:
        """Return what a release by a plan will observe."""
        laws = {(item.level, item.query.name): item.mechanism for item in plan.allocations}
        return cls._of(plan, laws)

    def of_level(self, level: str) -> Observed:
        """Return what is observed at one level, as if there were no other."""
        return replace(self, levels=(level,), observations={level: self.observations[level]})

    @classmethod
    def _of(cls, plan: Plan, laws: Mapping[tuple[str, str], Mechanism]) -> Observed:
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
        observations = {
            level: tuple(_observations(laws, plan, level, axes)) for level in plan.levels
        }
        return cls(schema, plan.levels, observations, tuple(axes), possible)


def view_for(schema: Schema, query: Query, axis: AttributeAxis) -> AttributeView:
    """Return the view through which any query of the schema looks at an attribute."""
    for recode in schema.recodes:
        if recode.of == axis.name and any(name == recode.name for name, _ in query.labels):
            attribute = next(item for item in schema.attributes if item.name == axis.name)
            return AttributeView(np.array(recode.group_of(attribute)), len(recode.groups))
    return axis.views[axis.view_of(query)]


def factor_order(query: Query, schema: Schema) -> list[int]:
    """Return the number of the attribute behind each factor of a query."""
    of = {item.name: item.name for item in schema.attributes}
    of |= {item.name: item.of for item in schema.recodes}
    names = [item.name for item in schema.attributes]
    return [names.index(of[name]) for name, _ in query.labels]


def _alike_in_zeros(grid: NDArray[np.bool_], number: int) -> tuple[IntArray, IntArray]:
    """Number the categories that structural zeros treat alike; return one category per number too."""
    categories = grid.shape[number]
    if grid.all():
        return np.zeros(categories, np.int64), np.zeros(1, np.int64)
    # Packed rows as texts: columns, of which there may be millions, would each take memory.
    rows = [np.packbits(row).tobytes() for row in np.moveaxis(grid, number, 0)]
    numbers = {row: place for place, row in enumerate(sorted(set(rows)))}
    alike = np.array([numbers[row] for row in rows], np.int64)
    return alike, np.unique(alike, return_index=True)[1]


def _axis(schema: Schema, number: int, used: set[str], alike: IntArray) -> AttributeAxis:
    """Return an attribute with the views in use."""
    attribute = schema.attributes[number]
    categories = len(attribute.categories)
    views = [AttributeView.whole(categories), AttributeView.each(categories)]
    names = {attribute.name: 1}
    for recode in schema.recodes:
        if recode.of == attribute.name and recode.name in used:
            names[recode.name] = len(views)
            views.append(AttributeView(np.array(recode.group_of(attribute)), len(recode.groups)))
    zeros = []
    if alike.any():
        for kind in range(int(alike.max()) + 1):
            zeros.append(len(views))
            views.append(AttributeView.only(np.flatnonzero(alike == kind), categories))
    parts = tuple(split_attribute(views))
    return AttributeAxis(attribute.name, tuple(views), names, tuple(zeros), parts)


def _observations(
    laws: Mapping[tuple[str, str], Mechanism], plan: Plan, level: str, axes: list[AttributeAxis]
) -> Iterator[Observation]:
    first = 0
    for item in plan.at(level):
        variance = laws[level, item.query.name].variance
        weight = None if variance < _NO_NOISE else 1 / variance
        yield _observation(item.query, axes, weight, first)
        first += item.query.cells
    for fixed in plan.invariants:
        if fixed.level == level:
            yield _observation(fixed.query, axes, None, None)


def _observation(
    query: Query, axes: list[AttributeAxis], weight: float | None, first: int | None
) -> Observation:
    views = tuple(axis.view_of(query) for axis in axes)
    return Observation(query, views, weight, first, 1 / query.largest_cell)
