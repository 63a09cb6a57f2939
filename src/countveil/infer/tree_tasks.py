"""One run of units on its way up or down the tree, as a task: what it needs of the tree is in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from countveil.infer.filed_rows import Rows
from countveil.infer.gathering import LevelGatherer
from countveil.infer.tree_recursion import Rung, times
from countveil.measure.measurement import Measurements
from countveil.numerics import Array, FloatArray, IntArray

Values = list[FloatArray]  # of each subspace: units × size × copies
# Of each subspace, of what has noise and of what is exact: units × their number × copies.
Upward = list[tuple[FloatArray, FloatArray]]
Kept = list[tuple[Rows, Rows]]  # the same of a whole level


@dataclass(frozen=True, eq=False, slots=True)
class Above:
    """What units take from the level above: of each subspace, estimates and what is handed down.

    `parents` says in which of the rows a unit's parent is, `only` which units are only children.
    """

    parents: IntArray
    only: NDArray[np.bool_]
    values: tuple[tuple[FloatArray, FloatArray], ...]


@dataclass(frozen=True, eq=False, slots=True)
class Stretch:
    """Units start … stop - 1 of a level: their kinds, what is exact, and the sums of their children.

    `parents` numbers the parents of the units, None at the top.
    """

    start: int
    stop: int
    kind: IntArray
    fixed: dict[str, Array]
    below: Upward | None
    parents: IntArray | None
    above: Above | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Up:
    """The way up: what all runs of a level share. `keep` says whether their estimates are wanted."""

    measurements: Measurements
    level: str
    gatherer: LevelGatherer
    rungs: tuple[Rung, ...]
    keep: bool

    def run(self, task: Stretch) -> tuple[Upward | None, Upward | None]:
        """Return the estimates of units, if they are wanted, and their sums over each parent."""
        found, sums = self.estimates(task), None
        if task.parents is not None:
            first = np.flatnonzero(np.diff(task.parents, prepend=-1))
            sums = [
                (np.add.reduceat(noisy, first, axis=0), np.add.reduceat(exact, first, axis=0))
                for noisy, exact in found
            ]
        return found if self.keep else None, sums

    def estimates(self, task: Stretch) -> Upward:
        """Return the estimates of units from themselves and from all below them."""
        units, values = task.stop - task.start, None
        if self.gatherer.reads_measurements:
            values = self.measurements.units(self.level, task.start, task.stop)
        noisy, exact = self.gatherer.gather(values, task.fixed, units)
        result = []
        for number, rung in enumerate(self.rungs):
            copies = self.gatherer.asked.subspaces[number].copies
            children = known_below = np.zeros((units, 0, copies))
            if task.below is not None:
                children, known_below = task.below[number]
            known = rung.exact(exact[number], known_below)
            result.append((rung.estimate(task.kind, noisy[number], known, children), known))
        return result


@dataclass(frozen=True, eq=False, slots=True)
class Down:
    """The way up and down again of a level's runs: to their values, or to the cells of the query."""

    up: Up
    cells: bool

    def run(self, task: Stretch) -> Values | FloatArray:
        """Return the estimates of units from the whole tree."""
        values = [
            downward(rung, task.kind, upward, number, task.above)
            for number, (rung, upward) in enumerate(
                zip(self.up.rungs, self.up.estimates(task), strict=True)
            )
        ]
        asked = self.up.gatherer.asked
        return asked.cells(values, task.stop - task.start) if self.cells else values


def downward(
    rung: Rung,
    kind: IntArray,
    upward: tuple[FloatArray, FloatArray],
    number: int,
    above: Above | None,
) -> FloatArray:
    """Return the estimates of units in one subspace, once the rest of the tree is handed down.

    What a parent hands down is (Σ V_c)⁻¹ (x - Σ x_c).
    """
    noisy, exact = upward
    if above is None:
        return rung.histogram(noisy, exact)
    estimates, handed = above.values[number]
    share = times(rung.covariance, kind, handed[above.parents])
    result = rung.histogram(noisy + share, exact)
    if above.only.any():
        result[above.only] = estimates[above.parents[above.only]]
    return result
