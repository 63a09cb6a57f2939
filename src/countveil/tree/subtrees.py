"""What a unit and everything below it say about its histogram: the information P_u and y_u.

P_u = A + (Σ_c P_c⁻¹)⁻¹ and y_u = P_u x_u, where x_u is the upward estimate of the unit. In the
subspaces of the histogram P_u is small; over cells it is a sum of terms: cells i and j that agree on
the attributes M of a term contribute C_M[α(i), α(j)], which depends on their atoms alone. So it can be
written down for any set of cells without a matrix over all of them.

Directions that are known exactly have a weight that no result depends on, because public facts fix
them. Directions that nothing measures have a small weight of their own, which pulls nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
from scipy import sparse

from countveil.base.numerics import FloatArray, IntArray
from countveil.errors import InputError
from countveil.plan.workload import Query, Schema
from countveil.tree.attribute_parts import atoms_of
from countveil.tree.covariances import Rung
from countveil.tree.observed_levels import Observed
from countveil.tree.subspaces import QueryDecomposition
from countveil.tree.tree_shape import Tree
from countveil.tree.tree_values import UpwardFit

PULL = 1e-5  # of the least precision: the weight of directions that nothing measures
_NOTHING = 1e-9
_LARGEST_TABLE = 1 << 16  # kinds of pairs of cells
_LARGEST_GROUPS = 1_000
_KEPT = 1 << 22  # numbers of matrices that are kept for the next family: 32 MB


# The information of some units, in subspaces.


class SubtreeSpace(NamedTuple):
    """One subspace of some units of a level.

    `noisy` and `known` are bases of what is estimated and of what is exact; `covariance` is that of the
    noisy part, shapes × e × e; `estimate` and `exact` are the two parts of each unit, × copies.
    """

    noisy: FloatArray
    known: FloatArray
    covariance: FloatArray
    estimate: FloatArray
    exact: FloatArray


@dataclass(frozen=True, eq=False)
class SubtreeSlice:
    """What the subtrees of some units say, by subspace; unit u has shape shape_of[u]."""

    shape_of: IntArray
    spaces: tuple[SubtreeSpace, ...]

    def part(self, start: int, stop: int) -> SubtreeSlice:
        """Return units start … stop - 1 of these."""
        shapes, shape_of = np.unique(self.shape_of[start:stop], return_inverse=True)
        spaces = [
            SubtreeSpace(noisy, known, covariance[shapes], estimate[start:stop], exact[start:stop])
            for noisy, known, covariance, estimate, exact in self.spaces
        ]
        return SubtreeSlice(shape_of.reshape(-1), tuple(spaces))

    def fingerprint(self) -> bytes:
        """Return a digest of everything but the estimates: what weights depend on."""
        digest = sha256()
        for space in self.spaces:
            for part in (space.noisy, space.known, space.covariance):
                digest.update(repr(part.shape).encode())
                digest.update(np.ascontiguousarray(part).tobytes())
        return digest.digest()

    @cached_property
    def inverses(self) -> list[FloatArray]:
        """By subspace, the precision of the noisy part of each shape."""
        return [np.asarray(np.linalg.inv(space.covariance), float) for space in self.spaces]

    @cached_property
    def least(self) -> FloatArray:
        """The least precision of each shape, over all that is estimated; 1 if nothing is."""
        least = np.full(len(self.spaces[0].covariance) if self.spaces else 1, np.inf)
        for inverse in self.inverses:
            if inverse.shape[1]:
                least = np.minimum(least, np.linalg.eigvalsh(inverse)[:, 0])
        return np.where(np.isfinite(least), least, 1.0)

    @property
    def undetermined(self) -> list[FloatArray]:
        """By subspace, the projector on directions that nothing measures: D × D."""
        return [
            np.eye(len(noisy)) - noisy @ noisy.T - known @ known.T
            for noisy, known, *_ in self.spaces
        ]

    @property
    def precisions(self) -> list[FloatArray]:
        """By subspace, the weights of each shape: shapes × D × D, positive definite."""
        result = []
        for space, inverse, free in zip(self.spaces, self.inverses, self.undetermined, strict=True):
            known = space.known @ space.known.T
            shape = (len(self.least), 1, 1)
            result.append(
                space.noisy @ inverse @ space.noisy.T
                + self.least.reshape(shape) * (known + PULL * free)
            )
        return result

    @property
    def pushes(self) -> list[FloatArray]:
        """By subspace, weights times estimates of each unit: units × D × copies."""
        result = []
        for space, inverse in zip(self.spaces, self.inverses, strict=True):
            push = space.noisy @ (inverse[self.shape_of] @ space.estimate)
            if space.known.shape[1]:
                weight = self.least[self.shape_of][:, None, None]
                push = push + weight * (space.known @ space.exact)
            result.append(push)
        return result

    @property
    def histograms(self) -> list[FloatArray]:
        """By subspace, the estimates of each unit: units × D × copies."""
        return [space.noisy @ space.estimate + space.known @ space.exact for space in self.spaces]


class SubtreeShapes(NamedTuple):
    """The subtrees of some units before anything is measured: all but the estimates."""

    shape_of: IntArray
    rungs: tuple[Rung, ...]
    covariances: tuple[FloatArray, ...]

    @classmethod
    def of(
        cls, tree: Tree, rungs: Sequence[Sequence[Rung]], level: int, start: int, stop: int
    ) -> SubtreeShapes:
        """Return the shapes of units start … stop - 1 of a level, from the rungs of each subspace."""
        kinds, shape_of = np.unique(tree.kind[level][start:stop], return_inverse=True)
        here = tuple(of_space[level] for of_space in rungs)
        return cls(shape_of.reshape(-1), here, tuple(rung.covariance[kinds] for rung in here))

    def with_estimates(self, estimates: Iterable[tuple[FloatArray, FloatArray]]) -> SubtreeSlice:
        """Return what the subtrees say, from the noisy and the exact part of each subspace."""
        spaces = [
            SubtreeSpace(rung.noisy, rung.known, covariance, noisy, exact)
            for rung, covariance, (noisy, exact) in zip(
                self.rungs, self.covariances, estimates, strict=True
            )
        ]
        return SubtreeSlice(self.shape_of, tuple(spaces))

    def simulated(
        self,
        histograms: FloatArray,
        decomposition: QueryDecomposition,
        rng: np.random.Generator,
    ) -> SubtreeSlice:
        """Return what the subtrees of units with these histograms would say, with normal noise."""
        estimates = []
        for subspace, rung, covariance in zip(
            decomposition.subspaces, self.rungs, self.covariances, strict=True
        ):
            values = np.einsum("uj,jdc->udc", histograms, decomposition.rows(subspace))
            noise = rng.normal(size=(len(histograms), covariance.shape[1], subspace.copies))
            root = np.linalg.cholesky(covariance)[self.shape_of]
            estimates.append((rung.noisy.T @ values + root @ noise, rung.known.T @ values))
        return self.with_estimates(estimates)


@dataclass(frozen=True, eq=False, slots=True)
class Subtrees:
    """What every unit above the lowest level and everything below it say about its histogram."""

    up: UpwardFit

    def slice(self, level: int, start: int, stop: int) -> SubtreeSlice:
        """Return what the subtrees of units start … stop - 1 of a level say."""
        shapes = SubtreeShapes.of(self.up.passes.tree, self.up.passes.rungs, level, start, stop)
        kept = self.up.kept[level]
        return shapes.with_estimates(
            (np.array(noisy[start:stop]), np.array(exact[start:stop])) for noisy, exact in kept
        )


# From subspaces to cells.


class _Axis(NamedTuple):
    """An attribute: the atom of each category, and for each part its basis between pairs of them.

    `pairs` is pairs of categories × size × size: first those of two different categories, for each two
    atoms, then those of a category with itself, for each atom. `alone` marks atoms of one category.
    """

    atom_of: IntArray
    pairs: tuple[FloatArray, ...]
    alone: IntArray


class Information(NamedTuple):
    """The information about some cells, as terms.

    Term k adds up the cells with the same places[k]; matrices[shape, k] holds C of its atoms.
    """

    places: IntArray
    matrices: FloatArray
    atoms: IntArray


class GroupInformation(NamedTuple):
    """Unbiased estimates of sums of cells, units × groups, and their covariance for each shape."""

    estimate: FloatArray
    covariance: FloatArray


@dataclass(frozen=True, eq=False)
class CellTerms:
    """Translates what subtrees say, in subspaces, to the cells of the histogram."""

    schema: Schema
    decomposition: QueryDecomposition
    axes: tuple[_Axis, ...]
    kept: tuple[tuple[int, ...], ...]  # the attributes that each term keeps apart
    sums: dict[str, list[FloatArray]] = field(default_factory=dict, repr=False)
    matrices: dict[tuple[str, bytes], FloatArray] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, observed: Observed, decomposition: QueryDecomposition) -> CellTerms:
        """Prepare the terms of a plan's queries; refuse plans with too many kinds of cells."""
        axes = []
        for axis, parts in zip(observed.axes, decomposition.parts, strict=True):
            atom_of = atoms_of(axis.views)
            sizes = np.bincount(atom_of)
            first = np.array([np.flatnonzero(atom_of == atom)[0] for atom in range(len(sizes))])
            last = np.array([np.flatnonzero(atom_of == atom)[-1] for atom in range(len(sizes))])
            pairs = [
                [part.basis[i] @ part.basis[j].T for i in first for j in last]
                + [part.basis[i] @ part.basis[i].T for i in first]
                for part in parts
            ]
            alone = np.flatnonzero(sizes == 1)
            axes.append(_Axis(atom_of, tuple(np.array(item) for item in pairs), alone))
        table = math.prod(len(item.pairs[0]) for item in axes)
        if table > _LARGEST_TABLE:
            raise InputError(
                f"recodes and structural zeros make {table:,} kinds of pairs of cells, and "
                f"{_LARGEST_TABLE:,} is the limit"
            )
        return cls(observed.schema, decomposition, tuple(axes), _kept_apart(observed, axes))

    def about(self, of: SubtreeSlice, cells: IntArray) -> Information:
        """Return the information about some cells of the histogram."""
        matrices = self._kept_matrices("precisions", of, lambda: of.precisions)
        return self._terms(matrices, cells)

    def undetermined(self, of: SubtreeSlice, cells: IntArray) -> Information | None:
        """Return the projector on what nothing measures, over some cells; None if it is 0."""
        free = of.undetermined
        if not any(np.abs(item).max(initial=0.0) > _NOTHING for item in free):
            return None
        matrices = self._kept_matrices("undetermined", of, lambda: [item[None] for item in free])
        return self._terms(matrices, cells)

    def right_sides(self, of: SubtreeSlice, cells: IntArray) -> FloatArray:
        """Return y over some cells: units × cells."""
        return self.decomposition.cells(of.pushes, len(of.shape_of))[:, cells]

    def histograms(self, of: SubtreeSlice) -> FloatArray:
        """Return the estimate of every cell, 0 along directions that nothing measures."""
        return self.decomposition.cells(of.histograms, len(of.shape_of))

    def groups(self, of: SubtreeSlice, query: Query) -> GroupInformation | None:
        """Return what subtrees say about the cells of a query; None if they do not determine them."""
        if query.cells > _LARGEST_GROUPS:
            return None
        covariance = np.zeros((len(of.least), query.cells, query.cells))
        estimate = np.zeros((len(of.shape_of), query.cells))
        for rows, space, free, inside in zip(
            self._sums(query), of.spaces, of.undetermined, of.histograms, strict=True
        ):
            if not np.abs(rows).max(initial=0.0) > _NOTHING:
                continue
            if np.abs(np.einsum("gdc,de->gec", rows, free)).max() > _NOTHING:
                return None
            noisy = np.einsum("gdc,de->gec", rows, space.noisy)
            covariance += np.einsum("gdc,sde,hec->sgh", noisy, space.covariance, noisy)
            estimate += np.einsum("gdc,udc->ug", rows, inside)
        return GroupInformation(estimate, covariance)

    def _sums(self, query: Query) -> list[FloatArray]:
        """Return the coefficients of a query's cells in each subspace, kept for the next family."""
        if query.name not in self.sums:
            cell_of = query.cells_at(np.arange(self.schema.cells))
            counted = np.flatnonzero(cell_of >= 0)
            adds = sparse.csr_array(
                (np.ones(len(counted)), (cell_of[counted], np.arange(len(counted)))),
                shape=(query.cells, len(counted)),
            )
            each = [
                self.decomposition.rows(space)[counted] for space in self.decomposition.subspaces
            ]
            self.sums[query.name] = [
                (adds @ item.reshape(len(counted), -1)).reshape(-1, *item.shape[1:])
                for item in each
            ]
        return self.sums[query.name]

    def _kept_matrices(
        self, what: str, of: SubtreeSlice, weights: Callable[[], Sequence[FloatArray]]
    ) -> FloatArray:
        """Return C of the terms for each shape; most families have the shapes of another."""
        key = what, of.fingerprint()
        if key not in self.matrices:
            coefficients = self._coefficients(weights())
            made = np.ascontiguousarray(coefficients[:, self._where] * (self._where >= 0))
            if made.size + sum(item.size for item in self.matrices.values()) > _KEPT:
                self.matrices.clear()
            self.matrices[key] = made
        return self.matrices[key]

    def _terms(self, matrices: FloatArray, cells: IntArray) -> Information:
        shape = self.schema.shape
        codes = np.unravel_index(cells, shape) if shape else ()
        atoms, count = np.zeros(len(cells), np.int64), 1
        for axis, code in zip(self.axes, codes, strict=True):
            size = int(axis.atom_of.max()) + 1
            atoms, count = atoms * size + axis.atom_of[code], count * size
        places = np.zeros((len(self.kept), len(cells)), np.int64)
        offset = 0
        for number, kept in enumerate(self.kept):
            place, groups = np.zeros(len(cells), np.int64), 1
            for one in kept:
                place, groups = place * shape[one] + codes[one], groups * shape[one]
            places[number] = place + offset
            offset += groups
        return Information(places, matrices, atoms)

    def _coefficients(self, weights: Sequence[FloatArray]) -> FloatArray:
        """Return, for each shape, the coefficient of every product of pairs: shapes × products."""
        axes = len(self.axes)
        table: FloatArray | None = None
        for subspace, weight in zip(self.decomposition.subspaces, weights, strict=True):
            sizes = [part.basis.shape[1] for part in subspace.parts]
            full = subspace.possible @ weight @ subspace.possible.T
            part = full.reshape(len(weight), *sizes, *sizes)
            # Axis by axis: the two ends of the pair become the number of the pair.
            for number in range(axes):
                pairs = self.axes[number].pairs[subspace.numbers[number]]
                left = axes - number
                part = np.tensordot(part, pairs, axes=([1, 1 + left], [1, 2]))
            table = part if table is None else table + part
        assert table is not None
        for number, axis in enumerate(self.axes):
            atoms = int(axis.atom_of.max()) + 1
            moved = np.moveaxis(table, number + 1, -1)
            # A category with itself: what it has beyond two different ones of its atom.
            moved[..., atoms * atoms :] -= moved[..., np.arange(atoms) * (atoms + 1)]
            moved[..., atoms * atoms + axis.alone] = 0.0
        return table.reshape(len(table), -1)

    @cached_property
    def _where(self) -> IntArray:
        """The coefficient of each term and pair of atoms, -1 if it is 0: terms × atoms × atoms."""
        sizes = [int(axis.atom_of.max()) + 1 for axis in self.axes]
        count = math.prod(sizes)
        atoms = np.array(list(product(*map(range, sizes))), np.int64).reshape(count, len(sizes))
        where = np.zeros((len(self.kept), count, count), np.int64)
        for number, kept in enumerate(self.kept):
            apart = np.zeros((count, count), bool)
            for axis, size in enumerate(sizes):
                one, other = atoms[:, None, axis], atoms[None, :, axis]
                pair = one * size + other
                if axis in kept:
                    pair = size * size + np.broadcast_to(one, (count, count))
                    apart |= one != other
                where[number] = where[number] * (size * size + size) + pair
            where[number][apart] = -1
        return where


def _kept_apart(observed: Observed, axes: Sequence[_Axis]) -> tuple[tuple[int, ...], ...]:
    """Return the sets of attributes that terms keep apart: those of queries, and what they share."""
    everything = frozenset(range(len(axes)))
    sets = {everything}
    for observations in observed.observations.values():
        for one in observations:
            sets.add(
                frozenset(
                    number
                    for number, (axis, view) in enumerate(
                        zip(observed.axes, one.views, strict=True)
                    )
                    if axis.views[view].separates
                )
            )
    for number, axis in enumerate(axes):
        if len(axis.alone):  # a category alone in its atom is told apart by the atom
            sets |= {item - {number} for item in sets}
    while True:
        shared = {one & other for one, other in combinations(sets, 2)} - sets
        if not shared:
            return tuple(sorted(map(tuple, map(sorted, sets)), key=lambda item: (len(item), item)))
        sets |= shared
