"""What a plan costs, risks and errs, for one intruder: the numbers of the page."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from countveil.assess import attacks
from countveil.assess.evidence import lattice_loss
from countveil.assess.intruder import Intruder
from countveil.assess.one_level import marginal_risk
from countveil.assess.plan_error import ExpectedError, expected_error
from countveil.explorer.settings import MOST_PRIORS, Settings, shares_of
from countveil.mechanisms.discrete_gaussian import DiscreteGaussian
from countveil.privacy.costs import Cost, PureDP
from countveil.schema.plan import Plan
from countveil.schema.workload import TOTAL

_MOST_LAWS = 16  # each may hold some megabytes, and a session sees thousands


@dataclass(frozen=True, slots=True)
class PriorRisk:
    """One prior at one level: the expected posterior, and how many times the prior that is."""

    prior: float
    posterior: float
    marginal_risk: float


@dataclass(frozen=True, slots=True)
class LevelAnswer:
    """One level: its share of the budget, its risk for each prior, the error of its total."""

    level: str
    share: Fraction
    risks: tuple[PriorRisk, ...]
    error: ExpectedError


@dataclass(frozen=True, slots=True)
class Answer:
    """What a plan would do; `decisions` has, for each prior, how often he is right where he knows."""

    cost: Cost
    epsilon: float
    delta: Fraction
    level: str
    prior: float
    priors: tuple[float, ...]
    levels: tuple[LevelAnswer, ...]
    decisions: tuple[float, ...]
    limit: float | None

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


def answer(plan: Plan, settings: Settings) -> Answer:
    """Return the numbers of a plan: no record is read.

    He knows everyone else in a unit and sees all its queries, but not what is published as counted;
    risks are those of the worst target.
    """
    cost, priors = plan.cost, priors_of(plan, settings)
    asked: dict[str, Any] = {"attack": settings.attack, "attribute": settings.attribute}
    with ThreadPoolExecutor(1) as beside:  # transforms, which leave the interpreter to the rest
        level = plan.judged_level
        decided = beside.submit(attacks.decisions_by_prior, plan, level, priors, **asked)
        risks = {level: _risks(plan, level, priors, asked) for level in plan.measured_levels}
        errors = {item.level: item for item in expected_error(plan, queries=(TOTAL,))}
        decisions = tuple(decided.result())
    forget_laws()
    shares = shares_of(plan)
    return Answer(
        cost=cost,
        epsilon=float(cost.epsilon) if isinstance(cost, PureDP) else cost.epsilon(plan.delta),
        delta=plan.delta,
        level=plan.judged_level,
        prior=settings.prior_value,
        priors=priors,
        levels=tuple(
            LevelAnswer(level, shares[level], risks[level], errors[level])
            for level in plan.measured_levels
        ),
        decisions=decisions,
        limit=plan.intruder.limit if settings.attack == "presence" else None,
    )


def priors_of(plan: Plan, settings: Settings) -> tuple[float, ...]:
    """Return the priors of a plan, each once; of very many some, and his own."""
    listed, his = dict.fromkeys(plan.intruder.priors), settings.prior_value
    if len(listed) <= MOST_PRIORS:
        return tuple(listed)
    return (*[prior for prior in listed if prior != his][: MOST_PRIORS - 1], his)


def attack_of(settings: Settings) -> dict[str, Any]:
    """Return the attack as `assess.attacks` takes it."""
    return {"attack": settings.attack, "attribute": settings.attribute, "invariants": False}


def with_levels_above(plan: Plan, settings: Settings) -> tuple[float, float]:
    """Return the rho that all levels amount to, and the marginal risk of one count with that rho.

    Every unit has `siblings` others beside it; counts are large. Never less than the level alone.
    """
    attack = attack_of(settings)
    siblings = dict.fromkeys(plan.levels[1:], settings.siblings or 0)
    rho = float(attacks.effective_rho(plan, siblings=siblings, **attack).value)
    one = DiscreteGaussian.from_rho(Fraction(rho))
    together = marginal_risk(one, intruder=Intruder(prior=settings.prior_value))
    alone = attacks.marginal_risk(plan, prior=settings.prior_value, **attack)
    return rho, max(float(together.value), float(alone.value))


def forget_laws() -> None:
    """Drop laws of evidence that are kept for repeated use, once they are many."""
    if lattice_loss.cache_info().currsize > _MOST_LAWS:
        lattice_loss.cache_clear()


def _risks(
    plan: Plan, level: str, priors: tuple[float, ...], asked: dict[str, Any]
) -> tuple[PriorRisk, ...]:
    after = attacks.posteriors_by_prior(plan, level, priors, **asked)
    return tuple(
        PriorRisk(prior, value, value / prior) for prior, value in zip(priors, after, strict=True)
    )
