"""The verdict: whether a plan keeps its own limit on an intruder's risk.

It is computed here only, so that no two pages can contradict each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from countveil.assess.intruder.plan_risk import LevelRisk, risk_by_level
from countveil.base import words
from countveil.plan.plans import Plan

Status = Literal["within", "above", "no limit"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the largest risk of a plan compares with its limit.

    The intruder knows everyone else in a unit of `level`, and sees every query of it and all that is
    published exactly. `risks` has one entry per prior. `noisy` is the largest risk from noisy counts
    alone.
    """

    plan: str
    level: str
    limit: float | None
    risks: tuple[LevelRisk, ...]
    noisy: float

    @property
    def worst(self) -> LevelRisk:
        """The largest risk, over the priors of the plan."""
        return max(self.risks, key=lambda risk: risk.marginal_risk)

    @property
    def above(self) -> tuple[LevelRisk, ...]:
        """The risks above the limit."""
        if self.limit is None:
            return ()
        return tuple(risk for risk in self.risks if risk.marginal_risk > self.limit)

    @property
    def status(self) -> Status:
        """Whether the plan keeps its limit."""
        if self.limit is None:
            return "no limit"
        return "above" if self.above else "within"

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        worst = self.worst
        who = (
            f"for someone who knows everyone else in {words.article(self.level)} and has a prior of "
            f"{words.prior(worst.prior)}"
        )
        largest = f"the largest risk is {self._shown(worst.marginal_risk)} times the prior"
        if self.limit is None:
            return f"The plan sets no limit on risk (intruder.limit); {largest}, {who}."
        if not self.above:
            return f"Within the plan's limit of {self.limit:g} times the prior: {largest}, {who}."
        sentence = f"Above the plan's limit of {self.limit:g} times the prior: {largest}, {who}."
        if worst.settled:
            side = "within" if self.noisy <= self.limit else "above"
            sentence += (
                f" No amount of noise changes that, because exactly published counts reveal who is "
                f"there. From noisy counts alone, the risk would be {self._shown(self.noisy)} times "
                f"the prior, {side} the limit."
            )
        return sentence

    @property
    def remedy(self) -> str:
        """What to change if the risk is above the limit."""
        if self.worst.settled:
            return (
                "add noise to what is published exactly, because no budget protects what is public"
            )
        return f"lower the budget of level {self.level}"

    def _shown(self, risk: float) -> str:
        """Return a risk with two digits, or as many as keep it on its side of the limit."""
        fewest = max(2, len(str(int(risk))))
        texts = (f"{risk:#.{count}g}".rstrip(".") for count in range(fewest, 18))
        if float(risk).is_integer():
            return f"{risk:.0f}"
        limit = self.limit
        if limit is None:
            return next(texts)
        return next(
            (text for text in texts if (float(text) > limit) == (risk > limit)), f"{risk!r}"
        )


@lru_cache(maxsize=64)
def judge(plan: Plan) -> Verdict:
    """Compare the risk of a plan with its own limit; read no record.

    Parameters
    ----------
    plan : Plan
        A plan of counts. Its `[intruder]` section states priors, level and limit.

    Returns
    -------
    Verdict
        The status, the worst case, and both in words. It is about the plan, not about how the noise
        of one release turned out.

    """
    priors = tuple(dict.fromkeys(plan.intruder.priors))
    levels = (plan.judged_level,)
    risks = noisy = risk_by_level(plan, priors, invariants=True, levels=levels)
    if any(risk.settled for risk in risks):
        noisy = risk_by_level(plan, priors, levels=levels)
    return Verdict(
        plan.name,
        plan.judged_level,
        plan.intruder.limit,
        tuple(risks),
        max(risk.marginal_risk for risk in noisy),
    )
