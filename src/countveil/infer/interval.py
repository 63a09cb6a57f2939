"""Two-sided intervals around estimates with a standard error."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from countveil.errors import InputError
from countveil.numerics import FloatArray

LEAST, MOST = 1e-6, 1 - 1e-9


def checked(confidence: float) -> float:
    """Return a confidence, refused where it is none."""
    if isinstance(confidence, bool) or not isinstance(confidence, int | float):
        raise InputError(f"confidence: {confidence!r} is not a number, such as 0.9")
    if not LEAST <= confidence <= MOST:
        raise InputError(
            f"confidence: {confidence} is not allowed; it lies between 0 and 1, such as 0.9"
        )
    return float(confidence)


def normal_interval(
    value: FloatArray, standard_error: FloatArray, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Return value ∓ z · standard_error, z being the normal quantile of (1 + confidence)/2.

    Where the standard error is infinite the interval is the whole line.
    """
    half = NormalDist().inv_cdf((1 + checked(confidence)) / 2) * standard_error
    centre = np.where(np.isinf(half), 0.0, value)
    return centre - half, centre + half
