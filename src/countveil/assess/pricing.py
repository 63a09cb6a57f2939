"""What a plan costs and risks, and how far off its counts will be, from the plan alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from countveil.assess.intruder.ladder import LevelRisk, risk_by_level
from countveil.assess.verdict import Verdict, judge
from countveil.estimate.plan_error import ExpectedError, expected_error
from countveil.noise.law import Mechanism
from countveil.plan.budget import Allocation
from countveil.plan.plans import Plan
from countveil.privacy.costs import Cost
from countveil.privacy.loss_distribution import LossyQuery, tight_epsilon


class QueryNoise(NamedTuple):
    """The budget of one query, and the noise that it buys."""

    allocation: Allocation
    mechanism: Mechanism


@dataclass(frozen=True, slots=True)
class Price:
    """What a plan costs, how noisy it is, and what it lets an intruder learn; no record was read.

    `risks` and `verdict` are those of someone who sees the whole release, with what is published
    exactly.
    `tight_epsilon` is None for plans in epsilon.
    """

    plan: Plan
    cost: Cost
    noises: tuple[QueryNoise, ...]
    risks: tuple[LevelRisk, ...]
    errors: tuple[ExpectedError, ...]
    tight_epsilon: float | None
    verdict: Verdict


def price(plan: Plan) -> Price:
    """Return what a plan costs, how noisy it is and what it risks; read no record.

    Parameters
    ----------
    plan : Plan
        The plan to price.

    Returns
    -------
    Price
        Cost, noise, risks, expected errors and the verdict.
    """
    noises = tuple(QueryNoise(item, item.mechanism) for item in plan.allocations)
    tight = None
    if plan.cost.currency == "rho":
        tight = tight_epsilon(
            [_loss_of(item, plan) for item in plan.allocations], float(plan.delta)
        )
    risks = tuple(risk_by_level(plan, invariants=True))
    errors = expected_error(plan)
    return Price(plan, plan.cost, noises, risks, errors, tight, judge(plan))


def _loss_of(item: Allocation, plan: Plan) -> LossyQuery:
    """Return the privacy loss of a query, once for each cell that one person changes."""
    # Adding or removing a person changes one cell by their rows; changing one changes a second too.
    rows, cells = plan.rows_per_person, 2 if plan.neighbors == "change-one" else 1
    delta = partial(item.mechanism.hockey_stick, shift=rows)
    return LossyQuery(delta, float(item.cost.rho) / cells, cells)
