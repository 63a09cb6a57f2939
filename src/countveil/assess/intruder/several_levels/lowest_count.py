"""The lowest count, after all else is seen: what it may add, and where the intruder says "there"."""

from __future__ import annotations

import math

import numpy as np
from numpy.polynomial.chebyshev import chebinterpolate, chebval

from countveil.assess.intruder.decision import sigmoid
from countveil.assess.intruder.several_levels.hierarchy_level import Level
from countveil.base.bounded_averages import as_probability
from countveil.base.numerics import FloatArray
from countveil.noise.summed_noise import half_width

_EXPONENTS = 37.0  # exp(-37) is less than a double shows


def mean_posterior(log_odds: FloatArray, losses: FloatArray, weights: FloatArray) -> FloatArray:
    """Return Σ w sigmoid(log_odds + loss) for each log-odds.

    It is smooth in them, with poles π away from the real axis. Where there are many, a Chebyshev series
    is as exact and shorter.
    """

    def summed(at: FloatArray) -> FloatArray:
        total, whole = np.zeros(len(at)), 0.0
        for loss, weight in zip(losses, weights, strict=True):
            total += weight * sigmoid(at + loss)
            whole += weight
        return total / whole  # never above 1: both sums add in the same order

    certain = np.isinf(log_odds)
    if certain.any():
        posterior = sigmoid(log_odds)
        posterior[~certain] = mean_posterior(log_odds[~certain], losses, weights)
        return posterior
    if not len(log_odds):
        return np.empty(0)
    least, most = float(log_odds.min()), float(log_odds.max())
    half = (most - least) / 2 + 1e-3
    ratio = math.pi / half
    degree = math.ceil(_EXPONENTS / math.log(ratio + math.hypot(ratio, 1))) + 2
    if degree >= len(losses) or len(log_odds) <= degree:
        return summed(log_odds)
    middle = (most + least) / 2
    series = chebinterpolate(lambda x: summed(middle + half * x), degree)  # type: ignore[type-var]
    return as_probability(np.asarray(chebval((log_odds - middle) / half, series)))


def first_yes(low: Level, log_odds: FloatArray, rows: int) -> FloatArray:
    """Return the least whole e = x1* - known - rows at which the odds are above even."""
    variance, scale = low.noise.gaussian_variance, low.noise.laplace_scale
    if variance is not None:
        rate = 1 / (2 * variance)
        return np.asarray(np.floor(-log_odds / (2 * rate * rows) - rows / 2) + 1)
    if scale is not None:
        needed = -log_odds * scale  # of 2 e + rows, kept between -rows and rows
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
    """Return P(x1* - known - rows >= e); `shift` is `rows` if the target is away, else 0."""
    finite = np.isfinite(e)
    probability = low.noise.survival(np.where(finite, e + shift - 1, 0.0))
    return np.where(finite, probability, np.where(e < 0, 1.0, 0.0))
