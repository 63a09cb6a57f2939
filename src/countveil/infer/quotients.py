"""Quotients of two estimates with noise: the delta method, Fieller's sets, and simulation."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from countveil.errors import InputError
from countveil.infer.interval import checked, normal_interval
from countveil.infer.joint_variance import Pairs, settled_variance
from countveil.numerics import FloatArray

Method = Literal["fieller", "delta", "simulation"]
METHODS: tuple[Method, ...] = ("fieller", "delta", "simulation")
DRAWS = 10_000
LEAST_DRAWS = 1_000

_VALUES = 2_000_000  # numbers drawn at a time


@dataclass(frozen=True, eq=False, slots=True)
class Ends:
    """Sets that hold the truth so often: lower … upper, without what lies inside the gap.

    Where there is no gap its ends are NaN.
    """

    lower: FloatArray
    upper: FloatArray
    gap_lower: FloatArray
    gap_upper: FloatArray

    @classmethod
    def plain(cls, lower: FloatArray, upper: FloatArray) -> Ends:
        """Return intervals without gaps."""
        return cls(lower, upper, np.full_like(lower, np.nan), np.full_like(lower, np.nan))

    def within(self, least: float, most: float) -> Ends:
        """Return what of the sets is possible; where nothing is, the nearest that is."""
        lower, upper = np.clip(self.lower, least, most), np.clip(self.upper, least, most)
        left = self.gap_lower >= least  # there is something possible below the gap
        right = self.gap_upper <= most
        only_right, only_left = right & ~left, left & ~right
        lower = np.where(only_right, np.clip(self.gap_upper, least, most), lower)
        upper = np.where(only_left, np.clip(self.gap_lower, least, most), upper)
        kept = ~(only_right | only_left)
        gap_lower, gap_upper = (
            np.where(kept, np.clip(end, least, most), np.nan)
            for end in (self.gap_lower, self.gap_upper)
        )
        return Ends(lower, upper, gap_lower, gap_upper)


def quotient(pairs: Pairs) -> tuple[FloatArray, FloatArray]:
    """Return first / second and its standard error by the delta method.

    Var(a/b) ≈ Var(a - r b) / b² at r = a/b, the covariance included. Where b is estimated as 0 there
    is no quotient: NaN, with an infinite error.
    """
    defined = pairs.determined & (pairs.second != 0)
    below = np.where(defined, pairs.second, 1.0)
    value = np.where(defined, pairs.first, 0.0) / below
    error = np.sqrt(pairs.variance_less(value)) / np.abs(below)
    return np.where(defined, value, np.nan), np.where(defined, error, np.inf)


def ends(pairs: Pairs, method: Method, confidence: float, draws: int, seed: int) -> Ends:
    """Return the set of each quotient by the method asked for."""
    if method == "fieller":
        return fieller(pairs, confidence)
    if method == "delta":
        return Ends.plain(*normal_interval(*quotient(pairs), confidence))
    if method == "simulation":
        return simulated(pairs, confidence, draws, seed)
    raise InputError(f"method: {method!r} is not known; choose from {', '.join(METHODS)}")


def fieller(pairs: Pairs, confidence: float) -> Ends:
    """Return all r with (a - r b)² <= z² Var(a - r b): exact where a and b are normal.

    With (b² - z² v_b) r² - 2 (a b - z² c) r + (a² - z² v_a) <= 0 that is an interval where b is
    further than z standard errors from 0. Where it is not, any denominator near 0 may be the true one:
    the set is the whole line, or the line without a gap (Fieller 1954, J. R. Stat. Soc. B 16, 175).
    """
    square = NormalDist().inv_cdf((1 + checked(confidence)) / 2) ** 2
    known = pairs.determined
    a, b, a_variance, b_variance = (
        np.where(known, part, 0.0)
        for part in (pairs.first, pairs.second, pairs.first_variance, pairs.second_variance)
    )
    c = pairs.covariance
    leading = b**2 - square * b_variance
    half = a * b - square * c
    constant = a**2 - square * a_variance
    # half² - leading · constant, written out: what cancels in it is far larger than what is left.
    added = b**2 * a_variance + a**2 * b_variance + square * c**2
    taken = 2 * a * b * c + square * a_variance * b_variance
    inside = square * settled_variance(added - taken, added + np.abs(taken))
    pole = half + np.copysign(np.sqrt(inside), half)
    with np.errstate(divide="ignore", invalid="ignore"):
        one, other = pole / leading, np.where(pole == 0, 0.0, constant / pole)
    bounded = known & (leading >= 0) & ~np.isnan(one)
    gap = known & (leading < 0) & (inside > 0)
    low, high = np.minimum(one, other), np.maximum(one, other)
    return Ends(
        np.where(bounded, low, -np.inf),
        np.where(bounded, high, np.inf),
        np.where(gap, low, np.nan),
        np.where(gap, high, np.nan),
    )


def simulated(pairs: Pairs, confidence: float, draws: int, seed: int) -> Ends:
    """Return where the middle of quotients lies that are drawn from the estimates' normal law."""
    if draws < LEAST_DRAWS:
        raise InputError(f"draws: {draws} is not allowed; take {LEAST_DRAWS:,} or more")
    tail = (1 - checked(confidence)) / 2
    noise = np.random.default_rng(seed).standard_normal((2, draws))
    known = pairs.determined
    variances = [
        np.where(known, part, 0.0) for part in (pairs.first_variance, pairs.second_variance)
    ]
    second = np.sqrt(variances[1])
    slope = pairs.covariance / np.where(second > 0, second, 1.0)
    rest = np.sqrt(np.maximum(variances[0] - slope**2, 0.0))
    lower, upper = np.full(len(known), -np.inf), np.full(len(known), np.inf)
    step = max(1, _VALUES // draws)
    defined = np.flatnonzero(known & ((second > 0) | (pairs.second != 0)))
    for start in range(0, len(defined), step):
        some = defined[start : start + step]
        above = pairs.first[some, None] + np.outer(slope[some], noise[0])
        above += np.outer(rest[some], noise[1])
        below = pairs.second[some, None] + np.outer(second[some], noise[0])
        lower[some], upper[some] = np.quantile(above / below, (tail, 1 - tail), axis=1)
    return Ends.plain(lower, upper)
