"""The risk of a plan before any record is read: what its noise lets an intruder learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from countveil.assess.attacks import is_settled, presence_by_prior
from countveil.schema.plan import Plan


@dataclass(frozen=True, slots=True)
class LevelRisk:
    """One intruder at one level, who knows everyone else there and sees all its queries.

    His target has as many rows as the plan allows a person. `settled`: what is published as counted
    tells him all, whatever the noise; the numbers are of that if it was to be counted in.
    """

    level: str
    prior: float
    marginal_risk: float
    posterior: float
    correct_decision: float
    settled: bool = False


def risk_by_level(
    plan: Plan, priors: Sequence[float] | None = None, *, invariants: bool = False
) -> list[LevelRisk]:
    """Return the risk of every level for every prior, those of the plan if not said.

    He knows all others in the unit; he sees every query of that level, and with `invariants` also what
    is published as counted; the numbers are marginal risk, posterior and probability of a correct
    decision from all of that together.
    """
    asked = plan.intruder.priors if priors is None else priors
    risks = []
    for level in plan.measured_levels:
        settled = is_settled(plan, level)
        for prior, after, right in presence_by_prior(plan, level, asked, invariants=invariants):
            risks.append(LevelRisk(level, prior, after / prior, after, right, settled))
    return risks


def judged(plan: Plan, risks: list[LevelRisk]) -> list[LevelRisk]:
    """Return the risks the plan's limit applies to: those of the level its intruder knows."""
    return [risk for risk in risks if risk.level == plan.judged_level]


def risks_above_limit(plan: Plan) -> tuple[LevelRisk, ...]:
    """Return the risks that pass the plan's own limit, what is published as counted included."""
    limit = plan.intruder.limit
    if limit is None:
        return ()
    risks = judged(plan, risk_by_level(plan, invariants=True))
    return tuple(risk for risk in risks if risk.marginal_risk > limit)
