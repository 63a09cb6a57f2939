"""What a plan costs, risks and errs, for one intruder: the numbers of the page."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from countveil.assess.intruder import attacks
from countveil.assess.intruder.combined_loss import lattice_loss
from countveil.assess.intruder.one_level import marginal_risk
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.verdict import Verdict, verdict
from countveil.estimate.plan_error import ExpectedError, expected_error
from countveil.explorer.settings import MOST_PRIORS, Settings, shares_of
from countveil.noise.discrete_gaussian import DiscreteGaussian
from countveil.plan.plans import Plan
from countveil.plan.workload import TOTAL
from countveil.privacy.costs import Cost, PureDP

_MOST_LAWS = 16  # each may hold some megabytes, and a session sees thousands


@dataclass(frozen=True, slots=True)
class PriorRisk:
    """One prior at one level: the expected posterior, and how many times the prior that is."""

    prior: float
    posterior: float
    marginal_risk: float


@dataclass(frozen=True, slots=True)
class LevelAnswer:
    """One level: its share of the budget, the error of its total, its risk for each prior.

    `risks` is empty where it was not asked for yet.
    """

    level: str
    share: Fraction
    risks: tuple[PriorRisk, ...]
    error: ExpectedError


@dataclass(frozen=True, slots=True)
class Answer:
    """What a plan would do; `decisions` has, for each prior, how often he is right where he knows.

    All of it is of noisy values. `settled`: what is published as counted tells him by itself.
    """

    cost: Cost
    epsilon: float
    delta: Fraction
    level: str
    prior: float
    priors: tuple[float, ...]
    levels: tuple[LevelAnswer, ...]
    decisions: tuple[float, ...]
    verdict: Verdict
    settled: bool

    @property
    def judged(self) -> LevelAnswer:
        """The level where he knows everyone else."""
        return next(item for item in self.levels if item.level == self.level)

    @property
    def his(self) -> PriorRisk:
        """What the intruder of the page ends at."""
        return next(item for item in self.judged.risks if item.prior == self.prior)

    @property
    def decision(self) -> float:
        """How often the intruder of the page is right."""
        return self.decisions[self.priors.index(self.prior)]


@dataclass(frozen=True, slots=True)
class LevelsAbove:
    """What the levels above add: the risk, and whether it is that of one count with `effective_rho`.

    If it is not, the level alone already gives more, and the risk is that.
    """

    effective_rho: float
    marginal_risk: float
    as_one_count: bool


def answer(plan: Plan, settings: Settings) -> Answer:
    """Return the numbers of a plan: no record is read.

    He knows everyone else in a unit and sees all its queries, but not what is published as counted;
    risks are those of the worst target.
    """
    return completed(answer_at_judged_level(plan, settings), plan, settings)


def answer_at_judged_level(plan: Plan, settings: Settings) -> Answer:
    """Return the numbers without the risks of other levels: what moves with a slider, at once."""
    cost, priors, level = plan.cost, priors_of(plan, settings), plan.judged_level
    with ThreadPoolExecutor(1) as beside:  # transforms, which leave the interpreter to the rest
        decided = beside.submit(attacks.decisions_by_prior, plan, level, priors, **_asked(settings))
        risks = _risks(plan, level, priors, settings)
        errors = {item.level: item for item in expected_error(plan, queries=(TOTAL,))}
        decisions = tuple(decided.result())
    forget_laws()
    shares = shares_of(plan)
    return Answer(
        cost=cost,
        epsilon=float(cost.epsilon) if isinstance(cost, PureDP) else cost.epsilon(plan.delta),
        delta=plan.delta,
        level=level,
        prior=settings.prior_value,
        priors=priors,
        levels=tuple(
            LevelAnswer(name, shares[name], risks if name == level else (), errors[name])
            for name in plan.measured_levels
        ),
        decisions=decisions,
        verdict=verdict(plan),
        settled=attacks.is_settled(plan, level, **_asked(settings)),
    )


def completed(found: Answer, plan: Plan, settings: Settings) -> Answer:
    """Return an answer with the risks of all levels."""
    levels = tuple(
        item
        if item.risks
        else replace(item, risks=_risks(plan, item.level, found.priors, settings))
        for item in found.levels
    )
    forget_laws()
    return replace(found, levels=levels)


def priors_of(plan: Plan, settings: Settings) -> tuple[float, ...]:
    """Return the priors of a plan, each once; of very many some, and his own."""
    listed, his = dict.fromkeys(plan.intruder.priors), settings.prior_value
    if len(listed) <= MOST_PRIORS:
        return tuple(listed)
    return (*[prior for prior in listed if prior != his][: MOST_PRIORS - 1], his)


def attack_of(settings: Settings) -> dict[str, Any]:
    """Return the attack as `assess.attacks` takes it."""
    return {**_asked(settings), "invariants": False}


def with_levels_above(plan: Plan, settings: Settings) -> LevelsAbove:
    """Return the rho that all levels amount to, and the marginal risk of one count with that rho.

    Every unit has `siblings` others beside it; counts are large. One count is an approximation where
    there are several. What the level gives alone is exact, and more values never tell less on average,
    for the expected posterior is that of a square: so it is never below that.
    """
    attack = attack_of(settings)
    siblings = dict.fromkeys(plan.levels[1:], settings.siblings or 0)
    rho = float(attacks.effective_rho(plan, siblings=siblings, **attack).value)
    one = DiscreteGaussian.from_rho(Fraction(rho))
    together = marginal_risk(one, intruder=Intruder(prior=settings.prior_value)).value
    alone = attacks.marginal_risk(plan, prior=settings.prior_value, **attack).value
    return LevelsAbove(rho, max(float(together), float(alone)), bool(together >= alone))


def forget_laws() -> None:
    """Drop laws of evidence that are kept for repeated use, once they are many."""
    if lattice_loss.cache_info().currsize > _MOST_LAWS:
        lattice_loss.cache_clear()


def _asked(settings: Settings) -> dict[str, Any]:
    return {"attack": settings.attack, "attribute": settings.attribute}


def _risks(
    plan: Plan, level: str, priors: tuple[float, ...], settings: Settings
) -> tuple[PriorRisk, ...]:
    after = attacks.posteriors_by_prior(plan, level, priors, **_asked(settings))
    return tuple(
        PriorRisk(prior, value, value / prior) for prior, value in zip(priors, after, strict=True)
    )
