"""A query's way up and down the tree, cut into runs of units: what they share, and what is theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from countveil.infer.filed_rows import Rows
from countveil.infer.gathering import LevelGatherer
from countveil.infer.observed_levels import Observed
from countveil.infer.subspaces import Asked
from countveil.infer.tree_recursion import Rung, climb
from countveil.infer.tree_shape import Tree
from countveil.infer.tree_tasks import Above, Kept, Stretch, Up
from countveil.measure.measurement import Measurements
from countveil.numerics import Array

_VALUES = 4_000_000  # measured values held at a time, unless one family has more


@dataclass(frozen=True, eq=False, slots=True)
class Passes:
    """What both passes need: the measurements, the tree, and the rungs of each subspace and level."""

    measurements: Measurements
    tree: Tree
    asked: Asked
    rungs: tuple[tuple[Rung, ...], ...]
    gatherers: tuple[LevelGatherer, ...]
    invariants: tuple[dict[str, Array], ...]

    @classmethod
    def of(cls, measurements: Measurements, observed: Observed, tree: Tree, asked: Asked) -> Passes:
        """Prepare the passes of a query; only invariants are read."""
        found = [observed.observations[level] for level in observed.levels]
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
            asked,
            tuple(tuple(climb(tree, space, found)) for space in asked.subspaces),
            tuple(LevelGatherer.of(observed, asked, level) for level in observed.levels),
            invariants,
        )

    def runs(self, level: int) -> list[tuple[int, int]]:
        """Cut a level into runs of whole families."""
        name = self.tree.geography.levels[level]
        scalars = sum(item.query.cells for item in self.measurements.plan.at(name))
        most = max(1, _VALUES // max(scalars, self.asked.width, 1))
        if level == 0:  # no parent holds them together
            units = self.tree.units(0)
            return [(start, min(start + most, units)) for start in range(0, units, most)]
        return self.tree.geography.batches(name, most)

    def up(self, level: int, *, keep: bool) -> Up:
        """Return what the runs of a level share on the way up."""
        return Up(
            self.measurements,
            self.tree.geography.levels[level],
            self.gatherers[level],
            tuple(rungs[level] for rungs in self.rungs),
            keep,
        )

    def stretch(
        self,
        level: int,
        below: Kept | None,
        above: Sequence[tuple[Rows, Rows]] | None,
        start: int,
        stop: int,
    ) -> Stretch:
        """Return units start … stop - 1 of a level as a task; what it holds is its own.

        `below` holds the sums of the children of every unit of the level, `above` of each subspace the
        estimates of all units of the level above, and what each hands down.
        """
        parents = self.tree.geography.parents[level][start:stop] if level else None
        return Stretch(
            start,
            stop,
            self.tree.kind[level][start:stop],
            {query: table[start:stop] for query, table in self.invariants[level].items()},
            None if below is None else [(x[start:stop], y[start:stop]) for x, y in below],
            parents,
            None if above is None else self.above(level, above, start, stop),
        )

    def above(
        self,
        level: int,
        values: Sequence[tuple[Rows, Rows]],
        start: int,
        stop: int,
    ) -> Above:
        """Return what units start … stop - 1 of a level take from their parents."""
        parents = self.tree.geography.parents[level][start:stop]
        first, last = int(parents[0]), int(parents[-1]) + 1
        places = self.tree.places[level]
        return Above(
            parents - first,
            places.only[places.of_unit[start:stop]],
            tuple((x[first:last], y[first:last]) for x, y in values),
        )
