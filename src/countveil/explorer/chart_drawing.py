"""The charts of the page: those of the report, for a plan and its settings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from countveil.assess.intruder.ladder import decision_risks, risk_by_level
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.whole_release import name_of
from countveil.assess.risk import Risk
from countveil.base.numerics import exact
from countveil.errors import PlanError
from countveil.estimate.plan_error import expected_error
from countveil.explorer.answers import (
    forget_laws,
    judged_evidence,
    judged_risks,
    priors_of,
    target_of,
)
from countveil.explorer.settings import Settings, changed
from countveil.plan.plans import Plan
from countveil.report import charts
from countveil.report.charts.chart import Chart

_STEPS = range(-8, 5)  # half powers of two around the middle rho


def draw(name: str, plan: Plan, settings: Settings) -> Chart:
    """Draw a chart of a plan with these settings."""
    chart = _FUNCTIONS[name](plan, settings)
    forget_laws()
    return chart


def _risk_by_rho(plan: Plan, settings: Settings) -> Chart:
    """Draw the risk at the judged level against rho; other rhos stay while the chosen one moves."""
    other = changed(plan, settings)
    chosen = other.cost.rho
    middle = Fraction(4) ** round(math.log(chosen, 4))
    swept = dict(_sweep(plan, replace(settings, amount=str(middle))))
    swept[chosen] = _risks(other, settings)
    rhos = sorted(swept)
    return charts.risk_by_rho(
        rhos,
        {
            Intruder(prior=prior): [swept[rho][number] for rho in rhos]
            for number, prior in enumerate(priors_of(other, settings))
        },
        chosen=chosen,
        delta=other.delta,
        limit=other.intruder.limit,
    )


@lru_cache(maxsize=16)
def _sweep(plan: Plan, settings: Settings) -> tuple[tuple[Fraction, tuple[Risk, ...]], ...]:
    """Return the risks around a rho, without those whose noise no plan allows."""
    risks = []
    for step in _STEPS:
        rho = Fraction(f"{float(exact(settings.amount)) * 2 ** (step / 2):.3g}")
        at = replace(settings, amount=str(rho))
        try:
            risks.append((rho, _risks(changed(plan, at), at)))
        except PlanError:
            continue
    return tuple(risks)


def _risks(plan: Plan, settings: Settings) -> tuple[Risk, ...]:
    return tuple(risk.as_risk("marginal risk") for risk in judged_risks(plan, settings))


def _intruders(plan: Plan, settings: Settings) -> Chart:
    other, prior = changed(plan, settings), settings.prior_value
    attack = name_of(**target_of(settings))
    there, away = decision_risks(other, judged_evidence(other, settings), prior, attack=attack)
    who = Intruder(prior=prior, rows=other.rows_per_person)
    return charts.two_hundred_intruders(who, there, away)


def _risk_by_level(plan: Plan, settings: Settings) -> Chart:
    other = changed(plan, settings)
    name = name_of(**target_of(settings))
    risks = risk_by_level(other, priors_of(other, settings), attack=name, invariants=True)
    return charts.risk_by_level(risks, limit=other.intruder.limit)


def _expected_error(plan: Plan, settings: Settings) -> Chart:
    return charts.expected_error(expected_error(changed(plan, settings)))


def _budget_allocation(plan: Plan, settings: Settings) -> Chart:
    return charts.budget_allocation(changed(plan, settings))


_FUNCTIONS: dict[str, Callable[[Plan, Settings], Chart]] = {
    "risk-by-rho": _risk_by_rho,
    "intruders": _intruders,
    "risk-by-level": _risk_by_level,
    "expected-error": _expected_error,
    "budget-allocation": _budget_allocation,
}
