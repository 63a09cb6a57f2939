"""The largest rho of all levels of a plan at which an intruder of each keeps a limit on R."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from countveil.assess import attacks
from countveil.assess.intruder import Intruder
from countveil.assess.joint_precision import WITHOUT_LIMIT
from countveil.assess.one_level import marginal_risk
from countveil.assess.rescaled_plan import own_rho, short, with_rho
from countveil.assess.targets import Attack
from countveil.errors import InputError
from countveil.mechanisms.discrete_gaussian import DiscreteGaussian
from countveil.schema.plan import Plan

Siblings = Mapping[str, int]

_HALVINGS = 40
_SMALLEST, _LARGEST = 1e-6, 1e3
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class RiskSearch:
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
            trial = with_rho(self.plan, rho)
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
        speaking = [level for level in alone if self._own(self.plan, level) > 1 + _ROUNDING]

        def shared(part: float) -> dict[str, Fraction]:
            less = {level: short(alone[level] * Fraction(part)) for level in speaking}
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
        """Whether an intruder of any of these levels keeps the limit."""
        trial = with_rho(self.plan, rho)
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
