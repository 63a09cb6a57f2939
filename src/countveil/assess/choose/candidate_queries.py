"""Queries that a plan could ask: all margins of the attributes that matter to it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

from countveil.errors import InputError
from countveil.plan.certified_budget import without_certificate
from countveil.plan.plans import Plan
from countveil.plan.workload import TOTAL, Query

MOST_CANDIDATES = 64
"""How many queries a level may choose from."""


def with_candidates(plan: Plan, tables: Sequence[Query]) -> Plan:
    """Return the plan with more queries: half of each level's budget goes to those that it lacks.

    They are the tables that matter and all margins of the attributes and recodes that these and the
    plan's own queries use.

    Parameters
    ----------
    plan : Plan
        The plan; it stays as it is.
    tables : sequence of Query
        The tables that matter.

    Returns
    -------
    Plan
        A plan whose shares mean nothing yet.

    """
    named = dict.fromkeys(
        name
        for query in (*tables, *(item.query for item in plan.allocations))
        for name, _ in query.labels
    )
    candidates = dict.fromkeys(query.name for query in tables)
    candidates |= dict.fromkeys(_margins(plan, list(named)))
    document: dict[str, Any] = copy.deepcopy(dict(plan.document))
    document["budget"] = without_certificate(document["budget"])
    queries: dict[str, dict[str, str]] = {}
    for level in plan.measured_levels:
        items = plan.at(level)
        whole = sum((item.cost.amount for item in items), Fraction(0))
        own = {item.query.name: item.cost.amount / whole for item in items}
        alike = {frozenset(name.split("*")) for name in own}
        added = [name for name in candidates if frozenset(name.split("*")) not in alike]
        if len(own) + len(added) > MOST_CANDIDATES:
            raise InputError(
                f"{plan.name}: at level {level}, {len(own) + len(added)} queries would be candidates, "
                f"and {MOST_CANDIDATES} is the limit; name targets of fewer attributes, or do not ask "
                f"for proposals"
            )
        share = {name: value / 2 if added else value for name, value in own.items()}
        share |= {name: Fraction(1, 2 * len(added)) for name in added}
        queries[level] = {name: str(value) for name, value in share.items()}
    document["budget"]["queries"] = queries
    return plan.with_document(document)


def _margins(plan: Plan, names: Sequence[str]) -> list[str]:
    """Return all products of attributes and recodes, with at most one view of each attribute."""
    of = {recode.name: recode.of for recode in plan.schema.recodes}
    result = [TOTAL]
    for count in range(1, len(plan.schema.attributes) + 1):
        for chosen in combinations(names, count):
            attributes = [of.get(name, name) for name in chosen]
            if len(set(attributes)) == count:
                result.append("*".join(chosen))
            if len(result) > 4 * MOST_CANDIDATES:
                return result
    return result
