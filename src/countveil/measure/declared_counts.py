"""The counts that a plan declares public, taken out at the door before anything is charged.

They are published exactly, so that contradictions between them and other public facts can be found
before a release is paid for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from countveil.measure.drawing import add_counts
from countveil.numerics import IntArray
from countveil.schema.plan import Plan
from countveil.tabulate.counts import Counts


@dataclass(frozen=True, eq=False, slots=True)
class DeclaredCounts:
    """Exact counts of the invariants of a plan, by level and query; nothing else of the records."""

    values: dict[tuple[str, str], IntArray]

    def invariant(self, level: str, query: str) -> IntArray:
        """Return a declared public query of a level, exact, all units."""
        return self.values[level, query]


def declared_counts(counts: Counts, plan: Plan) -> DeclaredCounts:
    """Return the invariants of a plan as they will be published."""
    values = {}
    for item in plan.invariants:
        units = counts.geography.units(item.level)
        table = np.zeros((units, item.query.cells), np.int64)
        add_counts(table, item.query, counts.entries(item.level, 0, units))
        values[item.level, item.query.name] = table
    return DeclaredCounts(values)
