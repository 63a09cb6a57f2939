"""The risk of a plan before any record is read: what its noise lets an intruder learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from countveil.assess.intruder.attacks import is_settled, presence_by_prior
from countveil.plan.plans import Plan


@dataclass(frozen=True, slots=True)
class LevelRisk:
    """What an intruder learns who knows everyone else in a unit of a level and sees all its queries.

    The target has as many rows as the plan allows a person. Where `settled`, counts published exactly
    reveal whether the target is there, regardless of the noise; the numbers reflect that only if
    `risk_by_level` was called with `invariants=True`.
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
    """Return the presence risk of a plan by level and prior; read no record.

    The intruder knows everyone else in a unit. They see every query of its level.

    Parameters
    ----------
    plan : Plan
        The plan whose noise is assessed.
    priors : sequence of float, optional
        The intruder's probabilities that the target is there; the plan's priors by default.
    invariants : bool
        Whether they also see what the plan publishes exactly.
    levels : sequence of str, optional
        The levels to assess; all measured levels by default.

    Returns
    -------
    list of LevelRisk
        Marginal risk, expected posterior and probability of a correct decision, for each level and
        prior.
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
