"""A budget for a whole plan: the largest within a limit on risk, or the smallest for an accuracy."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from scipy.special import ndtri

from countveil.assess.intruder.ladder import LevelRisk, judged, risk_by_level
from countveil.base.numerics import exact
from countveil.errors import InputError, PlanError
from countveil.estimate.plan_error import expected_error
from countveil.plan.budget import noise_is_gaussian
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan

SIZE = 10_000
"""The count to which a percentage refers, unless one is named."""

_TARGET = re.compile(
    r"\s*(?P<level>\S+)\s+(?P<query>\S+)\s*(±|\+/-|\+-)\s*(?P<width>\d+(\.\d+)?)\s*(?P<percent>%)?"
    r"(\s+of\s+(?P<size>\d[\d,]*))?\s+at\s+(?P<confidence>\d+(\.\d+)?)\s*%\s*"
)

_DIGITS = 4  # significant digits of a chosen budget
_HALVINGS = 40
_FARTHEST = 10**9  # times the plan's own budget


@dataclass(frozen=True, slots=True)
class ChosenPlan:
    """A plan with another budget, and what it then risks.

    Attributes
    ----------
    plan : Plan
        The plan with its new budget.
    costs : dict of str to Fraction
        What each level spends, in the plan's currency.
    risks : tuple of LevelRisk
        For each prior, the risk that was limited: at the level that the intruder knows, from noisy
        counts alone if what is published exactly settles the matter.
    ladder : tuple of LevelRisk
        The same for every level, with what is published exactly.
    settled : bool
        Whether what is published exactly gives the answer to these attacks at any budget. `judge` says
        whether the plan keeps its own limit.

    """

    plan: Plan
    costs: dict[str, Fraction]
    risks: tuple[LevelRisk, ...]
    ladder: tuple[LevelRisk, ...]
    settled: bool = False

    @property
    def total(self) -> Fraction:
        """What all levels spend."""
        return self.plan.cost.amount

    @property
    def currency(self) -> str:
        """What the budget is in: rho or epsilon."""
        return self.plan.cost.currency


@dataclass(frozen=True, slots=True)
class AccuracyTarget:
    """The accuracy that is needed for a query of a level.

    Attributes
    ----------
    level, query : str
        What is counted.
    half_width : float
        The margin of error, in people.
    confidence : float
        The confidence at which the count must be within it.
    size : int or None
        The count to which a percentage referred; None if none was named.
    """

    level: str
    query: str
    half_width: float
    confidence: float
    size: int | None = None

    @classmethod
    def parse(cls, text: str) -> AccuracyTarget:
        """Return the target that a text names.

        Parameters
        ----------
        text : str
            Such as "county TOTAL ±50 at 95%" or "county TOTAL ±1% of 20,000 at 95%".

        Returns
        -------
        AccuracyTarget
            With the half-width in people.

        Examples
        --------
        >>> AccuracyTarget.parse("county TOTAL ±1% of 20,000 at 95%").half_width
        200.0
        """
        parts = _TARGET.fullmatch(text)
        if parts is None:
            raise InputError(
                f'accuracy: {text!r} is not understood; write it like "county TOTAL ±50 at 95%" or '
                f'"county TOTAL ±1% of 20,000 at 95%"'
            )
        confidence = float(parts["confidence"]) / 100
        width = float(parts["width"])
        size = int(parts["size"].replace(",", "")) if parts["size"] else None
        if parts["percent"]:
            size = SIZE if size is None else size
            width *= size / 100
        elif size is not None:
            raise InputError(
                "accuracy: 'of' belongs to a percentage; write ±N for a number of people, or ±N% "
                "of a count"
            )
        if not 0 < confidence < 1 or width <= 0:
            raise InputError("accuracy: give a width above 0 and a confidence between 0 and 100 %")
        return cls(parts["level"], parts["query"], width, confidence, size)


def within_risk(
    plan: Plan,
    *,
    risk: float | None = None,
    posterior: float | None = None,
    correct: float | None = None,
    prior: float | Sequence[float] | None = None,
    attack: str | None = None,
    geography: Geography | None = None,
    total: Fraction | None = None,
) -> ChosenPlan:
    """Return the plan with the largest budget that keeps a limit on risk; shares stay as they are.

    An intruder knows everyone else in a unit of the level that the plan says, and sees the whole
    release. The limit is kept in every unit. It is used up: more for any level that informs them would
    break it somewhere.

    Parameters
    ----------
    plan : Plan
        The plan, with a budget in rho or epsilon.
    risk, posterior, correct : float
        Exactly one of them: a limit on R, their expected posterior over the prior; on the expected
        posterior; or on how often they guess the truth. What is published exactly is left out if it
        settles the matter, because no budget changes that.
    prior : float or sequence of float, optional
        Their prior, or several that must all keep the limit; those of the plan by default.
    attack : str, optional
        One attack, such as "presence" or "unknown attribute: AGE"; the worst of all by default.
    geography : Geography, optional
        The places; by default those of the plan's crosswalk.
    total : Fraction, optional
        The most to spend, in the plan's currency.

    Returns
    -------
    ChosenPlan
        The plan with its new budget, and what it risks.

    """
    stated_limits = {"marginal_risk": risk, "posterior": posterior, "correct_decision": correct}
    limits = {name: value for name, value in stated_limits.items() if value is not None}
    if len(limits) != 1:
        raise InputError("choose: give one of risk, posterior and correct")
    ((measure, limit),) = limits.items()
    _refuse_impossible(measure, limit)
    if prior is None:
        priors = list(plan.intruder.priors)
    else:
        priors = [float(prior)] if isinstance(prior, int | float) else list(prior)
    if measure == "marginal_risk" and limit >= 1 / min(priors):
        raise InputError("choose: every budget keeps this limit; lower it")
    places = plan.places() if geography is None else geography

    def at(other: Plan, *, invariants: bool) -> list[LevelRisk]:
        return risk_by_level(
            other,
            priors,
            invariants=invariants,
            levels=(plan.judged_level,),
            attack=attack,
            geography=places,
        )

    def rungs(other: Plan) -> list[LevelRisk]:
        exact_rungs = at(other, invariants=True)
        settled = any(rung.settled for rung in exact_rungs)
        return at(other, invariants=False) if settled else exact_rungs

    def keeps(amount: Fraction) -> bool:
        try:
            other = plan.with_budget(amount)
        except PlanError:
            return False  # no plan may have noise this small, or this wide
        return all(getattr(rung, measure) <= limit for rung in rungs(other))

    most = _largest_amount(keeps, plan.cost.amount)
    if total is not None:
        most = min(most, total)
    largest = plan.with_budget(most)
    return ChosenPlan(
        largest,
        {level: _spent_at(largest, level) for level in largest.measured_levels},
        tuple(rungs(largest)),
        tuple(risk_by_level(largest, priors, invariants=True, attack=attack, geography=places)),
        any(rung.settled for rung in at(largest, invariants=True)),
    )


def _refuse_impossible(measure: str, limit: float) -> None:
    least = 1.0 if measure == "marginal_risk" else 0.0
    if not limit > least or (measure != "marginal_risk" and limit >= 1):
        allowed = "above 1" if measure == "marginal_risk" else "between 0 and 1"
        raise InputError(f"choose: a limit of {limit:g} is not possible; give one {allowed}")


def _largest_amount(keeps: Callable[[Fraction], bool], start: Fraction) -> Fraction:
    """Return the largest budget with few digits that keeps the limit, found by bisection."""
    low, high = start, start
    while keeps(high) and high < start * _FARTHEST:
        low, high = high, high * 8
    while not keeps(low):
        low, high = low / 8, low
        if low < start / _FARTHEST:
            raise InputError("choose: no budget keeps this limit; raise it")
    if low == high or high >= start * _FARTHEST:
        raise InputError("choose: every budget keeps this limit; lower it")
    for _ in range(_HALVINGS):
        middle = Fraction(math.sqrt(low * high)).limit_denominator(10**15)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    amount = few_digits(low)
    step = Fraction(10) ** (math.floor(math.log10(amount)) - _DIGITS + 1)
    while not keeps(amount):
        amount -= step  # a risk is not smooth where noise is integer-valued and small
    return amount


def within_accuracy(plan: Plan, target: AccuracyTarget) -> ChosenPlan:
    """Return the plan with the smallest rho that reaches an accuracy; levels and queries keep shares.

    The standard error is that of the best unbiased estimate from all measurements; the interval is
    normal.

    Parameters
    ----------
    plan : Plan
        The plan, with a budget in rho.
    target : AccuracyTarget
        Which count is needed how accurately.

    Returns
    -------
    ChosenPlan
        The plan with its new budget, and what it risks.
    """
    _refuse_other_costs(plan)
    if target.level not in plan.measured_levels:
        raise InputError(
            f"accuracy: no measured level {target.level!r}; choose from "
            f"{', '.join(plan.measured_levels)}"
        )
    needed = target.half_width / float(ndtri((1 + target.confidence) / 2))
    scale = Fraction((_standard_error(plan, target) / needed) ** 2)
    # The variance of a discrete Gaussian is not quite 1/(2 rho): search a little further.
    for _ in range(60):
        candidate = plan.with_budget(few_digits(plan.cost.amount * scale, up=True))
        error = _standard_error(candidate, target)
        if error <= needed:
            break
        scale *= max(Fraction((error / needed) ** 2), Fraction(1_000_001, 1_000_000))
    rungs = risk_by_level(candidate, invariants=True)
    own = tuple(judged(candidate, rungs))
    return ChosenPlan(
        candidate,
        {level: _spent_at(candidate, level) for level in candidate.measured_levels},
        own,
        tuple(rungs),
        any(rung.settled for rung in own),
    )


def _refuse_other_costs(plan: Plan) -> None:
    if plan.cost.currency != "rho":
        raise InputError(
            "plan: budgets are chosen in rho, and this one is in epsilon; give it in rho"
        )
    if not noise_is_gaussian(plan.allocations):
        name = plan.allocations[0].mechanism.name
        raise InputError(
            f"plan: its noise is {name}, and budgets are chosen for discrete Gaussian noise; remove "
            f"budget.mechanism"
        )


def _standard_error(plan: Plan, target: AccuracyTarget) -> float:
    for item in expected_error(plan):
        if item.level == target.level and item.query == target.query:
            if item.as_counted:
                raise InputError(
                    f"accuracy: {target.query} of {target.level} is published exactly, regardless of "
                    f"the budget; name a count that has noise"
                )
            if item.standard_error is None:
                raise InputError(
                    f"accuracy: the queries of {target.level} do not determine {target.query}; add "
                    f"a query that does"
                )
            return item.standard_error
    names = sorted({item.query for item in expected_error(plan) if item.level == target.level})
    raise InputError(
        f"accuracy: no query {target.query!r} is measured at {target.level}; choose from "
        f"{', '.join(names)}"
    )


def _spent_at(plan: Plan, level: str) -> Fraction:
    """Return what a level spends, in the plan's currency."""
    return sum((item.cost.amount for item in plan.at(level)), Fraction(0))


def few_digits(value: Fraction, *, up: bool = False) -> Fraction:
    """Return a number with few digits just below the value, or just above it."""
    places = _DIGITS - 1 - math.floor(math.log10(float(value)))
    scale = exact(10) ** places
    scaled = value * scale
    return Fraction(math.ceil(scaled) if up else math.floor(scaled)) / scale
