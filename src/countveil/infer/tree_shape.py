"""The shape of the tree: which units have the same tree below them, and which the same place in it.

Variances depend on the shape alone. Units of the lowest level are all alike from below; one level up,
those with as many children; further up, each is its own kind.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from countveil.numerics import FloatArray, IntArray
from countveil.schema.geography import Geography


@dataclass(frozen=True, eq=False, slots=True)
class Places:
    """The places of a level: units of one place are siblings with the same tree below.

    `of_unit` is the place of each unit; `above` the place of each one's parent, `kind` what is below,
    `only` whether its unit is the only child, and `known_as` the highest level at which the same people
    are a unit: that of the place itself unless it is an only child.
    """

    of_unit: IntArray
    above: IntArray
    kind: IntArray
    only: NDArray[np.bool_]
    known_as: IntArray

    def __len__(self) -> int:
        """How many places there are."""
        return len(self.kind)


@dataclass(frozen=True, eq=False, slots=True)
class Tree:
    """A geography with, level by level, the kinds of its units and their places.

    `first` has the first child of each unit; the lowest level has none.
    """

    geography: Geography
    first: tuple[IntArray, ...]
    kind: tuple[IntArray, ...]
    kinds: tuple[int, ...]
    places: tuple[Places, ...]

    @classmethod
    def of(cls, geography: Geography) -> Tree:
        """Find what is alike in a geography."""
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
        places: list[Places] = []
        for level in range(depth):
            above = places[-1] if places else None
            parents = geography.parents[level]
            places.append(_places(level, parents, kind[level], kinds[level], above))
        return cls(geography, tuple(first), tuple(kind), tuple(kinds), tuple(places))

    @property
    def depth(self) -> int:
        """How many levels there are."""
        return len(self.kind)

    def units(self, level: int) -> int:
        """How many units a level has."""
        return len(self.kind[level])

    def children(self, level: int) -> IntArray:
        """Return how many children each unit of a level has."""
        return np.diff(self.first[level], append=self.units(level + 1))

    def sums_by_kind(self, level: int, below: FloatArray) -> FloatArray:
        """Add up over the children, for each kind of a level, what the kinds below it have."""
        if self.kinds[level + 1] == 1:
            sizes = np.empty(self.kinds[level])
            sizes[self.kind[level]] = self.children(level)
            return np.asarray(np.multiply.outer(sizes, below[0]))
        each = below[self.kind[level + 1]]
        return np.asarray(np.add.reduceat(each, self.first[level], axis=0))


def covers(tree: Tree, level: int, units: IntArray) -> list[tuple[int, IntArray]]:
    """Return the fewest units, of any level, that are together the given units of one level."""
    found = []
    left = units
    for number in range(level, 0, -1):
        parents = tree.geography.parents[number][left]
        above, inside = np.unique(parents, return_counts=True)
        whole = above[inside == tree.children(number - 1)[above]]
        found.append((number, left[~np.isin(parents, whole)]))
        left = whole
    found.append((0, left))
    return [(number, kept) for number, kept in found if len(kept)]


def _places(
    level: int, parents: IntArray, kind: IntArray, kinds: int, above: Places | None
) -> Places:
    if above is None:
        _, one, of_unit = np.unique(kind, return_index=True, return_inverse=True)
        nowhere = np.full(len(one), -1, np.int64)
        return Places(of_unit, nowhere, kind[one], np.zeros(len(one), bool), 0 * one)
    holder = above.of_unit[parents]
    _, one, of_unit = np.unique(holder * kinds + kind, return_index=True, return_inverse=True)
    only = (np.bincount(parents) == 1)[parents[one]]
    known_as = np.where(only, above.known_as[holder[one]], level)
    return Places(of_unit, holder[one], kind[one], only, known_as)
