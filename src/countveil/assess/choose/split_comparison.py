"""What the split of a budget wastes: error against risk, as it is and as well as it can be."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from countveil.assess.choose.optimal_split import (
    BestSplit,
    best_split,
    errors_of_targets,
    worst_rung,
)
from countveil.assess.intruder.ladder import LevelRisk
from countveil.errors import PlanError
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.tree.tree_shape import tree_of

_ADJUSTMENTS = 3
_TIMES = tuple(Fraction(times) for times in ("1/8", "1/4", "1/2", 1, 2, 4, 8))


@dataclass(frozen=True, slots=True)
class SplitPoint:
    """A budget: the error of the tables that matter, and the largest risk over the plan's priors.

    Attributes
    ----------
    rho
        The budget.
    error
        The root of the weighted sum of the tables' mean squared errors, in units of their margins or
        of today's errors.
    risk
        The largest risk for someone who knows everyone else in a unit of the plan's level, as
        `worst_rung` returns it.

    """

    rho: float
    error: float
    risk: LevelRisk


@dataclass(frozen=True, eq=False, slots=True)
class SplitComparison:
    """A plan's split of its budget next to the best one, at several budgets.

    Attributes
    ----------
    best : BestSplit
        The best split of the plan's budget for the tables that matter.
    now, then : tuple of SplitPoint
        Budgets from an eighth to eight times the plan's own, split as it is and split best. `now` is
        empty if today's queries do not determine every table that matters.
    own, chosen : SplitPoint
        The plan as it is (None if its queries do not determine every table), and the best plan.
    same_error : SplitPoint, optional
        The best split with the budget at which it is as accurate as the plan is now.

    """

    best: BestSplit
    now: tuple[SplitPoint, ...]
    then: tuple[SplitPoint, ...]
    own: SplitPoint | None
    chosen: SplitPoint
    same_error: SplitPoint | None

    @property
    def wasted(self) -> float | None:
        """The share of the budget without which the best split is as accurate as the plan is now."""
        if self.own is None or self.same_error is None:
            return None
        return 1 - self.same_error.rho / self.own.rho


def compare_splits(plan: Plan, *, geography: Geography | None = None) -> SplitComparison:
    """Compare the split of a plan's budget with the best one for the tables that it names.

    Parameters
    ----------
    plan : Plan
        A plan in rho with `targets`.
    geography : Geography, optional
        The places; by default those of the plan's crosswalk.

    Returns
    -------
    SplitComparison
        Both splits at several budgets. No record is read.

    Examples
    --------
    >>> compare_splits(plan).wasted  # doctest: +SKIP

    """
    best = best_split(plan, plan.targets, geography=geography)
    places = plan.places() if geography is None else geography
    assert places is not None  # or the split would have been refused
    tree = tree_of(places)
    today = errors_of_targets(plan, plan.targets, tree)
    units = [target.standard_error or now for target, now in zip(plan.targets, today, strict=True)]

    def error(split: Plan) -> float:
        errors = errors_of_targets(split, plan.targets, tree)
        parts = zip(plan.targets, errors, units, strict=True)
        return math.sqrt(sum(target.weight * (item / unit) ** 2 for target, item, unit in parts))

    def point(split: Plan) -> SplitPoint:
        risk = worst_rung(split, plan.judged_level, geography=places)
        return SplitPoint(float(split.cost.rho), error(split), risk)

    def points(split: Plan) -> tuple[SplitPoint, ...]:
        result = []
        for times in _TIMES:
            try:
                result.append(point(split.with_budget(plan.cost.rho * times)))
            except PlanError:  # noise that no plan may have
                continue
        return tuple(result)

    if not all(map(math.isfinite, today)):
        return SplitComparison(best, (), points(best.plan), None, point(best.plan), None)
    own, chosen = point(plan), point(best.plan)
    # Squared errors are close to inverse in the budget: the noise is discrete.
    same = best.plan
    for _ in range(_ADJUSTMENTS):
        times = Fraction((error(same) / own.error) ** 2).limit_denominator(10**9)
        same = same.with_budget(same.cost.rho * times)
    return SplitComparison(best, points(plan), points(best.plan), own, chosen, point(same))
