"""Averages within the range of their values, and probabilities within 0 and 1, despite rounding."""

from __future__ import annotations

from typing import overload

import numpy as np

from countveil.base.numerics import Array, FloatArray

ROUNDING = 1e-10  # how far rounding may take a sum of probabilities beyond 0 or 1


def expectation(weights: Array, values: Array) -> float:
    """Return Σ w v / Σ w, for weights of 0 or more.

    Both sums add in the same order, and rounding is monotone, so the expectation of values from 0 to
    1 is between 0 and 1 to the last bit.
    """
    weights, values = (np.ravel(item) for item in np.broadcast_arrays(weights, values))
    return float((weights * values).sum() / weights.sum())


@overload
def as_probability(value: float) -> float: ...
@overload
def as_probability(value: FloatArray) -> FloatArray: ...
def as_probability(value: float | FloatArray) -> float | FloatArray:
    """Return a sum of probabilities, clipped to [0, 1].

    Raises ArithmeticError if it is further outside than rounding can explain.
    """
    values = np.asarray(value, np.float64)
    if not ((values >= -ROUNDING) & (values <= 1 + ROUNDING)).all():
        raise ArithmeticError(
            f"a probability of {value} is outside 0 to 1, by more than rounding; please report this bug"
        )
    inside = np.clip(values, 0.0, 1.0)
    return inside if isinstance(value, np.ndarray) else float(inside)
