"""What a query asks for, in subspaces of the histogram that the observations of no level mix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise, product

import numpy as np

from countveil.errors import InputError
from countveil.infer.attribute_parts import Part, View
from countveil.infer.contraction import contract, merged, outer
from countveil.infer.observed_levels import Axis, Observation, Observed, factor_order, view_for
from countveil.numerics import Array, FloatArray, IntArray
from countveil.schema.workload import Query

_NOTHING = 1e-9
_DIGITS = 10  # to which cells of one kind agree
_LARGEST_BLOCK = 1_000
_LARGEST_AXIS = 5_000


@dataclass(frozen=True, eq=False, slots=True)
class Side:
    """A part of one attribute, as far as the asked query sees it.

    `basis` is (categories, size, copies), `seen` the sums of it that the asked view makes.
    """

    part: Part
    basis: FloatArray
    seen: FloatArray

    @property
    def width(self) -> int:
        """How many numbers it takes to say where a histogram lies in it."""
        return math.prod(self.basis.shape[1:])

    def through(self, view: View) -> FloatArray:
        """Return the sums of its basis that a view makes: groups × width."""
        return view.sums(self.basis).reshape(view.groups, self.width)


@dataclass(frozen=True, eq=False, slots=True)
class Subspace:
    """One side of each attribute: in it, every observation is (block) ⊗ (identity of the copies).

    `possible` holds an orthonormal basis of what structural zeros leave of the block.
    """

    numbers: tuple[int, ...]
    sides: tuple[Side, ...]
    possible: FloatArray

    @property
    def size(self) -> int:
        """The side of its block, zeros left out."""
        return int(self.possible.shape[1])

    @property
    def copies(self) -> int:
        """How often its block occurs."""
        return math.prod(side.basis.shape[2] for side in self.sides)

    def square(self, observation: Observation) -> FloatArray:
        """Return QᵀQ of an observed query, within the block."""
        blocks = [
            side.part.blocks[view] for side, view in zip(self.sides, observation.views, strict=True)
        ]
        whole = outer([block[None] for block in blocks])[0]
        return np.asarray(self.possible.T @ whole @ self.possible)

    def sees(self, observation: Observation) -> bool:
        """Whether an observed query says anything of it."""
        pairs = zip(self.sides, observation.views, strict=True)
        return all(bool(side.part.blocks[view].any()) for side, view in pairs)

    def fold(self, table: FloatArray) -> FloatArray:
        """Turn units × (size, copies of each side) into units × size × copies."""
        units = len(table)
        shape = [n for side in self.sides for n in side.basis.shape[1:]]
        axes = len(self.sides)
        order = [0, *range(1, 2 * axes, 2), *range(2, 2 * axes + 1, 2)]
        folded = table.reshape(units, *shape).transpose(order)
        whole = folded.reshape(units, len(self.possible), self.copies)
        if self.size < len(self.possible):
            return np.asarray(np.matmul(self.possible.T, whole))
        return whole

    def unfold(self, values: FloatArray) -> FloatArray:
        """Turn units × size × copies back into units × the width of each side."""
        units = len(values)
        if self.size < len(self.possible):
            values = np.matmul(self.possible, values)
        sizes = [side.basis.shape[1] for side in self.sides]
        copies = [side.basis.shape[2] for side in self.sides]
        axes = len(self.sides)
        order = [0, *(n for axis in range(1, axes + 1) for n in (axis, axes + axis))]
        table = values.reshape(units, *sizes, *copies).transpose(order)
        return table.reshape(units, *(side.width for side in self.sides))


@dataclass(frozen=True, eq=False)
class Asked:
    """A query, in subspaces: those together hold all that it depends on.

    `groups` is how many sums its view of each attribute has, `order` the attribute of each factor.
    """

    query: Query
    sides: tuple[tuple[Side, ...], ...]
    subspaces: tuple[Subspace, ...]
    groups: tuple[int, ...]
    order: tuple[int, ...]

    @classmethod
    def of(cls, observed: Observed, query: Query) -> Asked:
        """Take a query apart."""
        schema = observed.schema
        views = [view_for(schema, query, axis) for axis in observed.axes]
        sides = [_sides(axis, view) for axis, view in zip(observed.axes, views, strict=True)]
        found = []
        for numbers in product(*(range(len(along)) for along in sides)):
            chosen = tuple(along[number] for along, number in zip(sides, numbers, strict=True))
            size = math.prod(side.basis.shape[1] for side in chosen)
            if size > _LARGEST_BLOCK:
                raise InputError(
                    f"query {query.name!r}: recodes and structural zeros tie {size:,} sums of cells "
                    f"together, and {_LARGEST_BLOCK:,} is the limit; ask for fewer attributes"
                )
            possible = _possible(observed, chosen)
            if possible.shape[1]:
                found.append(Subspace(numbers, chosen, possible))
        groups = tuple(view.groups for view in views)
        order = tuple(factor_order(query, schema))
        return cls(query, tuple(map(tuple, sides)), tuple(found), groups, order)

    @property
    def width(self) -> int:
        """How many numbers of a histogram it depends on."""
        return sum(item.size * item.copies for item in self.subspaces)

    def cells(self, values: Sequence[FloatArray], units: int) -> FloatArray:
        """Return the query's cells, units × cells, from the values in each subspace."""
        widths = [sum(side.width for side in along) for along in self.sides]
        table = np.zeros((units, *widths))
        for subspace, part in zip(self.subspaces, values, strict=True):
            where = zip(self.sides, subspace.numbers, strict=True)
            slices = [places(along)[number] for along, number in where]
            table[(slice(None), *slices)] = subspace.unfold(part)
        return self._in_order(contract(table, self._readers))

    @cached_property
    def kinds(self) -> tuple[IntArray, list[FloatArray]]:
        """The kind of each cell, and of each kind and subspace F Fᵀ, F being the cell's coefficients.

        Cells of a kind have the same variance: they differ by an exchange of categories.
        """
        kind = np.zeros((1, *(1 for _ in self.groups)), np.int64)
        grams = []
        for number, (along, groups) in enumerate(zip(self.sides, self.groups, strict=True)):
            each = [np.einsum("gic,gjc->gij", side.seen, side.seen) for side in along]
            flat = [np.zeros((groups, 1)), *(item.reshape(groups, -1) for item in each)]
            _, first, alike = np.unique(
                np.concatenate(flat, axis=1).round(_DIGITS),
                axis=0,
                return_index=True,
                return_inverse=True,
            )
            shape = [1] * kind.ndim
            shape[number + 1] = groups
            kind = kind * len(first) + alike.reshape(shape)
            grams.append([item[first] for item in each])
        squares = []
        for subspace in self.subspaces:
            chosen = [along[number] for along, number in zip(grams, subspace.numbers, strict=True)]
            squares.append(np.asarray(subspace.possible.T @ outer(chosen) @ subspace.possible))
        return self._in_order(kind.reshape(1, -1))[0], squares

    def rows(self, subspace: Subspace) -> FloatArray:
        """Return the coefficients of every cell in a subspace: cells × size × copies."""
        whole = outer([side.seen for side in subspace.sides])
        ordered = np.moveaxis(self._in_order(np.moveaxis(whole, 0, -1)), -1, 0)
        return np.asarray(np.einsum("di,qdc->qic", subspace.possible, ordered))

    @cached_property
    def _readers(self) -> list[FloatArray]:
        """The matrix of each axis that reads the sums of the query's view from all sides."""
        return merged(
            [
                np.concatenate(
                    [np.zeros((groups, 0)), *(side.seen.reshape(groups, -1) for side in along)],
                    axis=1,
                ).T
                for along, groups in zip(self.sides, self.groups, strict=True)
            ]
        )

    def _in_order(self, cells: Array) -> Array:
        """Bring cells, along the last axis, from the order of attributes into that of the factors."""
        leading = cells.shape[:-1]
        first = len(leading)
        left = [axis for axis in range(len(self.groups)) if axis not in self.order]
        order = [*range(first), *(first + axis for axis in (*self.order, *left))]
        return cells.reshape(*leading, *self.groups).transpose(order).reshape(*leading, -1)


def places(sides: Sequence[Side]) -> list[slice]:
    """Return where each side lies when they are laid side by side."""
    ends = [0, *accumulate(side.width for side in sides)]
    return [slice(*pair) for pair in pairwise(ends)]


def _sides(axis: Axis, view: View) -> list[Side]:
    """Return what a view sees of each part of an attribute, in as few copies as it takes."""
    found = []
    for part in axis.parts:
        if part.columns is None and not any(_tells_apart(view, atom) for atom in part.atoms):
            continue
        if part.columns is None and axis.categories > _LARGEST_AXIS:
            raise InputError(
                f"attribute {axis.name}: has {axis.categories:,} categories, and {_LARGEST_AXIS:,} is "
                f"the most that can be told apart; ask for a query without it, or by a recode that "
                f"is measured"
            )
        basis, seen = part.basis, view.sums(part.basis)
        groups, size, copies = seen.shape
        if not np.abs(seen).max(initial=0.0) > _NOTHING:
            continue
        if copies > 1 and not (view.separates and (view.group >= 0).all()):
            _, values, kept = np.linalg.svd(seen.reshape(groups * size, copies))
            turn = kept[: int((values > _NOTHING).sum())].T
            basis, seen = basis @ turn, seen @ turn
        found.append(Side(part, basis, seen))
    return found


def _tells_apart(view: View, atom: IntArray) -> bool:
    return len(np.unique(view.group[atom])) > 1


def _possible(observed: Observed, sides: Sequence[Side]) -> FloatArray:
    """Return an orthonormal basis of what structural zeros leave of a block."""
    size = math.prod(side.basis.shape[1] for side in sides)
    if observed.possible is None:
        return np.eye(size)
    projector = np.zeros((size, size))
    for kinds in np.argwhere(observed.possible > 0):
        blocks = []
        for axis, side, kind in zip(observed.axes, sides, kinds, strict=True):
            whole = np.eye(side.part.size)
            blocks.append(side.part.blocks[axis.zeros[kind]] if axis.zeros else whole)
        projector += outer([block[None] for block in blocks])[0]
    values, vectors = np.linalg.eigh(projector)
    kept: FloatArray = vectors[:, values > 0.5]
    return np.eye(size) if kept.shape[1] == size else kept
