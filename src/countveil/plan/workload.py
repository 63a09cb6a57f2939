"""Queries: marginals of the full cross-classification, and how far one person moves them."""

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
from countveil.plan.attributes import Attribute, Recode, listed
from countveil.privacy.costs import Sensitivity

Neighbors = Literal["change-one", "add-remove"]

LARGEST_HISTOGRAM = 50_000_000
MOST_ATTRIBUTES = 32
TOTAL = "TOTAL"
_SMALL = 5_000  # cells of a histogram whose maps are kept: looking up is faster than dividing


@dataclass(frozen=True, eq=False, slots=True)
class Factor:
    """One attribute as a query sees it: `group[k]` is the group of category k, -1 where omitted.

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
        """How many counts it has."""
        return math.prod(len(categories) for _, categories in self.labels)

    @property
    def complete(self) -> bool:
        """Whether everyone is counted somewhere in it."""
        return all(factor.complete for factor in self.factors)

    @property
    def cell_of(self) -> IntArray:
        """The cell of the query for each cell of the full histogram, -1 where omitted.

        It is as long as the histogram; `cells_at` answers for some cells without making it.
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
        """How many cells of the full histogram its largest cell sums; 1 where it counts nobody."""
        sizes = {factor.axis: _largest_group(factor.group) for factor in self.factors}
        return max(math.prod(sizes.get(axis, size) for axis, size in enumerate(self.shape)), 1)

    def tells(self, axis: int) -> bool:
        """Whether it tells categories of an attribute apart."""
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
        found = []
        for _, categories in reversed(self.labels):
            cell, number = divmod(cell, len(categories))
            found.append(categories[number])
        return tuple(reversed(found))

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
        for name, times in Counter(self._names()).items():
            if times > 1:
                raise PlanError(
                    f"recodes.{name}: the name is taken by an attribute; choose another"
                )
        if len(self.attributes) > MOST_ATTRIBUTES:
            raise PlanError(f"attributes: more than {MOST_ATTRIBUTES}; merge some of them")
        if self.cells > LARGEST_HISTOGRAM:
            raise PlanError(
                f"attributes: their cross-classification has {self.cells:,} cells, above the limit of "
                f"{LARGEST_HISTOGRAM:,}; drop attributes or merge categories"
            )
        known = [attribute.name for attribute in self.attributes]
        for recode in self.recodes:
            if recode.of not in known:
                raise PlanError(
                    f"recodes.{recode.name}.of: no attribute {recode.of!r}; choose from {listed(known)}"
                )
            recode.group_of(self.attributes[known.index(recode.of)])

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

    @property
    def queries_named(self) -> int:
        """How many different queries were asked for so far."""
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
                f"query {name[:60]!r}…: has {name.count('*') + 1:,} parts, and a plan at most "
                f"{MOST_ATTRIBUTES} attributes; name each once"
            )
        for word in [] if name == TOTAL else name.split("*"):
            if word not in self._factors:
                raise PlanError(
                    f"query {name!r}: no attribute or recode {word!r}; choose from TOTAL, "
                    f"{listed(self._names())}"
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
        """How a query sees each attribute and each recode, with the labels of its groups."""
        found = {}
        for axis, attribute in enumerate(self.attributes):
            size = len(attribute.categories)
            stride = math.prod(self.shape[axis + 1 :])
            found[attribute.name] = (Factor(axis, stride, np.arange(size)), attribute.categories)
        for recode in self.recodes:
            base, _ = found[recode.of]
            group = np.array(recode.group_of(self.attributes[base.axis]), np.int64)
            labels = tuple(label for label, _ in recode.groups)
            found[recode.name] = (Factor(base.axis, base.stride, group), labels)
        return found

    def _names(self) -> list[str]:
        return [item.name for item in self.attributes] + [item.name for item in self.recodes]


def without_blanks(name: str) -> str:
    """Return the name of a query as its files and messages have it: no blanks around its parts."""
    return "*".join(part.strip() for part in name.split("*"))


def _largest_group(group: IntArray) -> int:
    return int(np.bincount(group[group >= 0]).max(initial=0))
