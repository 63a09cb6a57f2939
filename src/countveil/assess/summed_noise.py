"""The noise of a sum of siblings: their number of independent draws, added up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy.special import gammaln

from countveil.errors import InputError
from countveil.mechanisms.discrete_gaussian import DiscreteGaussian
from countveil.mechanisms.discrete_laplace import DiscreteLaplace
from countveil.mechanisms.law import Mechanism
from countveil.numerics import Array, FloatArray

Addition = Literal["convolution", "gaussian"]

_INVISIBLE = 1e-18  # relative to 1: what the lattice may still show
_MOST_POINTS = 1 << 16
_SERIES = 60.0  # of the exponent: more than enough terms
_MOST_TERMS = 2_000_000
_LARGE = 1e250
_PIECE = 10  # standard deviations
_REACH = 40  # standard deviations after which a Gaussian underflows


@dataclass(frozen=True, slots=True)
class SummedNoise:
    """The law of the sum of `count` draws of integer noise.

    "convolution" is exact. "gaussian" takes the discrete Gaussian of the summed parameter, the papers'
    Proposition 1. Where they agree to the last bit of a double, the quicker one is computed.
    """

    noise: Mechanism
    count: int
    addition: Addition = "convolution"

    def __post_init__(self) -> None:
        if self.addition not in ("convolution", "gaussian"):
            raise InputError(
                f'siblings: {self.addition!r} is not known; choose "convolution" or "gaussian"'
            )
        if self.addition == "gaussian" and not isinstance(self.noise, DiscreteGaussian):
            raise InputError(
                f'siblings: "gaussian" is for discrete Gaussian noise, and this is {self.noise.name}; '
                f'choose "convolution"'
            )

    @property
    def variance(self) -> float:
        """The variance of the sum."""
        return self.count * self.noise.variance

    @property
    def as_gaussian(self) -> DiscreteGaussian | None:
        """The discrete Gaussian that the sum is, to double precision or by choice; else None."""
        if not isinstance(self.noise, DiscreteGaussian):
            return None
        total = DiscreteGaussian(self.noise.sigma2 * self.count)
        # A sum differs from it, relatively, by about n exp(-2 pi² sigma² (1 - 1/n)).
        apart = 2 * math.pi**2 * float(self.noise.sigma2) * (1 - 1 / self.count)
        close = self.count == 1 or self.count * math.exp(-min(apart, 700.0)) < _INVISIBLE
        return total if close or self.addition == "gaussian" else None

    def log_pmf(self, at: Array) -> FloatArray:
        """Return the log of the probability of each whole number in `at`."""
        law = self.as_gaussian
        if law is not None:
            return law.log_pmf(np.asarray(at))
        if self.count == 1:
            return self.noise.log_pmf(np.asarray(at))
        at = np.asarray(at, np.int64)
        if isinstance(self.noise, DiscreteLaplace):
            return _laplace_sum(float(self.noise.scale), self.count, np.abs(at).astype(float))
        if not at.size:
            return np.empty(at.shape)
        # Piece by piece, each tilted towards where it is asked for, so that nothing underflows there.
        piece = math.ceil(_PIECE * math.sqrt(self.variance)) + 1
        number = np.floor_divide(at, piece)
        found = np.full(at.shape, -np.inf)
        for part in np.unique(number):
            here = number == part
            middle = int(part) * piece + piece // 2
            first, values = _tilted_sum(self.noise, self.count, middle, piece)  # type: ignore[arg-type]
            found[here] = values[at[here] - first]
        return found


@lru_cache(maxsize=64)
def _tilted_sum(noise: Mechanism, count: int, middle: int, width: int) -> tuple[int, FloatArray]:
    """Return the log pmf of the sum from some number on, right around `middle`."""
    centre = middle / count
    half = math.ceil(_REACH * math.sqrt(noise.variance)) + width
    if count * half > _MOST_POINTS:
        raise _too_many(count, noise.variance)
    first = math.floor(centre) - half
    k = np.arange(first, first + 2 * half + 1)
    log_p = noise.log_pmf(k)
    # By the slope of the law at the centre, so that the tilted law peaks there.
    tilt = float(noise.loss_at(float(math.floor(centre))))
    tilted = log_p + tilt * k
    top = tilted.max()
    base = np.exp(tilted - top)
    result, power, start, offset, scale = np.ones(1), base, first, 0, 0.0
    log_power, left = top, count
    while left:
        if left & 1:
            result, scale = _convolved(result, power, scale + log_power)
            offset += start
        left >>= 1
        if left:
            power, log_power = _convolved(power, power, 2 * log_power)
            start *= 2
    y = np.arange(offset, offset + len(result))
    with np.errstate(divide="ignore"):
        values = np.log(result) + scale - tilt * y
    values.setflags(write=False)
    return offset, values


def _laplace_sum(scale: float, count: int, at: FloatArray) -> FloatArray:
    """Return the log pmf of a sum of discrete Laplace draws: a difference of negative binomials.

    (1-q)^(2n) q^y Σ_j C(n+j-1, j) C(n+j+y-1, j+y) q^(2j), with q = exp(-1/scale), y >= 0;
    one draw is a difference of two geometrics.
    """
    log_q = -1 / scale
    q2, log_p = math.exp(2 * log_q), math.log(-math.expm1(log_q))
    if _SERIES * scale / 2 > _MOST_TERMS:
        raise _too_many(count, 2 * scale**2)
    total, term, log_scale = np.ones_like(at), np.ones_like(at), np.zeros_like(at)
    j = 0
    while (term > total * np.finfo(float).eps / 8).any():
        term = term * ((count + j) / (j + 1) * q2) * ((count + j + at) / (j + 1 + at))
        total = total + term
        j += 1
        large = total > _LARGE
        if large.any():
            log_scale = np.where(large, log_scale + math.log(_LARGE), log_scale)
            total, term = (np.where(large, x / _LARGE, x) for x in (total, term))
    first = gammaln(count + at) - gammaln(at + 1) - gammaln(count)
    return np.asarray(2 * count * log_p + at * log_q + first + np.log(total) + log_scale)


def _too_many(count: int, variance: float) -> InputError:
    return InputError(
        f"{count} siblings with noise of standard deviation {math.sqrt(variance):,.0f} are more than "
        f'can be added up exactly; take siblings="gaussian", or fewer of them'
    )


def _convolved(a: FloatArray, b: FloatArray, scale: float) -> tuple[FloatArray, float]:
    both = np.convolve(a, b)
    top = both.max()
    return both / top, scale + math.log(top)
