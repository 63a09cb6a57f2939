"""A budget for a whole plan: the largest within a limit on risk, or the smallest for an accuracy."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from scipy.special import ndtri

from countveil.assess.intruder import attacks
from countveil.assess.intruder.joint_precision import WITHOUT_LIMIT
from countveil.assess.intruder.one_level import marginal_risk
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.targets import Attack
from countveil.base.numerics import exact
from countveil.errors import InputError
from countveil.estimate.plan_error import expected_error
from countveil.noise.discrete_gaussian import DiscreteGaussian
from countveil.plan.budget import Allocation, noise_is_gaussian
from countveil.plan.plans import Plan
from countveil.privacy.costs import ZCDP

Siblings = Mapping[str, int]
"""How many siblings a unit has at each level below the top."""

SIZE = 10_000
"""The count to which a percentage refers, unless one is named."""

_TARGET = re.compile(
    r"\s*(?P<level>\S+)\s+(?P<query>\S+)\s*(±|\+/-|\+-)\s*(?P<width>\d+(\.\d+)?)\s*(?P<percent>%)?"
    r"(\s+of\s+(?P<size>\d[\d,]*))?\s+at\s+(?P<confidence>\d+(\.\d+)?)\s*%\s*"
)

_DIGITS = 10  # significant digits of a chosen rho
_HALVINGS = 40
_SMALLEST, _LARGEST = 1e-6, 1e3
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class ChosenPlan:
    """A plan with another budget, and what it then risks.

    Attributes
    ----------
    plan : Plan
        The plan with its new budget.
    rho : dict of str to Fraction
        What each level spends.
    risks : dict of str to float
        R of each level: the expected posterior over the prior.
    effective : dict of str to float
        The effective rho of each level.
    settled : tuple of str
        The levels at which what is published exactly reveals the answer, in some units or in all. No
        budget changes that; their entry in `risks` is for what remains open.
    """

    plan: Plan
    rho: dict[str, Fraction]
    risks: dict[str, float]
    effective: dict[str, float]
    settled: tuple[str, ...] = ()

    @property
    def total(self) -> Fraction:
        """The rho of all levels."""
        return sum(self.rho.values(), Fraction(0))


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
    risk: float,
    prior: float | Sequence[float],
    attack: Attack = "presence",
    attribute: str | None = None,
    siblings: Siblings | Sequence[Siblings] | None = None,
    total: Fraction | None = None,
) -> ChosenPlan:
    """Return the plan with as much rho at each level as a limit on risk allows, for the least error.

    At each level an intruder knows everyone else in a unit and sees all queries of the level. R, their
    expected posterior over their prior, stays within `risk`. Queries keep their shares of a level. Each
    level first gets what it could have alone; if that is too much for someone who sees several levels,
    all are reduced in proportion, and what remains goes to the levels from the lowest up.

    Parameters
    ----------
    plan : Plan
        The plan, with a budget in rho.
    risk : float
        The limit on R, except where exact publication settles the matter, which no budget changes.
    prior : float or sequence of float
        The intruder's prior, or several that must all keep the limit.
    attack, attribute
        What they want to find out, as for `attacks.marginal_risk`.
    siblings : mapping of level to int, or several, optional
        How many siblings a unit has at each level below the top. With it, they also see the levels
        above and what is published exactly there. Of several, as `fewest_siblings` lists them, the
        worst counts.
    total : Fraction, optional
        A limit on the rho of all levels, spent where it reduces the error of the levels' totals most.

    Returns
    -------
    ChosenPlan
        The plan with its new budget, and what it risks.
    """
    _refuse_other_costs(plan)
    priors = [float(prior)] if isinstance(prior, int | float) else [float(p) for p in prior]
    families: Sequence[Siblings | None] = (
        [siblings] if siblings is None or isinstance(siblings, Mapping) else siblings
    )
    search = RiskSearch(plan, attack, attribute, tuple(priors), risk)
    rho = search.largest(families)
    if total is not None and sum(rho.values()) > total:
        rho = _shared(plan, rho, total)
    chosen = with_rho(plan, rho)
    risks = {level: search.worst(chosen, level, families) for level in plan.measured_levels}
    effective = {
        level: float(
            attacks.effective_rho(chosen, attack=attack, attribute=attribute, level=level).value
        )
        for level in plan.measured_levels
    }
    settled = [level for level in plan.measured_levels if search.settled(chosen, level, families)]
    return ChosenPlan(chosen, rho, risks, effective, tuple(settled))


def within_accuracy(plan: Plan, target: AccuracyTarget) -> ChosenPlan:
    """Return the plan with the smallest rho that reaches an accuracy; levels and queries keep shares.

    The standard error is that of the estimate from all queries of the level, before post-processing;
    the interval is normal.

    Parameters
    ----------
    plan : Plan
        The plan, with a budget in rho.
    target : AccuracyTarget
        Which count is needed how accurately.

    Returns
    -------
    ChosenPlan
        The plan with its new budget, and what it risks for the presence attack.
    """
    _refuse_other_costs(plan)
    if target.level not in plan.measured_levels:
        raise InputError(
            f"accuracy: no measured level {target.level!r}; choose from "
            f"{', '.join(plan.measured_levels)}"
        )
    needed = target.half_width / float(ndtri((1 + target.confidence) / 2))
    rho = {level: own_rho(plan, level) for level in plan.measured_levels}
    scale = Fraction((_standard_error(plan, target) / needed) ** 2)
    # The variance of a discrete Gaussian is not quite 1/(2 rho): search a little further.
    for _ in range(60):
        scaled = {level: short(value * scale, up=True) for level, value in rho.items()}
        chosen = with_rho(plan, scaled)
        error = _standard_error(chosen, target)
        if error <= needed:
            break
        scale *= max(Fraction((error / needed) ** 2), Fraction(1_000_001, 1_000_000))
    risks = {
        level: max(
            float(
                attacks.marginal_risk(
                    chosen, attack="presence", prior=p, level=level, invariants=False
                ).value
            )
            for p in plan.intruder.priors
        )
        for level in plan.measured_levels
    }
    effective = {
        level: float(attacks.effective_rho(chosen, attack="presence", level=level).value)
        for level in plan.measured_levels
    }
    return ChosenPlan(chosen, scaled, risks, effective)


def _refuse_other_costs(plan: Plan) -> None:
    if not isinstance(plan.cost, ZCDP):
        raise InputError(
            "plan: its budget is in epsilon, and budgets are chosen for plans in rho; give it in rho"
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


def _shared(plan: Plan, most: dict[str, Fraction], total: Fraction) -> dict[str, Fraction]:
    """Share a total so that Σ a_l/rho_l is smallest, a_l the squared error of the level's TOTAL.

    A level whose TOTAL is published exactly still has other counts: it gets as much as the smallest of
    the others.
    """
    errors = {item.level: item for item in expected_error(plan) if item.query == "TOTAL"}
    own = {level: float(own_rho(plan, level)) for level in most}
    pull = {
        level: (errors[level].standard_error or 1.0) * math.sqrt(own[level])
        for level in most
        if not errors[level].as_counted
    }
    pull = {level: pull.get(level, min(pull.values(), default=1.0)) for level in most}
    left, free = total, dict(pull)
    rho: dict[str, Fraction] = {}
    while free:
        whole = sum(free.values())
        full = [level for level in free if left * Fraction(free[level] / whole) >= most[level]]
        if not full:
            rho |= {level: short(left * Fraction(value / whole)) for level, value in free.items()}
            break
        for level in full:
            rho[level] = most[level]
            left -= most[level]
            del free[level]
    return {level: rho[level] for level in most}


@dataclass(frozen=True, slots=True)
class RiskSearch:
    """A search for the largest rho of all levels at which R stays within a limit."""

    plan: Plan
    attack: Attack
    attribute: str | None
    priors: tuple[float, ...]
    limit: float

    def largest(self, families: Sequence[Siblings | None]) -> dict[str, Fraction]:
        """Return the rho of each level, searched with one family and then also with the worst ones."""
        alone, tried = self._alone(), [families[0]]
        while True:
            rho = self._together(alone, tried)
            trial = with_rho(self.plan, rho)
            more = [
                family
                for level in rho
                if self.worst(trial, level, families) > self.limit
                for family in self._most_revealing(trial, level, families)
                if family not in tried
            ]
            if not more:
                return rho
            tried.append(more[0])

    def _most_revealing(
        self, plan: Plan, level: str, families: Sequence[Siblings | None]
    ) -> Sequence[Siblings]:
        """Return the family in which most is revealed about a unit; nothing without families."""
        known = [family for family in families if family is not None]
        rho = [self._evidence(plan, level, family)[0] for family in known]
        return [known[rho.index(max(rho))]] if known else []

    def _alone(self) -> dict[str, Fraction]:
        """Return what each level could have if it were the only one.

        A level that reveals nothing to the attack keeps its rho.
        """
        own = {level: own_rho(self.plan, level) for level in self.plan.measured_levels}
        alone = dict(own)
        for level in own:

            def keeps(value: float, level: str = level) -> bool:
                trial = with_rho(self.plan, {**own, level: short(Fraction(value))})
                return self._own(trial, level) <= self.limit

            if self._own(self.plan, level) > 1 + _ROUNDING:
                high = _SMALLEST
                while high < _LARGEST and keeps(high):
                    high *= 8
                alone[level] = short(Fraction(_largest(keeps, high)))
        return alone

    def _together(
        self, alone: dict[str, Fraction], families: Sequence[Siblings | None]
    ) -> dict[str, Fraction]:
        """Return as much of that as all can have at once: in proportion, then from the lowest up."""
        revealing = [level for level in alone if self._own(self.plan, level) > 1 + _ROUNDING]

        def shared(part: float) -> dict[str, Fraction]:
            less = {level: short(alone[level] * Fraction(part)) for level in revealing}
            return {**alone, **less}

        if not revealing or self._keep(alone, revealing, families):
            return alone
        rho = shared(_largest(lambda part: self._keep(shared(part), revealing, families), 1.0))
        for number in range(len(revealing) - 1, -1, -1):
            rho = self._raised(rho, alone, revealing[number:], families)
        return rho

    def _raised(
        self,
        rho: dict[str, Fraction],
        alone: dict[str, Fraction],
        levels: Sequence[str],
        families: Sequence[Siblings | None],
    ) -> dict[str, Fraction]:
        """Give the first of some levels as much as it and those below it, the others, can have."""
        level = levels[0]

        def raised(value: float) -> dict[str, Fraction]:
            return {**rho, level: max(rho[level], short(Fraction(value)))}

        def keeps(value: float) -> bool:
            return self._keep(raised(value), levels, families)

        return raised(_largest(keeps, float(alone[level]), float(rho[level])))

    def _keep(
        self,
        rho: dict[str, Fraction],
        levels: Sequence[str],
        families: Sequence[Siblings | None],
    ) -> bool:
        """Return whether intruders at all of these levels stay within the limit."""
        trial = with_rho(self.plan, rho)
        return all(self.worst(trial, level, families) <= self.limit for level in levels)

    def worst(self, plan: Plan, level: str, families: Sequence[Siblings | None]) -> float:
        """Return the worst R of an intruder at a level; with levels above, by their effective rho."""
        own = self._own(plan, level)
        known = [family for family in families if family is not None]
        if not known:
            return own
        rho = max(self._evidence(plan, level, family)[0] for family in known)
        one = DiscreteGaussian.from_rho(Fraction(rho))
        above = (marginal_risk(one, intruder=Intruder(prior=prior)).value for prior in self.priors)
        return max(own, *map(float, above))

    def _own(self, plan: Plan, level: str) -> float:
        """Return the worst R over the priors, from noisy counts of the level alone."""
        return max(
            float(
                attacks.marginal_risk(
                    plan,
                    attack=self.attack,
                    attribute=self.attribute,
                    level=level,
                    prior=prior,
                    invariants=False,
                ).value
            )
            for prior in self.priors
        )

    def settled(self, plan: Plan, level: str, families: Sequence[Siblings | None]) -> bool:
        """Return whether exact publication reveals the answer in some unit of a level."""
        if attacks.is_settled(plan, level, attack=self.attack, attribute=self.attribute):
            return True
        return any(
            family is not None and self._evidence(plan, level, family)[1] for family in families
        )

    def _evidence(self, plan: Plan, level: str, siblings: Siblings) -> tuple[float, bool]:
        """Return the effective rho of all levels, and whether exact publication settles the matter.

        Where it does, the rho is that of noisy counts alone.
        """

        def rho(*, invariants: bool) -> float:
            risk = attacks.effective_rho(
                plan,
                attack=self.attack,
                attribute=self.attribute,
                level=level,
                siblings=siblings,
                invariants=invariants,
            )
            return float(risk.value)

        noisy = rho(invariants=False)
        if not plan.invariants:
            return noisy, False
        informed = rho(invariants=True)
        settled = informed > WITHOUT_LIMIT * noisy
        return (noisy if settled else informed), settled


def _largest(keeps: Callable[[float], bool], high: float, low: float = 0.0) -> float:
    """Return the largest number up to `high` that keeps the limit, if `low` keeps it or is 0."""
    if keeps(high):
        return high
    if low == 0:
        low = min(_SMALLEST, high / 8)
        if not keeps(low):
            raise InputError("risk: no budget keeps this limit; raise it")
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


# A plan with another rho at each level; queries keep their shares.


def own_rho(plan: Plan, level: str) -> Fraction:
    """Return the rho of all queries of a level."""
    return sum((rho_of(item) for item in plan.at(level)), Fraction(0))


def rho_of(item: Allocation) -> Fraction:
    """Return the rho of one query; plans in epsilon have been refused."""
    assert isinstance(item.cost, ZCDP)
    return item.cost.rho


def with_rho(plan: Plan, rho: Mapping[str, Fraction]) -> Plan:
    """Return the plan with this rho at each level."""
    total = sum(rho.values(), Fraction(0))
    shares = {level: str(rho.get(level, Fraction(0)) / total) for level in plan.levels}
    budget = {**plan.document.get("budget", {}), "rho": str(total), "levels": shares}
    return plan.with_document({**plan.document, "budget": budget})


def short(value: Fraction, *, up: bool = False) -> Fraction:
    """Return a fraction with few digits just below the value, or just above it."""
    places = _DIGITS - 1 - math.floor(math.log10(float(value)))
    scale = exact(10) ** places
    scaled = value * scale
    return Fraction(math.ceil(scaled) if up else math.floor(scaled)) / scale
