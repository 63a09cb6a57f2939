"""Two-sided intervals around estimates with a standard error."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from countveil.errors import InputError
from countveil.numerics import FloatArray


def checked(confidence: float) -> float:
    """Return a confidence, refused where it is none."""
    if not 0 < confidence < 1:
        raise InputError(f"confidence: {confidence} is not allowed; it lies between 0 and 1")
    return confidence


def normal_interval(
    value: FloatArray, standard_error: FloatArray, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Return value ∓ z · standard_error, z being the normal quantile of (1 + confidence)/2.

    Where the standard error is infinite the interval is the whole line.
    """
    half = NormalDist().inv_cdf((1 + checked(confidence)) / 2) * standard_error
    centre = np.where(np.isinf(half), 0.0, value)
    return centre - half, centre + half
