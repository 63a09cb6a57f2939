"""What every risk measure returns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from countveil.numerics import FloatArray

THRESHOLDS = (1.5, 2.0, 5.0)
"""How many times a prior a belief may become before readers are told how often it does."""


@dataclass(frozen=True, eq=False, slots=True)
class Risk:
    """A number or an array of them, what it measures, and who may read it.

    `error` says how far the value may be off, where it is not to the last digit: a bound on what was
    left out of a sum, or the standard error of a simulation. Anything computed from confidential
    counts is internal; the public report will not print it.
    """

    measure: str
    value: float | FloatArray
    posterior: float | FloatArray | None = None
    error: float | None = None
    audience: Literal["public", "internal"] = "public"


def averaged(measure: str, each: FloatArray) -> Risk:
    """Return the mean of simulated draws, with its standard error."""
    error = float(each.std(ddof=1) / math.sqrt(len(each)))
    return Risk(measure, float(each.mean()), posterior=None, error=error)
