"""Queries: marginal tables of the full histogram, and their sensitivity to one person."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Literal

import numpy as np

from countveil.base.numerics import Array, IntArray
from countveil.errors import PlanError
from countveil.plan.attributes import Attribute, Recode, choices
from countveil.privacy.costs import Sensitivity

Neighbors = Literal["change-one", "add-remove"]

LARGEST_HISTOGRAM = 50_000_000
MOST_ATTRIBUTES = 32
TOTAL = "TOTAL"
_SMALL = 5_000  # cells of a histogram up to which maps are kept: lookups are faster than divisions


@dataclass(frozen=True, eq=False, slots=True)
class Factor:
    """One attribute in a query: `group[k]` is the group of category k, -1 if omitted.

    Categories of the attribute are `stride` cells apart in the full histogram.
    """

    axis: int
    stride: int
    group: IntArray

    @property
    def complete(self) -> bool:
        """Whether every category is in a group."""
        return bool((self.group >= 0).all())


@dataclass(frozen=True, eq=False)
class Query:
    """One table: the counts of the named attributes or recodes, for every unit of a level.

    `shape` is that of the full histogram, and `factors` go with `labels`.
    """

    name: str
    labels: tuple[tuple[str, tuple[str, ...]], ...]
    shape: tuple[int, ...]
    factors: tuple[Factor, ...]

    @property
    def cells(self) -> int:
        """The number of counts."""
        return math.prod(len(categories) for _, categories in self.labels)

    @property
    def complete(self) -> bool:
        """Whether it counts everyone."""
        return all(factor.complete for factor in self.factors)

    @property
    def cell_of(self) -> IntArray:
        """The cell of the query for each cell of the full histogram, -1 if omitted.

        This array is as long as the histogram; `cells_at` returns part of it without building it.
        """
        return self._every if self._small else self._computed(np.arange(math.prod(self.shape)))

    def cells_at(self, cells: Array | int) -> IntArray:
        """Return the cell of the query for some cells of the full histogram, -1 where omitted."""
        if self._small:
            return np.asarray(self._every[cells])
        return self._computed(np.asarray(cells, np.int64))

    @property
    def _small(self) -> bool:
        return math.prod(self.shape) <= _SMALL

    @cached_property
    def _every(self) -> IntArray:
        every = self._computed(np.arange(math.prod(self.shape)))
        every.setflags(write=False)
        return every

    def _computed(self, cells: IntArray) -> IntArray:
        result = np.zeros(cells.shape, np.int64)
        omitted = np.zeros(cells.shape, bool)
        for factor, (_, categories) in zip(self.factors, self.labels, strict=True):
            number = factor.group[cells // factor.stride % len(factor.group)]
            result = result * len(categories) + number
            if not factor.complete:
                omitted |= number < 0
        return np.where(omitted, -1, result)

    @property
    def largest_cell(self) -> int:
        """The number of cells of the full histogram in its largest cell; 1 if it counts no one."""
        sizes = {factor.axis: _largest_group(factor.group) for factor in self.factors}
        return max(math.prod(sizes.get(axis, size) for axis, size in enumerate(self.shape)), 1)

    def distinguishes(self, axis: int) -> bool:
        """Return whether it distinguishes categories of an attribute."""
        return all(
            (factor.group >= 0).any() for factor in self.factors if factor.axis != axis
        ) and any(
            factor.axis == axis and len(np.unique(factor.group)) > 1 for factor in self.factors
        )

    def cell_labels(self) -> list[tuple[str, ...]]:
        """Return the categories of each cell, in order."""
        return list(product(*(categories for _, categories in self.labels)))

    def labels_of(self, cell: int) -> tuple[str, ...]:
        """Return the categories of one cell."""
        labels = []
        for _, categories in reversed(self.labels):
            cell, number = divmod(cell, len(categories))
            labels.append(categories[number])
        return tuple(reversed(labels))

    def sensitivity(
        self, neighbors: Neighbors, rows: int = 1, units: int | None = None
    ) -> Sensitivity:
        """Return the sensitivity of the counts of a level to one person with at most `rows` rows.

        add-remove: up to `rows` in one cell. change-one: up to `rows` leave one cell and enter
        another, of the same unit or another. If there is only one cell for everyone (TOTAL, and
        `units` = 1), a person with exactly one row cannot change it.
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
    """The attributes recorded for each person, and their recodes."""

    attributes: tuple[Attribute, ...]
    recodes: tuple[Recode, ...] = ()

    def __post_init__(self) -> None:
        for name, times in Counter(self._names()).items():
            if times > 1:
                raise PlanError(
                    f"recodes.{name}: an attribute has the same name; rename the recode"
                )
        if len(self.attributes) > MOST_ATTRIBUTES:
            raise PlanError(
                f"attributes: {len(self.attributes):,} are listed; the limit is {MOST_ATTRIBUTES}: "
                f"merge some"
            )
        if self.cells > LARGEST_HISTOGRAM:
            raise PlanError(
                f"attributes: their histogram has {self.cells:,} cells; the limit is "
                f"{LARGEST_HISTOGRAM:,}: remove attributes, or merge categories"
            )
        known = [attribute.name for attribute in self.attributes]
        for recode in self.recodes:
            if recode.of not in known:
                raise PlanError(
                    f"recodes.{recode.name}.of: unknown attribute {recode.of!r}; choose from "
                    f"{choices(known)}"
                )
            recode.group_of(self.attributes[known.index(recode.of)])

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of categories of each attribute."""
        return tuple(len(attribute.categories) for attribute in self.attributes)

    @property
    def cells(self) -> int:
        """The number of cells of the full histogram."""
        return math.prod(self.shape)

    @cached_property
    def _queries(self) -> dict[str, Query]:
        return {}

    @property
    def queries_named(self) -> int:
        """The number of different queries that were requested so far."""
        return len(self._queries)

    def query(self, name: str) -> Query:
        """Return the query `name`: TOTAL, or names of attributes and recodes joined by `*`.

        Blanks around names make no difference: "A * B" is the query "A*B".
        """
        name = without_blanks(name)
        if name not in self._queries:
            self._queries[name] = self._build(name)
        return self._queries[name]

    @property
    def every_cell(self) -> Query:
        """The query that counts every cell separately."""
        return self.query("*".join(item.name for item in self.attributes) or TOTAL)

    def _build(self, name: str) -> Query:
        factors: dict[str, Factor] = {}
        labels: list[tuple[str, tuple[str, ...]]] = []
        used: dict[int, str] = {}
        if name.count("*") >= MOST_ATTRIBUTES:
            raise PlanError(
                f"query {name[:60]!r}…: has {name.count('*') + 1:,} parts; the limit is "
                f"{MOST_ATTRIBUTES}: name each attribute once"
            )
        for word in [] if name == TOTAL else name.split("*"):
            if word not in self._factors:
                raise PlanError(
                    f"query {name!r}: unknown attribute or recode {word!r}; choose from TOTAL, "
                    f"{choices(self._names())}"
                )
            factor, categories = self._factors[word]
            if factor.axis in used:
                raise PlanError(
                    f"query {name!r}: {word} and {used[factor.axis]} are both views of "
                    f"{self.attributes[factor.axis].name}; name each attribute once"
                )
            used[factor.axis] = word
            factors[word] = factor
            labels.append((word, categories))
        return Query(name, tuple(labels), self.shape, tuple(factors.values()))

    @cached_property
    def _factors(self) -> dict[str, tuple[Factor, tuple[str, ...]]]:
        """The factor of each attribute and recode, with the labels of its groups."""
        factors = {}
        for axis, attribute in enumerate(self.attributes):
            size = len(attribute.categories)
            stride = math.prod(self.shape[axis + 1 :])
            factors[attribute.name] = (Factor(axis, stride, np.arange(size)), attribute.categories)
        for recode in self.recodes:
            base, _ = factors[recode.of]
            group = np.array(recode.group_of(self.attributes[base.axis]), np.int64)
            labels = tuple(label for label, _ in recode.groups)
            factors[recode.name] = (Factor(base.axis, base.stride, group), labels)
        return factors

    def _names(self) -> list[str]:
        return [item.name for item in self.attributes] + [item.name for item in self.recodes]


def without_blanks(name: str) -> str:
    """Return the name of a query without blanks around its parts, as in files and messages."""
    return "*".join(part.strip() for part in name.split("*"))


def _largest_group(group: IntArray) -> int:
    return int(np.bincount(group[group >= 0]).max(initial=0))
