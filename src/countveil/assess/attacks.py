"""Attacks on a plan: all queries of a level at once, and the levels above, on one person.

At the lowest level the intruder knows everyone else, so of every query only the cells that his
hypotheses tell apart inform him: those that would hold his target under one and not under the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from countveil.assess.candidates import among
from countveil.assess.decision import EVEN, Losses, Ties, share_of_ties, sigmoid, sign_of_sum
from countveil.assess.evidence import LatticeLoss, joint_loss, lattice_loss
from countveil.assess.intruder import Intruder
from countveil.assess.joint_precision import rate, rho_with_levels_above
from countveil.assess.probability import expectation
from countveil.assess.risk import Risk
from countveil.assess.targets import Attack, Target, targets_of
from countveil.measure.strategy import mechanism_for
from countveil.mechanisms.law import Mechanism
from countveil.schema.plan import Plan
from countveil.schema.workload import Query

__all__ = [
    "among",
    "correct_decision",
    "effective_rho",
    "is_settled",
    "marginal_risk",
    "presence_by_prior",
]

_ROUNDING = 1e-12
_NEVER = 1e-12  # a probability below it is what sums of many others lose


def effective_rho(
    plan: Plan,
    *,
    attack: Attack,
    level: str | None = None,
    attribute: str | None = None,
    categories: tuple[str, str] | None = None,
    siblings: Mapping[str, int] | None = None,
    invariants: bool = True,
) -> Risk:
    """Return the rho of one count that would tell as much as all queries, where counts are large.

    He knows everyone else in a unit of `level`, the lowest measured one if not said; he sees all its
    queries: Σ_q rho_q ‖A_q v‖², rho_q = 1/(2 sigma_q²), v his cell, or his cell less the other one.
    With `siblings`, how many a unit has at each level below the top, he sees the levels above too, and
    what the plan publishes as counted, unless `invariants` is False. Of several possible targets the
    worst is taken.
    """
    level = _level(plan, level)
    targets = targets_of(plan, attack, attribute, categories)
    worst = max(_rho(plan, level, target, siblings, invariants) for target in targets)
    return Risk("effective rho", worst)


def marginal_risk(
    plan: Plan,
    *,
    attack: Attack,
    prior: float,
    level: str | None = None,
    attribute: str | None = None,
    categories: tuple[str, str] | None = None,
    invariants: bool = True,
) -> Risk:
    """Return the expected posterior over prior of an attack with all queries of a level, exactly.

    He knows everyone else in the unit; he sees all its queries, and what the plan publishes as counted
    unless `invariants` is False; the number is R of (15) for them together, for the worst target.
    """
    who = Intruder(prior=prior, rows=plan.rows_per_person)
    level = _level(plan, level)
    targets = targets_of(plan, attack, attribute, categories)
    if invariants and any(_determined(plan, level, target) for target in targets):
        return Risk("marginal risk", 1 / prior, posterior=1.0)
    posteriors = []
    for laws in _distinct_laws(plan, level, targets):
        points, weights = joint_loss([law for law, cells in laws for _ in range(cells)], who.rows)
        posteriors.append(expectation(weights, sigmoid(who.log_odds + points)))
    after = max(posteriors)
    return Risk("marginal risk", after / prior, posterior=after)


def correct_decision(
    plan: Plan,
    *,
    attack: Attack,
    prior: float,
    level: str | None = None,
    attribute: str | None = None,
    categories: tuple[str, str] | None = None,
    ties: Ties = "split",
    losses: Losses = EVEN,
    invariants: bool = True,
) -> Risk:
    """Return the probability of a correct decision with all queries of a level, on the lattice.

    He knows everyone else in the unit; he sees all its queries, and what the plan publishes as counted
    unless `invariants` is False; his target is as his first hypothesis says. Of several possible
    targets the one he is right about most often is taken.
    """
    who = Intruder(prior=prior, rows=plan.rows_per_person)
    level = _level(plan, level)
    tied, chances = share_of_ties(ties), []
    targets = targets_of(plan, attack, attribute, categories)
    if invariants and any(_determined(plan, level, target) for target in targets):
        return Risk("correct decision", 1.0)
    for laws in _distinct_laws(plan, level, targets):
        chances.append(_says_yes(lattice_loss(laws, who.rows), who.log_odds - losses.bias, tied))
    return Risk("correct decision", max(chances))


def posteriors_by_prior(
    plan: Plan,
    level: str,
    priors: Sequence[float],
    *,
    attack: Attack = "presence",
    attribute: str | None = None,
) -> list[float]:
    """Return the expected posterior of an attack for each prior, for the worst target.

    What is published as counted is left out. The law of evidence does not depend on the prior, so it is
    made once for each kind of target.
    """
    rows, targets = plan.rows_per_person, targets_of(plan, attack, attribute, None)
    kinds = [
        joint_loss([law for law, cells in laws for _ in range(cells)], rows)
        for laws in _distinct_laws(plan, level, targets)
    ]
    odds = [Intruder(prior=prior, rows=rows).log_odds for prior in priors]
    return [
        max(expectation(weights, sigmoid(log_odds + points)) for points, weights in kinds)
        for log_odds in odds
    ]


def decisions_by_prior(
    plan: Plan,
    level: str,
    priors: Sequence[float],
    *,
    attack: Attack = "presence",
    attribute: str | None = None,
) -> list[float]:
    """Return the probability of a correct decision for each prior, as `correct_decision` does."""
    rows, targets = plan.rows_per_person, targets_of(plan, attack, attribute, None)
    kinds = [lattice_loss(laws, rows) for laws in _distinct_laws(plan, level, targets)]
    odds = [Intruder(prior=prior, rows=rows).log_odds for prior in priors]
    return [max(_says_yes(loss, log_odds, 0.5) for loss in kinds) for log_odds in odds]


def presence_by_prior(
    plan: Plan, level: str, priors: Sequence[float], *, invariants: bool = False
) -> list[tuple[float, float, float]]:
    """Return (prior, expected posterior, probability of a correct decision) of the presence attack.

    With `invariants` he also sees what is published as counted; where that settles it, he is certain.
    """
    if invariants and is_settled(plan, level):
        return [(prior, 1.0, 1.0) for prior in priors]
    after = posteriors_by_prior(plan, level, priors)
    right = decisions_by_prior(plan, level, priors)
    return list(zip(priors, after, right, strict=True))


def is_settled(
    plan: Plan, level: str, *, attack: Attack = "presence", attribute: str | None = None
) -> bool:
    """Whether what is published as counted tells who knows everyone else in a unit, without noise."""
    targets = targets_of(plan, attack, attribute, None)
    return any(_determined(plan, level, target) for target in targets)


def _level(plan: Plan, level: str | None) -> str:
    """Return the level, the one the plan is judged by if not said; refuse an unknown one."""
    level = plan.judged_level if level is None else level
    plan.at(level)
    return level


def _says_yes(loss: LatticeLoss, log_odds: float, tied: float) -> float:
    sign = sign_of_sum(log_odds, loss.points, rounding=_ROUNDING)
    chance = expectation(loss.weights, np.where(sign == 0, tied, sign > 0))
    return chance if chance > _NEVER else 0.0


def _noises(plan: Plan, level: str) -> list[tuple[Query, Mechanism]]:
    return [(item.query, mechanism_for(item)) for item in plan.at(level)]


def _places(
    noises: Sequence[tuple[Query, Mechanism]], target: Target
) -> list[tuple[Mechanism, int]]:
    """Return each noise of the queries that tell the hypotheses apart, and in how many cells."""
    found: dict[Mechanism, int] = {}
    for query, noise in noises:
        cells = target.told_apart(query)
        if cells:
            found[noise] = found.get(noise, 0) + cells
    return list(found.items())


def _distinct_laws(
    plan: Plan, level: str, targets: Sequence[Target]
) -> list[tuple[tuple[Mechanism, int], ...]]:
    noises = _noises(plan, level)
    return list(dict.fromkeys(tuple(_places(noises, target)) for target in targets))


def _rho(
    plan: Plan,
    level: str,
    target: Target,
    siblings: Mapping[str, int] | None,
    invariants: bool,
) -> float:
    rows = plan.rows_per_person
    if siblings is None:
        told = _places(_noises(plan, level), target)
        return rows**2 * sum(cells * rate(noise) for noise, cells in told)
    return rows**2 * rho_with_levels_above(plan, level, target, siblings, invariants)


def _determined(plan: Plan, level: str, target: Target) -> bool:
    """Whether what is published as counted, here or below, tells the hypotheses apart."""
    below = plan.levels[plan.levels.index(level) :]
    known = [item.query for item in plan.invariants if item.level in below]
    return any(target.told_apart(query) for query in known)
