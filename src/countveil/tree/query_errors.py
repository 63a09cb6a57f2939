"""The errors of estimates of queries, at every position of the tree, from its shape alone.

No measurement is read: the covariance of the best unbiased estimate depends on the plan's noise and on
how many units are around a unit: its children, its siblings, its parent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from countveil.base.numerics import FloatArray, IntArray
from countveil.errors import InputError
from countveil.plan.workload import Query
from countveil.tree.covariances import Rung, climb, position_covariances
from countveil.tree.determination import kinds_inside
from countveil.tree.observed_levels import Observed
from countveil.tree.subspaces import QueryDecomposition, Subspace, subspaces_of
from countveil.tree.tree_shape import Tree

_MOST_COVARIANCES = 2**27
_MOST_NUMBERS = 2**27  # of several queries together
_MOST_SUBSPACES = 2**16  # of several queries together: about half a minute


@dataclass(frozen=True, eq=False, slots=True)
class QueryErrors:
    """What the shape of the tree says about one query: a rung for each of its subspaces and levels."""

    tree: Tree
    decomposition: QueryDecomposition
    rungs: tuple[tuple[Rung, ...], ...]

    @classmethod
    def of(cls, observed: Observed, tree: Tree, query: Query) -> QueryErrors:
        """Return the errors of a query; refuse one whose blocks are too large to solve."""
        decomposition = QueryDecomposition.of(observed, query)
        refuse_many_covariances(decomposition, tree)
        observations = [observed.observations[level] for level in observed.levels]
        rungs = tuple(tuple(climb(tree, space, observations)) for space in decomposition.subspaces)
        return cls(tree, decomposition, rungs)

    def covariances(self, level: int) -> list[FloatArray]:
        """Return, by subspace, the covariance at each position of a level: positions × size × size."""
        return [
            next(islice(position_covariances(self.tree, rungs), level, None))
            for rungs in self.rungs
        ]

    def determined(self, level: int) -> NDArray[np.bool_]:
        """Return which kinds of cells the observations of a level and below determine."""
        return kinds_inside(self.decomposition, [rungs[level].determined for rungs in self.rungs])

    def exact(self, level: int) -> NDArray[np.bool_]:
        """Return which kinds of cells the exact observations of a level and below fix."""
        return kinds_inside(self.decomposition, [rungs[level].exactly for rungs in self.rungs])

    def standard_errors(self, level: int) -> FloatArray:
        """Return the standard error of each position of a level and kind of cell.

        It is 0 for what is known exactly, and infinite for what nothing determines.
        """
        cells, grams = self.decomposition.kinds
        positions = self.tree.positions[level]
        variance = np.zeros((len(positions), len(cells)))
        for covariance, gram in zip(self.covariances(level), grams, strict=True):
            variance += covariance.reshape(len(covariance), -1) @ gram.reshape(len(gram), -1).T
        return self._marked(level, variance)

    def _marked(self, level: int, variance: FloatArray) -> FloatArray:
        """Return errors from variances; mark what is exact and what is not determined."""
        positions = self.tree.positions[level]
        error: FloatArray = np.sqrt(np.maximum(variance, 0.0))
        for highest in np.unique(positions.highest_level):
            inside = positions.highest_level == highest
            error[np.ix_(inside, self.exact(int(highest)))] = 0.0
            error[np.ix_(inside, ~self.determined(int(highest)))] = np.inf
        return error


class KindErrors(NamedTuple):
    """The standard errors of a query: by level, positions × kinds; and the cells of each kind."""

    levels: list[FloatArray]
    cells: IntArray


def errors_of_queries(
    observed: Observed, tree: Tree, queries: Sequence[Query]
) -> dict[Query, KindErrors | None]:
    """Return the standard errors of several queries.

    Subspaces that queries have in common are climbed once. None for a query that is too large, also
    together with those before it, and for all of them if they have too many subspaces.
    """
    if sum(subspaces_of(observed, query) for query in queries) > _MOST_SUBSPACES:
        return dict.fromkeys(queries)
    observations = [observed.observations[level] for level in observed.levels]
    shapes: dict[Query, QueryErrors] = {}
    climbed: dict[tuple[int, ...], tuple[Rung, ...]] = {}
    users: dict[tuple[int, ...], list[tuple[Query, int]]] = {}
    result: dict[Query, KindErrors | None] = {}
    sums: dict[Query, list[FloatArray]] = {}
    numbers = 0
    for query in dict.fromkeys(queries):
        try:
            decomposition = QueryDecomposition.of(observed, query)
            refuse_many_covariances(decomposition, tree)
        except InputError:
            result[query] = None
            continue
        more = _numbers_kept(decomposition, tree)
        if numbers + more > _MOST_NUMBERS:
            result[query] = None
            continue
        numbers += more
        for number, space in enumerate(decomposition.subspaces):
            key = _identity(space)
            if key not in climbed:
                climbed[key] = tuple(climb(tree, space, observations))
            users.setdefault(key, []).append((query, number))
        rungs = tuple(climbed[_identity(space)] for space in decomposition.subspaces)
        shapes[query] = QueryErrors(tree, decomposition, rungs)
        kinds = decomposition.number_of_kinds
        sums[query] = [np.zeros((len(at), kinds)) for at in tree.positions]
    for key, ladder in climbed.items():
        for level, covariance in enumerate(position_covariances(tree, ladder)):
            flat = covariance.reshape(len(covariance), -1)
            for query, number in users[key]:
                gram = shapes[query].decomposition.kinds.grams[number]
                sums[query][level] += flat @ gram.reshape(len(gram), -1).T
    for query, shape in shapes.items():
        errors = [shape._marked(level, item) for level, item in enumerate(sums[query])]
        result[query] = KindErrors(errors, shape.decomposition.kinds.cells)
    return result


def refuse_many_covariances(decomposition: QueryDecomposition, tree: Tree) -> None:
    """Refuse a query with more covariances than fit into memory."""
    squares = sum(space.size**2 for space in decomposition.subspaces)
    positions = max(len(level) for level in tree.positions)
    if positions * squares > _MOST_COVARIANCES:
        raise InputError(
            f"query {decomposition.query.name!r}: {positions * squares:,} covariances would be kept, "
            f"and {_MOST_COVARIANCES:,} is the limit; ask for a query of fewer attributes"
        )


def _numbers_kept(decomposition: QueryDecomposition, tree: Tree) -> int:
    """Return how many numbers are kept for the errors of a query at all levels."""
    squares = sum(space.size**2 for space in decomposition.subspaces)
    positions = sum(map(len, tree.positions))
    return sum(tree.kinds) * squares + decomposition.number_of_kinds * (squares + positions)


def _identity(space: Subspace) -> tuple[int, ...]:
    """Return what tells a subspace from others: the part that it has of each attribute."""
    return tuple(id(seen.part) for seen in space.parts)
