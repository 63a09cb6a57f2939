"""Which of several cells a person is in: two, or as many as an unknown attribute has categories.

Where every query separates all candidates or none, what it says about one candidate is independent of
what it says about another, and both numbers are sums over one candidate at a time. Otherwise they are
simulated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from countveil.assess.intruder.combined_loss import NoisyCells, joint_loss, lattice_loss
from countveil.assess.risk import Risk, mean_of_draws
from countveil.base.bounded_averages import as_probability
from countveil.base.numerics import FloatArray
from countveil.base.randomness import BitSource
from countveil.errors import InputError
from countveil.noise.law import LossLaw
from countveil.plan.plans import Plan

_ROUNDING = 1e-12
_STEP = 0.2  # of the integral: exp(-π²/0.2) is less than a double shows
_TAIL = 42.0
_AT_ONCE = 5_000_000
_DRAWS = 20_000


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
