"""The shape of the tree: which units have the same tree below them, and which the same position.

Variances depend on the shape alone. Seen from below, all units of the lowest level are alike; one level
up, those with equally many children; further up, each unit is a kind of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from countveil.base.numerics import FloatArray, IntArray
from countveil.plan.geography import Geography


@dataclass(frozen=True, eq=False, slots=True)
class Positions:
    """The positions of a level: units share one if they are siblings with the same tree below.

    `of_unit` is the position of each unit. For each position, `above` is that of its parent, `kind`
    what is below it, `only_child` whether its unit has no siblings, and `highest_level` the highest
    level at which the same people form a unit: its own level, unless it is an only child.
    """

    of_unit: IntArray
    above: IntArray
    kind: IntArray
    only_child: NDArray[np.bool_]
    highest_level: IntArray

    def __len__(self) -> int:
        """Return the number of positions."""
        return len(self.kind)


class LevelUnits(NamedTuple):
    """Some units of one level, by number; the top level is 0."""

    level: int
    units: IntArray


@dataclass(frozen=True, eq=False, slots=True)
class Tree:
    """A geography with the kind and the position of every unit, level by level.

    `first` is the first child of each unit, for every level except the lowest.
    """

    geography: Geography
    first: tuple[IntArray, ...]
    kind: tuple[IntArray, ...]
    kinds: tuple[int, ...]
    positions: tuple[Positions, ...]

    @classmethod
    def of(cls, geography: Geography) -> Tree:
        """Return the tree of a geography, its units sorted into kinds and positions."""
        depth = len(geography.levels)
        first = [
            np.flatnonzero(np.diff(geography.parents[level], prepend=-1))
            for level in range(1, depth)
        ]
        kind = [np.zeros(geography.units(geography.levels[-1]), np.int64)]
        kinds = [1]
        for level in range(depth - 2, -1, -1):
            children = np.diff(first[level], append=len(kind[0]))
            if kinds[0] == 1:
                sizes, alike = np.unique(children, return_inverse=True)
                kind.insert(0, alike)
                kinds.insert(0, len(sizes))
            else:
                kind.insert(0, np.arange(len(children)))
                kinds.insert(0, len(children))
        positions: list[Positions] = []
        for level in range(depth):
            above = positions[-1] if positions else None
            parents = geography.parents[level]
            positions.append(_positions(level, parents, kind[level], kinds[level], above))
        return cls(geography, tuple(first), tuple(kind), tuple(kinds), tuple(positions))

    @property
    def depth(self) -> int:
        """The number of levels."""
        return len(self.kind)

    def units(self, level: int) -> int:
        """Return how many units a level has."""
        return len(self.kind[level])

    def children(self, level: int) -> IntArray:
        """Return how many children each unit of a level has."""
        return np.diff(self.first[level], append=self.units(level + 1))

    def places_of(self, level: int) -> list[tuple[int, IntArray]]:
        """Return where the units of a level are looked at: a level, and which of its positions.

        Units that are only children are looked at where the same people first have siblings.
        """
        positions = self.positions[level]
        places = []
        for highest in np.unique(positions.highest_level).tolist():
            here = np.flatnonzero(positions.highest_level == highest)
            for number in range(level, highest, -1):
                here = self.positions[number].above[here]
            places.append((highest, np.unique(here)))
        return places

    def sums_by_kind(self, level: int, below: FloatArray) -> FloatArray:
        """Return, for each kind of a level, the sum over its children of what their kinds have."""
        if self.kinds[level + 1] == 1:
            sizes = np.empty(self.kinds[level])
            sizes[self.kind[level]] = self.children(level)
            return np.asarray(np.multiply.outer(sizes, below[0]))
        each = below[self.kind[level + 1]]
        return np.asarray(np.add.reduceat(each, self.first[level], axis=0))


@lru_cache(maxsize=4)
def tree_of(geography: Geography) -> Tree:
    """Return the tree of a geography, kept for the next question about it."""
    return Tree.of(geography)


def fewest_units(tree: Tree, level: int, units: IntArray) -> list[LevelUnits]:
    """Return the fewest units, of any levels, that together are these units of one level."""
    cover = []
    left = units
    for number in range(level, 0, -1):
        parents = tree.geography.parents[number][left]
        above, inside = np.unique(parents, return_counts=True)
        whole = above[inside == tree.children(number - 1)[above]]
        cover.append(LevelUnits(number, left[~np.isin(parents, whole)]))
        left = whole
    cover.append(LevelUnits(0, left))
    return [item for item in cover if len(item.units)]


def _positions(
    level: int, parents: IntArray, kind: IntArray, kinds: int, above: Positions | None
) -> Positions:
    if above is None:
        _, one, of_unit = np.unique(kind, return_index=True, return_inverse=True)
        nowhere = np.full(len(one), -1, np.int64)
        return Positions(of_unit, nowhere, kind[one], np.zeros(len(one), bool), 0 * one)
    holder = above.of_unit[parents]
    _, one, of_unit = np.unique(holder * kinds + kind, return_index=True, return_inverse=True)
    only = (np.bincount(parents) == 1)[parents[one]]
    highest = np.where(only, above.highest_level[holder[one]], level)
    return Positions(of_unit, holder[one], kind[one], only, highest)
