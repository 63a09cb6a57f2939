"""A plan with another rho at each level, its shares of queries as they are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from countveil.numerics import exact
from countveil.privacy.costs import ZCDP
from countveil.schema.allocation import Allocation
from countveil.schema.plan import Plan

_DIGITS = 10


def own_rho(plan: Plan, level: str) -> Fraction:
    """Return the rho of all queries of a level."""
    return sum((rho_of(item) for item in plan.at(level)), Fraction(0))


def rho_of(item: Allocation) -> Fraction:
    """Return the rho of one query; plans in epsilon were refused before."""
    assert isinstance(item.cost, ZCDP)
    return item.cost.rho


def with_rho(plan: Plan, rho: Mapping[str, Fraction]) -> Plan:
    """Return the plan with these rho for its levels."""
    total = sum(rho.values(), Fraction(0))
    shares = {level: str(rho.get(level, Fraction(0)) / total) for level in plan.levels}
    budget = {**plan.document.get("budget", {}), "rho": str(total), "levels": shares}
    return Plan.of({**plan.document, "budget": budget}, folder=plan.folder, name=plan.name)


def short(value: Fraction, *, up: bool = False) -> Fraction:
    """Return a fraction of few digits, below the value or above it."""
    places = _DIGITS - 1 - math.floor(math.log10(float(value)))
    scale = exact(10) ** places
    scaled = value * scale
    return Fraction(math.ceil(scaled) if up else math.floor(scaled)) / scale
