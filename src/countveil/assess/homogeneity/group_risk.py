"""The homogeneity attack on a plan, before any record is read: groups in which all are alike."""

from __future__ import annotations

from dataclasses import dataclass

from countveil.assess.homogeneity.measures import local_risk
from countveil.assess.homogeneity.sensitive_table import Table
from countveil.plan.plans import Plan
from countveil.plan.workload import Query

GROUPS = (1, 2, 3, 5, 10, 20)


@dataclass(frozen=True, slots=True)
class GroupRisk:
    """How often noisy counts reveal the one value that everyone in a group has.

    The group has `people` people, the attribute has `values` values, and `disclosed` is the
    probability that the noisy counts show the group's value and no other.
    """

    level: str
    attribute: str
    people: int
    values: int
    disclosed: float


def homogeneity_by_size(plan: Plan) -> tuple[GroupRisk, ...]:
    """Return the risk of groups in which everyone has the same value, by attribute and group size.

    The attributes are those of the most detailed query of the judged level. The intruder knows that
    their target is counted, and all of the target's other attributes. They see the noisy counts of the
    group by value, and consider a value present if its count is ½ or more. The number is the
    probability that they see the value that everyone in the group has, and no other. The exact table
    always shows it.

    Parameters
    ----------
    plan : Plan
        The plan; no record is read.

    Returns
    -------
    tuple of GroupRisk
        One per attribute and group size.
    """
    level = plan.judged_level
    finest = max(plan.at(level), key=lambda item: item.query.cells)
    noise = finest.mechanism
    risks = []
    for name, values in _attributes(finest.query):
        for people in GROUPS:
            table = Table.from_counts([[people, *[0] * (values - 1)]], sensitive=name)
            risk = float(local_risk(table, mechanism=noise).value)
            risks.append(GroupRisk(level, name, people, values, risk))
    return tuple(risks)


def _attributes(query: Query) -> list[tuple[str, int]]:
    """Return the name and number of values of each attribute of a query that has two or more."""
    return [(name, len(labels)) for name, labels in query.labels if len(labels) > 1]
