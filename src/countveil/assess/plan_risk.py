"""The risk of a plan before any record is read: what its noise lets an intruder learn."""

from __future__ import annotations

from dataclasses import dataclass

from countveil.assess.intruder import Intruder
from countveil.assess.one_level import correct_decision, marginal_risk
from countveil.measure.strategy import mechanism_for
from countveil.mechanisms.law import Mechanism
from countveil.schema.plan import Plan


@dataclass(frozen=True, slots=True)
class LevelRisk:
    """One intruder at one level, who knows everyone else there and sees all its queries.

    His target has as many rows as the plan allows a person.
    """

    level: str
    prior: float
    marginal_risk: float
    posterior: float
    correct_decision: float


def risk_by_level(plan: Plan) -> list[LevelRisk]:
    """Return the risk of every level for every prior of the plan.

    He knows all others in the unit; he sees every query of that level; the numbers are the marginal
    risk and posterior from all queries together, and the probability of a correct decision from the
    query with the least noise.
    """
    risks = []
    for level in plan.levels:
        noises: list[Mechanism] = [mechanism_for(item) for item in plan.at(level)]
        if not noises:
            continue
        quietest = min(noises, key=lambda noise: noise.variance)
        for prior in plan.intruder.priors:
            who = Intruder(prior=prior, rows=plan.rows_per_person)
            risk = marginal_risk(noises, intruder=who)
            decision = correct_decision(quietest, intruder=who).value
            after = risk.posterior if risk.posterior is not None else prior
            risks.append(LevelRisk(level, prior, float(risk.value), float(after), float(decision)))
    return risks


def judged(plan: Plan, risks: list[LevelRisk]) -> list[LevelRisk]:
    """Return the risks the plan's limit applies to: those of the level its intruder knows."""
    return [risk for risk in risks if risk.level == plan.judged_level]
