"""Measurements that might have been: estimates taken for the truth, and measured again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from countveil.measure.measurement import Measurements
from countveil.mechanisms.law import Mechanism
from countveil.numerics import IntArray
from countveil.postprocess.estimates import Estimates
from countveil.randomness import BitSource
from countveil.schema.plan import Plan


@dataclass(frozen=True, eq=False, slots=True)
class Remeasured:
    """Noisy values of released estimates; nothing is held, and asking again gives the same values.

    What is declared public is as it was published, and estimates agree with it.
    """

    released: Measurements
    estimates: Estimates
    rng: BitSource

    @property
    def plan(self) -> Plan:
        """What is measured."""
        return self.released.plan

    @property
    def mechanisms(self) -> dict[tuple[str, str], Mechanism]:
        """The noise of each level and query."""
        return self.released.mechanisms

    def units(self, level: str, start: int, stop: int) -> NDArray[np.int32]:
        """Return the values of units start … stop - 1, all queries of the level side by side."""
        codes = self.estimates.geography.geocodes(level, start, stop).to_pylist()
        unit, cell, count = self.estimates.levels[level].entries(start, stop)
        parts = []
        for item in self.plan.at(level):
            query, law = item.query, self.mechanisms[level, item.query.name]
            source = self.rng.for_units(level, codes, query.name)
            values = law.sample((stop - start) * query.cells, rng=source)
            where = query.cells_at(cell)
            counted = where >= 0
            key = unit[counted] * query.cells + where[counted]
            values = values + np.bincount(key, count[counted], len(values)).astype(np.int64)
            parts.append(values.reshape(-1, query.cells).astype(np.int32))
        return np.concatenate(parts, axis=1)

    def invariant(self, level: str, query: str) -> IntArray:
        """Return a declared public query of a level, exact, all units."""
        return self.released.invariant(level, query)
