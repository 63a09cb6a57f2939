"""The verdict: whether a plan keeps its own limit on an intruder's risk.

It is computed here only, so that no two pages can contradict each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from countveil.assess.intruder.ladder import LevelRisk, risk_by_level
from countveil.assess.intruder.whole_release import aim_of
from countveil.base import words
from countveil.plan.plans import Plan

Status = Literal["within", "above", "no limit"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the largest risk of a plan compares with its limit.

    The intruder knows everyone else in a unit of `level` and sees the whole release, with all that is
    published exactly. `risks` has one entry per prior, for the attack and the kind of unit in which
    they learn most. `ladder` has the same at the worst prior if they knew everyone else in a unit of
    another level. `noisy` is the largest risk from noisy counts alone.
    """

    plan: str
    level: str
    limit: float | None
    risks: tuple[LevelRisk, ...]
    ladder: tuple[LevelRisk, ...]
    noisy: LevelRisk

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
    def shown(self) -> str:
        """The largest risk as people read it, in multiples of the prior."""
        return self.worst.times(limit=self.limit)

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        worst = self.worst
        who = (
            f"in {worst.unit_kind}, for someone who knows everyone else there, sees the whole "
            f"release and tries to learn {aim_of(worst.attack)}, starting from a probability of "
            f"{words.prior_percent(worst.prior)}"
        )
        largest = f"the largest risk is {self.shown} times the prior"
        if self.limit is None:
            return f"The plan sets no limit on risk (intruder.limit); {largest}, {who}."
        if not self.above:
            return f"Within the plan's limit of {self.limit:g} times the prior: {largest}, {who}."
        sentence = f"Above the plan's limit of {self.limit:g} times the prior: {largest}, {who}."
        if worst.settled:
            side = "within" if self.noisy.marginal_risk <= self.limit else "above"
            sentence += (
                f" More noise would not help: exactly published counts give the answer. From "
                f"noisy counts alone, the risk would be {self.noisy.times(limit=self.limit)} times "
                f"the prior, {side} the limit."
            )
        return sentence

    @property
    def knowledge(self) -> str:
        """What the risk would be if they knew everyone else in more, or less: the ladder, in words."""
        first, *others = [
            (f"{risk.times(limit=self.limit)}{' (certain)' if risk.settled else ''}", risk.level)
            for risk in reversed(self.ladder)
        ]
        rungs = [
            f"{first[0]} times the prior for someone who knows everyone else in the {first[1]}"
        ]
        rungs += [f"{rung} in the {level}" for rung, level in others]
        return f"With a prior of {words.prior(self.worst.prior)}, the risk would be {', '.join(rungs)}."

    @property
    def remedy(self) -> str:
        """What to change if the risk is above the limit."""
        if self.worst.settled:
            return "add noise to what is published exactly: a smaller budget does not protect it"
        return (
            f"lower the budget (`countveil choose {self.plan} --risk {self.limit:g}` suggests one)"
        )


@lru_cache(maxsize=64)
def judge(plan: Plan) -> Verdict:
    """Compare the risk of a plan with its own limit; read no record.

    Parameters
    ----------
    plan : Plan
        A plan of counts. Its `[intruder]` section states priors, what they know, and the limit.

    Returns
    -------
    Verdict
        The status, the worst case, and both in words. It is about the plan, not about how the noise
        of one release turned out.

    """
    priors = tuple(dict.fromkeys(plan.intruder.priors))
    levels = (plan.judged_level,)
    risks = noisy = risk_by_level(plan, priors, invariants=True, levels=levels, decisions=False)
    if any(risk.settled for risk in risks):
        noisy = risk_by_level(plan, priors, levels=levels, decisions=False)
    worst = max(risks, key=lambda risk: risk.marginal_risk)
    return Verdict(
        plan.name,
        plan.judged_level,
        plan.intruder.limit,
        tuple(risks),
        tuple(risk_by_level(plan, [worst.prior], invariants=True, decisions=False)),
        max(noisy, key=lambda risk: risk.marginal_risk),
    )
