"""A budget for a whole plan: from the risk that is acceptable, or from the accuracy that is needed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from scipy.special import ndtri

from countveil.assess import attacks
from countveil.assess.intruder import Intruder
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

_HALVINGS = 40
_LARGEST = 1e3
_ROUNDING = 1e-12
_DIGITS = 10
_WANTED = re.compile(
    r"\s*(?P<level>\S+)\s+(?P<query>\S+)\s*(±|\+/-|\+-)\s*(?P<width>\d+(\.\d+)?)\s*(?P<percent>%)?"
    r"(\s+of\s+(?P<size>\d[\d,]*))?\s+at\s+(?P<confidence>\d+(\.\d+)?)\s*%\s*"
)


@dataclass(frozen=True, slots=True)
class ChosenPlan:
    """A plan with another budget, and what it then risks: R of each level, and its effective rho."""

    plan: Plan
    rho: dict[str, Fraction]
    risks: dict[str, float]
    effective: dict[str, float]

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
    siblings: Mapping[str, int] | None = None,
    total: Fraction | None = None,
) -> ChosenPlan:
    """Return the plan with as much rho at each level as a limit on R allows: the least error.

    At each level he knows everyone else in a unit and sees all its queries, and with `siblings` the
    levels above, too; R, his expected posterior over his prior, stays within `risk` for every prior.
    What is published as counted is left out: no budget changes what it tells. Shares of queries stay as
    they are. Less rho means more error at that level, so from the highest down each gets what its limit
    allows beside those above it; unless `total` is less, which then goes where it lowers the error of
    the levels' totals most.
    """
    _refuse_other_costs(plan)
    priors = [float(prior)] if isinstance(prior, int | float) else [float(p) for p in prior]
    given = (attack, attribute, priors, siblings)
    rho = {level: _own_rho(plan, level) for level in plan.measured_levels}
    for level in plan.measured_levels:
        # Where nothing of a level speaks to the attack it stays as it is.
        if _risk(plan, level, attack, attribute, priors, None) > 1 + _ROUNDING:
            rho[level] = _largest_rho(plan, rho, level, given, risk)
    if total is not None and sum(rho.values()) > total:
        rho = _shared(plan, rho, total)
    chosen = _with(plan, rho)
    risks, effective = {}, {}
    for level in plan.measured_levels:
        risks[level] = _risk(chosen, level, attack, attribute, priors, siblings)
        own_rho = attacks.effective_rho(chosen, attack=attack, attribute=attribute, level=level)
        effective[level] = float(own_rho.value)
    return ChosenPlan(chosen, rho, risks, effective)


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


def _largest_rho(
    plan: Plan,
    own: dict[str, Fraction],
    level: str,
    given: tuple[Attack, str | None, Sequence[float], Mapping[str, int] | None],
    limit: float,
) -> Fraction:
    """Return the largest rho of a level at which an intruder of that level keeps the limit."""

    def keeps(value: float) -> bool:
        trial = _with(plan, {**own, level: _short(Fraction(value))})
        return _risk(trial, level, *given) <= limit

    low = high = 1e-6
    while high < _LARGEST and keeps(high):
        low, high = high, high * 8
    if low == high:
        raise InputError("no budget keeps the limit; ask for a higher one")
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return _short(Fraction(low))


def _refuse_other_costs(plan: Plan) -> None:
    if not isinstance(plan.cost, ZCDP):
        raise InputError("a budget is chosen for plans in rho; this one is in epsilon")


def _rho(item: Allocation) -> Fraction:
    assert isinstance(item.cost, ZCDP)
    return item.cost.rho


def _standard_error(plan: Plan, wanted: Accuracy) -> float:
    for item in expected_error(plan):
        if item.level == wanted.level and item.query == wanted.query:
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


def _risk(
    plan: Plan,
    level: str,
    attack: Attack,
    attribute: str | None,
    priors: Sequence[float],
    siblings: Mapping[str, int] | None,
) -> float:
    """Return the worst R of the priors; with the levels above, that of the rho they amount to."""
    own = [
        float(
            attacks.marginal_risk(
                plan, attack=attack, attribute=attribute, prior=p, level=level, invariants=False
            ).value
        )
        for p in priors
    ]
    if siblings is None:
        return max(own)
    all_levels = attacks.effective_rho(
        plan, attack=attack, attribute=attribute, level=level, siblings=siblings, invariants=False
    )
    one = DiscreteGaussian.from_rho(Fraction(float(all_levels.value)))
    above = [float(marginal_risk(one, intruder=Intruder(prior=p)).value) for p in priors]
    return max(*own, *above)


def _shared(plan: Plan, most: dict[str, Fraction], total: Fraction) -> dict[str, Fraction]:
    """Share a total so that Σ a_l/rho_l is least, a_l the squared error of the level's TOTAL."""
    errors = {
        item.level: item.standard_error for item in expected_error(plan) if item.query == "TOTAL"
    }
    own = {level: float(sum(_rho(item) for item in plan.at(level))) for level in most}
    pull = {level: (errors[level] or 1.0) * math.sqrt(own[level]) for level in most}
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
