"""Two levels summed exactly: no sampler, no simulation.

Given the parent's and the siblings' noisy counts x2*, y1*, the log-odds are a constant plus the loss of
the lowest count, which never falls: he says yes from some x1* on. So the probability of a correct
decision is a sum over (x2*, y1*) of survival functions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, ndtr

from countveil.assess.chain import end_weights
from countveil.assess.decision import EVEN, Losses, Ties, share_of_ties, sigmoid
from countveil.assess.intruder import Intruder
from countveil.assess.level import Level
from countveil.assess.near_ties import Tie, resolved
from countveil.assess.parent_prior import Exactly, Flat
from countveil.assess.risk import Risk
from countveil.assess.summed_noise import Addition, SummedNoise
from countveil.errors import InputError
from countveil.mechanisms.discrete_gaussian import DiscreteGaussian
from countveil.numerics import FloatArray

_DEVIATIONS = 9.0  # of a Gaussian: beyond lies less than 1e-18
_TAIL = 42.0  # of an exponential tail, in units of its rate: less than 1e-18
_MOST_CELLS = 2_000_000
_MOST_SUMMANDS = 4_000
_FINEST = 80
_ROUNDING = 256 * float(np.finfo(float).eps)


@dataclass(frozen=True, eq=False, slots=True)
class Table:
    """What x2* and y1* say: their probabilities given the truth, and the log-odds they add."""

    parents: FloatArray
    sums: FloatArray
    weights: FloatArray
    log_odds: FloatArray
    thinned: bool
    truth: float


def correct_decision(
    low: Level,
    high: Level,
    truth: Sequence[int],
    intruder: Intruder,
    siblings: Addition,
    ties: Ties,
    losses: Losses = EVEN,
) -> Risk:
    """Return the probability of a correct decision about the target; see `hierarchy`."""
    present = truth[0] != intruder.known
    table = tabulated(low, high, truth, intruder, siblings)
    how = (low, high, intruder, siblings, ties, losses, present)
    value = _says_yes(table, *how)
    error = None
    if table.thinned:
        rough = tabulated(low, high, truth, intruder, siblings, coarser=2)
        error = abs(value - _says_yes(rough, *how))
    return Risk("correct decision", value if present else 1 - value, error=error)


def expected_posterior(
    low: Level, high: Level, truth: Sequence[int], intruder: Intruder, siblings: Addition
) -> Risk:
    """Return his posterior on average over what may be released, given the truth."""
    table = tabulated(low, high, truth, intruder, siblings)
    shift = 0 if truth[0] != intruder.known else intruder.rows
    width = half_width(low.noise)
    step = max(1, math.floor(math.sqrt(low.noise.variance) / _FINEST))
    noise = np.arange(-width, width + 1, step)
    losses = low.noise.loss_at(noise - shift, intruder.rows)
    weights = np.exp(low.noise.log_pmf(noise))
    weights /= weights.sum()
    flat = intruder.log_odds + table.log_odds.ravel()
    total = 0.0
    for loss, weight in zip(losses, weights, strict=True):
        total += float(weight * (table.weights.ravel() @ sigmoid(flat + loss)))
    return Risk("posterior", total, posterior=total)


def decision_changes(
    low: Level,
    high: Level,
    truth: Sequence[int],
    intruder: Intruder,
    siblings: Addition = "convolution",
) -> tuple[float, float]:
    """Return how often the upper level mends a wrong decision, and how often it spoils a right one."""
    present = truth[0] != intruder.known
    table = tabulated(low, high, truth, intruder, siblings)
    with_both = first_yes(low, intruder.log_odds + table.log_odds, intruder.rows)
    alone = first_yes(low, np.array(intruder.log_odds), intruder.rows)
    shift = 0 if present else intruder.rows
    between = probability_from(low, np.minimum(with_both, alone), shift) - probability_from(
        low, np.maximum(with_both, alone), shift
    )
    more_yes = float((table.weights * np.where(with_both < alone, between, 0.0)).sum())
    more_no = float((table.weights * np.where(with_both > alone, between, 0.0)).sum())
    return (more_yes, more_no) if present else (more_no, more_yes)


def decision_threshold(
    low: Level,
    high: Level,
    *,
    parent: int,
    sibling_sum: int,
    intruder: Intruder,
    siblings: Addition = "convolution",
) -> int:
    """Return the least count of the lowest level at which he says yes, given what is seen above it."""
    added = log_odds_above(
        low, high, np.array([float(parent)]), np.array([float(sibling_sum)]), intruder, siblings
    )
    first = float(first_yes(low, intruder.log_odds + added, intruder.rows)[0, 0])
    if not math.isfinite(first):
        raise InputError("prior: it settles the matter, whatever the lowest count is")
    return int(first) + intruder.known + intruder.rows


def tabulated(
    low: Level,
    high: Level,
    truth: Sequence[int],
    intruder: Intruder,
    siblings: Addition,
    *,
    coarser: int = 1,
) -> Table:
    """Tabulate x2* and y1* as far as they are likely given the truth; thin them where they are wide."""
    others = truth[1] - truth[0]
    if low.siblings == 0 and others:
        raise InputError("truth: a unit without siblings has the count of its parent")
    width = half_width(high.noise)
    law = SummedNoise(low.noise, low.siblings, siblings) if low.siblings else None
    spread = 0 if law is None else half_width(law)
    steps, most = [1, 1], math.isqrt(_MOST_CELLS)
    for number, reach in enumerate((width, spread)):
        if 2 * reach + 1 > most:
            steps[number] = math.ceil((2 * reach + 1) / most) * coarser
    parents = truth[1] + np.arange(-width, width + 1, steps[0], dtype=float)
    sums = others + np.arange(-spread, spread + 1, steps[1], dtype=float)
    weights = np.exp(high.noise.log_pmf(parents - truth[1]))
    weights = weights / weights.sum()
    if law is not None:
        of_sums = np.exp(law.log_pmf(sums - others))
        weights = weights[:, None] * (of_sums / of_sums.sum())
    else:
        weights = weights[:, None]
    log_odds = log_odds_above(low, high, parents, sums, intruder, siblings)
    return Table(parents, sums, weights, log_odds, max(steps) > 1, float(truth[1]))


def log_odds_above(
    low: Level,
    high: Level,
    parents: FloatArray,
    sums: FloatArray,
    intruder: Intruder,
    siblings: Addition,
) -> FloatArray:
    """Return log A_there - log A_away for each x2* and y1*: what they add to the log-odds.

    A_k = Σ_{y >= 0} g2(x2* - k - y) h(y1* - y) prior(k + y | k).
    """
    there, away = intruder.counts(there=True)[0], intruder.counts(there=False)[0]
    rows = intruder.rows
    if isinstance(low.prior, Flat) and low.siblings and len(parents) == np.ptp(parents) + 1:
        # A_{k + rows} at x2* is A_k at x2* - rows: one sum serves both.
        wider = np.concatenate([parents[0] - np.arange(rows, 0, -1), parents])
        log_sums = _log_sums(low, high, wider, sums, away, siblings)
        return log_sums[: len(parents)] - log_sums[rows:]
    with np.errstate(invalid="ignore"):
        found = _log_sums(low, high, parents, sums, there, siblings) - _log_sums(
            low, high, parents, sums, away, siblings
        )
    # Where the prior rules out both, or neither can be, he learns nothing.
    return np.where(np.isnan(found), 0.0, found)


def _log_sums(
    low: Level,
    high: Level,
    parents: FloatArray,
    sums: FloatArray,
    count: float,
    siblings: Addition,
) -> FloatArray:
    if low.siblings == 0:
        same = np.full(len(parents), count)
        fits: FloatArray = high.noise.log_pmf(parents - count)
        fits = fits + low.prior.log_weight(same, same)
        return np.repeat(fits[:, None], len(sums), axis=1)
    law = SummedNoise(low.noise, low.siblings, siblings)
    y, log_weights = _summands(low, high, law, parents, sums, count)
    log_weights = log_weights + low.prior.log_weight(count + y, np.full(len(y), count))
    log_fits = high.noise.log_pmf(parents[:, None] - count - y)
    log_moves = law.log_pmf(sums - y[:, None]) + log_weights[:, None]
    with np.errstate(divide="ignore"):
        fits, moves = np.exp(log_fits), np.exp(log_moves)
        product = fits @ moves
        if product.min() > 1e-290:
            return np.log(product)
    rows = [logsumexp(log_fit[:, None] + log_moves, axis=0) for log_fit in log_fits]
    return np.array(rows)


def _summands(
    low: Level,
    high: Level,
    law: SummedNoise,
    parents: FloatArray,
    sums: FloatArray,
    count: float,
) -> tuple[FloatArray, FloatArray]:
    """Return the siblings' counts to sum over, thinned where they are many, and log weights."""
    far = max(parents.max() - count + half_width(high.noise), 1.0)
    wide = max(sums.max() + half_width(law), 1.0)
    # Beyond the nearer of the two one factor is nothing; the other only falls.
    last = max(min(far, wide), 1.0) + max(0.0, -parents.min() + count, -sums.min())
    last = min(last, low.prior.last - count) if low.prior.last < math.inf else last
    if low.prior.last < count:
        return np.zeros(1), np.zeros(1)
    if last + 1 <= _MOST_SUMMANDS or not low.prior.smooth:
        return np.arange(0.0, last + 1), np.zeros(int(last) + 1)
    thin = max(1, math.floor(math.sqrt(min(law.variance, high.noise.variance)) / _FINEST))
    y = np.arange(0.0, last + thin, thin)
    if len(y) > 20 * _MOST_SUMMANDS:
        raise InputError("the noises of the two levels are too far apart to be summed over")
    weights = np.full(len(y), float(thin))
    ends = end_weights(thin)[: len(y)]
    weights[: len(ends)] = ends if thin > 1 else 1.0
    return y, np.log(weights)


def half_width(law: object) -> int:
    """Return how far integer noise reaches, but for less than 1e-17 of it."""
    variance = law.variance  # type: ignore[attr-defined]
    gaussian = isinstance(law, DiscreteGaussian) or (
        isinstance(law, SummedNoise) and law.as_gaussian is not None
    )
    if gaussian:
        return math.ceil(_DEVIATIONS * math.sqrt(max(variance, 0.0))) + 2
    return math.ceil(_TAIL * math.sqrt(max(variance, 0.0) / 2)) + 20


def _says_yes(
    table: Table,
    low: Level,
    high: Level,
    intruder: Intruder,
    siblings: Addition,
    ties: Ties,
    losses: Losses,
    present: bool,
) -> float:
    """Return how often he says that his target is there."""
    log_odds = intruder.log_odds - losses.bias + table.log_odds
    shift = 0 if present else intruder.rows
    if table.thinned and isinstance(low.noise, DiscreteGaussian) and low.noise.sigma2 > 400:
        rate = float(1 / (2 * low.noise.sigma2))
        e = -log_odds / (2 * rate * intruder.rows) - intruder.rows / 2
        return float((table.weights * ndtr(-(e + shift) * math.sqrt(2 * rate))).sum())
    first = first_yes(low, log_odds, intruder.rows)
    yes = probability_from(low, first, shift)
    # Just before the first yes the odds may be even, or just at it, but for rounding.
    total = float((table.weights * yes).sum())
    signs: dict[Tie, int] = {}
    for offset in (-1, 0):
        at = first + offset
        finite = np.isfinite(at) & np.isfinite(log_odds)
        loss = low.noise.loss_at(np.where(finite, at, 0.0), intruder.rows)
        odds = np.where(finite, log_odds, 1.0)
        near = finite & (np.abs(odds + loss) <= _ROUNDING * (np.abs(odds) + np.abs(loss) + 1))
        for i, j in np.argwhere(near):
            mass = float(np.exp(low.noise.log_pmf(at[i, j] + shift)))
            if table.weights[i, j] * mass < 1e-18:
                continue
            # Beside a known parent's count its noisy one says nothing.
            parent = table.truth if isinstance(low.prior, Exactly) else float(table.parents[i])
            tie = Tie(float(at[i, j]), parent, float(table.sums[j]))
            if tie not in signs:
                signs[tie] = resolved(tie, low, high, intruder, siblings, losses)
            decided = {1: 1.0, -1: 0.0, 0: share_of_ties(ties)}[signs[tie]]
            total += float(table.weights[i, j]) * mass * (decided - (1.0 if offset == 0 else 0.0))
    return total


def first_yes(low: Level, log_odds: FloatArray, rows: int) -> FloatArray:
    """Return the least whole e = x1* - known - rows at which the odds are above even."""
    if isinstance(low.noise, DiscreteGaussian):
        rate = float(1 / (2 * low.noise.sigma2))
        return np.asarray(np.floor(-log_odds / (2 * rate * rows) - rows / 2) + 1)
    width = 2 * half_width(low.noise) + rows
    e = np.arange(-width, width + 1, dtype=float)
    losses = low.noise.loss_at(e, rows)
    index = np.searchsorted(losses, -log_odds, side="right")
    return np.where(
        index == 0, -np.inf, np.where(index == len(e), np.inf, e[np.minimum(index, len(e) - 1)])
    )


def probability_from(low: Level, e: FloatArray, shift: int) -> FloatArray:
    """Return the probability that x1* - known - rows is at least e; `shift` is rows if he is away."""
    finite = np.isfinite(e)
    chance = low.noise.survival(np.where(finite, e + shift - 1, 0.0))
    return np.where(finite, chance, np.where(e < 0, 1.0, 0.0))
