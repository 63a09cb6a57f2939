"""Queries: marginals of the full cross-classification, and how far one person moves them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Literal

import numpy as np

from countveil.errors import PlanError
from countveil.numerics import IntArray
from countveil.privacy.costs import Sensitivity
from countveil.schema.attributes import Attribute, Recode, listed

Neighbors = Literal["change-one", "add-remove"]

LARGEST_HISTOGRAM = 50_000_000
MOST_ATTRIBUTES = 32
TOTAL = "TOTAL"


@dataclass(frozen=True, eq=False, slots=True)
class Query:
    """One table: the counts of the named attributes or recodes, for every unit of a level.

    `cell_of` maps each cell of the full histogram to a cell of the query, -1 where omitted.
    """

    name: str
    labels: tuple[tuple[str, tuple[str, ...]], ...]
    cell_of: IntArray

    @property
    def cells(self) -> int:
        """How many counts it has."""
        return math.prod(len(categories) for _, categories in self.labels)

    @property
    def complete(self) -> bool:
        """Whether everyone is counted somewhere in it."""
        return bool((self.cell_of >= 0).all())

    def cell_labels(self) -> list[tuple[str, ...]]:
        """Return the categories of each cell, in order."""
        return list(product(*(categories for _, categories in self.labels)))

    def sensitivity(
        self, neighbors: Neighbors, rows: int = 1, units: int | None = None
    ) -> Sensitivity:
        """Return how far one person with at most `rows` rows moves the counts of a whole level.

        add-remove: up to `rows` in one cell. change-one: as much leaves one cell and enters
        another, of this unit or another one. Where there is but one cell for everyone (TOTAL, and
        `units` = 1), a person with exactly one row cannot move it by changing.
        """
        l1, l2_squared = Fraction(rows), Fraction(rows**2)
        one_place = self.cells * (units or 2) == 1
        if neighbors == "change-one" and not one_place:
            return Sensitivity(2 * l1, 2 * l2_squared)
        if neighbors == "change-one" and self.complete and rows == 1:
            return Sensitivity(Fraction(0), Fraction(0))
        return Sensitivity(l1, l2_squared)


@dataclass(frozen=True)
class Schema:
    """What is recorded of each person: attributes, and recodes of them."""

    attributes: tuple[Attribute, ...]
    recodes: tuple[Recode, ...] = ()

    def __post_init__(self) -> None:
        names = self._names()
        for name in names:
            if names.count(name) > 1:
                raise PlanError(
                    f"recodes.{name}: the name is taken by an attribute; choose another"
                )
        known = [attribute.name for attribute in self.attributes]
        for recode in self.recodes:
            if recode.of not in known:
                raise PlanError(
                    f"recodes.{recode.name}.of: no attribute {recode.of!r}; choose from {listed(known)}"
                )
            recode.group_of(self._attribute(recode.of))
        if len(self.attributes) > MOST_ATTRIBUTES:
            raise PlanError(f"attributes: more than {MOST_ATTRIBUTES}; merge some of them")
        if self.cells > LARGEST_HISTOGRAM:
            raise PlanError(
                f"attributes: their cross-classification has {self.cells:,} cells, above the limit of "
                f"{LARGEST_HISTOGRAM:,}; drop attributes or merge categories"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """How many categories each attribute has."""
        return tuple(len(attribute.categories) for attribute in self.attributes)

    @property
    def cells(self) -> int:
        """How many cells the full histogram has."""
        return math.prod(self.shape)

    @cached_property
    def _queries(self) -> dict[str, Query]:
        return {}

    def query(self, name: str) -> Query:
        """Return the query `name`: TOTAL, or names of attributes and recodes joined by `*`."""
        if name not in self._queries:
            self._queries[name] = self._build(name)
        return self._queries[name]

    def _build(self, name: str) -> Query:
        factors = [] if name == TOTAL else [part.strip() for part in name.split("*")]
        grid = np.indices(self.shape, dtype=np.int32, sparse=True)
        cell = np.zeros(self.shape, np.int64)
        omitted = np.zeros(self.shape, bool)
        labels: list[tuple[str, tuple[str, ...]]] = []
        used: dict[str, str] = {}
        for factor in factors:
            attribute, categories, group = self._factor(factor, name)
            if attribute in used:
                raise PlanError(
                    f"query {name!r}: {factor} and {used[attribute]} are both views of {attribute}; "
                    f"name each attribute once"
                )
            used[attribute] = factor
            axis = [item.name for item in self.attributes].index(attribute)
            number = np.asarray(group)[grid[axis]]
            cell = cell * len(categories) + number
            omitted |= number < 0
            labels.append((factor, categories))
        cell[omitted] = -1
        flat = cell.reshape(-1)
        flat.setflags(write=False)
        return Query(name, tuple(labels), flat)

    def _factor(self, factor: str, query: str) -> tuple[str, tuple[str, ...], tuple[int, ...]]:
        for attribute in self.attributes:
            if attribute.name == factor:
                return factor, attribute.categories, tuple(range(len(attribute.categories)))
        for recode in self.recodes:
            if recode.name == factor:
                labels = tuple(label for label, _ in recode.groups)
                return recode.of, labels, recode.group_of(self._attribute(recode.of))
        raise PlanError(
            f"query {query!r}: no attribute or recode {factor!r}; choose from TOTAL, "
            f"{listed(self._names())}"
        )

    def _names(self) -> list[str]:
        return [item.name for item in self.attributes] + [item.name for item in self.recodes]

    def _attribute(self, name: str) -> Attribute:
        return next(attribute for attribute in self.attributes if attribute.name == name)
