"""Attacks on a plan: all queries of a level at once, and the levels above, about one person.

The intruder knows everyone else in a unit, so of every query only the cells that differ between their
hypotheses inform them: those that contain the target under one hypothesis and not under the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from countveil.assess.intruder.combined_loss import LossLaw, NoisyCells, joint_loss, lattice_loss
from countveil.assess.intruder.decision import (
    EVEN,
    Losses,
    Ties,
    share_of_ties,
    sigmoid,
    sign_of_sum,
)
from countveil.assess.intruder.joint_precision import rate, rho_with_levels_above
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.targets import Attack, Target, targets_of
from countveil.assess.risk import Risk, mean_of_draws
from countveil.base.bounded_averages import as_probability, expectation
from countveil.base.numerics import FloatArray
from countveil.base.randomness import BitSource
from countveil.errors import InputError
from countveil.noise.law import Mechanism
from countveil.plan.plans import Plan
from countveil.plan.workload import Query

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

_STEP = 0.2  # of the integral: exp(-π²/0.2) is less than a double shows
_TAIL = 42.0
_AT_ONCE = 5_000_000
_DRAWS = 20_000


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
    siblings : mapping of level to int, optional
        How many siblings a unit has at each level below the top. With it, they also see the levels
        above.
    invariants : bool
        Whether they also see, with `siblings`, what the plan publishes exactly.

    Returns
    -------
    Risk
        "effective rho".
    """
    level = _level(plan, level)
    targets = targets_of(plan, attack, attribute, categories)
    worst = max(_rho(plan, level, target, siblings, invariants) for target in targets)
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
    if not (invariants and any(determined(plan, level, target) for target in targets)):
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
    if not (invariants and any(determined(plan, level, target) for target in targets)):
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
    return any(determined(plan, level, target) for target in targets)


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
    plan: Plan, level: str, targets: Sequence[Target]
) -> list[tuple[NoisyCells, ...]]:
    """Return the noises that inform about each target, once for all targets with the same ones."""
    noises = _noises(plan, level)
    return list(dict.fromkeys(tuple(_informing(noises, target)) for target in targets))


def _noises(plan: Plan, level: str) -> list[tuple[Query, Mechanism]]:
    return [(item.query, item.mechanism) for item in plan.at(level)]


def _informing(noises: Sequence[tuple[Query, Mechanism]], target: Target) -> list[NoisyCells]:
    """Return each noise of the queries that separate the hypotheses, and in how many cells."""
    total: dict[Mechanism, int] = {}
    for query, noise in noises:
        cells = target.separating_cells(query)
        if cells:
            total[noise] = total.get(noise, 0) + cells
    return [NoisyCells(noise, cells) for noise, cells in total.items()]


def _rho(
    plan: Plan,
    level: str,
    target: Target,
    siblings: Mapping[str, int] | None,
    invariants: bool,
) -> float:
    rows = plan.rows_per_person
    if siblings is None:
        laws = _informing(_noises(plan, level), target)
        return rows**2 * sum(cells * rate(noise) for noise, cells in laws)
    return rows**2 * rho_with_levels_above(plan, level, target, siblings, invariants)


def determined(plan: Plan, level: str, target: Target) -> bool:
    """Return whether what is published exactly, at this level or below, separates the hypotheses."""
    below = plan.levels[plan.levels.index(level) :]
    known = [item.query for item in plan.invariants if item.level in below]
    return any(target.separating_cells(query) for query in known)


# Which of several cells: two, or as many as an unknown attribute has categories. Where every query
# separates all candidates or none, what it says about one candidate is independent of what it says
# about another, and both numbers are sums over one candidate at a time. Otherwise they are simulated.


class Identification(NamedTuple):
    """How well an intruder finds the true cell among several."""

    posterior: Risk
    correct_decision: Risk


def among(
    plan: Plan,
    *,
    cells: Sequence[int],
    prior: Sequence[float],
    level: str | None = None,
    truth: int = 0,
    draws: int | None = None,
    rng: BitSource | None = None,
) -> Identification:
    """Return expected posterior and probability of a correct guess among two or more cells.

    The intruder knows everyone else in the unit, and that their target is in one of `cells` of the full
    table. They see all queries of the level and name the most probable cell, any one of them if several
    are. The numbers are those of the true cell.

    Parameters
    ----------
    plan : Plan
        The plan whose noise is assessed; no record is read.
    cells : sequence of int
        The candidate cells of the full table.
    prior : sequence of float
        Their probability of each cell, up to a common factor.
    level : str, optional
        The level of the unit; the plan's judged level by default.
    truth : int
        The position of the true cell in `cells`.
    draws : int, optional
        Simulate with this many draws. Without it, only what cannot be summed is simulated.
    rng : BitSource, optional
        The randomness of a simulation, needed where a query separates only some of the candidates.

    Returns
    -------
    Identification
        `posterior` and `correct_decision`, with standard errors where they are simulated.
    """
    level = plan.judged_level if level is None else level
    belief = _normalized(plan, cells, prior, truth)
    laws = _laws_by_candidate(plan, level, cells)
    if laws is not None and draws is None:
        return Identification(
            Risk(
                "posterior",
                _posterior_among(laws, belief, truth, plan.rows_per_person),
                level=level,
            ),
            Risk(
                "correct decision",
                _names_truth(laws, belief, truth, plan.rows_per_person),
                level=level,
            ),
        )
    if rng is None:
        raise InputError(
            "cells: some query separates only some of them, so the numbers are simulated; pass "
            f"rng=Seeded(1), and draws if {_DRAWS:,} are too few"
        )
    if draws is not None and draws < 2:
        raise InputError(f"draws: {draws} is not allowed; use at least 2")
    return _simulated_among(plan, level, cells, belief, truth, draws or _DRAWS, rng)


def _normalized(plan: Plan, cells: Sequence[int], prior: Sequence[float], truth: int) -> FloatArray:
    """Return the prior with sum 1; refuse candidates that an attack cannot have."""
    belief = np.asarray(prior, float)
    if len(cells) < 2 or belief.shape != (len(cells),) or not (belief > 0).all():
        raise InputError("cells: give two or more, and a prior above 0 for each")
    with np.errstate(over="ignore", invalid="ignore"):
        belief = belief / belief.sum()
    if not (belief > 0).all():
        raise InputError("prior: give finite numbers, none of them 0 relative to the others")
    if len(set(cells)) != len(cells) or not all(0 <= c < plan.schema.cells for c in cells):
        raise InputError(
            f"cells: they must be different numbers from 0 to {plan.schema.cells - 1:,}"
        )
    if not 0 <= truth < len(cells):
        raise InputError(
            f"truth: {truth} is not allowed; it must be a number from 0 to {len(cells) - 1}"
        )
    return np.asarray(belief, np.float64)


def _laws_by_candidate(
    plan: Plan, level: str, cells: Sequence[int]
) -> list[tuple[NoisyCells, ...]] | None:
    """Return the noises that inform about each candidate alone; None if some inform about several."""
    laws: list[list[NoisyCells]] = [[] for _ in cells]
    for item in plan.at(level):
        place = item.query.cells_at(np.asarray(cells))
        counted = place[place >= 0]
        if (place == place[0]).all():
            continue
        if len(np.unique(counted)) < len(counted):
            return None
        for number in np.flatnonzero(place >= 0):
            laws[number].append(NoisyCells(item.mechanism, 1))
    return [tuple(item) for item in laws]


def _posterior_among(
    laws: Sequence[tuple[NoisyCells, ...]], belief: FloatArray, truth: int, rows: int
) -> float:
    """Return E[a_t / Σ_j a_j], a_j = prior × evidence, as ∫ E[a_t e^(-u a_t)] Π E[e^(-u a_j)] du.

    With u = e^v it is a sum over equal steps of v, which converges faster than any power of the step.
    """
    evidence = [_smooth_evidence(item, rows) for item in laws]
    own = math.log(belief[truth]) + evidence[truth].points
    v = np.arange(-own.max() - _TAIL, -own.min() + math.log(_TAIL) + _STEP, _STEP)
    log_product = np.zeros(len(v))
    for number, (points, weights) in enumerate(evidence):
        if number != truth:
            shifted = math.log(belief[number]) - points  # of one who is elsewhere, by symmetry
            log_product += _log_laplace(v, shifted, weights, times=False)
    log_product += _log_laplace(v, own, evidence[truth].weights, times=True)
    return as_probability(float(_STEP * np.exp(log_product).sum()))


def _smooth_evidence(laws: tuple[NoisyCells, ...], rows: int) -> LossLaw:
    if not laws:
        return LossLaw(np.zeros(1), np.ones(1))
    points, weights = joint_loss([noise for noise, _ in laws], rows)
    heavy = weights > 1e-18
    return LossLaw(points[heavy], weights[heavy] / weights[heavy].sum())


def _log_laplace(
    v: FloatArray, log_a: FloatArray, weights: FloatArray, *, times: bool
) -> FloatArray:
    """Return log E[e^(-a e^v)], or log E[a e^v e^(-a e^v)] with `times`."""
    values = np.empty(len(v))
    for part in np.array_split(np.arange(len(v)), max(1, len(v) * len(log_a) // _AT_ONCE)):
        x = v[part, None] + log_a
        exponent = -np.exp(np.minimum(x, 700.0)) + (x if times else 0.0)
        values[part] = np.exp(exponent) @ weights
    with np.errstate(divide="ignore"):
        return np.log(values)


def _names_truth(
    laws: Sequence[tuple[NoisyCells, ...]], belief: FloatArray, truth: int, rows: int
) -> float:
    """Return how often the true cell is the most probable, one of m equally probable counting 1/m.

    E[1/(1 + ties)] = ∫ Π_j (P(j is less likely) + x P(j is as likely)) dx over x from 0 to 1.
    """
    own, weights = _lattice_evidence(laws[truth], rows)
    own = math.log(belief[truth]) + own
    nodes, shares = np.polynomial.legendre.leggauss(len(laws) // 2 + 1)
    x, shares = (nodes + 1) / 2, shares / 2
    product = np.ones((len(x), len(own)))
    for number, item in enumerate(laws):
        if number == truth:
            continue
        points, masses = _lattice_evidence(item, rows)
        other, up_to = _sorted_sums(math.log(belief[number]) - points, masses)
        slack = _ROUNDING * (1 + np.abs(own))
        less = up_to[np.searchsorted(other, own - slack, side="left")]
        tied = up_to[np.searchsorted(other, own + slack, side="right")] - less
        product *= less + x[:, None] * tied
    return as_probability(float(shares @ product @ weights))


def _lattice_evidence(laws: tuple[NoisyCells, ...], rows: int) -> LossLaw:
    return lattice_loss(laws, rows) if laws else LossLaw(np.zeros(1), np.ones(1))


def _sorted_sums(values: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return values in order, and the weight of all that come before each place between them."""
    order = np.argsort(values)
    return values[order], np.concatenate([[0.0], np.cumsum(weights[order])])


def _simulated_among(
    plan: Plan,
    level: str,
    cells: Sequence[int],
    belief: FloatArray,
    truth: int,
    draws: int,
    rng: BitSource,
) -> Identification:
    rows = plan.rows_per_person
    log_odds = np.tile(np.log(belief), (draws, 1))
    for item in plan.at(level):
        noise, place = item.mechanism, item.query.cells_at(np.asarray(cells))
        for cell in np.unique(place[place >= 0]):
            here = place == cell
            noisy = noise.sample(draws, rng=rng).astype(float) + (rows if here[truth] else 0)
            # Ties are sums of the same losses in another order: rounded, they stay ties.
            log_odds += np.where(here, noise.loss_at(noisy - rows, rows)[:, None], 0.0)
    log_odds -= log_odds.max(axis=1, keepdims=True)
    weights = np.exp(log_odds)
    posterior = weights / weights.sum(axis=1, keepdims=True)
    best = log_odds >= -_ROUNDING
    right = best[:, truth] / best.sum(axis=1)
    return Identification(
        mean_of_draws("posterior", posterior[:, truth], level=level),
        mean_of_draws("correct decision", right, level=level),
    )
