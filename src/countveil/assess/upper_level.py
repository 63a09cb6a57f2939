"""What the parent's and the siblings' noisy counts say, tabulated: log-odds for each x2* and y1*."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from countveil.assess.chain import end_weights
from countveil.assess.decision import refuse_impossible
from countveil.assess.intruder import Intruder
from countveil.assess.level import Level
from countveil.assess.parent_prior import Flat
from countveil.assess.summed_noise import Addition, SummedNoise, half_width, is_gaussian
from countveil.errors import InputError
from countveil.mechanisms.discrete_laplace import DiscreteLaplace
from countveil.mechanisms.law import Mechanism
from countveil.numerics import FloatArray

_TAIL = 42.0  # of the log of what may be left out: less than 1e-18
_MOST_CELLS = 2_000_000
_MOST_SUMMANDS = 4_000
_MOST_PRODUCTS = 50_000_000
_AT_ONCE = 5_000_000
_UNDERFLOW = -600.0
_FINEST = 80
_FINEST_TABLE = 20


@dataclass(frozen=True, eq=False, slots=True)
class Table:
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
) -> Table:
    """Tabulate x2* and y1* as far as they are likely given the truth; thin them where they are wide.

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
    return Table(parents, sums, weights / weights.sum(), log_odds, thinned, float(truth[1]))


def _step(law: Mechanism | SummedNoise, smooth: bool, many: bool) -> int:
    """Return how far apart the counts of a table may be: 1 as long as there are not too many."""
    if is_gaussian(law):
        finest = math.floor(math.sqrt(law.variance) / _FINEST_TABLE)
        return max(1, finest) if smooth or many else 1
    return math.ceil(2 * half_width(law) / math.isqrt(_MOST_CELLS)) if many else 1


def _around(law: Mechanism | SummedNoise, step: int) -> FloatArray:
    """Return every `step`-th number about 0, as far as noise reaches."""
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
        found = _log_sums(low, high, parents, sums, there, siblings, coarser) - _log_sums(
            low, high, parents, sums, away, siblings, coarser
        )
    refuse_impossible(found)
    return _bounded(found, low, high, parents, intruder)


def _bounded(
    log_odds: FloatArray, low: Level, high: Level, parents: FloatArray, intruder: Intruder
) -> FloatArray:
    """Keep to what Laplace noise can say, which is exactly the least of it where x2* is too small."""
    if not can_tie(low, high):
        return log_odds
    most = float(high.noise.loss_at(0, intruder.rows))
    found = np.clip(log_odds, -most, most)
    found[parents <= intruder.known] = -most
    return found


def can_tie(low: Level, high: Level) -> bool:
    """Whether Laplace noise above says one and the same of many counts, so that ties are common."""
    flat = isinstance(low.prior, Flat) and low.siblings > 0
    return flat and isinstance(high.noise, DiscreteLaplace)


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
        found: FloatArray = np.log(np.exp(log_fits) @ np.exp(log_moves))
    # Where products underflow they are added as logarithms.
    rows, columns = np.nonzero(found < _UNDERFLOW)
    for part in np.array_split(np.arange(len(rows)), max(1, len(rows) * len(y) // _AT_ONCE)):
        i, j = rows[part], columns[part]
        found[i, j] = logsumexp(log_fits[i] + log_moves[:, j].T, axis=1)
    return found


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

    All factors fall off from their centres, so that their product has its mode between the least and
    the largest of these, and falls beyond at least as fast as the narrowest of them.
    """
    reach = float(min(half_width(high.noise), half_width(law)))
    centres = [parents[0] - count, parents[-1] - count, sums[0], sums[-1]]
    support = low.prior.support(count, count)
    first, last = (0.0, math.inf) if support is None else (support[0] - count, support[1] - count)
    begin, end = min(centres) - reach, max(centres) + reach
    likely = low.prior.likely(0.0)
    if likely is not None:  # as far as what is seen could pull the count away from it
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
            f"the noises of the two levels, or what is believed of the parent, are too far apart: "
            f"{many:,.0f} counts would be summed over; take a narrower prior, or simulate with draws"
        )
    y = np.arange(float(begin), end + thin, thin)
    weights = np.full(len(y), float(thin))
    if thin > 1 and begin == 0:
        ends = end_weights(thin)[: len(y)]
        weights[: len(ends)] = ends
    return y, np.log(weights)


def _thin(low: Level, high: Level, law: SummedNoise | None) -> int:
    """Return how far apart the counts summed over may be: 1 but for wide noise and a flat prior."""
    if law is None or not low.prior.smooth:
        return 1
    narrow = math.sqrt(min(law.variance, high.noise.variance))
    return max(1, math.floor(narrow / _FINEST)) if narrow > _MOST_SUMMANDS / 40 else 1
