"""Two-sided geometric noise from its residuals: the maximum-likelihood epsilon, in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.special import ndtri

from countveil.assess.empirical_loss.residuals import Residuals, whole_residuals
from countveil.assess.empirical_loss.tail_ratio import checked_confidence
from countveil.errors import InputError
from countveil.numerics import Array

_LARGEST_MEAN = 1e9


@dataclass(frozen=True, slots=True)
class GeometricFit:
    """Epsilon of the two-sided geometric noise that fits best, P(k) ∝ exp(-epsilon |k|)."""

    value: float
    standard_error: float
    interval: tuple[float, float]


def geometric(residuals: Array | Residuals, *, confidence: float = 0.95) -> GeometricFit:
    """Return epsilon = -log a, a = (√(1 + m²) - 1)/m with m the mean distance from 0.

    The standard error is that of the likelihood: 1/√(n Var|k|). It is right if the noise is two-sided
    geometric; compare with `tail_ratio`, which does not assume it.
    """
    found = whole_residuals(residuals)
    z = float(ndtri((1 + checked_confidence(confidence)) / 2))
    mean = float(abs(found.values) @ found.counts) / found.total
    if not 0 < mean < _LARGEST_MEAN:
        raise InputError(
            f"residuals: their mean distance from 0 is {mean:g}; geometric noise has one above 0 and "
            f"below {_LARGEST_MEAN:g}: check the columns of exact and released counts"
        )
    a = mean / (math.sqrt(1 + mean * mean) + 1)
    epsilon = -math.log(a)
    variance = 2 * a / (1 - a) ** 2 - (2 * a / (1 - a * a)) ** 2
    error = 1 / math.sqrt(found.total * variance)
    return GeometricFit(epsilon, error, (max(0.0, epsilon - z * error), epsilon + z * error))
