"""Two levels summed exactly: no sampler, no simulation.

Given the parent's and the siblings' noisy counts x2*, y1*, the log-odds are a constant plus the loss of
the lowest count, which never falls: he says yes from some x1* on. So the probability of a correct
decision is a sum over (x2*, y1*) of survival functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.polynomial.chebyshev import chebinterpolate, chebval
from scipy.special import logsumexp, ndtr

from countveil.assess.chain import end_weights
from countveil.assess.decision import EVEN, Losses, Ties, share_of_ties, sigmoid
from countveil.assess.intruder import Intruder
from countveil.assess.level import Level
from countveil.assess.near_ties import Tie, canonical, resolved
from countveil.assess.parent_prior import Exactly, Flat
from countveil.assess.risk import Risk
from countveil.assess.summed_noise import Addition, SummedNoise
from countveil.errors import InputError
from countveil.mechanisms.discrete_gaussian import DiscreteGaussian
from countveil.mechanisms.discrete_laplace import DiscreteLaplace
from countveil.mechanisms.law import Mechanism
from countveil.numerics import FloatArray

_DEVIATIONS = 9.0  # of a Gaussian: beyond lies less than 1e-18
_TAIL = 42.0  # of an exponential tail, in units of its rate: less than 1e-18
_MOST_CELLS = 2_000_000
_MOST_SUMMANDS = 4_000
_MOST_PRODUCTS = 50_000_000
_AT_ONCE = 5_000_000
_UNDERFLOW = -600.0
_EXPONENTS = 37.0  # exp(-37) is less than a double shows
_FINEST = 80
_FINEST_TABLE = 20
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

    def says_yes(table: Table) -> float:
        return _says_yes(table, low, high, intruder, siblings, ties, losses, present)

    value, error = _twice(low, high, truth, intruder, siblings, says_yes)
    if (
        error is not None
    ):  # and he may change his mind one step of the lattice too early or too late
        error += float(np.exp(low.noise.log_pmf(0)))
    return Risk("correct decision", value if present else 1 - value, error=error)


def expected_posterior(
    low: Level, high: Level, truth: Sequence[int], intruder: Intruder, siblings: Addition
) -> Risk:
    """Return his posterior on average over what may be released, given the truth."""
    points, weights = low.noise.privacy_loss(intruder.rows)
    # Noise is symmetric: of a target who is away the loss is the other way round.
    losses = points if truth[0] != intruder.known else -points

    def averaged(table: Table) -> float:
        odds = intruder.log_odds + table.log_odds.ravel()
        return float(table.weights.ravel() @ mean_posterior(odds, losses, weights))

    value, error = _twice(low, high, truth, intruder, siblings, averaged, smooth=True)
    return Risk("posterior", value, posterior=value, error=error)


def mean_posterior(log_odds: FloatArray, losses: FloatArray, weights: FloatArray) -> FloatArray:
    """Return Σ w sigmoid(log_odds + loss) for each log-odds.

    It is smooth in them, with poles π away from the real axis, so that where sums would be many a
    Chebyshev series of it is as exact, and shorter.
    """

    def summed(at: FloatArray) -> FloatArray:
        total = np.zeros(len(at))
        for loss, weight in zip(losses, weights, strict=True):
            total += weight * sigmoid(at + loss)
        return total

    least, most = float(log_odds.min()), float(log_odds.max())
    half = (most - least) / 2 + 1e-3
    ratio = math.pi / half
    degree = math.ceil(_EXPONENTS / math.log(ratio + math.hypot(ratio, 1))) + 2
    if degree >= len(losses) or not math.isfinite(half) or len(log_odds) <= degree:
        return summed(log_odds)
    middle = (most + least) / 2
    series = chebinterpolate(lambda x: summed(middle + half * x), degree)  # type: ignore[type-var]
    return np.asarray(chebval((log_odds - middle) / half, series))


def _twice(
    low: Level,
    high: Level,
    truth: Sequence[int],
    intruder: Intruder,
    siblings: Addition,
    what: Callable[[Table], float],
    *,
    smooth: bool = False,
) -> tuple[float, float | None]:
    """Return what a table says and, if it is thinned, by how much one half as fine says otherwise."""
    table = tabulated(low, high, truth, intruder, siblings, smooth=smooth)
    value = what(table)
    if not table.thinned:
        return value, None
    rough = tabulated(low, high, truth, intruder, siblings, smooth=smooth, coarser=2)
    return value, abs(value - what(rough))


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
    if _is_gaussian(law):
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
    with np.errstate(invalid="ignore"):
        found = _log_sums(low, high, parents, sums, there, siblings, coarser) - _log_sums(
            low, high, parents, sums, away, siblings, coarser
        )
    # Where the prior rules out both, or neither can be, he learns nothing.
    found = np.where(np.isnan(found), 0.0, found)
    return _bounded(found, low, high, parents, intruder)


def _bounded(
    log_odds: FloatArray, low: Level, high: Level, parents: FloatArray, intruder: Intruder
) -> FloatArray:
    """Keep to what Laplace noise can say, which is exactly the least of it where x2* is too small."""
    if not _can_tie(low, high):
        return log_odds
    most = float(high.noise.loss_at(0, intruder.rows))
    found = np.clip(log_odds, -most, most)
    found[parents <= intruder.known] = -most
    return found


def _can_tie(low: Level, high: Level) -> bool:
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
    thin = _thin(low, high, law) * coarser if _thin(low, high, law) > 1 else 1
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


def half_width(law: Mechanism | SummedNoise) -> int:
    """Return how far integer noise reaches, but for less than 1e-17 of it."""
    deviation = math.sqrt(max(law.variance, 0.0))
    if _is_gaussian(law):
        return math.ceil(_DEVIATIONS * deviation) + 2
    return math.ceil(_TAIL * deviation / math.sqrt(2)) + 20


def _is_gaussian(law: Mechanism | SummedNoise) -> bool:
    return isinstance(law, DiscreteGaussian) or (
        isinstance(law, SummedNoise) and law.as_gaussian is not None
    )


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
    if isinstance(low.noise, DiscreteLaplace):
        return _says_yes_by_loss(table, low, high, intruder, ties, log_odds, present)
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
            tie = canonical(Tie(float(at[i, j]), parent, float(table.sums[j])), low, high, intruder)
            if tie not in signs:
                signs[tie] = resolved(tie, low, high, intruder, siblings, losses)
            decided = {1: 1.0, -1: 0.0, 0: share_of_ties(ties)}[signs[tie]]
            total += float(table.weights[i, j]) * mass * (decided - (1.0 if offset == 0 else 0.0))
    return total


def _says_yes_by_loss(
    table: Table,
    low: Level,
    high: Level,
    intruder: Intruder,
    ties: Ties,
    log_odds: FloatArray,
    present: bool,
) -> float:
    """Return how often he says yes where the lowest count can say a few things only."""
    points, chances = low.noise.privacy_loss(intruder.rows)
    total = 0.0
    for point, chance in zip(points if present else -points, chances, strict=True):
        odds = log_odds + point
        near = np.abs(odds) <= _ROUNDING * (np.abs(log_odds) + abs(point) + 1)
        says = np.where(near, share_of_ties(ties), (odds > 0).astype(float))
        if _can_tie(low, high):
            # Only a small x2* is exactly a tie; the others come as near to one as doubles can tell.
            more = near & (table.parents > intruder.known)[:, None]
            says = np.where(more, 1.0 if point > 0 else 0.0, says)
        total += float(chance * (table.weights * says).sum())
    return total


def first_yes(low: Level, log_odds: FloatArray, rows: int) -> FloatArray:
    """Return the least whole e = x1* - known - rows at which the odds are above even."""
    if isinstance(low.noise, DiscreteGaussian):
        rate = float(1 / (2 * low.noise.sigma2))
        return np.asarray(np.floor(-log_odds / (2 * rate * rows) - rows / 2) + 1)
    if isinstance(low.noise, DiscreteLaplace):
        needed = -log_odds * float(low.noise.scale)  # of 2 e + rows, kept between -rows and rows
        first = np.floor((needed - rows) / 2) + 1
        return np.where(needed >= rows, np.inf, np.where(needed < -rows, -np.inf, first))
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
