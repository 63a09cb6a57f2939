"""What a plan costs and risks, and how far off its counts will be, from the plan alone."""

from __future__ import annotations

from dataclasses import dataclass

from countveil import measure
from countveil.assess.plan_error import ExpectedError, expected_error
from countveil.assess.plan_risk import LevelRisk, risk_by_level, risks_above_limit
from countveil.mechanisms.law import Mechanism
from countveil.privacy.costs import ZCDP, Cost
from countveil.privacy.loss_distribution import tight_epsilon
from countveil.schema.allocation import Allocation
from countveil.schema.plan import Plan


@dataclass(frozen=True, slots=True)
class Price:
    """What a plan costs, how noisy it is, what it lets an intruder learn; no record was read.

    `risks` are those of noisy counts alone; `above_limit` counts in what is published as counted.
    """

    plan: Plan
    cost: Cost
    noises: tuple[tuple[Allocation, Mechanism], ...]
    risks: tuple[LevelRisk, ...]
    errors: tuple[ExpectedError, ...]
    tight_epsilon: float | None
    above_limit: tuple[LevelRisk, ...]


def price(plan: Plan) -> Price:
    """Price a plan."""
    noises = tuple((item, measure.mechanism_for(item)) for item in plan.allocations)
    lossy = [query for item, noise in noises for query in measure.lossy_queries(item, noise, plan)]
    tight = tight_epsilon(lossy, float(plan.delta)) if isinstance(plan.cost, ZCDP) else None
    risks = tuple(risk_by_level(plan))
    errors = expected_error(plan)
    return Price(plan, plan.cost, noises, risks, errors, tight, risks_above_limit(plan))
