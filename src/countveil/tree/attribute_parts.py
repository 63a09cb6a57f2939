"""One attribute split into subspaces of its categories that no view of it mixes.

A view V adds up categories: all of them (TOTAL), those of each group (a recode), or none. The mean and
the contrasts of the categories are such subspaces: if an attribute has no recode, VᵀV is n or 0 on the
mean, and 1 or 0 on the contrasts. Recodes with groups of unequal size mix the group means, which then
stay together in one small block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from countveil.base.numerics import FloatArray, IntArray
from countveil.errors import InputError

_ALIKE = 1e-8  # eigenvalues this close, in matrices of scale 1, are equal
_MOST_ENTRIES = 2**26  # of matrices of sets of categories
_MOST_WORK = 2**40  # multiplications: some minutes
_DECOMPOSED = 20  # matrix products that take as long as decomposing a matrix
_NOTHING = 1e-9  # entries this small, in matrices of scale 1, are zero


@dataclass(frozen=True, eq=False, slots=True)
class AttributeView:
    """How a query looks at an attribute: the group of each category, -1 if it is left out."""

    group: IntArray
    groups: int

    @classmethod
    def whole(cls, categories: int) -> AttributeView:
        """Return the view that adds up all categories."""
        return cls(np.zeros(categories, np.int64), 1)

    @classmethod
    def each(cls, categories: int) -> AttributeView:
        """Return the view of every single category."""
        return cls(np.arange(categories), categories)

    @classmethod
    def only(cls, kept: IntArray, categories: int) -> AttributeView:
        """Return the view of some categories, the others left out."""
        group = np.full(categories, -1, np.int64)
        group[kept] = kept
        return cls(group, categories)

    @property
    def separates(self) -> bool:
        """Whether no two categories are added up."""
        counted = self.group[self.group >= 0]
        return len(np.unique(counted)) == len(counted)

    def sums(self, rows: FloatArray) -> FloatArray:
        """Return V times a matrix: its rows, one per category, added up by group."""
        result = np.zeros((self.groups, *rows.shape[1:]))
        counted = self.group >= 0
        np.add.at(result, self.group[counted], rows[counted])
        return result


@dataclass(frozen=True, eq=False)
class AttributePart:
    """A subspace of the categories of an attribute: `copies` of one block.

    basis[category, i, copy] is orthonormal; if B has the columns of one copy, VᵀV B = B blocks[view].
    """

    blocks: tuple[FloatArray, ...]
    columns: FloatArray | None  # the basis, or:
    atoms: tuple[IntArray, ...] = ()  # all contrasts within each of these sets of categories
    categories: int = 0

    @property
    def size(self) -> int:
        """The number of rows of its block."""
        return len(self.blocks[0])

    @cached_property
    def basis(self) -> FloatArray:
        """Its basis: categories × size × copies."""
        if self.columns is not None:
            return self.columns
        copies = sum(len(atom) - 1 for atom in self.atoms)
        basis = np.zeros((self.categories, copies))
        first = 0
        for atom in self.atoms:
            basis[atom, first : first + len(atom) - 1] = _helmert(len(atom))
            first += len(atom) - 1
        return basis[:, None, :]


def atoms_of(views: Sequence[AttributeView]) -> IntArray:
    """Return the atom of each category: those that every view treats alike."""
    signature = [view.group >= 0 if view.separates else view.group for view in views]
    _, atom_of = np.unique(np.stack(signature), axis=1, return_inverse=True)
    return np.asarray(atom_of.reshape(-1), np.int64)


def split_attribute(views: Sequence[AttributeView]) -> list[AttributePart]:
    """Return the parts of an attribute under these views; their bases span all categories.

    Categories that every view treats alike form an atom. Contrasts within an atom are parts of their
    own; the means of the atoms are split numerically.
    """
    categories = len(views[0].group)
    separating = [view.separates for view in views]
    atom_of = atoms_of(views)
    _refuse_many(int(atom_of.max()) + 1, views)
    atoms = [np.flatnonzero(atom_of == number) for number in range(int(atom_of.max()) + 1)]
    means = np.zeros((categories, len(atoms)))
    for number, atom in enumerate(atoms):
        means[atom, number] = 1 / np.sqrt(len(atom))
    seen = [view.sums(means) for view in views]
    squares = [matrix.T @ matrix for matrix in seen]
    parts = []
    for basis in block_diagonalise(squares):
        blocks = tuple(_clean(basis[:, :, 0].T @ square @ basis[:, :, 0]) for square in squares)
        parts.append(AttributePart(blocks, np.tensordot(means, basis, axes=1)))
    # Contrasts are 1 in the views that separate their categories, 0 in the others.
    contrasts: dict[tuple[float, ...], list[IntArray]] = {}
    for atom in atoms:
        if len(atom) > 1:
            kept = [
                float(separates and view.group[atom[0]] >= 0)
                for view, separates in zip(views, separating, strict=True)
            ]
            contrasts.setdefault(tuple(kept), []).append(atom)
    for kept_by, together in contrasts.items():
        blocks = tuple(np.full((1, 1), kept) for kept in kept_by)
        parts.append(AttributePart(blocks, None, tuple(together), categories))
    return parts


def _refuse_many(atoms: int, views: Sequence[AttributeView]) -> None:
    """Refuse views whose matrices would take gigabytes, or minutes to split."""
    rows = sum(view.groups for view in views) + len(views[0].group) + len(views) * atoms
    work = len(views) * atoms**3 * (len(views) + _DECOMPOSED)
    if rows * atoms > _MOST_ENTRIES or work > _MOST_WORK:
        raise InputError(
            f"an attribute with {len(views[0].group):,} categories: {len(views):,} views of it, as "
            f"itself or through recodes, tell {atoms:,} sets of categories apart, which is too many "
            f"for the algebra (about 1,000 can be split); use fewer recodes, or merge their groups"
        )


def block_diagonalise(matrices: Sequence[FloatArray]) -> list[FloatArray]:
    """Return orthonormal bases (rows × size × copies) in which all matrices are block ⊗ identity.

    These are eigenspaces of a generic element of the algebra that the symmetric matrices generate;
    eigenspaces that a matrix connects belong to one block, and the connection carries the basis of one
    to the other (Murota, Kanno, Kojima & Kojima 2010). If a basis does not check out numerically, the
    matrices stay in one block.
    """
    size = len(matrices[0])
    scaled = [matrix / max(float(np.linalg.norm(matrix, 2)), _NOTHING) for matrix in matrices]
    values, vectors = np.linalg.eigh(_generic(scaled))
    cuts = np.flatnonzero(np.diff(values) > _ALIKE * max(1.0, float(np.abs(values).max()))) + 1
    spaces = [vectors[:, run] for run in np.split(np.arange(size), cuts)]
    images = [[space.T @ matrix for matrix in scaled] for space in spaces]
    bases = [_joined(spaces, group, images) for group in _connected(spaces, images)]
    if all(_proven(basis, scaled) for basis in bases):
        return bases
    return [np.eye(size)[:, :, None]]


def _generic(matrices: Sequence[FloatArray]) -> FloatArray:
    """Mix matrices and their products with fixed weights that are related to nothing else."""
    rng = np.random.default_rng(20_210_812)
    mixed = np.zeros_like(matrices[0])
    for one in matrices:
        mixed = mixed + rng.uniform(1, 2) * one
        for other in matrices:
            product = one @ other
            mixed = mixed + rng.uniform(0.1, 0.2) * (product + product.T)
    return mixed


def _connected(
    spaces: Sequence[FloatArray], images: Sequence[Sequence[FloatArray]]
) -> list[list[int]]:
    """Group eigenspaces that some matrix maps into each other, each group in order of reach."""
    groups: list[list[int]] = []
    left = list(range(len(spaces)))
    while left:
        group = [left.pop(0)]
        for reached in group:
            for other in list(left):
                if _strongest(images[other], spaces[reached])[1] > _NOTHING:
                    group.append(other)
                    left.remove(other)
        groups.append(group)
    return groups


def _strongest(images: Sequence[FloatArray], of: FloatArray) -> tuple[FloatArray, float]:
    """Return the largest map that the matrices make to a space, by its images, and its size."""
    maps = [image @ of for image in images]
    sizes = [float(np.abs(item).max(initial=0.0)) for item in maps]
    best = int(np.argmax(sizes))
    return maps[best], sizes[best]


def _joined(
    spaces: Sequence[FloatArray],
    group: Sequence[int],
    images: Sequence[Sequence[FloatArray]],
) -> FloatArray:
    """Carry the basis of the first space of a group to the others."""
    carried = {group[0]: spaces[group[0]]}
    for number in group[1:]:
        candidates = [_strongest(images[number], basis) for basis in carried.values()]
        step, _ = max(candidates, key=lambda item: item[1])
        carried[number] = spaces[number] @ (step / float(np.linalg.norm(step, 2)))
    return np.stack(list(carried.values()), axis=1)


def _proven(basis: FloatArray, matrices: Sequence[FloatArray]) -> bool:
    """Whether the basis is orthonormal, invariant under every matrix, and alike in all copies."""
    rows, size, copies = basis.shape
    flat = basis.reshape(rows, size * copies)
    gap = float(np.abs(flat.T @ flat - np.eye(size * copies)).max())
    for matrix in matrices:
        block = basis[:, :, 0].T @ matrix @ basis[:, :, 0]
        fitted = np.einsum("rjc,ji->ric", basis, block)
        gap = max(gap, float(np.abs(np.tensordot(matrix, basis, axes=1) - fitted).max()))
    return gap < _ALIKE


def _clean(block: FloatArray) -> FloatArray:
    """Set entries that are only rounding errors to 0."""
    return np.where(np.abs(block) < _NOTHING, 0.0, block)


def _helmert(categories: int) -> FloatArray:
    """Return an orthonormal basis of the contrasts of n categories: n × (n - 1)."""
    row, column = np.indices((categories, categories - 1))
    first = column + 1.0
    scale = np.sqrt(first * (first + 1))
    return np.where(row <= column, 1.0, np.where(row == column + 1, -first, 0.0)) / scale
