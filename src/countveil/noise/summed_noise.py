"""The noise of a sum of units: independent draws, one per unit, added up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaln

from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.errors import InputError
from countveil.noise.discrete_gaussian import DiscreteGaussian
from countveil.noise.law import Mechanism

Addition = Literal["convolution", "gaussian"]

_DEVIATIONS = 9.0  # standard deviations of a Gaussian that leave out less than 1e-18
_TAIL = 42.0  # lengths of an exponential tail that leave out less than 1e-18
_INVISIBLE = 1e-18  # a relative difference that a double does not show
_MOST_POINTS = 1 << 16
_TERMS_BETWEEN = 8  # terms of a series between two scalings
_PIECE = 10  # standard deviations: at its ends a tilted sum is about exp(-12.5) of its maximum
_SEEN = 1e-8  # of the maximum: smaller sums have lost digits and are computed with another tilt
_LEAST = 1e-28  # of the maximum: smaller values cannot change a sum that is kept
_REACH = 40  # standard deviations after which a Gaussian underflows


@dataclass(frozen=True, slots=True)
class SummedNoise:
    """The law of the sum of `count` draws of integer noise.

    addition="convolution" is exact. addition="gaussian" is the discrete Gaussian of the summed
    parameter, the papers' Proposition 1. Where both agree to the last bit of a double, the faster
    one is computed.
    """

    noise: Mechanism
    count: int
    addition: Addition = "convolution"

    def __post_init__(self) -> None:
        if self.addition not in ("convolution", "gaussian"):
            raise InputError(
                f'siblings: {self.addition!r} is not allowed; choose "convolution" or "gaussian"'
            )
        if self.addition == "gaussian" and self.noise.gaussian_variance is None:
            raise InputError(
                f'siblings: "gaussian" adds up discrete Gaussian noise, not {self.noise.name}; choose '
                f'"convolution"'
            )

    @property
    def variance(self) -> float:
        """The variance of the sum."""
        return self.count * self.noise.variance

    @property
    def as_gaussian(self) -> DiscreteGaussian | None:
        """The discrete Gaussian that the sum is, to double precision or by choice; else None."""
        sigma2 = self.noise.gaussian_variance
        if sigma2 is None:
            return None
        # A sum differs from it, relatively, by about n exp(-2 pi² sigma² (1 - 1/n)).
        exponent = 2 * math.pi**2 * sigma2 * (1 - 1 / self.count)
        close = self.count == 1 or self.count * math.exp(-min(exponent, 700.0)) < _INVISIBLE
        if close or self.addition == "gaussian":
            return DiscreteGaussian(Fraction(sigma2) * self.count)
        return None

    @property
    def lattice(self) -> bool:
        """True: the sum is a whole number."""
        return True

    @property
    def bounded_loss(self) -> float | None:
        """That of one draw: convolving with the other draws cannot raise it."""
        return self.noise.bounded_loss

    @property
    def gaussian_variance(self) -> float | None:
        """The summed sigma² where the sum is a discrete Gaussian (see `as_gaussian`), else None."""
        law = self.as_gaussian
        return None if law is None else law.gaussian_variance

    @property
    def laplace_scale(self) -> float | None:
        """The scale of a single draw; None for a sum of several, which is not Laplace."""
        return self.noise.laplace_scale if self.count == 1 else None

    def log_pmf(self, at: Array) -> FloatArray:
        """Return the log of the probability of each whole number in `at`."""
        if self.count == 1:
            return self.noise.log_pmf(np.asarray(at))
        law = self.as_gaussian
        if law is not None:
            return law.log_pmf(np.asarray(at))
        at = np.asarray(at, np.int64)
        scale = self.noise.laplace_scale
        if scale is not None:
            return _laplace_sum(scale, self.count, np.abs(at).astype(float))
        if not at.size:
            return np.empty(at.shape)
        points, index = np.unique(at, return_inverse=True)
        log_p = np.full(len(points), np.nan)
        # Piece by piece, each tilted towards its own points, so that nothing underflows there.
        piece = math.ceil(_PIECE * math.sqrt(self.variance)) + 1
        for part in np.unique(np.floor_divide(points, piece)):
            self._fill(log_p, points, int(part) * piece + piece // 2)
        while np.isnan(log_p).any():
            self._fill(log_p, points, int(points[np.isnan(log_p)][0]))
        return log_p[index].reshape(at.shape)

    def _fill(self, log_p: FloatArray, points: IntArray, middle: int) -> None:
        """Set the entries that are still missing and that a tilt towards `middle` resolves."""
        first, values = _tilted_sum(self.noise, self.count, middle)  # type: ignore[arg-type]
        near = np.isnan(log_p) & (points >= first) & (points < first + len(values))
        log_p[near] = values[points[near] - first]


@lru_cache(maxsize=64)
def _tilted_sum(noise: Mechanism, count: int, middle: int) -> tuple[int, FloatArray]:
    """Return a first number near `middle` and the log pmf of the sum from there on."""
    centre = middle / count
    half = math.ceil(_REACH * math.sqrt(noise.variance)) + 2
    if half > _MOST_POINTS:
        raise _too_many(count, noise.variance)
    first = math.floor(centre) - half
    k = np.arange(first, first + 2 * half + 1)
    log_p = noise.log_pmf(k)
    tilt = _tilt_to(centre, k, log_p)
    tilted = log_p + tilt * k
    top = tilted.max()
    base = np.exp(tilted - top)
    result, offset, scale = np.ones(1), 0, 0.0
    power, start, log_power = _trimmed(base, first, top)
    left = count
    while left:
        if left & 1:
            result, offset, scale = _trimmed(
                np.convolve(result, power), offset + start, scale + log_power
            )
        left >>= 1
        if left:
            power, start, log_power = _trimmed(np.convolve(power, power), 2 * start, 2 * log_power)
    seen = np.flatnonzero(result > _SEEN)
    y = np.arange(offset + seen[0], offset + seen[-1] + 1)
    values = np.log(result[seen[0] : seen[-1] + 1]) + scale - tilt * y
    values.setflags(write=False)
    return int(y[0]), values


def _tilt_to(centre: float, k: IntArray, log_p: FloatArray) -> float:
    """Return the tilt t at which exp(t k) P(k) has its mean at `centre`."""

    def off(tilt: float) -> float:
        tilted = log_p + tilt * k
        weights = np.exp(tilted - tilted.max())
        return float(weights @ (k - centre) / weights.sum())

    reach = 1.0
    while off(-reach) > 0 or off(reach) < 0:
        reach *= 2
    return float(brentq(off, -reach, reach, xtol=1e-9))


def _laplace_sum(scale: float, count: int, at: FloatArray) -> FloatArray:
    """Return the log pmf of a sum of discrete Laplace draws: a difference of negative binomials.

    (1-q)^(2n) (1-q²)^(-n) q^y C(n+y-1, y) Σ_{j<n} C(n-1, j) (n)_j/(y+1)_j w^j, with q = exp(-1/scale),
    w = q²/(1-q²), y >= 0. One draw is a difference of two geometrics; Pfaff's transformation makes
    the hypergeometric series of the difference finite, with all terms positive.
    """
    log_q = -1 / scale
    gap = -math.expm1(2 * log_q)
    w, log_p = math.exp(2 * log_q) / gap, 2 * math.log(-math.expm1(log_q)) - math.log(gap)
    total, term, log_scale = np.ones_like(at), np.ones_like(at), np.zeros_like(at)
    for j in range(count - 1):
        factor = (count - 1 - j) * (count + j) / (j + 1) * w / (at + 1 + j)
        term = term * factor
        total = total + term
        if j % _TERMS_BETWEEN == 0:
            if not ((term > total * np.finfo(float).eps / 8) | (factor > 1 / 2)).any():
                break
            log_scale = log_scale + np.log(total)
            total, term = np.ones_like(total), term / total
    first = -betaln(count, at + 1) - np.log(count + at)
    return np.asarray(count * log_p + at * log_q + first + np.log(total) + log_scale)


def _too_many(count: int, variance: float) -> InputError:
    return InputError(
        f"the noise of {count} siblings with standard deviation {math.sqrt(variance):,.0f} is too "
        f'wide to add up exactly; choose siblings="gaussian", or fewer siblings'
    )


def _trimmed(values: FloatArray, first: int, scale: float) -> tuple[FloatArray, int, float]:
    """Cut off ends too small to matter, and scale the rest to a maximum of 1."""
    top = values.max()
    seen = np.flatnonzero(values > top * _LEAST)
    kept = values[seen[0] : seen[-1] + 1]
    return kept / top, first + int(seen[0]), scale + math.log(top)


def half_width(law: Mechanism | SummedNoise) -> int:
    """Return a distance from 0 that integer noise passes with probability below 1e-17."""
    deviation = math.sqrt(max(law.variance, 0.0))
    if law.gaussian_variance is not None:
        return math.ceil(_DEVIATIONS * deviation) + 2
    return math.ceil(_TAIL * deviation / math.sqrt(2)) + 20
