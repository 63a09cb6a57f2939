"""What a plan's noise says through two more lenses, before a record is read: loss and homogeneity."""

from __future__ import annotations

import math
from dataclasses import dataclass

from countveil.assess.homogeneity.measures import local_risk
from countveil.assess.homogeneity.sensitive_table import Table
from countveil.noise.law import central_half_width
from countveil.plan.plans import Plan
from countveil.plan.workload import Query

GROUPS = (1, 2, 3, 5, 10, 20)
SHARE = 0.95


@dataclass(frozen=True, slots=True)
class NoiseLoss:
    """The privacy loss that the noise of one query has at the edge of where most of it falls.

    `share` of the noise is at most `half_width` from 0; `loss` is log P(e)/P(e + rows) there, what
    residuals of the query would show at that distance. All a person's queries add up to more.
    """

    level: str
    query: str
    standard_deviation: float
    half_width: int
    loss: float
    share: float = SHARE


@dataclass(frozen=True, slots=True)
class GroupRisk:
    """A group of people who all have one value of an attribute: how often noisy counts show just it."""

    level: str
    attribute: str
    people: int
    values: int
    disclosed: float


def loss_by_level(plan: Plan) -> tuple[NoiseLoss, ...]:
    """Return the loss of TOTAL's noise and of the most detailed query's, where they are measured."""
    found = []
    for level in plan.measured_levels:
        items = plan.at(level)
        finest = max(items, key=lambda item: item.query.cells)
        for item in items:
            if item is not finest and item.query.cells != 1:
                continue
            noise = item.mechanism
            edge = central_half_width(noise, SHARE)
            loss = float(noise.loss_at(edge, plan.rows_per_person))
            found.append(NoiseLoss(level, item.query.name, math.sqrt(noise.variance), edge, loss))
    return tuple(found)


def homogeneity_by_size(plan: Plan) -> tuple[GroupRisk, ...]:
    """Return, for every attribute of the judged level's finest query, the risk of uniform groups.

    He knows that his target is counted and all of its other attributes; he sees the noisy counts of
    its cell by value, and takes those of ½ and more for there. The number is how often they show the
    one value that everybody in the group has and no other. The exact table always does.
    """
    level = plan.judged_level
    finest = max(plan.at(level), key=lambda item: item.query.cells)
    noise = finest.mechanism
    found = []
    for name, values in _attributes(finest.query):
        for people in GROUPS:
            table = Table.from_counts([[people, *[0] * (values - 1)]], sensitive=name)
            risk = float(local_risk(table, mechanism=noise).value)
            found.append(GroupRisk(level, name, people, values, risk))
    return tuple(found)


def _attributes(query: Query) -> list[tuple[str, int]]:
    """Return the attributes of a query that have two values or more."""
    return [(name, len(labels)) for name, labels in query.labels if len(labels) > 1]
