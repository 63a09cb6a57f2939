"""Discrete Gaussian noise: P(k) ∝ exp(-k²/(2 sigma²)) on the integers, priced in rho (zCDP)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np

from countveil.base.numerics import (
    Array,
    Exact,
    FloatArray,
    IntArray,
    enclose_exp_minus,
    log_theta,
    positive,
)
from countveil.base.randomness import BitSource
from countveil.noise import rejection
from countveil.noise.inversion import Inversion, Weights, invert, probabilities_at_most
from countveil.noise.law import LossLaw
from countveil.privacy.certified_loss import BITS, LossAtom, LossMasses
from countveil.privacy.costs import ZCDP, Cost, Currency, Sensitivity

_LARGEST_TABLE = 10**8  # sigma² beyond which a draw by rejection beats building tables
_REACH = 40  # standard deviations after which exp underflows
_TINY = 1e-100  # below it squares may underflow, and the lattice has long ceased to matter


@dataclass(frozen=True, slots=True, init=False)
class DiscreteGaussian:
    """Integer noise with P(k) ∝ exp(-k²/(2 sigma²)) (Canonne, Kamath & Steinke 2020).

    Parameters
    ----------
    sigma2
        sigma², exact: text such as "500/99", an integer or a fraction, above 0.

    Examples
    --------
    >>> noise = DiscreteGaussian.from_rho("1/2")
    >>> noise.sigma2, round(noise.variance, 6)
    (Fraction(1, 1), 1.0)

    """

    sigma2: Fraction
    name: ClassVar[str] = "discrete-gaussian"
    label: ClassVar[str] = "discrete Gaussian"
    currency: ClassVar[Currency] = "rho"

    def __init__(self, sigma2: Exact) -> None:
        object.__setattr__(self, "sigma2", positive(sigma2, "sigma2"))

    @classmethod
    def from_rho(cls, rho: Exact, sensitivity2: Exact = 1) -> DiscreteGaussian:
        """Return the noise that costs `rho`: sigma² = (squared L2 sensitivity) / (2 rho)."""
        return cls(positive(sensitivity2, "sensitivity2") / (2 * positive(rho, "rho")))

    @classmethod
    def for_cost(cls, cost: Cost, sensitivity: Sensitivity) -> DiscreteGaussian:
        """Return the noise for which one run costs `cost`, a rho."""
        return cls.from_rho(cost.amount, sensitivity.l2_squared)

    @property
    def parameters(self) -> dict[str, str]:
        """The exact parameter as text."""
        return {"sigma2": str(self.sigma2)}

    @property
    def _rate(self) -> float:
        return float(1 / (2 * self.sigma2))

    @property
    def variance(self) -> float:
        """The variance: less than sigma², by under 0.002 for sigma² of at least 1/2."""
        rate = self._rate
        if rate < _TINY:
            return 0.5 / rate if rate else math.inf
        if rate >= 1:
            k = np.arange(1, 7)
            weights = np.exp(-rate * k**2)
            return float(2 * (k**2 * weights).sum() / (1 + 2 * weights.sum()))
        k = np.arange(1, 7)
        dual = np.exp(-((np.pi * k) ** 2) / rate)  # Poisson summation, as in log_theta
        return float(
            1 / (2 * rate) - 2 * ((np.pi * k / rate) ** 2 * dual).sum() / (1 + 2 * dual.sum())
        )

    @property
    def lattice(self) -> bool:
        """True: the noise is a whole number."""
        return True

    @property
    def bounded_loss(self) -> float | None:
        """None: the loss grows with the noise."""
        return None

    @property
    def gaussian_variance(self) -> float | None:
        """The parameter sigma²."""
        return float(self.sigma2)

    @property
    def laplace_scale(self) -> float | None:
        """None: it is not Laplace."""
        return None

    def log_pmf(self, noise: Array | int) -> FloatArray:
        """Return log P(noise); minus infinity off the integers."""
        k = np.asarray(noise, np.float64)
        log_p = -self._rate * k * k - log_theta(self._rate)
        return np.where(k == np.floor(k), log_p, -np.inf)

    def log_density(self, noise: Array | float) -> FloatArray:
        """Return log P(noise)."""
        return self.log_pmf(noise)  # type: ignore[arg-type]

    def cdf(self, at: Array | float) -> FloatArray:
        """Return P(noise <= at)."""
        return self._at_least(-np.floor(np.asarray(at, np.float64)))

    def survival(self, at: Array | float) -> FloatArray:
        """Return P(noise > at)."""
        return self._at_least(np.floor(np.asarray(at, np.float64)) + 1)

    def _at_least(self, k: FloatArray) -> FloatArray:
        """Return P(noise >= k) for whole k: tail sums on the right, complements on the left."""
        tail = _tails(self.sigma2) if self.sigma2 <= _LARGEST_TABLE else None
        far = np.where(k >= 1, k, 1 - k)
        if tail is not None:
            upper = tail[np.minimum(far, len(tail) - 1).astype(np.int64)]
        else:
            upper = _smooth_tail(far, float(self.sigma2))
        return np.where(k >= 1, upper, 1 - upper)

    def loss_at(self, noise: Array | float, shift: int = 1) -> FloatArray:
        """Return (2 noise shift + shift²)/(2 sigma²)."""
        return self._rate * shift * (2 * np.asarray(noise, np.float64) + shift)

    def privacy_loss(self, shift: int = 1) -> LossLaw:
        """Return the loss at the integers and its weights."""
        rate = self._rate
        sigma = math.sqrt(1 / (2 * rate))
        # For a wide bell, a coarser lattice is the trapezoidal rule with error exp(-2 pi² 10²).
        step = max(1, math.floor(sigma / 10))
        reach = math.ceil(_REACH * sigma / step) + 1
        e = step * np.arange(-reach, reach + 1, dtype=np.float64)
        weights = np.exp(-rate * e * e)
        return LossLaw(self.loss_at(e, shift), weights / weights.sum())

    def hockey_stick(self, epsilon: FloatArray, shift: int = 1) -> FloatArray:
        """Return the tight delta at each epsilon: P(loss > epsilon) - e^epsilon P'(loss > epsilon)."""
        threshold = (float(2 * self.sigma2) * epsilon - shift**2) / (2 * shift)
        log_tail = np.log(np.maximum(self.survival(threshold + shift), np.finfo(float).tiny))
        return self.survival(threshold) - np.exp(epsilon + log_tail)

    def loss_masses(self, shift: int = 1) -> LossMasses | None:
        """Return the law of (2 noise shift + shift²)/(2 sigma²); None where tables are too long."""
        return None if self.sigma2 > _LARGEST_TABLE else _loss_masses(self.sigma2, shift)

    def cost(self, sensitivity: Sensitivity) -> ZCDP:
        """Return rho = (squared L2 sensitivity) / (2 sigma²)."""
        return ZCDP(sensitivity.l2_squared / (2 * self.sigma2))

    def sample(self, size: int, *, rng: BitSource) -> IntArray:
        """Draw `size` independent values, exactly."""
        if self.sigma2 > _LARGEST_TABLE:
            return rejection.draw_discrete_gaussian(self.sigma2, size, rng)
        return _tables(self.sigma2).sample(size, rng)


@lru_cache(maxsize=256)
def _tables(sigma2: Fraction) -> Inversion:
    return invert(_weights_of(sigma2))


def _weights_of(sigma2: Fraction) -> Weights:
    def weights(bits: int, tail_bits: int) -> tuple[list[int], list[int], int]:
        """Enclose exp(-k²/(2 sigma²)) by w(k+1) = w(k) r(k), r(k+1) = r(k) exp(-1/sigma²)."""
        one, small = 1 << bits, 1 << (bits - tail_bits)
        ratio_low, ratio_high = enclose_exp_minus(1 / (2 * sigma2), bits)
        step_low, step_high = enclose_exp_minus(1 / sigma2, bits)
        low, high = [one], [one]
        while True:
            # Ratios decrease, so a geometric series bounds the tail.
            tail = high[-1] * ratio_high // (one - ratio_high) + 1
            if high[-1] + tail < small:
                return low, high, tail
            low.append(low[-1] * ratio_low >> bits)
            high.append((high[-1] * ratio_high >> bits) + 1)
            ratio_low = ratio_low * step_low >> bits
            ratio_high = (ratio_high * step_high >> bits) + 1

    return weights


@lru_cache(maxsize=256)
def _loss_masses(sigma2: Fraction, shift: int) -> LossMasses:
    lowest, probabilities, beyond = probabilities_at_most(_weights_of(sigma2), BITS)
    atoms = tuple(
        LossAtom((2 * noise * shift + shift**2) / (2 * sigma2), mass)
        for noise, mass in enumerate(probabilities, lowest)
    )
    return LossMasses(atoms, beyond)


@lru_cache(maxsize=256)
def _tails(sigma2: Fraction) -> FloatArray:
    """Return P(noise >= k) for k = 0, 1, …, summed from the far end to keep relative precision."""
    rate = float(1 / (2 * sigma2))
    reach = math.ceil(_REACH * math.sqrt(float(sigma2))) + 2
    k = np.arange(reach, dtype=np.float64)
    log_p = -rate * k * k - log_theta(rate)
    tails = np.cumsum(np.exp(log_p[::-1]))[::-1]
    tails = np.append(tails, 0.0)
    tails.setflags(write=False)
    return tails


def _smooth_tail(k: FloatArray, sigma2: float) -> FloatArray:
    """Return P(noise >= k) for sigma above 10,000, by the midpoint rule with its first correction.

    The next term is below (7/5760)(40/sigma)³, under 1e-10 of the tail at 40 sigma and far smaller
    closer to 0.
    """
    from scipy.special import log_ndtr

    sigma = math.sqrt(sigma2)
    z = (k - 0.5) / sigma
    density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return np.asarray(np.exp(log_ndtr(-z)) - density * z / (24 * sigma2), np.float64)
