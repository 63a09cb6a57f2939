"""Averages that stay within the values they average, and probabilities that stay within 0 and 1."""

from __future__ import annotations

from typing import overload

import numpy as np

from countveil.numerics import Array, FloatArray

ROUNDING = 1e-10  # how far sums of rounded probabilities may pass 0 or 1


def expectation(weights: Array, values: Array) -> float:
    """Return Σ w v / Σ w, for weights of 0 or more.

    Both sums add in the same order, and rounding never swaps two sums that are in order, so the
    expectation of values from 0 to 1 lies between 0 and 1 to the last bit.
    """
    weights, values = (np.ravel(item) for item in np.broadcast_arrays(weights, values))
    return float((weights * values).sum() / weights.sum())


@overload
def as_probability(value: float) -> float: ...
@overload
def as_probability(value: FloatArray) -> FloatArray: ...
def as_probability(value: float | FloatArray) -> float | FloatArray:
    """Return a sum of probabilities, moved into [0, 1] if rounding took it out.

    Raises ArithmeticError if more than rounding did: then the sum is wrong.
    """
    values = np.asarray(value, np.float64)
    if not ((values >= -ROUNDING) & (values <= 1 + ROUNDING)).all():
        raise ArithmeticError(
            f"a probability came out as {value}, which is more than rounding; please report it"
        )
    inside = np.clip(values, 0.0, 1.0)
    return inside if isinstance(value, np.ndarray) else float(inside)
