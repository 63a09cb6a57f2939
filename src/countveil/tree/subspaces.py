"""A query in subspaces of the histogram that the observations of no level mix.

`QueryDecomposition` splits a query into subspaces, each of which can be estimated on its own, and reads
its cells from values in them. `LevelGatherer` goes the other way: it adds up the measured values of a
level into the subspaces, Σ w Qᵀ m, unit by unit. Both multiply tables by one matrix per attribute.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise, product
from typing import NamedTuple

import numpy as np

from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.errors import InputError
from countveil.plan.workload import Query
from countveil.tree.attribute_parts import AttributePart, AttributeView
from countveil.tree.observed_levels import (
    AttributeAxis,
    Observation,
    Observed,
    factor_order,
    view_for,
)

_NOTHING = 1e-9
_DIGITS = 10  # to which cells of one kind agree
_LARGEST_BLOCK = 1_000
_MOST_SUBSPACES = 2**14
_MOST_SQUARES = 2**25  # subspaces times observed queries: some minutes
_LARGEST_AXIS = 5_000
_TOGETHER = 64  # matrices of neighbouring axes are multiplied out up to this many rows and columns


# Subspaces.


@dataclass(frozen=True, eq=False, slots=True)
class SeenPart:
    """A part of one attribute, as far as the query's view sees it.

    `basis` is categories × size × copies; `image` is the basis as the view adds it up.
    """

    part: AttributePart
    basis: FloatArray
    image: FloatArray

    @property
    def width(self) -> int:
        """The number of coordinates of a histogram in it."""
        return math.prod(self.basis.shape[1:])

    def through(self, view: AttributeView) -> FloatArray:
        """Return its basis as another view adds it up: groups × width."""
        return view.sums(self.basis).reshape(view.groups, self.width)


@dataclass(frozen=True, eq=False, slots=True)
class Subspace:
    """One part of each attribute: in it, every observation is (block) ⊗ (identity of the copies).

    `possible` is an orthonormal basis of what structural zeros leave of the block.
    """

    numbers: tuple[int, ...]
    parts: tuple[SeenPart, ...]
    possible: FloatArray

    @property
    def size(self) -> int:
        """The number of rows of its block, without structural zeros."""
        return int(self.possible.shape[1])

    @property
    def copies(self) -> int:
        """How often its block occurs."""
        return math.prod(part.basis.shape[2] for part in self.parts)

    def square(self, observation: Observation) -> FloatArray:
        """Return QᵀQ of an observed query, within the block."""
        blocks = [
            seen.part.blocks[view] for seen, view in zip(self.parts, observation.views, strict=True)
        ]
        whole = kronecker([block[None] for block in blocks])[0]
        return np.asarray(self.possible.T @ whole @ self.possible)

    def sees(self, observation: Observation) -> bool:
        """Whether an observed query depends on it."""
        pairs = zip(self.parts, observation.views, strict=True)
        return all(bool(seen.part.blocks[view].any()) for seen, view in pairs)

    def fold(self, table: FloatArray) -> FloatArray:
        """Turn units × (size, copies of each part) into units × size × copies."""
        units = len(table)
        shape = [n for part in self.parts for n in part.basis.shape[1:]]
        axes = len(self.parts)
        order = [0, *range(1, 2 * axes, 2), *range(2, 2 * axes + 1, 2)]
        folded = table.reshape(units, *shape).transpose(order)
        whole = folded.reshape(units, len(self.possible), self.copies)
        if self.size < len(self.possible):
            return np.asarray(np.matmul(self.possible.T, whole))
        return whole

    def unfold(self, values: FloatArray) -> FloatArray:
        """Turn units × size × copies back into units × the width of each part."""
        units = len(values)
        if self.size < len(self.possible):
            values = np.matmul(self.possible, values)
        sizes = [part.basis.shape[1] for part in self.parts]
        copies = [part.basis.shape[2] for part in self.parts]
        axes = len(self.parts)
        order = [0, *(n for axis in range(1, axes + 1) for n in (axis, axes + axis))]
        table = values.reshape(units, *sizes, *copies).transpose(order)
        return table.reshape(units, *(part.width for part in self.parts))


# From subspaces to the cells of a query.


class CellKinds(NamedTuple):
    """How many cells of a query each kind has, and for each subspace F Fᵀ of every kind.

    F holds a cell's coefficients. Cells of one kind have the same variance: exchanging categories
    turns one into the other.
    """

    cells: IntArray
    grams: list[FloatArray]


@dataclass(frozen=True, eq=False)
class QueryDecomposition:
    """A query split into subspaces that together hold all it depends on.

    `parts` are what its view sees of each attribute, `groups` the number of sums each view makes, and
    `order` the attribute behind each factor of the query.
    """

    query: Query
    parts: tuple[tuple[SeenPart, ...], ...]
    subspaces: tuple[Subspace, ...]
    groups: tuple[int, ...]
    order: tuple[int, ...]

    @classmethod
    def of(cls, observed: Observed, query: Query) -> QueryDecomposition:
        """Split a query; refuse one whose blocks would be too large to solve."""
        schema = observed.schema
        views = [view_for(schema, query, axis) for axis in observed.axes]
        if (count := subspaces_of(observed, query)) > _MOST_SUBSPACES:
            raise InputError(
                f"query {query.name!r}: has {count:,} subspaces, and {_MOST_SUBSPACES:,} is the limit; "
                f"ask for fewer attributes"
            )
        observations = sum(map(len, observed.observations.values()))
        if count * observations > _MOST_SQUARES:
            raise InputError(
                f"query {query.name!r}: has {count:,} subspaces, and levels have {observations:,} "
                f"queries in total; {_MOST_SQUARES:,} is the limit for one times the other; ask for "
                f"fewer attributes"
            )
        parts = [_seen_parts(axis, view) for axis, view in zip(observed.axes, views, strict=True)]
        subspaces = []
        for numbers in product(*(range(len(along)) for along in parts)):
            chosen = tuple(along[number] for along, number in zip(parts, numbers, strict=True))
            size = math.prod(part.basis.shape[1] for part in chosen)
            if size > _LARGEST_BLOCK:
                raise InputError(
                    f"query {query.name!r}: recodes and structural zeros tie {size:,} sums of cells "
                    f"together, and {_LARGEST_BLOCK:,} is the limit; ask for fewer attributes"
                )
            possible = _possible(observed, chosen)
            if possible.shape[1]:
                subspaces.append(Subspace(numbers, chosen, possible))
        groups = tuple(view.groups for view in views)
        order = tuple(factor_order(query, schema))
        return cls(query, tuple(map(tuple, parts)), tuple(subspaces), groups, order)

    @property
    def width(self) -> int:
        """How many coordinates of a histogram the query depends on."""
        return sum(item.size * item.copies for item in self.subspaces)

    def cells(self, values: Sequence[FloatArray], units: int) -> FloatArray:
        """Return the query's cells, units × cells, from the values in each subspace."""
        widths = [sum(part.width for part in along) for along in self.parts]
        table = np.zeros((units, *widths))
        for subspace, inside in zip(self.subspaces, values, strict=True):
            where = zip(self.parts, subspace.numbers, strict=True)
            slices = [_slices(along)[number] for along, number in where]
            table[(slice(None), *slices)] = subspace.unfold(inside)
        return self._in_order(contract(table, self._readers))

    @cached_property
    def _alike(self) -> list[tuple[IntArray, list[FloatArray]]]:
        """By attribute: the kind of each group, and F Fᵀ of every kind in each part."""
        result = []
        for along, groups in zip(self.parts, self.groups, strict=True):
            each = [np.einsum("gic,gjc->gij", part.image, part.image) for part in along]
            flat = [np.zeros((groups, 1)), *(item.reshape(groups, -1) for item in each)]
            _, first, alike = np.unique(
                np.concatenate(flat, axis=1).round(_DIGITS),
                axis=0,
                return_index=True,
                return_inverse=True,
            )
            result.append((alike.reshape(-1), [item[first] for item in each]))
        return result

    @property
    def number_of_kinds(self) -> int:
        """How many kinds of cells there are."""
        return math.prod(int(alike.max(initial=-1)) + 1 for alike, _ in self._alike)

    @cached_property
    def kinds(self) -> CellKinds:
        """The kinds of cells that have the same variance."""
        cells = np.ones(1, np.int64)
        for alike, _ in self._alike:
            cells = np.multiply.outer(cells, np.bincount(alike)).reshape(-1)
        squares = []
        for subspace in self.subspaces:
            pairs = zip(self._alike, subspace.numbers, strict=True)
            chosen = [grams[number] for (_, grams), number in pairs]
            squares.append(np.asarray(subspace.possible.T @ kronecker(chosen) @ subspace.possible))
        return CellKinds(cells, squares)

    @cached_property
    def kind_of_cell(self) -> IntArray:
        """The kind of each cell, in the query's order."""
        kind = np.zeros((1, *(1 for _ in self.groups)), np.int64)
        for number, (alike, _) in enumerate(self._alike):
            shape = [1] * kind.ndim
            shape[number + 1] = len(alike)
            kind = kind * (int(alike.max(initial=-1)) + 1) + alike.reshape(shape)
        return np.asarray(self._in_order(kind.reshape(1, -1))[0])

    def rows(self, subspace: Subspace) -> FloatArray:
        """Return the coefficients of every cell in a subspace: cells × size × copies."""
        whole = kronecker([part.image for part in subspace.parts])
        ordered = np.moveaxis(self._in_order(np.moveaxis(whole, 0, -1)), -1, 0)
        return np.asarray(np.einsum("di,qdc->qic", subspace.possible, ordered))

    def coordinates(self, cells: IntArray) -> list[FloatArray]:
        """Return the coordinates of some cells in each subspace: cells × size × copies.

        Someone who is added to a cell moves a unit's histogram by them.
        """
        shape = [self.groups[axis] for axis in self.order]
        numbers = np.unravel_index(cells, shape) if shape else ()
        at = dict(zip(self.order, numbers, strict=True))
        nothing = np.zeros(len(cells), np.int64)
        images = []
        for space in self.subspaces:
            whole = np.ones((len(cells), 1, 1))
            for axis, part in enumerate(space.parts):
                image = part.image[at.get(axis, nothing)]
                both = np.einsum("nij,nkl->nikjl", whole, image)
                size = (both.shape[1] * both.shape[2], both.shape[3] * both.shape[4])
                whole = both.reshape(len(cells), *size)
            images.append(np.asarray(np.einsum("di,qdc->qic", space.possible, whole)))
        return images

    @cached_property
    def _readers(self) -> list[FloatArray]:
        """The matrix of each axis that reads the sums of the query's view from all parts."""
        return merged(
            [
                np.concatenate(
                    [np.zeros((groups, 0)), *(part.image.reshape(groups, -1) for part in along)],
                    axis=1,
                ).T
                for along, groups in zip(self.parts, self.groups, strict=True)
            ]
        )

    def _in_order(self, cells: Array) -> Array:
        """Reorder cells, along the last axis, from attribute order to the query's own."""
        leading = cells.shape[:-1]
        first = len(leading)
        left = [axis for axis in range(len(self.groups)) if axis not in self.order]
        order = [*range(first), *(first + axis for axis in (*self.order, *left))]
        return cells.reshape(*leading, *self.groups).transpose(order).reshape(*leading, -1)


def subspaces_of(observed: Observed, query: Query) -> int:
    """Return how many subspaces a query has at most."""
    views = [view_for(observed.schema, query, axis) for axis in observed.axes]
    return math.prod(
        len(axis.parts) if view.groups > 1 else 1
        for axis, view in zip(observed.axes, views, strict=True)
    )


def _slices(parts: Sequence[SeenPart]) -> list[slice]:
    """Return the position of each part when they are placed side by side."""
    ends = [0, *accumulate(part.width for part in parts)]
    return [slice(*pair) for pair in pairwise(ends)]


def _seen_parts(axis: AttributeAxis, view: AttributeView) -> list[SeenPart]:
    """Return what a view sees of each part of an attribute, in as few copies as possible."""
    result = []
    for part in axis.parts:
        if part.columns is None and not any(_tells_apart(view, atom) for atom in part.atoms):
            continue
        if part.columns is None and axis.categories > _LARGEST_AXIS:
            raise InputError(
                f"attribute {axis.name}: has {axis.categories:,} categories, and least squares can "
                f"tell at most {_LARGEST_AXIS:,} apart; ask for a query without it, or use a recode "
                f"that is measured"
            )
        basis, image = part.basis, view.sums(part.basis)
        groups, size, copies = image.shape
        if not np.abs(image).max(initial=0.0) > _NOTHING:
            continue
        if copies > 1 and not (view.separates and (view.group >= 0).all()):
            _, values, kept = np.linalg.svd(image.reshape(groups * size, copies))
            turn = kept[: int((values > _NOTHING).sum())].T
            basis, image = basis @ turn, image @ turn
        result.append(SeenPart(part, basis, image))
    return result


def _tells_apart(view: AttributeView, atom: IntArray) -> bool:
    return len(np.unique(view.group[atom])) > 1


def _possible(observed: Observed, parts: Sequence[SeenPart]) -> FloatArray:
    """Return an orthonormal basis of what structural zeros leave of a block."""
    size = math.prod(part.basis.shape[1] for part in parts)
    if observed.possible is None:
        return np.eye(size)
    projector = np.zeros((size, size))
    for kinds in np.argwhere(observed.possible > 0):
        blocks = []
        for axis, seen, kind in zip(observed.axes, parts, kinds, strict=True):
            whole = np.eye(seen.part.size)
            blocks.append(seen.part.blocks[axis.zeros[kind]] if axis.zeros else whole)
        projector += kronecker([block[None] for block in blocks])[0]
    values, vectors = np.linalg.eigh(projector)
    kept: FloatArray = vectors[:, values > 0.5]
    return np.eye(size) if kept.shape[1] == size else kept


# From measured values into subspaces.


@dataclass(frozen=True, eq=False, slots=True)
class Gatherer:
    """Turns the table of one observed query into its contribution to each subspace.

    The table has the axes of `shape`; they are brought into attribute order and multiplied by one
    matrix each. The product has shape `widths`, and target (subspace, where) is its part at `where`.
    """

    observation: Observation
    shape: tuple[int, ...]
    order: tuple[int, ...]
    matrices: list[FloatArray]
    widths: tuple[int, ...]
    targets: list[tuple[int, tuple[slice, ...]]]

    def add(
        self, values: Array, decomposition: QueryDecomposition, sums: list[FloatArray | None]
    ) -> None:
        """Add the values of some units to the sums of the subspaces."""
        units = len(values)
        table = values.reshape(units, *self.shape).transpose(0, *(n + 1 for n in self.order))
        whole = contract(np.ascontiguousarray(table, dtype=float), self.matrices)
        whole = whole.reshape(units, *self.widths)
        for number, where in self.targets:
            part = decomposition.subspaces[number].fold(whole[(slice(None), *where)])
            known = sums[number]
            sums[number] = part if known is None else np.add(known, part, out=known)


class GatheredSums(NamedTuple):
    """By subspace, Σ w Qᵀ m over the noisy queries and Σ scale Qᵀ m over the exact ones."""

    noisy: list[FloatArray]
    exact: list[FloatArray]


@dataclass(frozen=True, eq=False, slots=True)
class LevelGatherer:
    """All gatherers of a level: of the noisy queries and of the exact ones."""

    decomposition: QueryDecomposition
    noisy: tuple[Gatherer, ...]
    exact: tuple[Gatherer, ...]

    @classmethod
    def of(cls, observed: Observed, decomposition: QueryDecomposition, level: str) -> LevelGatherer:
        """Return what gathers the values of a level."""
        queries = observed.observations[level]
        noisy = [
            _gatherer(observed, decomposition, one) for one in queries if one.weight is not None
        ]
        exact = [_gatherer(observed, decomposition, one) for one in queries if one.weight is None]
        return cls(decomposition, tuple(noisy), tuple(exact))

    @property
    def reads_measurements(self) -> bool:
        """Whether it needs the measured values of the level."""
        return any(one.observation.first is not None for one in (*self.noisy, *self.exact))

    def gather(self, values: Array | None, fixed: dict[str, Array], units: int) -> GatheredSums:
        """Return the sums of some units in every subspace.

        `values` has their measured queries side by side, `fixed` their invariants by name.
        """
        return GatheredSums(
            self._sums(self.noisy, values, fixed, units),
            self._sums(self.exact, values, fixed, units),
        )

    def _sums(
        self,
        gatherers: Sequence[Gatherer],
        values: Array | None,
        fixed: dict[str, Array],
        units: int,
    ) -> list[FloatArray]:
        sums: list[FloatArray | None] = [None] * len(self.decomposition.subspaces)
        for one in gatherers:
            query, first = one.observation.query, one.observation.first
            if first is None:
                table = fixed[query.name]
            else:
                assert values is not None
                table = values[:, first : first + query.cells]
            one.add(table, self.decomposition, sums)
        return [
            np.zeros((units, space.size, space.copies)) if part is None else part
            for space, part in zip(self.decomposition.subspaces, sums, strict=True)
        ]


def _gatherer(
    observed: Observed, decomposition: QueryDecomposition, observation: Observation
) -> Gatherer:
    query = observation.query
    attributes = factor_order(query, observed.schema)
    weight = observation.scale if observation.weight is None else observation.weight
    matrices, where, widths = [], [], []
    for axis, along, view in zip(
        observed.axes, decomposition.parts, observation.views, strict=True
    ):
        kept = [number for number, seen in enumerate(along) if seen.part.blocks[view].any()]
        parts = [along[number].through(axis.views[view]) for number in kept]
        matrices.append(np.concatenate([np.zeros((axis.views[view].groups, 0)), *parts], axis=1))
        slices = _slices([along[number] for number in kept])
        where.append(dict(zip(kept, slices, strict=True)))
        widths.append(matrices[-1].shape[1])
    targets = []
    for number, space in enumerate(decomposition.subspaces):
        if space.sees(observation):
            pairs = zip(where, space.numbers, strict=True)
            targets.append((number, tuple(slices_of[part] for slices_of, part in pairs)))
    small = merged(matrices)
    if small:
        small[0] = weight * small[0]
    return Gatherer(
        observation,
        tuple(len(categories) for _, categories in query.labels),
        tuple(np.argsort(attributes).tolist()),
        small or [np.full((1, 1), weight)],
        tuple(widths),
        targets,
    )


# Products of tables with one matrix per axis.


def merged(matrices: Sequence[FloatArray]) -> list[FloatArray]:
    """Multiply out matrices of neighbouring axes while they stay small, so that one pass does both."""
    result: list[FloatArray] = []
    for matrix in matrices:
        if result and all(
            one * other <= _TOGETHER
            for one, other in zip(result[-1].shape, matrix.shape, strict=True)
        ):
            result[-1] = np.asarray(np.kron(result[-1], matrix), float)
        else:
            result.append(np.ascontiguousarray(matrix))
    return result


def contract(table: FloatArray, matrices: Sequence[FloatArray]) -> FloatArray:
    """Multiply a table, units × the rows of each matrix, along every axis: units × the columns."""
    units = len(table)
    shape = [units, *(len(matrix) for matrix in matrices)]
    flat = table.reshape(units, -1)
    # Start with the axis that shrinks most: the others then have less to do.
    for axis in sorted(range(len(matrices)), key=lambda n: matrices[n].shape[1] / len(matrices[n])):
        matrix = matrices[axis]
        before, after = math.prod(shape[: axis + 1]), math.prod(shape[axis + 2 :])
        if after == 1:
            flat = flat.reshape(before, len(matrix)) @ matrix
        else:
            flat = np.matmul(matrix.T, flat.reshape(before, len(matrix), after))
        shape[axis + 1] = matrix.shape[1]
    return flat.reshape(units, math.prod(shape[1:]))


def kronecker(factors: Sequence[FloatArray]) -> FloatArray:
    """Return the Kronecker product of stacks of matrices; the stack axes multiply out too.

    Factor a is n_a × d_a × e_a; the result is Π n_a × Π d_a × Π e_a.
    """
    result = np.ones((1, 1, 1))
    for factor in factors:
        whole = np.einsum("nij,mkl->nmikjl", result, factor)
        shape = [one * other for one, other in zip(result.shape, factor.shape, strict=True)]
        result = whole.reshape(shape)
    return result
