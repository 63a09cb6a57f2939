"""A budget for a whole plan: from the risk that is acceptable, or from the accuracy that is needed."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from scipy.special import ndtri

from countveil.assess import attacks
from countveil.assess.plan_error import expected_error
from countveil.assess.rescaled_plan import own_rho, short, with_rho
from countveil.assess.risk_search import RiskSearch, Siblings
from countveil.assess.targets import Attack
from countveil.errors import InputError
from countveil.privacy.costs import ZCDP
from countveil.schema.plan import Plan

SIZE = 10_000
"""People that a percentage refers to, where none are named."""

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
    rho = {level: own_rho(plan, level) for level in plan.measured_levels}
    scale = Fraction((_standard_error(plan, wanted) / needed) ** 2)
    # The variance of a discrete Gaussian is not quite 1/(2 rho): look a little further.
    for _ in range(60):
        scaled = {level: short(value * scale, up=True) for level, value in rho.items()}
        chosen = with_rho(plan, scaled)
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


def _refuse_other_costs(plan: Plan) -> None:
    if not isinstance(plan.cost, ZCDP):
        raise InputError("a budget is chosen for plans in rho; this one is in epsilon")


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
