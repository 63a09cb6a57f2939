"""Risk and error of the same plan with smaller and larger budgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from countveil.assess.intruder.ladder import LevelRisk, risk_by_level
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.risk import Risk
from countveil.assess.verdict import judge
from countveil.base import words
from countveil.errors import PlanError
from countveil.estimate.plan_error import ExpectedError, expected_error
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.plan.workload import TOTAL

_UP = tuple(Fraction(times) for times in (1, "3/2", 2, 3, 4, 6, 8, 12, 16))
_TIMES = (*(1 / times for times in reversed(_UP[1:])), *_UP)


@dataclass(frozen=True, slots=True)
class Step:
    """One budget: its cost, the risk of each prior at the judged level, the error of each total.

    Attributes
    ----------
    amount, cost
        The budget in its currency, and the cost in words.
    risks
        For each prior, the risk given everything that the plan publishes exactly.
    errors
        For each measured level, the expected error of a unit's total.
    chosen
        Whether this is the budget of the plan.

    """

    amount: str
    cost: str
    risks: tuple[LevelRisk, ...]
    errors: tuple[ExpectedError, ...]
    chosen: bool


@dataclass(frozen=True, slots=True)
class OtherBudgets:
    """Steps from the smallest budget to the largest, for the given priors and levels.

    `limit` is the plan's own. `settled`: counts published exactly answer some attack at the judged
    level, at any budget.
    """

    currency: str
    priors: tuple[float, ...]
    levels: tuple[str, ...]
    steps: tuple[Step, ...]
    limit: float | None
    settled: bool = False

    @property
    def chosen(self) -> Step:
        """The budget of the plan itself."""
        return next(step for step in self.steps if step.chosen)

    @property
    def error_basis(self) -> str:
        """What the standard errors are of."""
        return self.chosen.errors[0].basis_in_words

    @property
    def document(self) -> dict[str, Any]:
        """The steps as a page shows them: its script chooses one and rounds nothing."""
        return {
            "priors": [words.prior(prior) for prior in self.priors],
            "steps": [
                {
                    "cost": step.cost,
                    "chosen": step.chosen,
                    "risks": [risk.times(limit=self.limit) for risk in step.risks],
                    "errors": [_shown(error) for error in step.errors],
                }
                for step in self.steps
            ],
        }

    def by_intruder(
        self, measure: Literal["marginal risk", "correct decision"], rows: int
    ) -> Mapping[Intruder, tuple[Risk, ...]]:
        """Return the "marginal risk" or "correct decision" of every step, by intruder."""
        return {
            Intruder(prior=prior, rows=rows): tuple(
                step.risks[number].as_risk(measure) for step in self.steps
            )
            for number, prior in enumerate(self.priors)
        }


def _shown(error: ExpectedError) -> str:
    if error.as_counted:
        return "0"
    return "none" if error.standard_error is None else words.brief(error.standard_error)


def other_budgets(plan: Plan, *, geography: Geography | None = None) -> OtherBudgets:
    """Compute risk and error of a plan with budgets from 1/16 to 16 times its own.

    Parameters
    ----------
    plan
        A plan of counts.
    geography
        Its places; by default those of its crosswalk, if it has one.

    Returns
    -------
    OtherBudgets
        One step per budget. Budgets that no plan may have are left out, because their noise would be
        too wide or would protect no one.

    Examples
    --------
    >>> other_budgets(plan).chosen.risks[0].marginal_risk  # doctest: +SKIP

    """
    priors = tuple(dict.fromkeys(plan.intruder.priors))
    places = plan.places() if geography is None else geography
    steps = []
    for times in _TIMES:
        try:
            other = plan if times == 1 else plan.with_budget(plan.cost.amount * times)
        except PlanError:
            continue
        steps.append(_step(other, places, priors, chosen=times == 1))
    settled = any(risk.settled for risk in judge(plan).risks)
    return OtherBudgets(
        *(plan.cost.currency, priors, plan.measured_levels, tuple(steps)),
        *(plan.intruder.limit, settled),
    )


def _step(plan: Plan, places: Geography | None, priors: tuple[float, ...], *, chosen: bool) -> Step:
    rungs = risk_by_level(
        plan, priors, invariants=True, levels=(plan.judged_level,), geography=places
    )
    errors = expected_error(plan, (TOTAL,), geography=places)
    return Step(str(plan.cost.amount), str(plan.cost), tuple(rungs), errors, chosen)
