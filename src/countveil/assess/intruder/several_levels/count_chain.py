"""A chain of counts from a cell up through the levels: messages passed down it, with a certificate.

x_1 ≤ x_2 ≤ … ≤ x_h. A step from x to x' = x + y, y ≥ 0, has the likelihood of y (what the siblings'
noisy counts say), the prior of x' given x, and the likelihood of x' (its own noisy count). The message
at x is the sum of all of these over everything above,
β(x) = Σ_{x' ≥ x} move(x' - x) prior(x' | x) fit(x') β'(x').
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp, zeta

from countveil.assess.intruder.decision import IMPOSSIBLE
from countveil.assess.intruder.several_levels.hierarchy_level import FLAT, ParentPrior
from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.errors import InputError

_TOLERANCE = 1e-13
_LEAST_VARIANCE = 1e-9  # even almost no noise needs a window
_DEVIATIONS = 9.0  # at first; doubled until the certificate holds
_MOST_DOUBLINGS = 12
_GONE = -690.0  # log of what remains beyond an edge where terms have underflowed
_MUCH = 100.0  # log of what is missing over what was summed
_MOST_POINTS = 3_000
_FINEST = 80  # lattice points per standard deviation, where sums are thinned
_ORDER = 8  # of the correction at the end of a thinned sum


@dataclass(frozen=True, eq=False, slots=True)
class CountLikelihood:
    """What a noisy count says about an exact one: a log likelihood that falls off from its peak.

    `mean` and `variance` say where it is concentrated.
    """

    log_likelihood: Callable[[FloatArray], FloatArray]
    mean: float
    variance: float


@dataclass(frozen=True, eq=False, slots=True)
class LevelStep:
    """The step from a count to its parent's.

    `move` is the likelihood of what siblings add, `fit` that of the parent's count; None where nothing
    is seen. `prior` is that of the parent's count, `added` that of what is added, as if the child were
    empty. `alone`: there are no siblings, so nothing is added.
    """

    move: CountLikelihood | None
    fit: CountLikelihood | None
    prior: ParentPrior = FLAT
    added: ParentPrior = FLAT
    alone: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Message:
    """The log message at each requested count, and a bound on the error of each.

    `log_above` has, for each step, the counts above it and the log messages there.
    """

    log_values: FloatArray
    error_bound: float
    log_above: tuple[tuple[FloatArray, FloatArray], ...]


def message(steps: Sequence[LevelStep], counts: Array, *, tolerance: float = _TOLERANCE) -> Message:
    """Return the log message at `counts`; windows widen until its error is within the tolerance.

    The certificate: along its window a summand falls off (log-concavity), so what lies beyond an edge
    is at most the edge times r/(1 - r), r the last ratio; such bounds add up along the chain.
    """
    points = np.asarray(counts, float)
    if not steps:
        return Message(np.zeros(len(points)), 0.0, ())
    deviations = _DEVIATIONS
    for _ in range(_MOST_DOUBLINGS):
        windows = _windows(steps, points, deviations)
        widest = max(high - low for low, high in windows)
        if widest > _MOST_POINTS:
            return _thinned(steps, points, deviations)
        passed = _passed(steps, points, windows, 1)
        if passed.error_bound <= tolerance:
            return passed
        deviations *= 2
    raise InputError(
        f"the noise is too heavy-tailed, or the counts contradict each other too much, for an "
        f"error of at most {tolerance:.0e}; the bound reached is {passed.error_bound:.1e}"
    )


class CountPosterior(NamedTuple):
    """The counts that are possible, and the probability of each."""

    counts: IntArray
    probabilities: FloatArray


def marginal(
    steps: Sequence[LevelStep], counts: Array, log_start: FloatArray, number: int
) -> CountPosterior:
    """Return the posterior of the count after `number` steps, given everything that is seen.

    `log_start` is the log prior of `counts`, up to a constant.
    """
    points = np.asarray(counts, float)
    downward = message(steps, points)
    if len(downward.log_above) != len(steps):
        raise InputError(
            "the noise is too wide for a posterior of every count; use posterior, for the target alone"
        )
    log_forward, here = log_start, points
    for step, (above, _) in list(zip(steps, downward.log_above, strict=True))[:number]:
        log_moves = _log_moves(step, here, above, 1)
        log_forward = logsumexp(log_forward[:, None] + log_moves, axis=0)
        if step is not steps[number - 1] and step.fit is not None:
            log_forward = log_forward + step.fit.log_likelihood(above)
        here = above
    log_rest = downward.log_values if number == 0 else downward.log_above[number - 1][1]
    log_weights = log_forward + log_rest
    if np.isneginf(log_weights).all():
        raise InputError(IMPOSSIBLE)
    weights = np.exp(log_weights - log_weights.max())
    where, index = np.unique(here, return_inverse=True)
    summed = np.bincount(index, weights)
    return CountPosterior(where.astype(np.int64), summed / summed.sum())


def _windows(
    steps: Sequence[LevelStep], points: FloatArray, deviations: float
) -> list[tuple[float, float]]:
    """Return the range of each parent's count, by a Gaussian smoother: a guess, certified later."""
    mean, variance = float(points.mean()), float(points.var()) + 0.25
    filtered, predicted = [(mean, variance)], [(mean, variance)]
    for step in steps:
        if not step.alone:
            add = (0.0, math.inf) if step.move is None else (step.move.mean, step.move.variance)
            mean, variance = mean + add[0], variance + max(add[1], _LEAST_VARIANCE)
        predicted.append((mean, variance))
        if step.fit is not None:
            fit = max(step.fit.variance, _LEAST_VARIANCE)
            gain = 1.0 if math.isinf(variance) else variance / (variance + fit)
            left = fit if math.isinf(variance) else (1 - gain) * variance
            mean, variance = mean + gain * (step.fit.mean - mean), left
        filtered.append((mean, variance))
    smoothed = [filtered[-1]]
    for (m, v), (ahead, variance) in zip(filtered[-2:0:-1], predicted[:1:-1], strict=True):
        gain = 0.0 if math.isinf(variance) else (v / variance if variance > 0 else 1.0)
        s_mean, s_var = smoothed[0]
        change = 0.0 if math.isinf(variance) else gain * gain * (s_var - variance)
        smoothed.insert(0, (m + gain * (s_mean - ahead), v + change))
    lowest = float(points.min())
    windows: list[tuple[float, float]] = []
    last = lowest
    for step, (centre, variance) in zip(steps, smoothed, strict=True):
        if math.isinf(variance):
            raise InputError(
                "the posterior does not exist: neither a level's count nor its siblings' are seen, "
                "and its prior is flat; give another prior"
            )
        reach = deviations * math.sqrt(max(variance, 0.0)) + deviations
        below = windows[-1] if windows else (lowest, float(points.max()))
        centre = max(centre, last)
        low = max(lowest, float(math.floor(centre - reach)))
        # No lower than the counts below, or some of them would have no parent.
        high = max(float(math.ceil(centre + reach)), below[1])
        if step.alone:
            low, high = below
        for bounded in (step.prior.support(*below), _shifted(step.added.support(0.0, 0.0), below)):
            if bounded is not None:  # all of it, as it need not fall off from a mode
                low, high = max(lowest, bounded[0]), bounded[1]
        if high < low:
            raise InputError(
                f"prior: no count is possible; the parent's would be at least {low:,.0f} and at "
                f"most {high:,.0f}"
            )
        windows.append((float(low), float(high)))
        last = min(max(centre, low), high)
    return windows


def _shifted(
    support: tuple[float, float] | None, below: tuple[float, float]
) -> tuple[float, float] | None:
    return None if support is None else (below[0] + support[0], below[1] + support[1])


def _passed(
    steps: Sequence[LevelStep],
    points: FloatArray,
    windows: Sequence[tuple[float, float]],
    thin: int,
) -> Message:
    """Pass messages down from the top, each with its relative error."""
    anchor = points.min()
    grids = [points]
    for low, high in windows:
        first = anchor + thin * max(0, math.floor((low - anchor) / thin))
        grids.append(
            np.arange(first, high + thin, thin) if thin > 1 else np.arange(first, high + 1)
        )
    log_beta, log_missing = np.zeros(len(grids[-1])), np.full(len(grids[-1]), -np.inf)
    above: list[tuple[FloatArray, FloatArray]] = []
    concave = True  # everything above falls off from one mode
    for number in range(len(steps) - 1, -1, -1):
        step, below, here = steps[number], grids[number], grids[number + 1]
        if step.fit is not None:
            fits = step.fit.log_likelihood(here)
            log_beta, log_missing = log_beta + fits, log_missing + fits
        above.insert(0, (here, log_beta))
        log_moves = _log_moves(step, below, here, thin)
        log_terms = log_moves + log_beta
        top = log_terms.max(axis=1)
        safe = np.where(np.isfinite(top), top, 0.0)
        terms = np.exp(log_terms - safe[:, None])
        ratio = _log_ratio(log_missing, log_beta)
        log_beyond = _log_beyond(step, terms, safe, ratio, here, below, concave)
        log_missed = _log_missed(log_moves, terms, safe, ratio, log_missing)
        log_missing = np.logaddexp(log_missed, log_beyond)
        with np.errstate(divide="ignore"):
            log_beta = safe + np.log(terms.sum(axis=1))
        concave = concave and step.prior.concave and step.added.concave
    worst = float(_log_ratio(log_missing, log_beta).max(initial=-math.inf))
    error = math.log1p(math.exp(worst)) if worst < 700 else math.inf
    return Message(log_beta, error, tuple(above))


def _log_ratio(log_missing: FloatArray, log_beta: FloatArray) -> FloatArray:
    """Return the log of what is missing over what was summed; where nothing is possible, nothing is."""
    nothing = np.isneginf(log_missing)
    return np.where(nothing, -np.inf, log_missing - np.where(nothing, 0.0, log_beta))


def _log_missed(
    log_moves: FloatArray,
    terms: FloatArray,
    log_scale: FloatArray,
    ratio: FloatArray,
    log_missing: FloatArray,
) -> FloatArray:
    """Return the log of what the messages above miss, carried down, in absolute terms."""
    # Where more is missing than was summed, terms may have underflowed: use the moves themselves.
    much = ratio > _MUCH
    with np.errstate(divide="ignore"):
        missed = log_scale + np.log(terms[:, ~much] @ np.exp(ratio[~much]))
    if much.any():
        missed = np.logaddexp(missed, logsumexp(log_moves[:, much] + log_missing[much], axis=1))
    return np.asarray(missed)


def _log_moves(step: LevelStep, below: FloatArray, here: FloatArray, thin: int) -> FloatArray:
    """Return the log likelihood plus log prior of each step from a count below to one here."""
    y = here - below[:, None]
    if step.alone:
        return np.where(y == 0, 0.0, -np.inf) + step.prior.log_weight(here, below[:, None])
    log_moves = step.prior.log_weight(here, below[:, None])
    log_moves = log_moves + step.added.log_weight(y, np.zeros_like(y))
    if step.move is not None:
        # Only differences matter, and there are few of them.
        low, high = y.min(), y.max()
        differences = np.arange(low, high + thin, thin)
        table = step.move.log_likelihood(differences)
        log_moves = log_moves + table[np.rint((y - low) / thin).astype(np.int64)]
    if thin > 1:
        weights = np.log(end_weights(thin))
        index = np.rint(y / thin).astype(np.int64)
        near = (index >= 0) & (index < len(weights))
        log_moves += np.where(near, weights[np.where(near, index, 0)], math.log(thin))
    return np.where(y >= 0, log_moves, -np.inf)


def _log_beyond(
    step: LevelStep,
    terms: FloatArray,
    log_scale: FloatArray,
    log_error: FloatArray,
    here: FloatArray,
    below: FloatArray,
    concave: bool,
) -> FloatArray:
    """Return a bound on the log of what the window leaves out of each sum, at both ends."""
    beyond = np.full(len(terms), -np.inf)
    if step.alone:
        return beyond  # the window is the counts below
    span = (float(below.min()), float(below.max()))
    bounded = step.prior.support(*span), _shifted(step.added.support(0.0, 0.0), span)
    first = max([-math.inf, *(item[0] for item in bounded if item is not None)])
    last = min([math.inf, *(item[1] for item in bounded if item is not None)])
    fits = np.zeros(len(here)) if step.fit is None else step.fit.log_likelihood(here)
    if here[-1] < last:
        moves = _log_edge_moves(step, here[:-3:-1], below)
        errors = log_error[::-1]
        edge = _log_edge(terms[:, ::-1], fits[::-1], moves, log_scale, errors, concave)
        beyond = np.logaddexp(beyond, edge)
    low = (here[0] > below) & (here[0] > first)  # the window begins above where the sum does
    if low.any():
        moves = _log_edge_moves(step, here[:2], below)
        edge = _log_edge(terms, fits, moves, log_scale, log_error, concave)
        beyond = np.where(low, np.logaddexp(beyond, edge), beyond)
    return beyond


def _log_edge_moves(step: LevelStep, here: FloatArray, below: FloatArray) -> FloatArray:
    """Return the log likelihood of the moves to the two counts at an edge, a row per count below."""
    y = here - below[:, None]
    return np.zeros_like(y) if step.move is None else step.move.log_likelihood(y)


def _log_edge(
    terms: FloatArray,
    fits: FloatArray,
    moves: FloatArray,
    log_scale: FloatArray,
    log_error: FloatArray,
    concave: bool,
) -> FloatArray:
    """Return a bound on what lies beyond the first term of each row.

    By its ratio to the next term, where everything above falls off from one mode. Otherwise by the tail
    of the fit or of the move alone: everything else is a product of probabilities, so at most 1.
    """
    bound = np.zeros(len(terms))
    if terms.shape[1] > 1:
        for log_edge, log_inner in ((fits[0], fits[1]), (moves[:, 0], moves[:, 1])):
            bound = np.minimum(bound, _log_tail(np.asarray(log_edge), np.asarray(log_inner)))
        if concave and log_error[0] < 0:  # less is missing than was summed
            edge = terms[:, 0] * (1 + math.exp(float(log_error[0])))
            falls = (edge < terms[:, 1]) & (terms[:, 1] > 0)
            ratio = np.where(falls, edge / np.where(falls, terms[:, 1], 1.0), 0.5)
            with np.errstate(divide="ignore"):
                by_ratio = log_scale + np.log(edge * ratio / (1 - ratio))
            bound = np.where(falls, np.minimum(bound, by_ratio), bound)
            # A term that fell by 1e-308 within the window keeps falling at least as fast.
            gone = (terms[:, 0] == 0) & (terms[:, 1] == 0) & (terms.max(axis=1) > 0)
            bound = np.where(gone, np.minimum(bound, log_scale + _GONE), bound)
    return bound


def _log_tail(log_edge: FloatArray, log_inner: FloatArray) -> FloatArray:
    """Return a bound on the log mass of a log-concave law beyond an edge; 0 where it still rises."""
    slope = log_inner - log_edge
    falls = slope > 0
    safe = np.where(falls, slope, 1.0)
    return np.where(falls, log_edge - safe - np.log(-np.expm1(-safe)), 0.0)


def _thinned(steps: Sequence[LevelStep], points: FloatArray, deviations: float) -> Message:
    """Sum over every m-th count where everything is smooth; the error is what half as many change."""
    for step in steps:
        if not step.prior.smooth or not step.added.smooth or step.alone:
            raise InputError(
                "prior: the noise is too wide to sum over every count, and only a flat prior can "
                "be summed over every m-th; use Flat()"
            )
    windows = _windows(steps, points, deviations)
    narrowest = min(
        math.sqrt(item.variance)
        for step in steps
        for item in (step.move, step.fit)
        if item is not None
    )
    thin = max(1, math.floor(narrowest / _FINEST))
    widest = max(high - low for low, high in windows)
    if widest / thin > 4 * _MOST_POINTS:
        raise InputError(
            "noise: the levels' noises differ too much in width to be summed: the widest spans "
            f"{widest:,.0f} counts, the narrowest has a standard deviation of {narrowest:,.1f}"
        )
    values, errors = [], []
    for point in points:
        fine = _passed(steps, np.array([point]), windows, thin)
        coarse = _passed(steps, np.array([point]), windows, 2 * thin)
        values.append(fine.log_values[0])
        errors.append(fine.error_bound + abs(float(fine.log_values[0] - coarse.log_values[0])))
    return Message(np.array(values), max(errors), ())


@lru_cache(maxsize=64)
def end_weights(thin: int) -> FloatArray:
    """Return the first weights of a sum over every `thin`-th number from 0, the others being `thin`.

    By the Euler-Maclaurin formula Σ f(y) and m Σ f(mj) differ only at the end, for f(y) = y^p by
    ζ(-p)(1 - m^(p+1)); the weights satisfy this for the first powers.
    """
    powers = np.arange(_ORDER)
    # In units of m, so that only the right side of the system depends on it.
    zetas = np.array([0.5, *(-_bernoulli(p + 1) / (p + 1) for p in range(1, _ORDER))])
    right = zetas * (float(thin) ** -powers.astype(float) - thin)
    vander = np.vander(np.arange(_ORDER, dtype=float), _ORDER, increasing=True).T
    weights: FloatArray = thin + np.linalg.solve(vander, right)
    return weights


def _bernoulli(n: int) -> float:
    """Return the n-th Bernoulli number, n >= 2."""
    if n % 2:
        return 0.0
    return float((-1) ** (n // 2 + 1) * 2 * math.factorial(n) / (2 * math.pi) ** n * zeta(n))
