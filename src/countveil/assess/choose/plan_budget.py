"""A budget for a whole plan: the largest within a limit on risk, or the smallest for an accuracy."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from scipy.special import ndtri

from countveil.assess.intruder.ladder import LevelRisk, judged, risk_by_level
from countveil.base.numerics import exact
from countveil.errors import InputError, PlanError
from countveil.estimate.plan_error import expected_error
from countveil.plan.budget import noise_is_gaussian
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan

_LEAST_VARIANCE = 0.5  # of the noise that a level is given more budget for

SIZE = 10_000
"""The count to which a percentage refers, unless one is named."""

_TARGET = re.compile(
    r"\s*(?P<level>\S+)\s+(?P<query>\S+)\s*(±|\+/-|\+-)\s*(?P<width>\d+(\.\d+)?)\s*(?P<percent>%)?"
    r"(\s+of\s+(?P<size>\d[\d,]*))?\s+at\s+(?P<confidence>\d+(\.\d+)?)\s*%\s*"
)

_DIGITS, _MOST_DIGITS = 4, 14  # significant digits of a chosen budget: as few as use up a limit
_MORE = Fraction(101, 100)
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
    free : tuple of str
        The levels whose budget can grow without breaking the limit, because little or nothing of it
        reaches the intruder.
    used_up : bool
        Whether one per cent more for any other level breaks the limit; False if there is no limit on
        risk, or if the most to spend is less.
    shares : dict of str to Fraction
        The shares of the levels, if they are not those of the plan.

    """

    plan: Plan
    costs: dict[str, Fraction]
    risks: tuple[LevelRisk, ...]
    ladder: tuple[LevelRisk, ...]
    settled: bool = False
    free: tuple[str, ...] = ()
    used_up: bool = False
    shares: dict[str, Fraction] = field(default_factory=dict)

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
    """Return the plan with the largest budget that keeps a limit on risk.

    An intruder knows everyone else in a unit of the level that the plan says, and sees the whole
    release. The limit is kept in every unit. The levels keep their shares until it is reached. It is
    then used up: more for any level that informs some intruder breaks it somewhere. So a level that
    says nothing to the intruder who learns most gets more, until another one learns as much.

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

    def at(other: Plan, *, invariants: bool, decisions: bool = True) -> list[LevelRisk]:
        return risk_by_level(
            other,
            priors,
            invariants=invariants,
            levels=(plan.judged_level,),
            attack=attack,
            geography=places,
            decisions=decisions,
        )

    settled = any(rung.settled for rung in at(plan, invariants=True, decisions=False))

    def keeps(other: Plan) -> bool:
        rungs = at(other, invariants=not settled, decisions=measure == "correct_decision")
        return all(getattr(rung, measure) <= limit for rung in rungs)

    search = _Search(plan, keeps)
    times, growth = _largest_times(search), None
    if total is None or times * plan.cost.amount <= total:
        growth = _used_up(search, times)
    else:
        times = total / plan.cost.amount
    largest = plan.with_budget(times * plan.cost.amount) if growth is None else growth.plan
    return ChosenPlan(
        largest,
        dict(largest.level_budgets),
        tuple(at(largest, invariants=not settled)),
        tuple(risk_by_level(largest, priors, invariants=True, attack=attack, geography=places)),
        settled,
        () if growth is None else growth.free,
        growth is not None,
        {} if growth is None else growth.shares,
    )


class _UsedUp(NamedTuple):
    """A plan that uses up a limit, the levels that could have more, and shares that were changed."""

    plan: Plan
    free: tuple[str, ...]
    shares: dict[str, Fraction]


@dataclass(frozen=True, eq=False, slots=True)
class _Search:
    """A plan, and whether a plan like it with other budgets keeps the limit."""

    plan: Plan
    limit_kept: Callable[[Plan], bool]

    def keeps(self, amounts: Mapping[str, Fraction]) -> bool:
        """Whether these budgets of the levels keep the limit."""
        try:
            other = self.plan.with_level_budgets(amounts)
        except PlanError:
            return False  # no plan may have noise this small, or this wide
        return self.limit_kept(other)

    def times(self, factor: Fraction) -> dict[str, Fraction]:
        """Return the plan's budgets, times a factor."""
        return {name: own * factor for name, own in self.plan.level_budgets.items()}

    def describable(self, amounts: Mapping[str, Fraction]) -> bool:
        """Whether all noise is wide enough to be worth the name."""
        try:
            other = self.plan.with_level_budgets(amounts)
        except PlanError:
            return False
        variances = [item.mechanism.gaussian_variance for item in other.allocations]
        return all(item is None or item >= _LEAST_VARIANCE for item in variances)


def _used_up(search: _Search, times: Fraction) -> _UsedUp:
    """Give more to levels that can have more; return the plan with the fewest digits that does."""
    amounts = search.times(times)
    free, more = [], False
    for level in amounts:
        if not search.keeps(_grown(amounts, level, _MORE)):
            continue
        factor = _largest_growth(search, amounts, level)
        if factor is None:
            free.append(level)
        else:
            amounts[level] *= few_digits(factor)
            more = True
    total = sum(amounts.values(), Fraction(0))
    left = [level for level in amounts if level not in free]
    for digits in range(_DIGITS, _MOST_DIGITS + 1):
        rounded = _rounded(search, amounts, total, digits)
        left = [level for level in left if search.keeps(_grown(rounded, level, _MORE))]
        if not left:
            break
    plan = search.plan.with_level_budgets(rounded)
    if not more:  # the shares are those of the plan, as it writes them
        plan = search.plan.with_budget(plan.cost.amount)
    shares = {level: own / total for level, own in amounts.items()} if more else {}
    return _UsedUp(plan, tuple(level for level in amounts if level in (*free, *left)), shares)


def _rounded(
    search: _Search, amounts: Mapping[str, Fraction], total: Fraction, digits: int
) -> dict[str, Fraction]:
    """Return budgets with the same shares of a total with few digits that keeps the limit."""
    short = few_digits(total, digits=digits)
    step = Fraction(10) ** (math.floor(math.log10(short)) - digits + 1)
    while True:
        rounded = {level: own * short / total for level, own in amounts.items()}
        if search.keeps(rounded):
            return rounded
        short -= step  # a risk is not smooth where noise is integer-valued and small


def _grown(amounts: Mapping[str, Fraction], level: str, factor: Fraction) -> dict[str, Fraction]:
    return {name: own * factor if name == level else own for name, own in amounts.items()}


def _largest_growth(
    search: _Search, amounts: Mapping[str, Fraction], level: str
) -> Fraction | None:
    """Return by how much a level can grow before the limit breaks; None if it never does.

    A level that only matters once its noise is almost nothing counts as one that never does.
    """
    low, high = Fraction(1), _MORE
    wide = search.describable(amounts)
    while search.keeps(_grown(amounts, level, high)):
        low, high = high, high * 2
        if high > _FARTHEST or (wide and not search.describable(_grown(amounts, level, high))):
            return None
    for _ in range(_HALVINGS):
        middle = Fraction(math.sqrt(low * high)).limit_denominator(10**12)
        low, high = (
            (middle, high) if search.keeps(_grown(amounts, level, middle)) else (low, middle)
        )
    return low


def _refuse_impossible(measure: str, limit: float) -> None:
    least = 1.0 if measure == "marginal_risk" else 0.0
    if not limit > least or (measure != "marginal_risk" and limit >= 1):
        allowed = "above 1" if measure == "marginal_risk" else "between 0 and 1"
        raise InputError(f"choose: a limit of {limit:g} is not possible; give one {allowed}")


def _largest_times(search: _Search) -> Fraction:
    """Return the largest factor of the whole budget that keeps the limit, by bisection."""

    def keeps(factor: Fraction) -> bool:
        return search.keeps(search.times(factor))

    low = high = Fraction(1)
    while keeps(high) and high < _FARTHEST:
        low, high = high, high * 8
    while not keeps(low):
        low, high = low / 8, low
        if low < Fraction(1, _FARTHEST):
            raise InputError("choose: no budget keeps this limit; raise it")
    if low == high or high >= _FARTHEST:
        raise InputError("choose: every budget keeps this limit; lower it")
    for _ in range(_HALVINGS):
        middle = Fraction(math.sqrt(low * high)).limit_denominator(10**15)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


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
        dict(candidate.level_budgets),
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


def few_digits(value: Fraction, *, digits: int = _DIGITS, up: bool = False) -> Fraction:
    """Return a number with few digits just below the value, or just above it."""
    places = digits - 1 - math.floor(math.log10(float(value)))
    scale = exact(10) ** places
    scaled = value * scale
    return Fraction(math.ceil(scaled) if up else math.floor(scaled)) / scale
