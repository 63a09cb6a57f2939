"""What the observations of a level and those below it determine: cells of a query, sums of cells.

Noise and the number of units do not matter for this, only which sums are observed. An only child also
knows what its parent knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from countveil.base.numerics import FloatArray, IntArray
from countveil.plan.workload import Query
from countveil.tree.covariances import span
from countveil.tree.observed_levels import Observed
from countveil.tree.subspaces import QueryDecomposition

_NOTHING = 1e-9
_ROWS = 2**22  # coefficients of sums held at a time


@dataclass(frozen=True, eq=False, slots=True)
class Determination:
    """A query, and by level and subspace the projector onto what is determined there."""

    decomposition: QueryDecomposition
    projectors: tuple[tuple[FloatArray, ...], ...]

    @classmethod
    def of(cls, observed: Observed, query: Query) -> Determination:
        """Return what is determined of a query; refuse one that is too large to solve."""
        decomposition = QueryDecomposition.of(observed, query)
        sums = [np.zeros((space.size, space.size)) for space in decomposition.subspaces]
        levels: list[tuple[FloatArray, ...]] = []
        for level in reversed(observed.levels):
            for one in observed.observations[level]:
                for number, space in enumerate(decomposition.subspaces):
                    if space.sees(one):
                        sums[number] = sums[number] + one.scale * space.square(one)
            bases = [span(item) for item in sums]
            levels.insert(0, tuple(np.asarray(basis @ basis.T) for basis in bases))
        return cls(decomposition, tuple(levels))

    def kinds(self, level: int) -> NDArray[np.bool_]:
        """Return which kinds of cells are determined at a level."""
        return kinds_inside(self.decomposition, self.projectors[level])

    def cells(self, level: int) -> NDArray[np.bool_]:
        """Return which cells of the query are determined at a level."""
        return np.asarray(self.kinds(level)[self.decomposition.kind_of_cell])

    def sums(self, level: int, members: Sequence[IntArray]) -> NDArray[np.bool_]:
        """Return which sums of cells are determined at a level; each lists its cells."""
        known = self.cells(level)
        known_sums = np.array([bool(known[cells].all()) for cells in members], bool)
        left = np.flatnonzero(~known_sums)
        step = max(1, _ROWS // max(1, len(known)))
        for start in range(0, len(left), step):
            some = left[start : start + step]
            adds = np.zeros((len(some), len(known)))
            for row, number in enumerate(some):
                np.add.at(adds[row], members[number], 1.0)
            missing, whole = np.zeros(len(some)), np.zeros(len(some))
            for space, projector in zip(
                self.decomposition.subspaces, self.projectors[level], strict=True
            ):
                rows = np.tensordot(adds, self.decomposition.rows(space), axes=1)
                grams = np.einsum("kic,kjc->kij", rows, rows)
                missing += _outside(grams, projector)
                whole += np.einsum("kii->k", grams)
            known_sums[some] = _nothing_left(missing, whole)
        return known_sums


def kinds_inside(
    decomposition: QueryDecomposition, projectors: Sequence[FloatArray]
) -> NDArray[np.bool_]:
    """Return which kinds of cells lie inside the images of projectors, one per subspace."""
    cells, grams = decomposition.kinds
    missing, whole = (np.zeros(len(cells)) for _ in range(2))
    for gram, projector in zip(grams, projectors, strict=True):
        missing += _outside(gram, projector)
        whole += np.einsum("kii->k", gram)
    return _nothing_left(missing, whole)


def _outside(grams: FloatArray, projector: FloatArray) -> FloatArray:
    """Return, for each F Fᵀ, how much of F lies outside the image of a projector."""
    apart = np.eye(len(projector)) - projector
    return np.asarray(np.einsum("ij,kji->k", apart, grams))


def _nothing_left(missing: FloatArray, whole: FloatArray) -> NDArray[np.bool_]:
    return np.asarray(missing <= _NOTHING * np.maximum(whole, 1.0))
