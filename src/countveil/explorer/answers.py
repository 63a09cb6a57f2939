"""The numbers of the page: cost, risk and error of a plan, for one intruder."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from countveil.assess.intruder import whole_release
from countveil.assess.intruder.combined_loss import lattice_loss
from countveil.assess.intruder.whole_release import Evidence
from countveil.assess.verdict import Verdict, judge
from countveil.estimate.plan_error import ExpectedError, expected_error
from countveil.explorer.settings import MOST_PRIORS, Settings, shares_of
from countveil.plan.plans import Plan
from countveil.plan.workload import TOTAL
from countveil.privacy.costs import Cost

_MOST_LAWS = 16  # each may take some megabytes, and a session computes thousands


@dataclass(frozen=True, slots=True)
class PriorRisk:
    """One prior at one level: the expected posterior, also as a multiple of the prior."""

    prior: float
    posterior: float
    marginal_risk: float


@dataclass(frozen=True, slots=True)
class LevelAnswer:
    """One level: its share of the budget, the error of its total, its risk for each prior.

    `risks` is empty until it is computed. `settled`: counts published exactly give the answer to
    someone who knows everyone else there. A level that is not measured has no `error`.
    """

    level: str
    share: Fraction
    risks: tuple[PriorRisk, ...]
    error: ExpectedError | None
    settled: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """Cost, risk and error of a plan, for someone who sees the whole release.

    `decisions` has, for each prior, how often the intruder decides correctly at the judged level.
    `settled`: counts published exactly reveal the answer by themselves; then the risks and decisions at
    the judged level are those from noisy counts alone. `upper_bound`: these risks are upper bounds.
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
    upper_bound: bool

    @property
    def judged(self) -> LevelAnswer:
        """The level at which the intruder knows everyone else."""
        return next(item for item in self.levels if item.level == self.level)

    @property
    def selected(self) -> PriorRisk:
        """The risk for the prior that is set on the page."""
        return next(item for item in self.judged.risks if item.prior == self.prior)

    @property
    def error_basis(self) -> str:
        """What the standard errors are of."""
        return next(item.error for item in self.levels if item.error is not None).basis_in_words

    @property
    def decision(self) -> float:
        """How often the intruder of the page decides correctly."""
        return self.decisions[self.priors.index(self.prior)]


def answer(plan: Plan, settings: Settings) -> Answer:
    """Compute the numbers of a plan; no record is read.

    The intruder knows everyone else in a unit and sees the whole release. Counts published exactly are
    left out at the judged level if they settle the matter. Risks are those of the worst target in the
    worst unit.
    """
    return completed(answer_at_judged_level(plan, settings), plan, settings)


def answer_at_judged_level(plan: Plan, settings: Settings) -> Answer:
    """Compute the numbers without the risks of other levels, fast enough to follow a slider."""
    cost, priors, level = plan.cost, priors_of(plan, settings), plan.judged_level
    settled = is_settled(plan, settings)
    evidence = judged_evidence(plan, settings)
    with ThreadPoolExecutor(1) as thread:  # Fourier transforms, which release the interpreter lock
        pending = thread.submit(whole_release.decisions_by_prior, plan, evidence, priors)
        risks = _risks(plan, evidence, priors)
        errors = {item.level: item for item in expected_error(plan, queries=(TOTAL,))}
        decisions = tuple(pending.result())
    forget_laws()
    shares = shares_of(plan)
    return Answer(
        cost=cost,
        epsilon=cost.epsilon_at(plan.delta),
        delta=plan.delta,
        level=level,
        prior=settings.prior_value,
        priors=priors,
        levels=tuple(
            LevelAnswer(name, shares[name], risks, errors.get(name), settled)
            if name == level
            else LevelAnswer(name, shares[name], (), errors.get(name))
            for name in plan.estimated_levels
        ),
        decisions=decisions,
        verdict=judge(plan),
        settled=settled,
        upper_bound=any(item.siblings_known for item in evidence),
    )


def completed(partial: Answer, plan: Plan, settings: Settings) -> Answer:
    """Add the risks of all levels to an answer."""
    levels = []
    for item in partial.levels:
        if item.risks:
            levels.append(item)
            continue
        evidence = whole_release.evidence(plan, item.level, **target_of(settings))
        risks = _risks(plan, evidence, partial.priors)
        certain = all(risk.posterior == 1 for risk in risks)
        levels.append(replace(item, risks=risks, settled=certain))
    forget_laws()
    return replace(partial, levels=tuple(levels))


def is_settled(plan: Plan, settings: Settings) -> bool:
    """Return whether counts published exactly give the answer at the judged level."""
    if not plan.invariants:
        return False
    views = whole_release.evidence(plan, plan.judged_level, **target_of(settings))
    return any(item.settled for item in views)


def judged_evidence(plan: Plan, settings: Settings) -> list[Evidence]:
    """Return what the intruder of the page sees: without exact counts, if these settle the matter."""
    exact = not is_settled(plan, settings)
    return whole_release.evidence(plan, plan.judged_level, invariants=exact, **target_of(settings))


def priors_of(plan: Plan, settings: Settings) -> tuple[float, ...]:
    """Return the priors of a plan, each once; of very many, the first and the one that is set."""
    listed, selected = dict.fromkeys(plan.intruder.priors), settings.prior_value
    if len(listed) <= MOST_PRIORS:
        return tuple(listed)
    return (*[prior for prior in listed if prior != selected][: MOST_PRIORS - 1], selected)


def forget_laws() -> None:
    """Clear the cache of laws of evidence once it holds many."""
    if lattice_loss.cache_info().currsize > _MOST_LAWS:
        lattice_loss.cache_clear()


def target_of(settings: Settings) -> dict[str, Any]:
    """Return the attack as keyword arguments of `assess.intruder`."""
    return {"attack": settings.attack, "attribute": settings.attribute}


def _risks(
    plan: Plan, evidence: Sequence[Evidence], priors: tuple[float, ...]
) -> tuple[PriorRisk, ...]:
    after = whole_release.posteriors_by_prior(plan, evidence, priors)
    return tuple(
        PriorRisk(prior, value, value / prior) for prior, value in zip(priors, after, strict=True)
    )
