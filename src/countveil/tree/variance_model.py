"""Variances of the best unbiased estimates as functions of the weight of every measured query.

A weight is one over the variance of the noise of one query at one level. In each subspace the two
passes of `covariances` are run for many weights at once, and run backwards for exact gradients;
Hessians are gradients at complex weights. Variances are convex in the weights, and so is any sum of
them with positive importance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from countveil.base.numerics import Array, FloatArray
from countveil.plan.workload import Query
from countveil.tree.covariances import Rung, climb, is_identity
from countveil.tree.observed_levels import Observed
from countveil.tree.subspaces import QueryDecomposition, Subspace
from countveil.tree.tree_shape import Tree

_NOTHING = 1e-12
_STEP = 1e-30  # of a complex weight: too small to cancel, large enough to survive in a double


class WeightedQuery(NamedTuple):
    """A query at a level whose weight is a variable."""

    level: str
    query: str


class MeanVariance(NamedTuple):
    """The mean variance of a query's cells, or of those of one kind, over all units of a level."""

    level: str
    query: Query
    kind: int | None = None
    importance: float = 1.0


Aim: TypeAlias = Sequence[MeanVariance]
"""A sum of mean variances, each times its importance."""


@dataclass(frozen=True, eq=False, slots=True)
class VarianceModel:
    """The variance of every aim, from the shape of a tree, for any weights."""

    weights: tuple[WeightedQuery, ...]
    aims: int
    spaces: tuple[_Space, ...]

    @classmethod
    def of(
        cls,
        observed: Observed,
        tree: Tree,
        aims: Sequence[Aim],
    ) -> VarianceModel:
        """Return the model of some aims; every noisy observation of `observed` is a variable."""
        weights = [
            WeightedQuery(level, one.query.name)
            for level in observed.levels
            for one in observed.observations[level]
            if one.weight is not None
        ]
        numbers = {weight: number for number, weight in enumerate(weights)}
        spaces: dict[tuple[int, ...], _Space] = {}
        decompositions = {
            query: QueryDecomposition.of(observed, query)
            for query in dict.fromkeys(part.query for aim in aims for part in aim)
        }
        alike: dict[object, _Space] = {}
        for number, part in ((number, part) for number, aim in enumerate(aims) for part in aim):
            decomposition = decompositions[part.query]
            cells, grams = decomposition.kinds
            share = cells / cells.sum()
            if part.kind is not None:
                share = np.eye(len(share))[part.kind]
            level = observed.levels.index(part.level)
            for subspace, gram in zip(decomposition.subspaces, grams, strict=True):
                identity = tuple(id(seen.part) for seen in subspace.parts)
                if identity not in spaces:
                    space = _Space.of(observed, tree, subspace, numbers)
                    spaces[identity] = alike.setdefault(space.signature, space)
                spaces[identity].add(number, level, part.importance * share, gram)
        return cls(tuple(weights), len(aims), tuple(dict.fromkeys(spaces.values())))

    def values(self, weights: FloatArray) -> FloatArray:
        """Return the variance of every aim."""
        total = np.zeros(self.aims)
        for space in self.spaces:
            space.add_values(weights, total)
        return total

    def gradients(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the variance of every aim and its gradient: aims × weights."""
        total = np.zeros(self.aims)
        gradients = np.zeros((self.aims, len(weights)))
        for space in self.spaces:
            space.add_gradients(weights, total, gradients)
        return total, gradients

    def curvature(self, weights: FloatArray, importance: FloatArray) -> FloatArray:
        """Return the Hessian of the sum of the aims, each times its importance."""
        total = np.zeros((len(weights), len(weights)))
        for space in self.spaces:
            space.add_curvature(weights, importance, total)
        return total


class _Passes(NamedTuple):
    """What both passes computed in one subspace, by level: kinds or positions × batch × e × e."""

    upward: list[Array]
    pulls: list[Array]
    wholes: list[Array]


@dataclass(frozen=True, eq=False, slots=True)
class _Space:
    """One subspace: the squares of the queries by level, and what each aim asks of it.

    `squares` has, for each level, pairs of a weight's number and QᵀQ within the subspace. `seeds`
    has, by the number of an aim and a level, the G of the variance tr(G × mean covariance).
    """

    tree: Tree
    rungs: tuple[Rung, ...]
    squares: tuple[tuple[tuple[int, FloatArray], ...], ...]
    signature: object
    seeds: dict[tuple[int, int], Array]

    @classmethod
    def of(
        cls,
        observed: Observed,
        tree: Tree,
        subspace: Subspace,
        numbers: dict[WeightedQuery, int],
    ) -> _Space:
        """Return a subspace without aims."""
        observations = [observed.observations[level] for level in observed.levels]
        squares = tuple(
            tuple(
                (numbers[WeightedQuery(level, one.query.name)], subspace.square(one))
                for one in queries
                if one.weight is not None and subspace.sees(one)
            )
            for level, queries in zip(observed.levels, observations, strict=True)
        )
        exact = tuple(
            tuple(
                (number, subspace.square(one).tobytes())
                for number, one in enumerate(queries)
                if one.weight is None and subspace.sees(one)
            )
            for queries in observations
        )
        seen = tuple(tuple((n, square.tobytes()) for n, square in level) for level in squares)
        rungs = tuple(climb(tree, subspace, observations))
        return cls(tree, rungs, squares, (subspace.size, seen, exact), {})

    def add(self, aim: int, level: int, share: FloatArray, gram: FloatArray) -> None:
        """Add what an aim asks: the grams of its kinds of cells, weighted by their share."""
        mean_gram = np.tensordot(share, gram, axes=1)
        if np.abs(mean_gram).max(initial=0.0) > 0:
            self.seeds[aim, level] = self.seeds.get((aim, level), 0.0) + mean_gram

    @property
    def lowest(self) -> int:
        """The lowest level of an aim."""
        return max((level for _, level in self.seeds), default=-1)

    def add_values(self, weights: FloatArray, total: FloatArray) -> None:
        """Add this subspace's part of the variance of every aim."""
        if self.seeds:
            passes = self._passes(self._information(weights), self.lowest)
            for (aim, level), gram in self.seeds.items():
                total[aim] += float(self._mean(passes.wholes[level], level, gram)[0])

    def add_gradients(self, weights: FloatArray, total: FloatArray, gradients: FloatArray) -> None:
        """Add its part of all variances and gradients."""
        if not self.seeds:
            return
        passes = self._passes(self._information(weights), self.lowest)
        for (aim, level), gram in self.seeds.items():
            total[aim] += float(self._mean(passes.wholes[level], level, gram)[0])
        by_aim = self._by_aim()
        seeds = [self._seeded(at, self.lowest) for at in by_aim.values()]
        together = [np.concatenate(parts, axis=1) for parts in zip(*seeds, strict=True)]
        slopes = self._backwards(passes, together)
        for number, aim in enumerate(by_aim):
            for slope, squares in zip(slopes, self.squares, strict=True):
                for weight, square in squares:
                    gradients[aim, weight] += float((slope[number] * square).sum())

    def add_curvature(self, weights: FloatArray, importance: FloatArray, total: FloatArray) -> None:
        """Add its part of a sum of Hessians, by complex steps along each direction of each A."""
        active = self._directions()
        seeds = [
            (level, importance[aim] * gram)
            for (aim, level), gram in self.seeds.items()
            if importance[aim]
        ]
        if not seeds or not active:
            return
        stepped = [
            np.repeat(item.astype(complex), len(active), axis=0)
            for item in self._information(weights)
        ]
        for number, (level, direction) in enumerate(active):
            stepped[level][number] += 1j * _STEP * direction
        lowest = max(level for level, _ in seeds)
        same = [np.repeat(item, len(active), axis=1) for item in self._seeded(seeds, lowest)]
        slopes = self._backwards(self._passes(stepped, lowest), same)
        turned = [item.imag / _STEP for item in slopes]
        columns = [np.einsum("bij,ij->b", turned[level], way) for level, way in active]
        jacobian = self._jacobian(active, len(weights))
        total += jacobian.T @ np.stack(columns, axis=1) @ jacobian

    def _by_aim(self) -> dict[int, list[tuple[int, FloatArray]]]:
        """Return what each aim asks: levels, each with its G."""
        result: dict[int, list[tuple[int, FloatArray]]] = {}
        for (aim, level), gram in self.seeds.items():
            result.setdefault(aim, []).append((level, gram))
        return result

    def _directions(self) -> list[tuple[int, FloatArray]]:
        """Return an orthonormal basis of the symmetric matrices that the squares of each level span."""
        result = []
        for level, squares in enumerate(self.squares):
            if not squares:
                continue
            flat = np.array([square.ravel() for _, square in squares])
            _, values, rows = np.linalg.svd(flat, full_matrices=False)
            size = self.rungs[level].information.shape[0]
            for value, row in zip(values, rows, strict=True):
                if value > _NOTHING * values[0]:
                    result.append((level, row.reshape(size, size)))
        return result

    def _jacobian(self, active: list[tuple[int, FloatArray]], weights: int) -> FloatArray:
        """Return the coefficient of each direction per unit of each weight: directions × weights."""
        jacobian = np.zeros((len(active), weights))
        for row, (level, direction) in enumerate(active):
            for number, square in self.squares[level]:
                jacobian[row, number] += float((square * direction).sum())
        return jacobian

    def _information(self, weights: FloatArray) -> list[Array]:
        """Return A of every level: 1 × D × D."""
        result = []
        for rung, squares in zip(self.rungs, self.squares, strict=True):
            total = np.zeros((1, *rung.information.shape))
            for number, square in squares:
                total[0] += weights[number] * square
            result.append(total)
        return result

    def _passes(self, information: Sequence[Array], lowest: int) -> _Passes:
        """Run up the whole tree and down to the lowest level of interest."""
        depth = len(self.rungs)
        upward: list[Array] = [np.zeros(0)] * depth
        pulls: list[Array] = [np.zeros(0)] * depth
        for level in range(depth - 1, -1, -1):
            rung = self.rungs[level]
            precision = _inward(rung.noisy, information[level])[None]
            if level < depth - 1:
                pulls[level] = _inverse(_sums_by_kind(self.tree, level, upward[level + 1]))
                precision = precision + _inward(rung.below, pulls[level])
            else:
                precision = np.repeat(precision, self.tree.kinds[level], axis=0)
            upward[level] = _inverse(precision)
        wholes: list[Array] = []
        for level in range(lowest + 1):
            rung, positions = self.rungs[level], self.tree.positions[level]
            own = upward[level][positions.kind]
            if level:
                change = self._change(level, pulls, wholes[-1])
                own = own + _product(own, change, own)
            whole = _outward(rung.noisy, own)
            if level and positions.only_child.any():
                whole = whole.copy()
                only = positions.only_child
                whole[only] = wholes[-1][positions.above[only]]
            wholes.append(whole)
        return _Passes(upward, pulls, wholes)

    def _change(self, level: int, pulls: Sequence[Array], above: Array) -> Array:
        """Return M = Q H Q - Q at each position, with Q the pull and H what is handed down."""
        rung, positions = self.rungs[level], self.tree.positions[level]
        holder = self.tree.positions[level - 1]
        pull = pulls[level - 1][holder.kind[positions.above]]
        handed = _inward(rung.noisy, above[positions.above])
        return _product(pull, handed, pull) - pull

    def _backwards(self, passes: _Passes, seeds: Sequence[Array]) -> list[Array]:
        """Return the slopes by A of every level, from those by the covariance at each position."""
        depth = len(self.rungs)
        batch, kind_of_number = seeds[0].shape[1], passes.upward[0].dtype
        by_upward = [_nothing_like(item, batch) for item in passes.upward]
        by_pull = [_nothing_like(item, batch) for item in passes.pulls[:-1]]
        by_whole = [item.astype(kind_of_number) for item in seeds]
        for level in range(len(by_whole) - 1, -1, -1):
            rung, positions = self.rungs[level], self.tree.positions[level]
            slope = by_whole[level]
            if level and positions.only_child.any():
                only = positions.only_child
                np.add.at(by_whole[level - 1], positions.above[only], slope[only])
                slope = np.where(only[:, None, None, None], 0.0, slope)
            inner = _inward(rung.noisy, slope)
            own = passes.upward[level][positions.kind]
            if level:
                holder = self.tree.positions[level - 1]
                kind = holder.kind[positions.above]
                pull = passes.pulls[level - 1][kind]
                handed = _inward(rung.noisy, passes.wholes[level - 1][positions.above])
                change = _product(pull, handed, pull) - pull
                by_change = _product(own, inner, own)
                turned = _product(inner, own, change)
                inner = inner + turned + np.swapaxes(turned, -1, -2)
                mixed = _product(by_change, pull, handed)
                np.add.at(by_pull[level - 1], kind, mixed + np.swapaxes(mixed, -1, -2) - by_change)
                back = _outward(rung.noisy, _product(pull, by_change, pull))
                np.add.at(by_whole[level - 1], positions.above, back)
            np.add.at(by_upward[level], positions.kind, inner)
        slopes = []
        for level in range(depth):
            rung = self.rungs[level]
            upward = passes.upward[level]
            by_precision = -_product(upward, by_upward[level], upward)
            whole = _outward(rung.noisy, by_precision.sum(axis=0))
            slopes.append(whole.reshape(batch, *rung.information.shape))
            if level < depth - 1:
                pull = passes.pulls[level]
                total = by_pull[level] + _outward(rung.below, by_precision)
                by_sum = -_product(pull, total, pull)
                _spread(self.tree, level, by_sum, by_upward[level + 1])
        return slopes

    def _seeded(self, seeds: Sequence[tuple[int, FloatArray]], lowest: int) -> list[Array]:
        """Return the slopes of an aim by the covariance at each position, by level."""
        result = []
        for level in range(lowest + 1):
            gram = sum(
                (item for at, item in seeds if at == level),
                np.zeros(self.rungs[level].information.shape),
            )
            result.append(self._share(level)[:, None, None, None] * gram)
        return result

    def _share(self, level: int) -> FloatArray:
        positions = self.tree.positions[level]
        units = np.bincount(positions.of_unit, minlength=len(positions))
        return np.asarray(units / units.sum())

    def _mean(self, whole: Array, level: int, gram: FloatArray) -> Array:
        return np.asarray(np.einsum("p,pbij,ij->b", self._share(level), whole, gram))


def _product(*matrices: Array) -> Array:
    """Multiply stacks of matrices; those of one number each are plain products, which are faster."""
    result = matrices[0]
    for matrix in matrices[1:]:
        single = result.shape[-2:] == (1, 1) == matrix.shape[-2:]
        result = result * matrix if single else np.matmul(result, matrix)
    return np.asarray(result)


def _nothing_like(stack: Array, batch: int) -> Array:
    """Return zeros for the slopes by a stack: kinds × batch × e × e."""
    return np.zeros((len(stack), batch, *stack.shape[2:]), stack.dtype)


def _inward(basis: FloatArray, stack: Array) -> Array:
    """Return BᵀXB for a stack of X."""
    return stack if is_identity(basis) else np.asarray(np.matmul(np.matmul(basis.T, stack), basis))


def _outward(basis: FloatArray, stack: Array) -> Array:
    """Return BXBᵀ for a stack of X."""
    return stack if is_identity(basis) else np.asarray(np.matmul(np.matmul(basis, stack), basis.T))


def _inverse(stack: Array) -> Array:
    if stack.shape[-1] == 1:
        return np.asarray(1.0 / stack)
    return np.asarray(np.linalg.inv(stack))


def _sums_by_kind(tree: Tree, level: int, below: Array) -> Array:
    """Return, for each kind of a level, the sum over its children of what their kinds have."""
    if tree.kinds[level + 1] == 1:
        return np.asarray(np.multiply.outer(_sizes(tree, level), below[0]))
    return np.asarray(np.add.reduceat(below[tree.kind[level + 1]], tree.first[level], axis=0))


def _spread(tree: Tree, level: int, slopes: Array, onto: Array) -> None:
    """Add to the slopes of a level's kinds those of the sums over children: the reverse of sums."""
    if tree.kinds[level + 1] == 1:
        onto[0] += np.tensordot(_sizes(tree, level), slopes, axes=1)
        return
    parents = tree.geography.parents[level + 1]
    np.add.at(onto, tree.kind[level + 1], slopes[tree.kind[level][parents]])


def _sizes(tree: Tree, level: int) -> FloatArray:
    sizes = np.empty(tree.kinds[level])
    sizes[tree.kind[level]] = tree.children(level)
    return sizes
