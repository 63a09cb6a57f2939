"""Risk and error of the same plan with smaller and larger budgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from countveil.assess.intruder.ladder import risk_by_level
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.risk import Risk
from countveil.assess.verdict import judge
from countveil.errors import PlanError
from countveil.estimate.plan_error import expected_error
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
    risks, decisions
        For each prior, the marginal risk and the probability of a correct decision, given everything
        that the plan publishes exactly.
    attacks
        For each prior, the attack that these risks are about: the one that reveals most.
    errors
        For each level, the standard error of a unit's total: 0 if it is published exactly, None if
        measurements do not determine it.
    chosen
        Whether this is the budget of the plan.

    """

    amount: str
    cost: str
    risks: tuple[float, ...]
    decisions: tuple[float, ...]
    attacks: tuple[str, ...]
    errors: tuple[float | None, ...]
    chosen: bool


@dataclass(frozen=True, slots=True)
class OtherBudgets:
    """Steps from the smallest budget to the largest, for the given priors and levels.

    `error_basis` says what the standard errors are of. `settled`: counts published exactly answer some
    attack at the judged level, at any budget.
    """

    currency: str
    priors: tuple[float, ...]
    levels: tuple[str, ...]
    steps: tuple[Step, ...]
    error_basis: str
    settled: bool = False

    @property
    def chosen(self) -> Step:
        """The budget of the plan itself."""
        return next(step for step in self.steps if step.chosen)

    def by_intruder(self, measure: str, rows: int) -> Mapping[Intruder, tuple[Risk, ...]]:
        """Return the "marginal risk" or "correct decision" of every step, by intruder."""
        risks = {}
        for number, prior in enumerate(self.priors):
            risks[Intruder(prior=prior, rows=rows)] = tuple(
                Risk(
                    measure,
                    (step.risks if measure == "marginal risk" else step.decisions)[number],
                    attack=step.attacks[number],
                )
                for step in self.steps
            )
        return risks


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
    >>> other_budgets(plan).chosen.risks  # doctest: +SKIP

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
    basis = expected_error(plan, (TOTAL,), geography=places)[0].basis_in_words
    return OtherBudgets(
        plan.cost.currency, priors, plan.measured_levels, tuple(steps), basis, settled
    )


def _step(plan: Plan, places: Geography | None, priors: tuple[float, ...], *, chosen: bool) -> Step:
    rungs = risk_by_level(
        plan, priors, invariants=True, levels=(plan.judged_level,), geography=places
    )
    totals = {
        item.level: 0.0 if item.as_counted else item.standard_error
        for item in expected_error(plan, (TOTAL,), geography=places)
    }
    return Step(
        str(plan.cost.amount),
        str(plan.cost),
        tuple(rung.marginal_risk for rung in rungs),
        tuple(rung.correct_decision for rung in rungs),
        tuple(rung.attack for rung in rungs),
        tuple(totals.get(level) for level in plan.measured_levels),
        chosen,
    )
