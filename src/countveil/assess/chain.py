"""A chain of counts from a cell up through the levels: messages passed down it, with a certificate.

x_1 ≤ x_2 ≤ … ≤ x_h. A step from x to x' = x + y, y ≥ 0, has the evidence on y (what the siblings' noisy
counts say), the prior of x' given x, and the evidence on x' (its own noisy count). The message at x is
the sum over everything above of all of these,
β(x) = Σ_{x' ≥ x} move(x' - x) prior(x' | x) fit(x') β'(x').
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import logsumexp, zeta

from countveil.assess.parent_prior import FLAT, ParentPrior
from countveil.errors import InputError
from countveil.numerics import Array, FloatArray

LogEvidence = Callable[[FloatArray], FloatArray]

_TOLERANCE = 1e-13
_LEAST_VARIANCE = 1e-9  # noise next to none still needs a window
_DEVIATIONS = 9.0  # at first; doubled until the certificate holds
_MOST_DOUBLINGS = 12
_MOST_POINTS = 3_000
_FINEST = 80  # lattice points a standard deviation, where sums are thinned
_ORDER = 8  # of the correction at the end of a thinned sum


@dataclass(frozen=True, eq=False, slots=True)
class Evidence:
    """The log of a likelihood, known to fall off from its peak, and where it lies: (mean, variance)."""

    log_likelihood: LogEvidence
    mean: float
    variance: float


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """From a count to its parent's: evidence on what is added, prior and evidence of the parent."""

    move: Evidence | None
    fit: Evidence | None
    prior: ParentPrior = FLAT
    alone: bool = False  # nothing is added: there are no siblings


@dataclass(frozen=True, eq=False, slots=True)
class Message:
    """The log message at each count asked for, and a bound on the error of each."""

    log_values: FloatArray
    error: float
    log_above: tuple[
        tuple[FloatArray, FloatArray], ...
    ]  # of each level above: counts, log messages


def message(steps: Sequence[Step], counts: Array, *, tolerance: float = _TOLERANCE) -> Message:
    """Return the log of the message at `counts`; windows widen until it is within the tolerance.

    The certificate: along its window a summand falls off (log-concavity), so what lies beyond an edge
    is at most the edge times r/(1 - r), r the last ratio; such bounds add up along the chain.
    """
    points = np.asarray(counts, float)
    steps = [step for step in steps if not _says_nothing(step)] if steps else []
    if not steps:
        return Message(np.zeros(len(points)), 0.0, ())
    deviations = _DEVIATIONS
    for _ in range(_MOST_DOUBLINGS):
        windows = _windows(steps, points, deviations)
        widest = max(high - low for low, high in windows)
        if widest > _MOST_POINTS:
            return _thinned(steps, points, deviations, tolerance)
        found = _passed(steps, points, windows, 1)
        if found.error <= tolerance:
            return found
        deviations *= 2
    raise InputError(
        f"the noise is too heavy-tailed, or the counts contradict each other too much, to sum to "
        f"within {tolerance:.0e}; the bound reached is {found.error:.1e}"
    )


def marginal(
    steps: Sequence[Step], counts: Array, log_start: FloatArray, number: int
) -> tuple[FloatArray, FloatArray]:
    """Return the counts after some steps, and the probability of each given all that is seen.

    `log_start` is the log of what is believed of `counts`, up to a constant.
    """
    points = np.asarray(counts, float)
    found = message(steps, points)
    log_forward, here = log_start, points
    for step, (above, _) in list(zip(steps, found.log_above, strict=True))[:number]:
        log_moves = _log_moves(step, here, above, 1)
        log_forward = logsumexp(log_forward[:, None] + log_moves, axis=0)
        if step is not steps[number - 1] and step.fit is not None:
            log_forward = log_forward + step.fit.log_likelihood(above)
        here = above
    log_rest = found.log_values if number == 0 else found.log_above[number - 1][1]
    log_weights = log_forward + log_rest
    weights = np.exp(log_weights - log_weights.max())
    where, index = np.unique(here, return_inverse=True)
    summed = np.bincount(index, weights)
    return where, summed / summed.sum()


def _says_nothing(step: Step) -> bool:
    return step.alone and step.fit is None


def _windows(
    steps: Sequence[Step], points: FloatArray, deviations: float
) -> list[tuple[float, float]]:
    """Return where each parent's count lies, by a Gaussian smoother: a guess, later certified."""
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
    for (m, v), (ahead, spread) in zip(filtered[-2:0:-1], predicted[:1:-1], strict=True):
        gain = 0.0 if math.isinf(spread) else (v / spread if spread > 0 else 1.0)
        s_mean, s_var = smoothed[0]
        change = 0.0 if math.isinf(spread) else gain * gain * (s_var - spread)
        smoothed.insert(0, (m + gain * (s_mean - ahead), v + change))
    lowest = float(points.min())
    windows, last = [], lowest
    for step, (centre, spread) in zip(steps, smoothed, strict=True):
        if math.isinf(spread):
            raise InputError(
                "neither a level's count nor its siblings' are seen, and its prior is flat; the "
                "posterior does not exist"
            )
        reach = deviations * math.sqrt(max(spread, 0.0)) + deviations
        centre = min(max(centre, last), step.prior.last) if step.prior.last >= lowest else lowest
        low = max(lowest, math.floor(centre - reach))
        high = min(step.prior.last, math.ceil(centre + reach))
        windows.append((float(low), float(max(high, low))))
        last = centre
    return windows


def _passed(
    steps: Sequence[Step], points: FloatArray, windows: Sequence[tuple[float, float]], thin: int
) -> Message:
    """Pass messages down from the top; carry the relative error of each."""
    anchor = points.min()
    grids = [points]
    for low, high in windows:
        first = anchor + thin * max(0, math.floor((low - anchor) / thin))
        grids.append(
            np.arange(first, high + thin, thin) if thin > 1 else np.arange(first, high + 1)
        )
    log_beta, error = np.zeros(len(grids[-1])), np.zeros(len(grids[-1]))
    above: list[tuple[FloatArray, FloatArray]] = []
    for number in range(len(steps) - 1, -1, -1):
        step, below, here = steps[number], grids[number], grids[number + 1]
        if step.fit is not None:
            log_beta = log_beta + step.fit.log_likelihood(here)
        above.insert(0, (here, log_beta))
        log_terms = _log_moves(step, below, here, thin) + log_beta
        top = log_terms.max(axis=1)
        safe = np.where(np.isfinite(top), top, 0.0)
        terms = np.exp(log_terms - safe[:, None])
        sums = terms.sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            beyond = _beyond(step, terms, safe, error, here, below)
            error = np.where(sums > 0, (terms @ error + beyond) / sums, 0.0)
            log_beta = safe + np.log(sums)
    worst = float(error.max(initial=0.0))
    return Message(log_beta, math.log1p(worst) if worst < math.inf else math.inf, tuple(above))


def _log_moves(step: Step, below: FloatArray, here: FloatArray, thin: int) -> FloatArray:
    """Return the log of evidence and prior of each step from a count below to one here."""
    y = here - below[:, None]
    if step.alone:
        return np.where(y == 0, 0.0, -np.inf) + step.prior.log_weight(here, below[:, None])
    log_moves = step.prior.log_weight(here, below[:, None])
    if step.move is not None:
        # Only differences count, and there are few of them.
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


def _beyond(
    step: Step,
    terms: FloatArray,
    log_scale: FloatArray,
    error: FloatArray,
    here: FloatArray,
    below: FloatArray,
) -> FloatArray:
    """Bound what the window leaves out of each sum, at both of its ends, in units of the scale."""
    beyond = np.zeros(len(terms))
    fits = np.zeros(len(here)) if step.fit is None else step.fit.log_likelihood(here)
    if here[-1] < step.prior.last:
        beyond += _edge(terms[:, ::-1], fits[::-1], log_scale, float(error[-1]))
    low = here[0] > below  # the window begins above where the sum does
    if low.any():
        beyond += np.where(low, _edge(terms, fits, log_scale, float(error[0])), 0.0)
    return beyond


def _edge(terms: FloatArray, fits: FloatArray, log_scale: FloatArray, error: float) -> FloatArray:
    """Bound what lies beyond the first term of each row: by its ratio to the next, or by the fit's.

    Everything but the fit is at most 1, being made of probabilities.
    """
    edge = terms[:, 0] * (1 + error)
    beyond = np.full(len(terms), np.inf)
    log_tail = 0.0
    if terms.shape[1] > 1:
        ratio = np.where(edge > 0, edge / terms[:, 1], 0.0)
        beyond = np.where(ratio < 1, edge * ratio / (1 - ratio), np.inf)
        slope = float(fits[1] - fits[0])
        if slope > 0:
            log_tail = float(fits[0]) - slope - math.log(-math.expm1(-slope))
    least: FloatArray = np.minimum(beyond, np.exp(min(log_tail, 0.0) - log_scale))
    return least


def _thinned(
    steps: Sequence[Step], points: FloatArray, deviations: float, tolerance: float
) -> Message:
    """Sum over every m-th count where everything is smooth; the error is what half as many show."""
    for step in steps:
        if not step.prior.smooth or step.alone:
            raise InputError(
                "the noise is too wide to sum over every count, and a prior with an edge cannot be "
                "thinned; use a flat prior"
            )
    windows = _windows(steps, points, deviations)
    spreads = [
        math.sqrt(item.variance)
        for step in steps
        for item in (step.move, step.fit)
        if item is not None
    ]
    thin = max(1, math.floor(min(spreads) / _FINEST))
    widest = max(high - low for low, high in windows)
    if widest / thin > 4 * _MOST_POINTS:
        raise InputError(
            "the noises of the levels are too far apart to sum over every count; the widest spans "
            f"{widest:,.0f} counts beside one with a standard deviation of {min(spreads):,.1f}"
        )
    values, errors = [], []
    for point in points:
        fine = _passed(steps, np.array([point]), windows, thin)
        coarse = _passed(steps, np.array([point]), windows, 2 * thin)
        values.append(fine.log_values[0])
        errors.append(fine.error + abs(float(fine.log_values[0] - coarse.log_values[0])))
    return Message(np.array(values), max(errors), ())


@lru_cache(maxsize=64)
def end_weights(thin: int) -> FloatArray:
    """Return the first weights of a sum over every `thin`-th number from 0, the others being `thin`.

    By the Euler-Maclaurin formula Σ f(y) and m Σ f(mj) differ at the end alone, for f(y) = y^p by
    ζ(-p)(1 - m^(p+1)); the weights meet this for the first powers.
    """
    powers = np.arange(_ORDER)
    # In units of m, so that the system does not depend on it but for the right side.
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
