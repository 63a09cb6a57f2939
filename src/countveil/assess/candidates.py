"""Which of several cells a person is in: two, or as many as an unknown attribute has.

Where every query either tells all candidates apart or none, what it says of one is independent of what
it says of another, and both numbers are sums over the evidence on one at a time. Otherwise they are
simulated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from countveil.assess.evidence import joint_loss, lattice_loss
from countveil.assess.probability import as_probability
from countveil.assess.risk import Risk, averaged
from countveil.errors import InputError
from countveil.measure.strategy import mechanism_for
from countveil.mechanisms.law import Mechanism
from countveil.numerics import FloatArray
from countveil.randomness import BitSource
from countveil.schema.plan import Plan

Laws = tuple[tuple[Mechanism, int], ...]

_STEP = 0.2  # of the integral: exp(-π²/0.2) is less than a double shows
_TAIL = 42.0
_ROUNDING = 1e-12
_AT_ONCE = 5_000_000
_DRAWS = 20_000


def among(
    plan: Plan,
    *,
    cells: Sequence[int],
    prior: Sequence[float],
    level: str | None = None,
    truth: int = 0,
    draws: int | None = None,
    rng: BitSource | None = None,
) -> tuple[Risk, Risk]:
    """Return expected posterior and probability of a correct decision among two or more cells.

    He knows everyone else in the unit, and that his target is in one of `cells` of the full table; he
    sees all queries of the level and names the likeliest cell, any of them if several are; the numbers
    are those of the cell at `truth`. With `draws`, or where a query puts some candidates together and
    others apart, they are simulated with `rng` and have standard errors.
    """
    level = plan.judged_level if level is None else level
    belief = _checked(plan, cells, prior, truth)
    laws = _laws(plan, level, cells)
    if laws is not None and draws is None:
        return (
            Risk("posterior", _expected_posterior(laws, belief, truth, plan.rows_per_person)),
            Risk("correct decision", _names_truth(laws, belief, truth, plan.rows_per_person)),
        )
    if rng is None:
        raise InputError(
            "cells: a query puts some of them together and others apart, which is simulated; pass "
            f"rng=Seeded(1), and draws if {_DRAWS:,} are too few"
        )
    if draws is not None and draws < 2:
        raise InputError(f"draws: {draws} is not allowed; at least 2 are needed")
    return _simulated(plan, level, cells, belief, truth, draws or _DRAWS, rng)


def _checked(plan: Plan, cells: Sequence[int], prior: Sequence[float], truth: int) -> FloatArray:
    belief = np.asarray(prior, float)
    if len(cells) < 2 or belief.shape != (len(cells),) or not (belief > 0).all():
        raise InputError("cells: give two or more, and a prior above 0 for each")
    with np.errstate(over="ignore", invalid="ignore"):
        belief = belief / belief.sum()
    if not (belief > 0).all():
        raise InputError("prior: give finite numbers, none of them 0 next to the others")
    if len(set(cells)) != len(cells) or not all(0 <= c < plan.schema.cells for c in cells):
        raise InputError(
            f"cells: they must be different numbers from 0 to {plan.schema.cells - 1:,}"
        )
    if not 0 <= truth < len(cells):
        raise InputError(
            f"truth: {truth} is not allowed; it is a number from 0 to {len(cells) - 1}"
        )
    return np.asarray(belief, np.float64)


def _laws(plan: Plan, level: str, cells: Sequence[int]) -> list[Laws] | None:
    """Return the noises that inform of each candidate alone; none if some inform of several."""
    found: list[list[tuple[Mechanism, int]]] = [[] for _ in cells]
    for item in plan.at(level):
        place = item.query.cells_at(np.asarray(cells))
        counted = place[place >= 0]
        if (place == place[0]).all():
            continue
        if len(np.unique(counted)) < len(counted):
            return None
        for number in np.flatnonzero(place >= 0):
            found[number].append((mechanism_for(item), 1))
    return [tuple(laws) for laws in found]


def _expected_posterior(laws: Sequence[Laws], belief: FloatArray, truth: int, rows: int) -> float:
    """Return E[a_t / Σ_j a_j], a_j = prior × evidence, as ∫ E[a_t e^(-u a_t)] Π E[e^(-u a_j)] du.

    With u = e^v it is a sum over equal steps of v, which converges faster than any power of the step.
    """
    evidence = [_smooth_evidence(item, rows) for item in laws]
    own = math.log(belief[truth]) + evidence[truth][0]
    v = np.arange(-own.max() - _TAIL, -own.min() + math.log(_TAIL) + _STEP, _STEP)
    log_product = np.zeros(len(v))
    for number, (points, weights) in enumerate(evidence):
        if number != truth:
            shifted = math.log(belief[number]) - points  # of one who is elsewhere, by symmetry
            log_product += _log_laplace(v, shifted, weights, times=False)
    log_product += _log_laplace(v, own, evidence[truth][1], times=True)
    return as_probability(float(_STEP * np.exp(log_product).sum()))


def _smooth_evidence(laws: Laws, rows: int) -> tuple[FloatArray, FloatArray]:
    if not laws:
        return np.zeros(1), np.ones(1)
    points, weights = joint_loss([law for law, _ in laws], rows)
    kept = weights > 1e-18
    return points[kept], weights[kept] / weights[kept].sum()


def _log_laplace(
    v: FloatArray, log_a: FloatArray, weights: FloatArray, *, times: bool
) -> FloatArray:
    """Return log E[e^(-a e^v)], or log E[a e^v e^(-a e^v)] with `times`."""
    found = np.empty(len(v))
    for part in np.array_split(np.arange(len(v)), max(1, len(v) * len(log_a) // _AT_ONCE)):
        x = v[part, None] + log_a
        exponent = -np.exp(np.minimum(x, 700.0)) + (x if times else 0.0)
        found[part] = np.exp(exponent) @ weights
    with np.errstate(divide="ignore"):
        return np.log(found)


def _names_truth(laws: Sequence[Laws], belief: FloatArray, truth: int, rows: int) -> float:
    """Return how often the true cell is the likeliest, one of m as likely counting 1/m.

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
        points, chances = _lattice_evidence(item, rows)
        other, up_to = _sorted_sums(math.log(belief[number]) - points, chances)
        slack = _ROUNDING * (1 + np.abs(own))
        less = up_to[np.searchsorted(other, own - slack, side="left")]
        tied = up_to[np.searchsorted(other, own + slack, side="right")] - less
        product *= less + x[:, None] * tied
    return as_probability(float(shares @ product @ weights))


def _lattice_evidence(laws: Laws, rows: int) -> tuple[FloatArray, FloatArray]:
    if not laws:
        return np.zeros(1), np.ones(1)
    loss = lattice_loss(laws, rows)
    return loss.points, loss.weights


def _sorted_sums(values: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return values in order, and the weight of all that come before each place between them."""
    order = np.argsort(values)
    return values[order], np.concatenate([[0.0], np.cumsum(weights[order])])


def _simulated(
    plan: Plan,
    level: str,
    cells: Sequence[int],
    belief: FloatArray,
    truth: int,
    draws: int,
    rng: BitSource,
) -> tuple[Risk, Risk]:
    rows = plan.rows_per_person
    log_odds = np.tile(np.log(belief), (draws, 1))
    for item in plan.at(level):
        noise, place = mechanism_for(item), item.query.cells_at(np.asarray(cells))
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
    return averaged("posterior", posterior[:, truth]), averaged("correct decision", right)
