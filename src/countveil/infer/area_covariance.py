"""The covariance of areas, put together from any units, by carrying what they hold up the tree.

Given its parent, a unit's estimate is V_c (Σ V_c)⁻¹ times the parent's, and siblings have left the
covariance δ V_c - V_c (Σ V_c)⁻¹ V_c'. An area is a sum of units, so it is a linear function of the
units of each level in turn, and what is left at each level adds up. Only units on the way are touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from countveil.infer.tree_recursion import Rung
from countveil.infer.tree_shape import Tree
from countveil.numerics import FloatArray, IntArray


@dataclass(frozen=True, eq=False, slots=True)
class Membership:
    """Which units of a level make up areas: pairs of area and unit, and all units on the way.

    `units` are those that belong to an area or hold one that does, in order.
    """

    areas: IntArray
    members: IntArray
    units: IntArray


def memberships(tree: Tree, covers: Sequence[Sequence[tuple[int, IntArray]]]) -> list[Membership]:
    """Return the memberships of every level, the top first, from the units that cover each area."""
    below = np.empty(0, np.int64)
    found: list[Membership] = []
    for level in range(tree.depth - 1, -1, -1):
        own = [
            (np.full(len(units), area), units)
            for area, cover in enumerate(covers)
            for number, units in cover
            if number == level
        ]
        nothing = np.empty(0, np.int64)
        areas = np.concatenate([nothing, *(area for area, _ in own)])
        members = np.concatenate([nothing, *(units for _, units in own)])
        units = np.unique(np.concatenate([members, below]))
        found.insert(0, Membership(areas, members, units))
        if level:
            below = np.unique(tree.geography.parents[level][units])
    return found


def area_covariance(
    tree: Tree, rungs: Sequence[Rung], levels: Sequence[Membership], areas: int
) -> FloatArray:
    """Return the covariance of areas in one subspace: areas × size × areas × size."""
    size = len(rungs[0].known)
    total = np.zeros((areas * size, areas * size))
    carried: sp.csr_array | None = None
    for level in range(tree.depth - 1, -1, -1):
        here, rung = levels[level], rungs[level]
        width = rung.noisy.shape[1]
        if not width or not len(here.units):
            carried = None
            continue
        held = _members(here, rung, areas)
        if carried is not None:
            held = held + carried
        spread = held @ _diagonal(rung.covariance[tree.kind[level][here.units]])
        total += (spread @ held.T).toarray()
        if level:
            above, higher = levels[level - 1], rungs[level - 1]
            parents = np.searchsorted(above.units, tree.geography.parents[level][here.units])
            together = spread @ _adder(parents, len(above.units), width)
            pulled = together @ _diagonal(higher.pull[tree.kind[level - 1][above.units]])
            total -= (pulled @ together.T).toarray()
            shape = (len(above.units), *higher.below.shape)
            carried = pulled @ _diagonal(np.broadcast_to(higher.below, shape))
    return total.reshape(areas, size, areas, size)


def _members(here: Membership, rung: Rung, areas: int) -> sp.csr_array:
    """Return the areas as functions of what is noisy in the units: (areas size) × (units e)."""
    size, width = rung.noisy.shape
    place = np.searchsorted(here.units, here.members)
    row = here.areas[:, None, None] * size + np.arange(size)[:, None]
    column = place[:, None, None] * width + np.arange(width)
    shape = (len(place), size, width)
    entries = (np.broadcast_to(part, shape).reshape(-1) for part in (rung.noisy, row, column))
    value, rows, columns = entries
    return sp.csr_array((value, (rows, columns)), shape=(areas * size, len(here.units) * width))


def _diagonal(blocks: FloatArray) -> sp.csr_array:
    """Return the matrix with these blocks along its diagonal."""
    count, rows, columns = blocks.shape
    if not blocks.size:
        return sp.csr_array((count * rows, count * columns))
    matrix = sp.bsr_array(
        (np.ascontiguousarray(blocks), np.arange(count), np.arange(count + 1)),
        shape=(count * rows, count * columns),
    )
    return sp.csr_array(matrix)


def _adder(parents: IntArray, count: int, width: int) -> sp.csr_array:
    """Return the matrix that adds up units into their parents, each with a block of some width."""
    units = len(parents)
    columns = (parents[:, None] * width + np.arange(width)).reshape(-1)
    rows = np.arange(units * width)
    return sp.csr_array(
        (np.ones(units * width), (rows, columns)), shape=(units * width, count * width)
    )
