"""Two levels summed exactly: no sampler, no simulation.

Given the parent's and the siblings' noisy counts x2* and y1*, the log-odds are a constant plus the loss
of the lowest count, which never falls: the intruder says "there" from some x1* on. So the probability
of a correct decision is a sum over (x2*, y1*) of survival functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp, ndtr

from countveil.assess.intruder.decision import (
    EVEN,
    Losses,
    Ties,
    refuse_impossible,
    share_of_ties,
    sign_of_sum,
)
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.several_levels.count_chain import end_weights
from countveil.assess.intruder.several_levels.hierarchy_level import Exactly, Flat, Level
from countveil.assess.intruder.several_levels.lowest_count import (
    first_yes,
    mean_posterior,
    probability_from,
)
from countveil.assess.intruder.several_levels.near_ties import Tie, canonical, resolved
from countveil.assess.risk import Risk
from countveil.base.bounded_averages import as_probability, expectation
from countveil.base.numerics import FloatArray
from countveil.errors import InputError
from countveil.noise.law import Mechanism
from countveil.noise.summed_noise import Addition, SummedNoise, half_width

_TAIL = 42.0  # minus the log of what may be left out: less than 1e-18
_MOST_CELLS = 2_000_000
_MOST_SUMMANDS = 4_000
_MOST_PRODUCTS = 50_000_000
_AT_ONCE = 5_000_000
_UNDERFLOW = -600.0
_FINEST = 80  # summands per standard deviation, where a sum is thinned
_FINEST_TABLE = 20  # entries per standard deviation, where a table is thinned
_SMOOTH_VARIANCE = 400  # sigma² from which a thinned table is read as if the noise were continuous
_ROUNDING = 256 * float(np.finfo(float).eps)


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

    def says_yes(table: LogOddsTable) -> float:
        return _says_yes(table, low, high, intruder, siblings, ties, losses, present)

    value, error = _twice(low, high, truth, intruder, siblings, says_yes)
    if error is not None:
        # The threshold may also be one step of the lattice too low or too high.
        error += float(np.exp(low.noise.log_pmf(0)))
    return Risk(
        "correct decision",
        as_probability(value if present else 1 - value),
        error_bound=error,
        intruder=intruder,
        noise=(low.noise, high.noise),
    )


def expected_posterior(
    low: Level, high: Level, truth: Sequence[int], intruder: Intruder, siblings: Addition
) -> Risk:
    """Return the intruder's posterior on average over what may be released, given the truth."""
    points, weights = low.noise.privacy_loss(intruder.rows)
    # Noise is symmetric: for a target who is away the loss is reversed.
    losses = points if truth[0] != intruder.known else -points

    def averaged(table: LogOddsTable) -> float:
        odds = intruder.log_odds + table.log_odds.ravel()
        return expectation(table.weights.ravel(), mean_posterior(odds, losses, weights))

    value, error = _twice(low, high, truth, intruder, siblings, averaged, smooth=True)
    return Risk(
        "posterior",
        value,
        posterior=value,
        error_bound=error,
        intruder=intruder,
        noise=(low.noise, high.noise),
    )


def _twice(
    low: Level,
    high: Level,
    truth: Sequence[int],
    intruder: Intruder,
    siblings: Addition,
    what: Callable[[LogOddsTable], float],
    *,
    smooth: bool = False,
) -> tuple[float, float | None]:
    """Return a number from a table and, if it is thinned, how much one half as fine changes it."""
    table = tabulated(low, high, truth, intruder, siblings, smooth=smooth)
    value = what(table)
    if not table.thinned:
        return value, None
    rough = tabulated(low, high, truth, intruder, siblings, smooth=smooth, coarser=2)
    return value, abs(value - what(rough))


class DecisionChanges(NamedTuple):
    """How often the upper level turns a wrong guess right, and a right guess wrong."""

    corrected: float
    spoiled: float


def decision_changes(
    low: Level,
    high: Level,
    truth: Sequence[int],
    intruder: Intruder,
    siblings: Addition = "convolution",
) -> DecisionChanges:
    """Return how often the upper level corrects a wrong guess, and how often it spoils a right one.

    The intruder knows everyone else in the lowest unit. They guess first from the lowest noisy count
    alone, and again after seeing the parent's noisy count and the siblings' noisy sum.

    Parameters
    ----------
    low, high : Level
        The two levels.
    truth : sequence of int
        The true count of each; the target is there unless the first is what the intruder knows.
    intruder : Intruder
        What they believe and know before the release.
    siblings : {"convolution", "gaussian"}
        How the noise of a sum is computed.

    Returns
    -------
    DecisionChanges
        The probabilities `corrected` and `spoiled`.
    """
    present = truth[0] != intruder.known
    table = tabulated(low, high, truth, intruder, siblings)
    with_both = first_yes(low, intruder.log_odds + table.log_odds, intruder.rows)
    alone = first_yes(low, np.array(intruder.log_odds), intruder.rows)
    shift = 0 if present else intruder.rows
    between = probability_from(low, np.minimum(with_both, alone), shift) - probability_from(
        low, np.maximum(with_both, alone), shift
    )
    more_yes = expectation(table.weights, np.where(with_both < alone, between, 0.0))
    more_no = expectation(table.weights, np.where(with_both > alone, between, 0.0))
    changes = (more_yes, more_no) if present else (more_no, more_yes)
    return DecisionChanges(*changes)


def decision_threshold(
    low: Level,
    high: Level,
    *,
    parent: int,
    sibling_sum: int,
    intruder: Intruder,
    siblings: Addition = "convolution",
) -> int:
    """Return the smallest lowest count at which the intruder says "there", given what is above it.

    Parameters
    ----------
    low, high : Level
        The two levels.
    parent : int
        The parent's released count.
    sibling_sum : int
        The sum of the siblings' released counts.
    intruder : Intruder
        What they believe and know before the release.
    siblings : {"convolution", "gaussian"}
        How the noise of a sum is computed.

    Returns
    -------
    int
        A released count of the lowest level.
    """
    added = log_odds_above(
        low, high, np.array([float(parent)]), np.array([float(sibling_sum)]), intruder, siblings
    )
    first = float(first_yes(low, intruder.log_odds + added, intruder.rows)[0, 0])
    if not math.isfinite(first):
        raise InputError(
            "prior: it settles the matter for every lowest count, so there is no threshold"
        )
    return int(first) + intruder.known + intruder.rows


def _says_yes(
    table: LogOddsTable,
    low: Level,
    high: Level,
    intruder: Intruder,
    siblings: Addition,
    ties: Ties,
    losses: Losses,
    present: bool,
) -> float:
    """Return how often the intruder says that the target is there."""
    log_odds = intruder.log_odds - losses.bias + table.log_odds
    shift = 0 if present else intruder.rows
    if low.noise.bounded_loss is not None:
        return _says_yes_by_loss(table, low, high, intruder, ties, log_odds, present)
    variance = low.noise.gaussian_variance
    if table.thinned and variance is not None and variance > _SMOOTH_VARIANCE:
        rate = 1 / (2 * variance)
        e = -log_odds / (2 * rate * intruder.rows) - intruder.rows / 2
        return expectation(table.weights, ndtr(-(e + shift) * math.sqrt(2 * rate)))
    first = first_yes(low, log_odds, intruder.rows)
    yes = probability_from(low, first, shift)
    # Just before the first yes, or just at it, the odds may be even up to rounding.
    signs: dict[Tie, int] = {}
    for offset in (-1, 0):
        at = first + offset
        finite = np.isfinite(at) & np.isfinite(log_odds)
        loss = low.noise.loss_at(np.where(finite, at, 0.0), intruder.rows)
        near = finite & (sign_of_sum(log_odds, loss, rounding=_ROUNDING, least=1.0) == 0)
        for i, j in np.argwhere(near):
            mass = float(np.exp(low.noise.log_pmf(at[i, j] + shift)))
            if table.weights[i, j] * mass < 1e-18:
                continue
            # Where the parent's count is known, its noisy count says nothing.
            parent = table.truth if isinstance(low.prior, Exactly) else float(table.parents[i])
            tie = canonical(Tie(float(at[i, j]), parent, float(table.sums[j])), low, high, intruder)
            if tie not in signs:
                signs[tie] = resolved(tie, low, high, intruder, siblings, losses)
            decided = {1: 1.0, -1: 0.0, 0: share_of_ties(ties)}[signs[tie]]
            yes[i, j] += mass * (decided - (1.0 if offset == 0 else 0.0))
    return expectation(table.weights, as_probability(yes))


def _says_yes_by_loss(
    table: LogOddsTable,
    low: Level,
    high: Level,
    intruder: Intruder,
    ties: Ties,
    log_odds: FloatArray,
    present: bool,
) -> float:
    """Return the same where the loss is bounded, so that its few values are summed."""
    points, weights = low.noise.privacy_loss(intruder.rows)
    yes = np.zeros_like(log_odds)
    for point, weight in zip(points if present else -points, weights, strict=True):
        sign = sign_of_sum(log_odds, point, rounding=_ROUNDING, least=1.0)
        near = sign == 0
        says = np.where(near, share_of_ties(ties), sign > 0)
        if can_tie(low, high):
            # Only a small x2* is exactly a tie; the others come as close as doubles can show.
            more = near & (table.parents > intruder.known)[:, None]
            says = np.where(more, 1.0 if point > 0 else 0.0, says)
        yes += weight * says
    return expectation(table.weights, as_probability(yes))


# What the parent's and the siblings' noisy counts say, tabulated: log-odds for each x2* and y1*.


@dataclass(frozen=True, eq=False, slots=True)
class LogOddsTable:
    """What x2* and y1* say: their probabilities given the truth, and the log-odds they add."""

    parents: FloatArray
    sums: FloatArray
    weights: FloatArray
    log_odds: FloatArray
    thinned: bool
    truth: float


def tabulated(
    low: Level,
    high: Level,
    truth: Sequence[int],
    intruder: Intruder,
    siblings: Addition,
    *,
    smooth: bool = False,
    coarser: int = 1,
) -> LogOddsTable:
    """Tabulate x2* and y1* as far as they are likely given the truth; thin them where noise is wide.

    Sums of `smooth` functions of the log-odds may be thinned sooner.
    """
    others = truth[1] - truth[0]
    if low.siblings == 0 and others:
        raise InputError("truth: a unit without siblings has the count of its parent")
    law = SummedNoise(low.noise, low.siblings, siblings) if low.siblings else None
    room = _MOST_CELLS / (1 if law is None else 2 * half_width(law) + 1)
    many = 2 * half_width(high.noise) + 1 > room
    step = _step(high.noise, smooth, many) * coarser
    parents = truth[1] + _around(high.noise, step)
    weights = np.exp(high.noise.log_pmf(parents - truth[1]))[:, None]
    sums = np.array([float(others)])
    if law is not None:
        wide = _step(law, smooth, many) * coarser
        sums = others + _around(law, wide)
        weights = weights * np.exp(law.log_pmf(sums - others))
        step = max(step, wide)
    log_odds = log_odds_above(low, high, parents, sums, intruder, siblings, coarser=coarser)
    thinned = step > 1 or _thin(low, high, law) > 1
    return LogOddsTable(parents, sums, weights / weights.sum(), log_odds, thinned, float(truth[1]))


def _step(law: Mechanism | SummedNoise, smooth: bool, many: bool) -> int:
    """Return how far apart the counts of a table may be: 1 as long as there are not too many."""
    if law.gaussian_variance is not None:
        finest = math.floor(math.sqrt(law.variance) / _FINEST_TABLE)
        return max(1, finest) if smooth or many else 1
    return math.ceil(2 * half_width(law) / math.isqrt(_MOST_CELLS)) if many else 1


def _around(law: Mechanism | SummedNoise, step: int) -> FloatArray:
    """Return every `step`-th number around 0, as far as the noise reaches."""
    most = math.ceil(half_width(law) / step)
    return step * np.arange(-most, most + 1, dtype=float)


def log_odds_above(
    low: Level,
    high: Level,
    parents: FloatArray,
    sums: FloatArray,
    intruder: Intruder,
    siblings: Addition,
    *,
    coarser: int = 1,
) -> FloatArray:
    """Return log A_there - log A_away for each x2* and y1*: what they add to the log-odds.

    A_k = Σ_{y >= 0} g2(x2* - k - y) h(y1* - y) prior(k + y | k).
    """
    there, away = intruder.counts(there=True)[0], intruder.counts(there=False)[0]
    rows = intruder.rows
    if isinstance(low.prior, Flat) and low.siblings and len(parents) == np.ptp(parents) + 1:
        # A_{k + rows} at x2* is A_k at x2* - rows: one sum serves both.
        wider = np.concatenate([parents[0] - np.arange(rows, 0, -1), parents])
        log_sums = _log_sums(low, high, wider, sums, away, siblings, coarser)
        return _bounded(log_sums[: len(parents)] - log_sums[rows:], low, high, parents, intruder)
    with np.errstate(invalid="ignore"):  # neither is possible: refused
        log_odds = _log_sums(low, high, parents, sums, there, siblings, coarser) - _log_sums(
            low, high, parents, sums, away, siblings, coarser
        )
    refuse_impossible(log_odds)
    return _bounded(log_odds, low, high, parents, intruder)


def _bounded(
    log_odds: FloatArray, low: Level, high: Level, parents: FloatArray, intruder: Intruder
) -> FloatArray:
    """Clip to what Laplace noise can say: exactly the smallest value where x2* is too small."""
    if not can_tie(low, high):
        return log_odds
    most = float(high.noise.loss_at(0, intruder.rows))
    clipped = np.clip(log_odds, -most, most)
    clipped[parents <= intruder.known] = -most
    return clipped


def can_tie(low: Level, high: Level) -> bool:
    """Return whether many counts above say exactly the same, as with Laplace noise: ties are common."""
    flat = isinstance(low.prior, Flat) and low.siblings > 0
    return flat and high.noise.laplace_scale is not None


def _log_sums(
    low: Level,
    high: Level,
    parents: FloatArray,
    sums: FloatArray,
    count: float,
    siblings: Addition,
    coarser: int,
) -> FloatArray:
    if low.siblings == 0:
        same = np.full(len(parents), count)
        fits: FloatArray = high.noise.log_pmf(parents - count)
        fits = fits + low.prior.log_weight(same, same)
        return np.repeat(fits[:, None], len(sums), axis=1)
    law = SummedNoise(low.noise, low.siblings, siblings)
    y, log_weights = _summands(low, high, law, parents, sums, count, coarser)
    log_weights = log_weights + low.prior.log_weight(count + y, np.full(len(y), count))
    log_fits = high.noise.log_pmf(parents[:, None] - count - y)
    log_moves = law.log_pmf(sums - y[:, None]) + log_weights[:, None]
    with np.errstate(divide="ignore"):
        log_sums: FloatArray = np.log(np.exp(log_fits) @ np.exp(log_moves))
    # Where products underflow they are added as logarithms.
    rows, columns = np.nonzero(log_sums < _UNDERFLOW)
    for part in np.array_split(np.arange(len(rows)), max(1, len(rows) * len(y) // _AT_ONCE)):
        i, j = rows[part], columns[part]
        log_sums[i, j] = logsumexp(log_fits[i] + log_moves[:, j].T, axis=1)
    return log_sums


def _summands(
    low: Level,
    high: Level,
    law: SummedNoise,
    parents: FloatArray,
    sums: FloatArray,
    count: float,
    coarser: int,
) -> tuple[FloatArray, FloatArray]:
    """Return the siblings' counts to sum over, thinned where they are many, and log weights.

    All factors fall off from their centres. So their product has its mode between the smallest and the
    largest of these, and beyond falls at least as fast as the narrowest of them.
    """
    reach = float(min(half_width(high.noise), half_width(law)))
    centres = [parents[0] - count, parents[-1] - count, sums[0], sums[-1]]
    support = low.prior.support(count, count)
    first, last = (0.0, math.inf) if support is None else (support[0] - count, support[1] - count)
    begin, end = min(centres) - reach, max(centres) + reach
    likely = low.prior.likely(0.0)
    if likely is not None:  # as far as what is seen may pull the count away from it
        far = np.array([0.0, math.ceil(max(end - likely[0], likely[0] - begin))])
        pull = float(-np.diff(high.noise.log_pmf(far) + law.log_pmf(far))[0])
        begin, end = low.prior.likely(pull + _TAIL) or (begin, end)
    if not low.prior.concave:
        begin, end = first, last
    begin = math.floor(max(first, 0.0, min(begin, last - reach)))
    end = math.ceil(min(last, max(end, first + reach, reach)))
    if end < begin:  # the prior rules this count out
        return np.zeros(1), np.zeros(1)
    thin = _thin(low, high, law)
    thin = thin * coarser if thin > 1 else 1
    many = (end - begin) / thin
    if many * (len(parents) + len(sums)) > _MOST_PRODUCTS:
        raise InputError(
            f"the noises of the two levels, or the noise and the prior of the parent, are too far "
            f"apart: {many:,.0f} counts would be summed; give a narrower prior, or simulate with "
            f"draws and rng"
        )
    y = np.arange(float(begin), end + thin, thin)
    weights = np.full(len(y), float(thin))
    if thin > 1 and begin == 0:
        ends = end_weights(thin)[: len(y)]
        weights[: len(ends)] = ends
    return y, np.log(weights)


def _thin(low: Level, high: Level, law: SummedNoise | None) -> int:
    """Return the distance between the counts in a sum: 1 except for wide noise and a flat prior."""
    if law is None or not low.prior.smooth:
        return 1
    narrow = math.sqrt(min(law.variance, high.noise.variance))
    return max(1, math.floor(narrow / _FINEST)) if narrow > _MOST_SUMMANDS / 40 else 1
