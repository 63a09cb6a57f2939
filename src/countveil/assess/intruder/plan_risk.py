"""The risk of a plan before any record is read: what its noise lets an intruder learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from countveil.assess.intruder.attacks import is_settled, presence_by_prior
from countveil.plan.plans import Plan


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
    plan: Plan,
    priors: Sequence[float] | None = None,
    *,
    invariants: bool = False,
    levels: Sequence[str] | None = None,
) -> list[LevelRisk]:
    """Return the risk of the given levels for every prior; by default all that the plan has.

    The intruder knows everyone else in the unit. They see every query of that level, and with
    `invariants` also what is published exactly. The figures are marginal risk, posterior and
    probability of a correct decision from all of that together.
    """
    chosen = plan.intruder.priors if priors is None else priors
    risks = []
    for level in plan.measured_levels if levels is None else levels:
        settled = is_settled(plan, level)
        for prior, after, right in presence_by_prior(plan, level, chosen, invariants=invariants):
            risks.append(LevelRisk(level, prior, after / prior, after, right, settled))
    return risks


def judged(plan: Plan, risks: list[LevelRisk]) -> list[LevelRisk]:
    """Return the risks the plan's limit applies to: those of the level its intruder knows."""
    return [risk for risk in risks if risk.level == plan.judged_level]
