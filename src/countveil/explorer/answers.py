"""The numbers of the page: cost, risk and error of a plan, for one intruder."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from countveil.assess.intruder import whole_release
from countveil.assess.intruder.combined_loss import lattice_loss
from countveil.assess.intruder.ladder import LevelRisk, risks_of
from countveil.assess.intruder.whole_release import Evidence
from countveil.assess.verdict import Verdict, judge
from countveil.estimate.plan_error import ExpectedError, expected_error
from countveil.explorer.settings import MOST_PRIORS, Settings, shares_of
from countveil.plan.plans import Plan
from countveil.plan.workload import TOTAL
from countveil.privacy.costs import Cost

_MOST_LAWS = 16  # each may take some megabytes, and a session computes thousands


@dataclass(frozen=True, slots=True)
class LevelAnswer:
    """One level: its share of the budget, the error of its total, its risk for each prior.

    `risks` is empty until it is computed. `settled`: counts published exactly give the answer to
    someone who knows everyone else there. A level that is not measured has no `error`.
    """

    level: str
    share: Fraction
    risks: tuple[LevelRisk, ...]
    error: ExpectedError | None
    settled: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """Cost, risk and error of a plan, for someone who sees the whole release.

    How often the intruder decides correctly is known at the judged level. `settled`: counts published
    exactly reveal the answer by themselves; then the risks at the judged level are those from noisy
    counts alone.
    """

    cost: Cost
    epsilon: float
    delta: Fraction
    level: str
    prior: float
    priors: tuple[float, ...]
    levels: tuple[LevelAnswer, ...]
    verdict: Verdict
    settled: bool

    @property
    def judged(self) -> LevelAnswer:
        """The level at which the intruder knows everyone else."""
        return next(item for item in self.levels if item.level == self.level)

    @property
    def selected(self) -> LevelRisk:
        """The risk for the prior that is set on the page."""
        return next(item for item in self.judged.risks if item.prior == self.prior)

    @property
    def error_basis(self) -> str:
        """What the standard errors are of."""
        return next(item.error for item in self.levels if item.error is not None).basis_in_words


def answer_at_judged_level(plan: Plan, settings: Settings) -> Answer:
    """Compute the numbers without the risks of other levels, fast enough to follow a slider.

    No record is read. The intruder knows everyone else in a unit and sees the whole release. Counts
    published exactly are left out if they settle the matter. Risks are those of the worst target in the
    worst unit.
    """
    cost, priors, level = plan.cost, priors_of(plan, settings), plan.judged_level
    settled = exact_counts_reveal(plan, settings)
    evidence = judged_evidence(plan, settings)
    with ThreadPoolExecutor(1) as thread:  # Fourier transforms, which release the interpreter lock
        pending = thread.submit(whole_release.decisions_by_prior, plan, evidence, priors)
        beliefs = _risks(plan, level, evidence, priors, settings)
        errors = {item.level: item for item in expected_error(plan, queries=(TOTAL,))}
        risks = tuple(
            replace(risk, correct_decision=right)
            for risk, right in zip(beliefs, pending.result(), strict=True)
        )
    forget_laws()
    shares = shares_of(plan)
    return Answer(
        cost=cost,
        epsilon=plan.epsilon,
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
        verdict=judge(plan),
        settled=settled,
    )


def completed(partial: Answer, plan: Plan, settings: Settings) -> Answer:
    """Add the risks of all levels to an answer."""
    levels = []
    for item in partial.levels:
        if item.risks:
            levels.append(item)
            continue
        evidence = whole_release.evidence(plan, item.level, **target_of(settings))
        risks = _risks(plan, item.level, evidence, partial.priors, settings)
        levels.append(replace(item, risks=risks, settled=all(risk.settled for risk in risks)))
    forget_laws()
    return replace(partial, levels=tuple(levels))


def exact_counts_reveal(plan: Plan, settings: Settings) -> bool:
    """Return whether counts published exactly give the answer at the judged level."""
    if not plan.invariants:
        return False
    views = whole_release.evidence(plan, plan.judged_level, **target_of(settings))
    return any(item.settled for item in views)


def judged_evidence(plan: Plan, settings: Settings) -> list[Evidence]:
    """Return what the intruder of the page sees: without exact counts, if these settle the matter."""
    exact = not exact_counts_reveal(plan, settings)
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


def judged_risks(plan: Plan, settings: Settings) -> tuple[LevelRisk, ...]:
    """Return the risks at the judged level for each prior, without how often they decide correctly."""
    evidence = judged_evidence(plan, settings)
    return _risks(plan, plan.judged_level, evidence, priors_of(plan, settings), settings)


def _risks(
    plan: Plan,
    level: str,
    evidence: Sequence[Evidence],
    priors: tuple[float, ...],
    settings: Settings,
) -> tuple[LevelRisk, ...]:
    attack = whole_release.name_of(settings.attack, settings.attribute)
    views = [(attack, item) for item in evidence]
    return tuple(risks_of(plan, level, views, priors, decisions=False))
