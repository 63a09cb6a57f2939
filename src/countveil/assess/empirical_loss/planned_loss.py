"""The privacy loss of single counts of a plan, before any record is read."""

from __future__ import annotations

import math
from dataclasses import dataclass

from countveil.noise.law import central_half_width
from countveil.plan.plans import Plan

SHARE = 0.95


@dataclass(frozen=True, slots=True)
class NoiseLoss:
    """The privacy loss of one count of a query, at the edge of the central `share` of its noise.

    That share of the noise is at most `half_width` from 0. `loss` is log P(e)/P(e + rows) there, which
    is what residuals of the query would show at that distance. The losses of all queries that count a
    person add up to more.
    """

    level: str
    query: str
    standard_deviation: float
    half_width: int
    loss: float
    share: float = SHARE


def loss_by_level(plan: Plan) -> tuple[NoiseLoss, ...]:
    """Return the privacy loss of TOTAL and of the most detailed query, for each measured level.

    Parameters
    ----------
    plan : Plan
        The plan; no record is read.

    Returns
    -------
    tuple of NoiseLoss
        From the top level down.
    """
    losses = []
    for level in plan.measured_levels:
        items = plan.at(level)
        finest = max(items, key=lambda item: item.query.cells)
        for item in items:
            if item is not finest and item.query.cells != 1:
                continue
            noise = item.mechanism
            edge = central_half_width(noise, SHARE)
            loss = float(noise.loss_at(edge, plan.rows_per_person))
            losses.append(NoiseLoss(level, item.query.name, math.sqrt(noise.variance), edge, loss))
    return tuple(losses)
