"""A budget for a whole plan: from the risk that is acceptable, or from the accuracy that is needed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from scipy.special import ndtri

from countveil.assess import attacks
from countveil.assess.intruder import Intruder
from countveil.assess.joint_precision import WITHOUT_LIMIT
from countveil.assess.one_level import marginal_risk
from countveil.assess.plan_error import expected_error
from countveil.assess.targets import Attack
from countveil.errors import InputError
from countveil.mechanisms.discrete_gaussian import DiscreteGaussian
from countveil.numerics import exact
from countveil.privacy.costs import ZCDP
from countveil.schema.allocation import Allocation
from countveil.schema.plan import Plan

SIZE = 10_000
"""People that a percentage refers to, where none are named."""

Siblings = Mapping[str, int]

_HALVINGS = 40
_SMALLEST, _LARGEST = 1e-6, 1e3
_ROUNDING = 1e-12
_DIGITS = 10
_WANTED = re.compile(
    r"\s*(?P<level>\S+)\s+(?P<query>\S+)\s*(±|\+/-|\+-)\s*(?P<width>\d+(\.\d+)?)\s*(?P<percent>%)?"
    r"(\s+of\s+(?P<size>\d[\d,]*))?\s+at\s+(?P<confidence>\d+(\.\d+)?)\s*%\s*"
)


@dataclass(frozen=True, slots=True)
class ChosenPlan:
    """A plan with another budget, and what it then risks: R of each level, and its effective rho.

    At levels that are `settled`, what is published as counted tells the intruder all, in some unit or
    in every one: no budget changes that, and their R is of what it does not settle.
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
class Accuracy:
    """What is needed: a count within `half_width`, with a confidence."""

    level: str
    query: str
    half_width: float
    confidence: float
    size: int | None = None

    @classmethod
    def parse(cls, text: str) -> Accuracy:
        """Read "county TOTAL ±50 at 95%", or "county TOTAL ±1% of 20,000 at 95%"."""
        found = _WANTED.fullmatch(text)
        if found is None:
            raise InputError(
                f'accuracy: {text!r} is not understood; write it like "county TOTAL ±50 at 95%" or '
                f'"county TOTAL ±1% of 20,000 at 95%"'
            )
        confidence = float(found["confidence"]) / 100
        width = float(found["width"])
        size = int(found["size"].replace(",", "")) if found["size"] else None
        if found["percent"]:
            size = SIZE if size is None else size
            width *= size / 100
        elif size is not None:
            raise InputError("accuracy: a number of people is within ±N; leave out 'of'")
        if not 0 < confidence < 1 or width <= 0:
            raise InputError("accuracy: a width above 0 and a confidence below 100 % are needed")
        return cls(found["level"], found["query"], width, confidence, size)


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
    """Return the plan with as much rho at each level as a limit on R allows: the least error.

    At each level he knows everyone else in a unit and sees all its queries. With `siblings`, how many a
    unit has at each level below the top, he sees the levels above, too, and what is published there as
    counted; of several, as `fewest_siblings` finds them, the worst. R, his expected posterior over his
    prior, stays within `risk` for every prior; but for what is published as counted and settles it,
    which no budget changes. Shares of queries stay as they are. Less rho means more error at that
    level, so each gets what it might have by itself, all less in proportion where that is too much for
    who sees several, and then from the lowest up what is left; unless `total` is less, which then goes
    where it lowers the error of the levels' totals most.
    """
    _refuse_other_costs(plan)
    priors = [float(prior)] if isinstance(prior, int | float) else [float(p) for p in prior]
    families: Sequence[Siblings | None] = (
        [siblings] if siblings is None or isinstance(siblings, Mapping) else siblings
    )
    search = _Search(plan, attack, attribute, tuple(priors), risk)
    rho = search.largest(families)
    if total is not None and sum(rho.values()) > total:
        rho = _shared(plan, rho, total)
    chosen = _with(plan, rho)
    risks = {level: search.worst(chosen, level, families) for level in plan.measured_levels}
    effective = {
        level: float(
            attacks.effective_rho(chosen, attack=attack, attribute=attribute, level=level).value
        )
        for level in plan.measured_levels
    }
    settled = [level for level in plan.measured_levels if search.settled(chosen, level, families)]
    return ChosenPlan(chosen, rho, risks, effective, tuple(settled))


def within_accuracy(plan: Plan, wanted: Accuracy) -> ChosenPlan:
    """Return the plan with the smallest rho, its shares as they are, that reaches an accuracy.

    The standard error is that of the estimate from all queries of the level, before post-processing;
    the interval is a normal one.
    """
    _refuse_other_costs(plan)
    if wanted.level not in plan.measured_levels:
        raise InputError(
            f"accuracy: no measured level {wanted.level!r}; choose from "
            f"{', '.join(plan.measured_levels)}"
        )
    needed = wanted.half_width / float(ndtri((1 + wanted.confidence) / 2))
    rho = {level: _own_rho(plan, level) for level in plan.measured_levels}
    scale = Fraction((_standard_error(plan, wanted) / needed) ** 2)
    # The variance of a discrete Gaussian is not quite 1/(2 rho): look a little further.
    for _ in range(60):
        scaled = {level: _short(value * scale, up=True) for level, value in rho.items()}
        chosen = _with(plan, scaled)
        error = _standard_error(chosen, wanted)
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


def _own_rho(plan: Plan, level: str) -> Fraction:
    return sum((_rho(item) for item in plan.at(level)), Fraction(0))


@dataclass(frozen=True, slots=True)
class _Search:
    """Looks for the largest rho of all levels at which R stays within a limit."""

    plan: Plan
    attack: Attack
    attribute: str | None
    priors: tuple[float, ...]
    limit: float

    def largest(self, families: Sequence[Siblings | None]) -> dict[str, Fraction]:
        """Return the rho of each level: looked for with one family, then with the worst ones, too."""
        alone, tried = self._alone(), [families[0]]
        while True:
            rho = self._together(alone, tried)
            trial = _with(self.plan, rho)
            more = [
                family
                for level in rho
                if self.worst(trial, level, families) > self.limit
                for family in self._most_told(trial, level, families)
                if family not in tried
            ]
            if not more:
                return rho
            tried.append(more[0])

    def _most_told(
        self, plan: Plan, level: str, families: Sequence[Siblings | None]
    ) -> Sequence[Siblings]:
        """Return the family whose unit of a level is told most of; none if there are no families."""
        known = [family for family in families if family is not None]
        rho = [self._evidence(plan, level, family)[0] for family in known]
        return [known[rho.index(max(rho))]] if known else []

    def _alone(self) -> dict[str, Fraction]:
        """Return what each level might have if it were the only one.

        Where nothing of a level speaks to the attack it stays as it is.
        """
        own = {level: _own_rho(self.plan, level) for level in self.plan.measured_levels}
        alone = dict(own)
        for level in own:

            def keeps(value: float, level: str = level) -> bool:
                trial = _with(self.plan, {**own, level: _short(Fraction(value))})
                return self._own(trial, level) <= self.limit

            if self._own(self.plan, level) > 1 + _ROUNDING:
                high = _SMALLEST
                while high < _LARGEST and keeps(high):
                    high *= 8
                alone[level] = _short(Fraction(_largest(keeps, high)))
        return alone

    def _together(
        self, alone: dict[str, Fraction], families: Sequence[Siblings | None]
    ) -> dict[str, Fraction]:
        """Return as much of that as all can have at once: in proportion, then from the lowest up."""
        speaking = [level for level in alone if self._own(self.plan, level) > 1 + _ROUNDING]

        def shared(part: float) -> dict[str, Fraction]:
            less = {level: _short(alone[level] * Fraction(part)) for level in speaking}
            return {**alone, **less}

        if not speaking or self._keep(alone, speaking, families):
            return alone
        rho = shared(_largest(lambda part: self._keep(shared(part), speaking, families), 1.0))
        for number in range(len(speaking) - 1, -1, -1):
            rho = self._raised(rho, alone, speaking[number:], families)
        return rho

    def _raised(
        self,
        rho: dict[str, Fraction],
        alone: dict[str, Fraction],
        levels: Sequence[str],
        families: Sequence[Siblings | None],
    ) -> dict[str, Fraction]:
        """Give the first of some levels as much as it and those below it, the others, can bear."""
        level = levels[0]

        def raised(value: float) -> dict[str, Fraction]:
            return {**rho, level: max(rho[level], _short(Fraction(value)))}

        def keeps(value: float) -> bool:
            return self._keep(raised(value), levels, families)

        return raised(_largest(keeps, float(alone[level]), float(rho[level])))

    def _keep(
        self,
        rho: dict[str, Fraction],
        levels: Sequence[str],
        families: Sequence[Siblings | None],
    ) -> bool:
        """Whether an intruder of any of these levels keeps the limit."""
        trial = _with(self.plan, rho)
        return all(self.worst(trial, level, families) <= self.limit for level in levels)

    def worst(self, plan: Plan, level: str, families: Sequence[Siblings | None]) -> float:
        """Return the worst R of an intruder of a level; of levels above, by the rho they amount to."""
        own = self._own(plan, level)
        known = [family for family in families if family is not None]
        if not known:
            return own
        rho = max(self._evidence(plan, level, family)[0] for family in known)
        one = DiscreteGaussian.from_rho(Fraction(rho))
        above = (marginal_risk(one, intruder=Intruder(prior=prior)).value for prior in self.priors)
        return max(own, *map(float, above))

    def _own(self, plan: Plan, level: str) -> float:
        """Return the worst R of the priors from noisy counts of the level alone."""
        given: dict[str, Any] = {"attack": self.attack, "attribute": self.attribute, "level": level}
        return max(
            float(attacks.marginal_risk(plan, prior=prior, invariants=False, **given).value)
            for prior in self.priors
        )

    def settled(self, plan: Plan, level: str, families: Sequence[Siblings | None]) -> bool:
        """Whether what is published as counted tells an intruder of a level all, in some unit."""
        if attacks.is_settled(plan, level, attack=self.attack, attribute=self.attribute):
            return True
        return any(
            family is not None and self._evidence(plan, level, family)[1] for family in families
        )

    def _evidence(self, plan: Plan, level: str, siblings: Siblings) -> tuple[float, bool]:
        """Return the rho that all levels amount to, and whether what is public settles it.

        Where it does, the rho is that of noisy counts alone.
        """
        given: dict[str, Any] = {"attack": self.attack, "attribute": self.attribute, "level": level}
        noisy = attacks.effective_rho(plan, siblings=siblings, invariants=False, **given).value
        if not plan.invariants:
            return float(noisy), False
        informed = attacks.effective_rho(plan, siblings=siblings, **given).value
        settled = bool(informed > WITHOUT_LIMIT * noisy)
        return float(noisy if settled else informed), settled


def _largest(keeps: Callable[[float], bool], high: float, low: float = 0.0) -> float:
    """Return the largest number up to `high` that keeps the limit, if `low` does or is 0."""
    if keeps(high):
        return high
    if low == 0:
        low = min(_SMALLEST, high / 8)
        if not keeps(low):
            raise InputError("no budget keeps the limit; ask for a higher one")
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


def _refuse_other_costs(plan: Plan) -> None:
    if not isinstance(plan.cost, ZCDP):
        raise InputError("a budget is chosen for plans in rho; this one is in epsilon")


def _rho(item: Allocation) -> Fraction:
    assert isinstance(item.cost, ZCDP)
    return item.cost.rho


def _standard_error(plan: Plan, wanted: Accuracy) -> float:
    for item in expected_error(plan):
        if item.level == wanted.level and item.query == wanted.query:
            if item.as_counted:
                raise InputError(
                    f"accuracy: {wanted.query} of {wanted.level} is published as counted, so it is "
                    f"exact with any budget; name a count that has noise"
                )
            if item.standard_error is None:
                raise InputError(
                    f"accuracy: the queries of {wanted.level} do not determine {wanted.query}"
                )
            return item.standard_error
    names = sorted({item.query for item in expected_error(plan) if item.level == wanted.level})
    raise InputError(
        f"accuracy: no query {wanted.query!r} is measured at {wanted.level}; choose from "
        f"{', '.join(names)}"
    )


def _shared(plan: Plan, most: dict[str, Fraction], total: Fraction) -> dict[str, Fraction]:
    """Share a total so that Σ a_l/rho_l is least, a_l the squared error of the level's TOTAL.

    A level whose TOTAL is published as counted has other counts: it gets as much as the least of the
    others.
    """
    errors = {item.level: item for item in expected_error(plan) if item.query == "TOTAL"}
    own = {level: float(sum(_rho(item) for item in plan.at(level))) for level in most}
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
            rho |= {level: _short(left * Fraction(value / whole)) for level, value in free.items()}
            break
        for level in full:
            rho[level] = most[level]
            left -= most[level]
            del free[level]
    return {level: rho[level] for level in most}


def _with(plan: Plan, rho: Mapping[str, Fraction]) -> Plan:
    """Return the plan with these rho for its levels."""
    total = sum(rho.values(), Fraction(0))
    shares = {level: str(rho.get(level, Fraction(0)) / total) for level in plan.levels}
    budget = {**plan.document.get("budget", {}), "rho": str(total), "levels": shares}
    return Plan.of({**plan.document, "budget": budget}, folder=plan.folder, name=plan.name)


def _short(value: Fraction, *, up: bool = False) -> Fraction:
    """Return a fraction of few digits, below the value or above it."""
    places = _DIGITS - 1 - math.floor(math.log10(float(value)))
    scale = exact(10) ** places
    scaled = value * scale
    return Fraction(math.ceil(scaled) if up else math.floor(scaled)) / scale
