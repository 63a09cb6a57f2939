"""What other budgets would give: the same plan with more or less of everything, computed beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from countveil.assess.plan_error import expected_error
from countveil.assess.plan_risk import judged, risk_by_level
from countveil.privacy.costs import PureDP
from countveil.schema.plan import Plan

_TIMES = tuple(Fraction(2) ** power for power in range(-5, 5))


@dataclass(frozen=True, slots=True)
class Step:
    """One budget: its cost, the risk of each prior at the judged level, the error of each total."""

    amount: float
    cost: str
    risks: tuple[float, ...]
    errors: tuple[float | None, ...]
    chosen: bool


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Steps from the smallest budget to the largest; priors and levels name what they hold."""

    currency: str
    priors: tuple[float, ...]
    levels: tuple[str, ...]
    steps: tuple[Step, ...]


def what_if(plan: Plan) -> WhatIf:
    """Return risk and error of a plan whose budget is halved and doubled, some times over."""
    steps = []
    for times in _TIMES:
        other = _scaled(plan, times)
        risks = judged(other, risk_by_level(other))
        totals = {
            item.level: item.standard_deviation or item.standard_error
            for item in expected_error(other)
            if item.query == "TOTAL"
        }
        steps.append(
            Step(
                float(_amount(other)[1]),
                str(other.cost),
                tuple(item.marginal_risk for item in risks),
                tuple(totals.get(level) for level in plan.measured_levels),
                times == 1,
            )
        )
    return WhatIf(
        _amount(plan)[0],
        tuple(plan.intruder.priors),
        plan.measured_levels,
        tuple(steps),
    )


def _amount(plan: Plan) -> tuple[str, Fraction]:
    """Return the currency of a plan, and what it costs in it."""
    cost = plan.cost
    return ("epsilon", cost.epsilon) if isinstance(cost, PureDP) else ("rho", cost.rho)


def _scaled(plan: Plan, times: Fraction) -> Plan:
    """Return the plan with every share of a budget that is so many times as large."""
    currency, amount = _amount(plan)
    kept = {k: v for k, v in plan.document["budget"].items() if k not in ("rho", "epsilon")}
    budget = {**kept, currency: str(amount * times)}
    return Plan.of({**plan.document, "budget": budget}, folder=plan.folder, name=plan.name)
