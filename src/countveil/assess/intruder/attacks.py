"""Attacks on a plan: all queries of a level at once, and the levels above, about one person.

The intruder knows everyone else in a unit, so of every query only the cells that differ between their
hypotheses inform them: those that contain the target under one hypothesis and not under the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from countveil.assess.intruder.candidate_cells import Identification, among
from countveil.assess.intruder.combined_loss import NoisyCells, joint_loss, lattice_loss
from countveil.assess.intruder.decision import (
    EVEN,
    Losses,
    Ties,
    share_of_ties,
    sigmoid,
    sign_of_sum,
)
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.targets import Attack, AttackTarget, separation_of, targets_of
from countveil.assess.risk import Risk
from countveil.base.bounded_averages import expectation
from countveil.base.numerics import IntArray
from countveil.errors import InputError
from countveil.noise.law import LossLaw, Mechanism
from countveil.plan.plans import Plan

__all__ = [
    "Identification",
    "among",
    "correct_decision",
    "effective_rho",
    "marginal_risk",
    "published_exactly",
]

_ROUNDING = 1e-12
NEVER = 1e-12  # sums of many terms lose probabilities below this


def effective_rho(
    plan: Plan,
    *,
    attack: Attack,
    level: str | None = None,
    attribute: str | None = None,
    categories: tuple[str, str] | None = None,
) -> Risk:
    """Return the rho of one count that would reveal as much as all queries, where counts are large.

    The intruder knows everyone else in a unit and sees all queries of its level:
    Σ_q rho_q ‖A_q v‖², rho_q = 1/(2 sigma_q²), v the target's cell, or the target's cell less the other
    one. The number is that of the worst possible target.

    Parameters
    ----------
    plan : Plan
        A plan with Gaussian noise.
    attack : {"presence", "response", "honesty", "unknown attribute", "whole record"}
        What the intruder wants to find out.
    level : str, optional
        The level of the unit in which they know everyone else; the plan's judged level by default.
    attribute : str, optional
        The attribute that they do not know, for the attack "unknown attribute".
    categories : pair of str, optional
        The two values of it that they consider; the worst pair by default.

    Returns
    -------
    Risk
        "effective rho".
    """
    level = _level(plan, level)
    targets = targets_of(plan, attack, attribute, categories)
    worst = max(_rho(plan, laws) for laws in _distinct_laws(plan, level, targets))
    return Risk("effective rho", worst, level=level, attack=attack)


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

    The intruder knows everyone else in a unit. They see all queries of its level, and what the plan
    publishes exactly. The number is R of (15) for all of them together, for the worst target: 1.1 means
    that the release raises the probability of the truth by 10 % on average.

    Parameters
    ----------
    plan : Plan
        The plan whose noise is assessed; no record is read.
    attack, level, attribute, categories
        As for `effective_rho`.
    prior : float
        The intruder's probability of their first hypothesis, which is true.
    invariants : bool
        Whether they also see what the plan publishes exactly.

    Returns
    -------
    Risk
        "marginal risk", with the expected posterior.
    """
    who = Intruder(prior=prior, rows=plan.rows_per_person)
    level = _level(plan, level)
    targets = targets_of(plan, attack, attribute, categories)
    after = 1.0
    if not (invariants and determined(plan, level, targets)):
        after = max(
            expected_posterior(joint_loss(each_noise(laws), who.rows), who.log_odds)
            for laws in _distinct_laws(plan, level, targets)
        )
    return Risk(
        "marginal risk", after / prior, posterior=after, intruder=who, level=level, attack=attack
    )


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
    """Return the probability of a correct guess with all queries of a level, on the lattice.

    The intruder knows everyone else in a unit. They see all queries of its level, and what the plan
    publishes exactly. Their first hypothesis is true. The number is for the target about whom they
    guess correctly most often.

    Parameters
    ----------
    plan : Plan
        The plan whose noise is assessed; no record is read.
    attack, level, attribute, categories
        As for `effective_rho`.
    prior : float
        The intruder's probability of their first hypothesis.
    ties : {"split", "yes", "no"}
        What they say when both answers have the same expected loss.
    losses : Losses
        What wrong answers cost them.
    invariants : bool
        Whether they also see what the plan publishes exactly.

    Returns
    -------
    Risk
        "correct decision", a probability.
    """
    who = Intruder(prior=prior, rows=plan.rows_per_person)
    level = _level(plan, level)
    tied = share_of_ties(ties)
    targets = targets_of(plan, attack, attribute, categories)
    value = 1.0
    if not (invariants and determined(plan, level, targets)):
        value = max(
            guesses_right(lattice_loss(laws, who.rows), who.log_odds - losses.bias, tied)
            for laws in _distinct_laws(plan, level, targets)
        )
    return Risk("correct decision", value, intruder=who, level=level, attack=attack)


def published_exactly(
    plan: Plan, level: str, *, attack: Attack = "presence", attribute: str | None = None
) -> bool:
    """Return whether exact publication reveals the answer to someone who knows everyone else.

    Parameters
    ----------
    plan : Plan
        The plan, with its invariants.
    level : str
        The level of the unit in which the intruder knows everyone else.
    attack, attribute
        As for `effective_rho`.

    Returns
    -------
    bool
        True if what is published exactly at this level or below gives the answer for some target,
        however large the noise.
    """
    targets = targets_of(plan, attack, attribute, None)
    return determined(plan, level, targets)


def _level(plan: Plan, level: str | None) -> str:
    """Return the level, by default the one at which the plan is judged; refuse an unknown one."""
    level = plan.judged_level if level is None else level
    plan.at(level)
    return level


def expected_posterior(loss: LossLaw, log_odds: float) -> float:
    """Return the expected posterior of the true hypothesis, from the law of its loss."""
    return expectation(loss.weights, sigmoid(log_odds + loss.points))


def guesses_right(loss: LossLaw, log_odds: float, tied: float) -> float:
    """Return how often the true hypothesis wins; of ties, the share `tied` counts."""
    sign = sign_of_sum(log_odds, loss.points, rounding=_ROUNDING)
    share = expectation(loss.weights, np.where(sign == 0, tied, sign > 0))
    return share if share > NEVER else 0.0


def each_noise(laws: Sequence[NoisyCells]) -> list[Mechanism]:
    """Return the noise of each cell."""
    return [noise for noise, cells in laws for _ in range(cells)]


def _distinct_laws(
    plan: Plan, level: str, targets: Sequence[AttackTarget]
) -> list[tuple[NoisyCells, ...]]:
    """Return the noises that inform about each target, once for all targets with the same ones."""
    cells, pattern = separation_of(targets, (item.query for item in plan.at(level)))
    shown = [(cells[item.query], item.mechanism) for item in plan.at(level)]
    laws = (noisy_cells(shown, number) for number in range(int(pattern.max()) + 1))
    return list(dict.fromkeys(laws))


def noisy_cells(
    shown: Sequence[tuple[IntArray, Mechanism]], pattern: int
) -> tuple[NoisyCells, ...]:
    """Return the noise of the cells that separate the hypotheses, from cells by pattern and query."""
    total: dict[Mechanism, int] = {}
    for cells, noise in shown:
        if number := int(cells[pattern]):
            total[noise] = total.get(noise, 0) + number
    return tuple(NoisyCells(noise, number) for noise, number in total.items())


def _rho(plan: Plan, laws: Sequence[NoisyCells]) -> float:
    return plan.rows_per_person**2 * sum(cells * _rate(noise) for noise, cells in laws)


def _rate(noise: Mechanism) -> float:
    """Return rho of one count with this noise: 1 / (2 sigma²)."""
    variance = noise.gaussian_variance
    if variance is None:
        raise InputError(
            f"effective rho needs discrete Gaussian noise, and this plan has {noise.name}; give "
            f"its budget in rho"
        )
    return 1 / (2 * variance)


def determined(plan: Plan, level: str, targets: Sequence[AttackTarget]) -> bool:
    """Return whether what is published exactly, at this level or below, settles some target."""
    below = plan.levels[plan.levels.index(level) :]
    known = [item.query for item in plan.invariants if item.level in below]
    return any(bool(cells.any()) for cells in separation_of(targets, known).cells.values())
