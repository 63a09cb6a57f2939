"""Two passes over the tree in one subspace: the covariances of all estimates, from its shape alone.

Upwards, a unit's own measurements and its children are weighted by their precision:
J = A + (Σ_c V_c)⁻¹, V = J⁻¹. Downwards, what the rest of the tree adds is shared among the children:
x_c += V_c (Σ V_c)⁻¹ (x_parent - Σ x_c). Sums that are known exactly, or not at all, are kept apart;
they are the same for all units of a level, except that an only child knows what its parent knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from countveil.base.numerics import FloatArray, IntArray
from countveil.tree.observed_levels import Observation
from countveil.tree.subspaces import Subspace
from countveil.tree.tree_shape import Tree

_NOTHING = 1e-9


@dataclass(frozen=True, eq=False, slots=True)
class Rung:
    """One level, in one subspace of size D.

    `known` (D × n) spans what is exact at the level; `noisy` (D × e), orthogonal to it, spans what else
    the units and everything below them determine. `information` is A, and `covariance` (kinds × e × e)
    that of the upward estimates. For the level below, `below` maps what is noisy here to what is noisy
    there, and `pull` (kinds × its e × its e) is (Σ V_c)⁻¹. The known part follows from the exact sums
    of the level through `known_own`, and from the known part below through `known_below`.
    """

    known: FloatArray
    noisy: FloatArray
    information: FloatArray
    covariance: FloatArray
    below: FloatArray
    pull: FloatArray
    below_known: FloatArray
    known_own: FloatArray
    known_below: FloatArray

    def exact(self, sums: FloatArray, below: FloatArray) -> FloatArray:
        """Return the known part of some units, from exact sums here and the known part below."""
        return np.asarray(np.matmul(self.known_own, sums) + np.matmul(self.known_below, below))

    def estimate(
        self, kind: IntArray, sums: FloatArray, exact: FloatArray, below: FloatArray
    ) -> FloatArray:
        """Return the upward estimates of units of some kinds: of the noisy part.

        `sums` is Σ w Qᵀ m of the units, `exact` their known part, `below` the sums of their children's
        estimates.
        """
        if exact.shape[1]:
            sums = sums - np.matmul(self.information @ self.known, exact)
            below = below - np.matmul(self.below_known, exact)
        right = sums if is_identity(self.noisy) else np.matmul(self.noisy.T, sums)
        if below.shape[1]:
            pulled = times(self.pull, kind, below)
            right = right + (pulled if is_identity(self.below) else np.matmul(self.below.T, pulled))
        return times(self.covariance, kind, right)

    def histogram(self, noisy: FloatArray, exact: FloatArray) -> FloatArray:
        """Combine the noisy and the known part into the determined part of the D values."""
        whole = noisy if is_identity(self.noisy) else np.matmul(self.noisy, noisy)
        return whole + np.matmul(self.known, exact) if exact.shape[1] else whole

    @property
    def determined(self) -> FloatArray:
        """The projector onto what the units and everything below them determine."""
        return np.asarray(self.exactly + self.noisy @ self.noisy.T)

    @property
    def exactly(self) -> FloatArray:
        """The projector onto what is known exactly."""
        return np.asarray(self.known @ self.known.T)


def climb(
    tree: Tree, subspace: Subspace, observations: Sequence[Sequence[Observation]]
) -> list[Rung]:
    """Return the rungs of all levels, the top first, from the observations of each level."""
    size = subspace.size
    rungs: list[Rung] = []
    for level in range(tree.depth - 1, -1, -1):
        information, measured, fixed = (np.zeros((size, size)) for _ in range(3))
        for one in observations[level]:
            if not subspace.sees(one):
                continue
            square = subspace.square(one)
            if one.weight is None:
                fixed += one.scale * square
            else:
                information += one.weight * square
                measured += one.scale * square
        rungs.insert(
            0, _rung(tree, level, information, measured, fixed, rungs[0] if rungs else None)
        )
    return rungs


def _rung(
    tree: Tree,
    level: int,
    information: FloatArray,
    measured: FloatArray,
    fixed: FloatArray,
    lower: Rung | None,
) -> Rung:
    size = len(information)
    nothing = np.zeros((size, 0))
    lower_known, lower_noisy = (nothing, nothing) if lower is None else (lower.known, lower.noisy)
    own = span(fixed)
    known = span(np.concatenate([lower_known, own], axis=1))
    determined = span(np.concatenate([known, lower_noisy, span(measured)], axis=1))
    noisy = determined if not known.shape[1] else span(determined - known @ (known.T @ determined))
    # N = [N_below, N_own] α; instead of N_ownᵀx we have the sums S x with S = Σ scale QᵀQ.
    mix = np.linalg.pinv(np.concatenate([lower_known, own], axis=1), rcond=_NOTHING) @ known
    solve = np.linalg.inv(own.T @ fixed @ own) @ own.T
    below = lower_noisy.T @ noisy
    precision = np.broadcast_to(
        noisy.T @ information @ noisy, (tree.kinds[level], noisy.shape[1], noisy.shape[1])
    )
    pull = np.zeros((tree.kinds[level], 0, 0))
    if lower is not None:
        pull = _inverse(tree.sums_by_kind(level, lower.covariance))
        precision = precision + below.T @ pull @ below
    return Rung(
        known=known,
        noisy=noisy,
        information=information,
        covariance=_inverse(precision),
        below=below,
        pull=pull,
        below_known=lower_noisy.T @ known,
        known_own=mix[lower_known.shape[1] :].T @ solve,
        known_below=mix[: lower_known.shape[1]].T,
    )


def position_covariances(tree: Tree, rungs: Sequence[Rung]) -> Iterator[FloatArray]:
    """Yield, level by level, the covariance of the final estimates at each position.

    Each is D × D, and 0 along directions that are not determined.
    """
    above = np.zeros((0, 0, 0))
    for level, rung in enumerate(rungs):
        positions = tree.positions[level]
        upward = rung.covariance[positions.kind]
        if level:
            holder = tree.positions[level - 1]
            pull = rungs[level - 1].pull[holder.kind[positions.above]]
            share = upward @ pull
            parent = above[positions.above]
            handed = rung.noisy.T @ parent @ rung.noisy
            turned = np.swapaxes(share, 1, 2)
            final = upward - share @ upward + share @ handed @ turned
            whole = rung.noisy @ final @ rung.noisy.T
            whole[positions.only_child] = parent[positions.only_child]
        else:
            whole = rung.noisy @ upward @ rung.noisy.T
        above = 0.5 * (whole + np.swapaxes(whole, 1, 2))
        yield above


def times(matrices: FloatArray, which: IntArray, values: FloatArray) -> FloatArray:
    """Multiply values (units × rows × copies) by the matrix of each unit's kind."""
    if matrices.shape[1:] == (1, 1):
        factors = matrices if len(matrices) == 1 else matrices[which]
        return factors * values
    chosen = matrices[0] if len(matrices) == 1 else matrices[which]
    return np.asarray(np.matmul(chosen, values))


def span(columns: FloatArray) -> FloatArray:
    """Return an orthonormal basis of the span of columns; the identity if they span everything."""
    rows = len(columns)
    if not columns.size:
        return np.zeros((rows, 0))
    vectors, values, _ = np.linalg.svd(columns)
    rank = int((values > _NOTHING).sum())
    return np.eye(rows) if rank == rows else vectors[:, :rank]


def is_identity(matrix: FloatArray) -> bool:
    """Whether a matrix with orthonormal columns is the identity, as `span` returns it."""
    return matrix.shape[0] == matrix.shape[1] and bool((matrix == np.eye(len(matrix))).all())


def _inverse(stack: FloatArray) -> FloatArray:
    """Invert positive definite matrices."""
    if stack.shape[1:] == (1, 1):
        return 1.0 / stack
    return np.asarray(np.linalg.inv(stack))
