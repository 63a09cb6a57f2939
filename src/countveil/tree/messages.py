"""A query's way up and down the tree, cut into runs of units, each a task of its own.

Upwards, a run of units combines its measurements with the sums of its children; downwards, it takes its
share of what its parents hand down. `TreePasses` cuts a level into runs and says what they share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.measure.measurements import Measured
from countveil.tree.covariances import Rung, climb, times
from countveil.tree.observed_levels import Observed
from countveil.tree.row_store import StoredRows
from countveil.tree.subspaces import LevelGatherer, QueryDecomposition
from countveil.tree.tree_shape import Tree

_VALUES = 1_000_000  # measured values in memory at a time, unless one family has more

UnitRange = tuple[int, int]  # units start … stop - 1
Values = list[FloatArray]  # by subspace: units × size × copies


class UpwardEstimate(NamedTuple):
    """One subspace on the way up: the noisy and the exact part, units × their size × copies."""

    noisy: FloatArray
    exact: FloatArray


class StoredEstimate(NamedTuple):
    """The same for a whole level, in memory or on disk."""

    noisy: StoredRows
    exact: StoredRows


class Handed(NamedTuple):
    """One subspace on the way down: the estimates of parents, and what each hands to its children."""

    estimates: FloatArray
    shares: FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class ParentMessage:
    """What units receive from the level above, by subspace.

    `parents` is the row of each unit's parent in `values`; `only_child` marks units without siblings.
    """

    parents: IntArray
    only_child: NDArray[np.bool_]
    values: tuple[Handed, ...]


@dataclass(frozen=True, eq=False, slots=True)
class UnitRun:
    """Units start … stop - 1 of a level, with everything a worker needs to estimate them.

    `fixed` are their invariants, `children` the sums of their children, and `parents` the numbers of
    their parents, None at the top.
    """

    start: int
    stop: int
    kind: IntArray
    fixed: dict[str, Array]
    children: list[UpwardEstimate] | None
    parents: IntArray | None
    message: ParentMessage | None = None


class UpwardResult(NamedTuple):
    """Estimates of units on the way up, if they are kept, and their sums by parent."""

    estimates: list[UpwardEstimate] | None
    sums: list[UpwardEstimate] | None


@dataclass(frozen=True, eq=False, slots=True)
class UpwardPass:
    """The way up of one level, shared by its runs; `keep` says whether to return their estimates."""

    measurements: Measured
    level: str
    gatherer: LevelGatherer
    rungs: tuple[Rung, ...]
    keep: bool

    def run(self, task: UnitRun) -> UpwardResult:
        """Return the estimates of units, if they are kept, and their sums by parent."""
        estimates, sums = self.estimates(task), None
        if task.parents is not None:
            first = np.flatnonzero(np.diff(task.parents, prepend=-1))
            sums = [
                UpwardEstimate(
                    np.add.reduceat(noisy, first, axis=0), np.add.reduceat(exact, first, axis=0)
                )
                for noisy, exact in estimates
            ]
        return UpwardResult(estimates if self.keep else None, sums)

    def estimates(self, task: UnitRun) -> list[UpwardEstimate]:
        """Return the estimates of units from themselves and everything below them."""
        units, values = task.stop - task.start, None
        if self.gatherer.reads_measurements:
            values = self.measurements.units(self.level, task.start, task.stop)
        noisy, exact = self.gatherer.gather(values, task.fixed, units)
        result = []
        for number, rung in enumerate(self.rungs):
            copies = self.gatherer.decomposition.subspaces[number].copies
            children = known_below = np.zeros((units, 0, copies))
            if task.children is not None:
                children, known_below = task.children[number]
            known = rung.exact(exact[number], known_below)
            estimate = rung.estimate(task.kind, noisy[number], known, children)
            result.append(UpwardEstimate(estimate, known))
        return result


@dataclass(frozen=True, eq=False, slots=True)
class DownwardPass:
    """The way down of one level, to values in subspaces or to the cells of the query."""

    upward: UpwardPass
    cells: bool

    def run(self, task: UnitRun) -> Values | FloatArray:
        """Return the estimates of units from the whole tree."""
        values = [
            downward(rung, task.kind, upward, number, task.message)
            for number, (rung, upward) in enumerate(
                zip(self.upward.rungs, self.upward.estimates(task), strict=True)
            )
        ]
        decomposition = self.upward.gatherer.decomposition
        return decomposition.cells(values, task.stop - task.start) if self.cells else values


def downward(
    rung: Rung,
    kind: IntArray,
    upward: UpwardEstimate,
    number: int,
    message: ParentMessage | None,
) -> FloatArray:
    """Return the estimates of units in one subspace, after the message from their parents.

    A parent hands down (Σ V_c)⁻¹ (x - Σ x_c).
    """
    noisy, exact = upward
    if message is None:
        return rung.histogram(noisy, exact)
    estimates, shares = message.values[number]
    share = times(rung.covariance, kind, shares[message.parents])
    result = rung.histogram(noisy + share, exact)
    if message.only_child.any():
        result[message.only_child] = estimates[message.parents[message.only_child]]
    return result


@dataclass(frozen=True, eq=False, slots=True)
class TreePasses:
    """What both passes need: measurements, tree, and the rungs of each subspace and level."""

    measurements: Measured
    tree: Tree
    decomposition: QueryDecomposition
    rungs: tuple[tuple[Rung, ...], ...]
    gatherers: tuple[LevelGatherer, ...]
    invariants: tuple[dict[str, Array], ...]

    @classmethod
    def of(
        cls,
        measurements: Measured,
        observed: Observed,
        tree: Tree,
        decomposition: QueryDecomposition,
    ) -> TreePasses:
        """Prepare the passes of a query; only invariants are read."""
        observations = [observed.observations[level] for level in observed.levels]
        invariants = tuple(
            {
                one.query.name: measurements.invariant(level, one.query.name)
                for one in observed.observations[level]
                if one.first is None
            }
            for level in observed.levels
        )
        return cls(
            measurements,
            tree,
            decomposition,
            tuple(tuple(climb(tree, space, observations)) for space in decomposition.subspaces),
            tuple(LevelGatherer.of(observed, decomposition, level) for level in observed.levels),
            invariants,
        )

    def ranges(self, level: int) -> list[UnitRange]:
        """Cut a level into ranges of whole families."""
        name = self.tree.geography.levels[level]
        scalars = sum(item.query.cells for item in self.measurements.plan.at(name))
        most = max(1, _VALUES // max(scalars, self.decomposition.width, 1))
        if level == 0:  # no parent ties these units together
            units = self.tree.units(0)
            return [(start, min(start + most, units)) for start in range(0, units, most)]
        return self.tree.geography.batches(name, most)

    def upward(self, level: int, *, keep: bool) -> UpwardPass:
        """Return what the runs of a level share on the way up."""
        return UpwardPass(
            self.measurements,
            self.tree.geography.levels[level],
            self.gatherers[level],
            tuple(rungs[level] for rungs in self.rungs),
            keep,
        )

    def unit_run(
        self,
        level: int,
        children: Sequence[StoredEstimate] | None,
        above: Sequence[tuple[StoredRows, StoredRows]] | None,
        start: int,
        stop: int,
    ) -> UnitRun:
        """Return units start … stop - 1 of a level as a task that holds copies of what it needs.

        By subspace, `children` has the sums of the children of every unit of the level; `above` the
        estimates of all units of the level above, and what each of them hands down.
        """
        parents = self.tree.geography.parents[level][start:stop] if level else None
        sums = None
        if children is not None:
            sums = [UpwardEstimate(x[start:stop], y[start:stop]) for x, y in children]
        return UnitRun(
            start,
            stop,
            self.tree.kind[level][start:stop],
            {query: table[start:stop] for query, table in self.invariants[level].items()},
            sums,
            parents,
            None if above is None else self.message(level, above, start, stop),
        )

    def message(
        self,
        level: int,
        above: Sequence[tuple[StoredRows, StoredRows]],
        start: int,
        stop: int,
    ) -> ParentMessage:
        """Return what units start … stop - 1 of a level receive from their parents."""
        parents = self.tree.geography.parents[level][start:stop]
        first, last = int(parents[0]), int(parents[-1]) + 1
        positions = self.tree.positions[level]
        return ParentMessage(
            parents - first,
            positions.only_child[positions.of_unit[start:stop]],
            tuple(Handed(x[first:last], y[first:last]) for x, y in above),
        )
