"""INTERNAL: the exact counts of a query, for what compares a release with its records."""

from __future__ import annotations

import numpy as np

from countveil.numerics import IntArray
from countveil.schema.workload import Query
from countveil.tabulate.counts import Counts


def exact_answers(counts: Counts, level: str, start: int, stop: int, query: Query) -> IntArray:
    """Return the counts of a query for units start … stop - 1: units × its cells."""
    unit, cell, count = counts.entries(level, start, stop)
    place = query.cells_at(cell)
    kept = place >= 0
    key = unit[kept] * query.cells + place[kept]
    exact: IntArray = np.bincount(key, count[kept], (stop - start) * query.cells).astype(np.int64)
    return exact.reshape(stop - start, query.cells)
