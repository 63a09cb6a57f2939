"""When totals are estimated first, unless a plan says which passes to make.

Counts cannot be negative. Where a query has many empty cells, their noise is cut off at 0 on one side,
so that the query's sum comes out too high, by about 0.4 σ. Several such queries can push a total by
more than its noise. Estimating totals first, without that bound, avoids it. But where totals are
themselves small, the bound helps, and all queries are used at once.
"""

from __future__ import annotations

import math

from countveil.plan.plans import Plan

CLEAR = 20.0  # standard errors from 0 at which the bound says nothing about a total
_BIAS = 0.4  # E max(0, noise) of a standard normal
_TOO_MUCH = 1.5  # standard errors


def total_may_be_pushed(plan: Plan, level: str) -> bool:
    """Return whether the bound of 0 may push a unit's total by more than its noise.

    Parameters
    ----------
    plan
        A plan of counts.
    level
        A measured level.

    Returns
    -------
    bool
        From the queries and the noise of the level; no measurement is read.

    """
    queries = [item for item in plan.at(level) if item.query.complete]
    precision = sum(1 / (item.query.cells * item.mechanism.variance) for item in queries)
    pushes = sum(1 / math.sqrt(item.mechanism.variance) for item in queries if item.query.cells > 1)
    return bool(queries) and _BIAS * pushes / math.sqrt(precision) > _TOO_MUCH
