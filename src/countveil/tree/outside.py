"""What the rest of the tree says about a unit: its siblings, its parent, and everything around them.

A unit's own measurements and those below it are left out. What remains is O = F⁻¹ - V⁻¹, with F the
covariance of the best estimate from the whole tree and V that from the unit and below alone. An only
child is the same people as its parent, so it is looked at there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from countveil.base.numerics import FloatArray, IntArray
from countveil.plan.workload import Query
from countveil.tree.covariances import climb, position_covariances
from countveil.tree.observed_levels import Observed
from countveil.tree.query_errors import refuse_many_covariances
from countveil.tree.subspaces import QueryDecomposition
from countveil.tree.tree_shape import Tree


@dataclass(frozen=True, eq=False, slots=True)
class OutsideInformation:
    """By level and subspace: a basis of what is noisy there, and O of each position in that basis."""

    tree: Tree
    decomposition: QueryDecomposition
    bases: tuple[tuple[FloatArray, ...], ...]
    precisions: tuple[tuple[FloatArray, ...], ...]

    @classmethod
    def of(cls, observed: Observed, tree: Tree, query: Query) -> OutsideInformation:
        """Return it for the cells of a query; refuse one that is too large to solve."""
        decomposition = QueryDecomposition.of(observed, query)
        refuse_many_covariances(decomposition, tree)
        observations = [observed.observations[level] for level in observed.levels]
        bases: list[list[FloatArray]] = [[] for _ in observed.levels]
        precisions: list[list[FloatArray]] = [[] for _ in observed.levels]
        for space in decomposition.subspaces:
            rungs = climb(tree, space, observations)
            for level, whole in enumerate(position_covariances(tree, rungs)):
                noisy = rungs[level].noisy
                positions = tree.positions[level]
                outside = np.zeros((len(positions), noisy.shape[1], noisy.shape[1]))
                if level and noisy.shape[1]:
                    alone = ~positions.only_child
                    own = rungs[level].covariance[positions.kind[alone]]
                    outside[alone] = _precision_added(own, noisy.T @ whole[alone] @ noisy)
                bases[level].append(noisy)
                precisions[level].append(outside)
        return cls(tree, decomposition, tuple(map(tuple, bases)), tuple(map(tuple, precisions)))

    def about(self, level: int, moves: Sequence[FloatArray]) -> FloatArray:
        """Return vᵀOv for moves v of a unit's histogram: positions × moves.

        `moves` has the coordinates of all moves in each subspace, moves × size × copies, as
        `QueryDecomposition.coordinates` gives them.
        """
        total = np.zeros((len(self.tree.positions[level]), len(moves[0]) if moves else 0))
        for basis, outside, move in zip(
            self.bases[level], self.precisions[level], moves, strict=True
        ):
            inside = np.einsum("de,mdc->mec", basis, move)
            grams = np.einsum("mec,mfc->mef", inside, inside)
            total += outside.reshape(len(outside), -1) @ grams.reshape(len(grams), -1).T
        return np.asarray(np.maximum(total, 0.0))

    def siblings(self, level: int) -> IntArray:
        """Return how many siblings the units at each position of a level have."""
        positions, parents = self.tree.positions[level], self.tree.geography.parents[level]
        if not level:
            return np.zeros(len(positions), np.int64)
        sizes = np.bincount(parents)[parents] - 1
        result = np.zeros(len(positions), np.int64)
        result[positions.of_unit] = sizes
        return result


def _precision_added(before: FloatArray, after: FloatArray) -> FloatArray:
    """Return F⁻¹ - V⁻¹ for stacks of covariances V before and F after, F ≤ V.

    Through V^(1/2), in which V is the identity, so that what cancels is at most 1.
    """
    if before.shape[1:] == (1, 1):
        return 1.0 / after - 1.0 / before
    root = np.linalg.cholesky(before)
    half = np.linalg.solve(root, after)
    ratio = np.linalg.solve(root, np.swapaxes(half, 1, 2))  # root⁻¹ F root⁻ᵀ
    added = np.linalg.inv(ratio) - np.eye(before.shape[1])
    back = np.linalg.solve(np.swapaxes(root, 1, 2), added)
    result = np.linalg.solve(np.swapaxes(root, 1, 2), np.swapaxes(back, 1, 2))
    return np.asarray(0.5 * (result + np.swapaxes(result, 1, 2)))
