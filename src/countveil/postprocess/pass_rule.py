"""Which queries are estimated first, unless a plan says which passes to make.

Counts cannot be negative. Where a query has many empty cells, their noise is cut off at 0 on one side,
so that the query's sums come out too high, by about 0.4 σ for each such cell. Several queries, or one
with many cells, can push a coarser sum by more than its noise. Estimating the coarser query first,
without that bound on the finer ones, avoids it. But where sums are themselves small, the bound helps,
and all queries are used at once.

Totals can be pushed at every level: children with many empty cells gain from those with few. Other
queries need a pass only at the top. Below it their sums are held by the parent's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from countveil.base.numerics import FloatArray, IntArray
from countveil.plan.passes import cells_within, coarsens
from countveil.plan.plans import Plan
from countveil.plan.workload import TOTAL, Query

_CLEAR = 20.0  # standard errors from 0 at which the bound says nothing about a sum
_BIAS = 0.4  # E max(0, noise) of a standard normal
_TOO_MUCH = 1.5  # standard errors, as forecast
_TOO_FAR = 2.0  # standard errors, as measured


class UnbiasedSums(NamedTuple):
    """Unbiased estimates of the sums of a query and their standard errors, children × groups."""

    estimate: FloatArray
    error: FloatArray

    @property
    def clear(self) -> NDArray[np.bool_]:
        """Whether each sum is so far from 0 that its sign says nothing."""
        return self.estimate >= _CLEAR * self.error

    def departure(self, sums: FloatArray) -> float:
        """Return how far a solution is from the farthest clear sum, in standard errors."""
        noisy = self.clear & (self.error > 0)
        return float(np.max(np.abs(sums - self.estimate)[noisy] / self.error[noisy], initial=0.0))


def candidates(plan: Plan, level: str, *, top: bool) -> tuple[Query, ...]:
    """Return the queries whose sums the bound of 0 may push, by the plan's forecast.

    Parameters
    ----------
    plan
        A plan of counts.
    level
        A measured level.
    top
        Whether its units have no parent that is estimated before them.

    Returns
    -------
    tuple of Query
        `TOTAL`, and at the top each measured query that counts everyone and is coarser than the
        histogram. Computed from queries and noise alone; no measurement is read.

    """
    queries = [plan.schema.query(TOTAL)]
    if top:
        queries += [
            item.query
            for item in plan.at(level)
            if item.query.complete and 1 < item.query.cells < plan.schema.cells
        ]
    return tuple(query for query in dict.fromkeys(queries) if may_be_pushed(plan, level, query))


def may_be_pushed(plan: Plan, level: str, query: Query) -> bool:
    """Return whether the bound of 0 may push a sum of a query by more than its noise, by forecast.

    Where all people are in one sum and the others are empty, it loses what all of them gain.
    """
    precision, pushes = 0.0, 0.0
    for item in plan.at(level):
        if item.query.complete and coarsens(query, item.query):
            cells = int(np.bincount(cells_within(query, item.query)).max())  # within one sum
            precision += 1 / (cells * item.mechanism.variance)
            if cells > 1:
                pushes += 1 / math.sqrt(item.mechanism.variance)
    others = max(1, query.cells - 1)
    return precision > 0 and others * _BIAS * pushes / math.sqrt(precision) > _TOO_MUCH


def totals_come_first(totals: UnbiasedSums | None) -> bool:
    """Return whether most children have a total so far from 0 that its sign says nothing."""
    return totals is not None and bool(totals.clear.mean() >= 0.5)


def pushed_farthest(
    queries: Sequence[tuple[Query, UnbiasedSums | None]], h: FloatArray, cells: IntArray
) -> Query | None:
    """Return the query with the sum that a solution is farthest from, if that is too far.

    Parameters
    ----------
    queries
        Queries with unbiased estimates of their sums, None where there are none.
    h
        The solution, children × cells.
    cells
        The cells of the histogram that the columns of h stand for.

    Returns
    -------
    Query or None
        None if every clear sum is within two standard errors of its unbiased estimate.

    """
    farthest, chosen = _TOO_FAR, None
    for query, unbiased in queries:
        if unbiased is None:
            continue
        sums = np.zeros(unbiased.estimate.shape)
        np.add.at(sums.T, query.cells_at(cells), h.T)
        departure = unbiased.departure(sums)
        if departure > farthest:
            farthest, chosen = departure, query
    return chosen
