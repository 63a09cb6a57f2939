"""What every risk measure returns: a number, how far off it may be, and what it was computed for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import pyarrow as pa

from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.base.numerics import FloatArray
from countveil.noise.law import Law

THRESHOLDS = (1.5, 2.0, 5.0)
"""Multiples of the prior for which readers learn how often a posterior exceeds them."""


class ConfidenceInterval(NamedTuple):
    """The ends of a confidence interval."""

    lower: float
    upper: float


@dataclass(frozen=True, eq=False, slots=True)
class Risk:
    """One number or an array of them, what it measures, and what it was computed for.

    Parameters
    ----------
    measure : str
        What the value is, such as "marginal risk" or "correct decision".
    value : float or array
        The risk itself.
    posterior : float or array, optional
        The intruder's posterior behind the value, where there is one.
    error_bound : float, optional
        How far off the value may be because a sum was truncated (a certified bound) or thinned (what
        half as many terms would change). None where the value is exact up to rounding, or simulated.
    standard_error : float, optional
        The standard error of a simulated value; None where nothing was simulated.
    audience : {"public", "internal"}
        "internal" for anything computed from confidential counts, which the public report refuses.
    intruder : Intruder, optional
        Who learns: their prior, and what they know about the count.
    noise : tuple of Law
        The noise of the counts they see, lowest level first; empty where a plan says it.
    level : str, optional
        The level of a plan at which they attack.
    attack : str, optional
        What they want to find out, for an attack on a plan.
    effective_rho : float, optional
        The rho of one count that would reveal as much, where noise is Gaussian.
    unit_kind : str, optional
        The kind of unit in which they learn most.
    upper_bound : bool
        Whether the value is an upper bound rather than the risk itself.
    ladder : pyarrow.Table, optional
        The same risk if the intruder knew everyone else in a unit of each level, lowest level first.
    """

    measure: str
    value: float | FloatArray
    posterior: float | FloatArray | None = None
    error_bound: float | None = None
    standard_error: float | None = None
    audience: Literal["public", "internal"] = "public"
    intruder: Intruder | None = None
    noise: tuple[Law, ...] = ()
    level: str | None = None
    attack: str | None = None
    effective_rho: float | None = None
    unit_kind: str | None = None
    upper_bound: bool = False
    ladder: pa.Table | None = None


def mean_of_draws(
    measure: str,
    draws: FloatArray,
    *,
    intruder: Intruder | None = None,
    noise: tuple[Law, ...] = (),
    level: str | None = None,
) -> Risk:
    """Return the mean of simulated draws as a risk, with its standard error."""
    return Risk(
        measure,
        float(draws.mean()),
        standard_error=float(draws.std(ddof=1) / math.sqrt(len(draws))),
        intruder=intruder,
        noise=noise,
        level=level,
    )
