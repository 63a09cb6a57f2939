"""One run of units on its way up or down the tree: from measured values to estimates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from countveil.infer.gathering import LevelGatherer
from countveil.infer.observed_levels import Observed
from countveil.infer.subspaces import Asked
from countveil.infer.tree_recursion import Rung, climb, times
from countveil.infer.tree_shape import Tree
from countveil.measure.measurement import Measurements
from countveil.numerics import Array, FloatArray

_VALUES = 4_000_000  # measured values held at a time, unless one family has more

Values = list[FloatArray]  # of each subspace: units × size × copies
# Of each subspace, of what has noise and of what is exact: units × their number × copies.
Upward = list[tuple[FloatArray, FloatArray]]


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

    def upward(self, level: int, below: Upward | None, start: int, stop: int) -> Upward:
        """Return the estimates of units start … stop - 1 from themselves and from all below them.

        `below` holds the sums of the children of every unit of the level.
        """
        name = self.tree.geography.levels[level]
        gatherer, units = self.gatherers[level], stop - start
        values = None
        if gatherer.reads_measurements:
            values = self.measurements.units(name, start, stop)
        fixed = {query: table[start:stop] for query, table in self.invariants[level].items()}
        noisy, exact = gatherer.gather(values, fixed, units)
        kind = self.tree.kind[level][start:stop]
        result = []
        for number, rungs in enumerate(self.rungs):
            rung, copies = rungs[level], self.asked.subspaces[number].copies
            children = known_below = np.zeros((units, 0, copies))
            if below is not None:
                children, known_below = (part[start:stop] for part in below[number])
            known = rung.exact(exact[number], known_below)
            result.append((rung.estimate(kind, noisy[number], known, children), known))
        return result

    def downward(
        self,
        number: int,
        level: int,
        start: int,
        stop: int,
        upward: tuple[FloatArray, FloatArray],
        above: tuple[FloatArray, FloatArray] | None,
    ) -> FloatArray:
        """Return the estimates of units start … stop - 1 of a level in one subspace.

        `above` holds the estimates of all units of the level above, and what each hands down:
        (Σ V_c)⁻¹ (x - Σ x_c).
        """
        rung = self.rungs[number][level]
        noisy, exact = upward
        if above is None:
            return rung.histogram(noisy, exact)
        estimates, handed = above
        parents = self.tree.geography.parents[level][start:stop]
        share = times(rung.covariance, self.tree.kind[level][start:stop], handed[parents])
        result = rung.histogram(noisy + share, exact)
        places = self.tree.places[level]
        only = places.only[places.of_unit[start:stop]]
        if only.any():
            result[only] = estimates[parents[only]]
        return result
