"""Discrete Laplace (two-sided geometric) noise: P(k) ∝ exp(-|k|/scale), priced in pure epsilon."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np

from countveil.base.numerics import Array, Exact, FloatArray, IntArray, enclose_exp_minus, positive
from countveil.base.randomness import BitSource
from countveil.errors import InputError
from countveil.noise import rejection
from countveil.noise.inversion import Inversion, Weights, invert, probabilities_at_most
from countveil.noise.law import LossLaw, hockey_stick_of
from countveil.privacy.certified_loss import BITS, LossAtom, LossMasses
from countveil.privacy.costs import Cost, Currency, PureDP, Sensitivity

_LARGEST_TABLE = 10**4  # scale beyond which a draw by rejection beats building tables
_TINY = 1e-100  # below it squares may underflow, and the lattice has long ceased to matter


@dataclass(frozen=True, slots=True, init=False)
class DiscreteLaplace:
    """Integer noise with P(k) ∝ exp(-|k|/scale) (Ghosh et al. 2009).

    Parameters
    ----------
    scale
        The scale, exact: text such as "20", an integer or a fraction, above 0.
    epsilon
        1/scale, instead: the epsilon of a count that one person moves by 1.

    Examples
    --------
    >>> DiscreteLaplace(epsilon="0.05") == DiscreteLaplace("20")
    True

    """

    scale: Fraction
    name: ClassVar[str] = "discrete-laplace"
    label: ClassVar[str] = "discrete Laplace"
    currency: ClassVar[Currency] = "epsilon"

    def __init__(self, scale: Exact | None = None, *, epsilon: Exact | None = None) -> None:
        if (scale is None) == (epsilon is None):
            raise InputError('give exactly one of scale="20" and epsilon="0.05"')
        value = positive(scale, "scale") if scale is not None else None
        if epsilon is not None:
            value = 1 / positive(epsilon, "epsilon")
        object.__setattr__(self, "scale", value)

    @classmethod
    def for_cost(cls, cost: Cost, sensitivity: Sensitivity) -> DiscreteLaplace:
        """Return the noise for which one run costs `cost`: scale = (L1 sensitivity) / epsilon."""
        return cls(sensitivity.l1 / cost.amount)

    @property
    def parameters(self) -> dict[str, str]:
        """The exact parameter as text."""
        return {"scale": str(self.scale)}

    @property
    def _rate(self) -> float:
        return float(1 / self.scale)

    @property
    def variance(self) -> float:
        """2a/(1-a)² with a = exp(-1/scale), which is 1/(2 sinh²(1/(2 scale)))."""
        half = self._rate / 2
        if half > 300:  # where sinh² would overflow
            return 2 * math.exp(-2 * half)
        if half < _TINY:
            return 0.5 / half / half if half else math.inf
        return 1 / (2 * math.sinh(half) ** 2)

    @property
    def lattice(self) -> bool:
        """True: the noise is a whole number."""
        return True

    @property
    def bounded_loss(self) -> float | None:
        """1/scale."""
        return self._rate

    @property
    def gaussian_variance(self) -> float | None:
        """None, because the law is not Gaussian."""
        return None

    @property
    def laplace_scale(self) -> float | None:
        """The scale."""
        return float(self.scale)

    def log_pmf(self, noise: Array | int) -> FloatArray:
        """Return log P(noise); minus infinity off the integers."""
        k = np.asarray(noise, np.float64)
        log_p = math.log(math.tanh(self._rate / 2)) - self._rate * np.abs(k)
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
        """Return P(noise >= k): a^k/(1+a) for k >= 1, and by symmetry below."""
        far = np.where(k >= 1, k, 1 - k)
        upper = np.exp(-self._rate * far - math.log1p(math.exp(-self._rate)))
        return np.where(k >= 1, upper, 1 - upper)

    def loss_at(self, noise: Array | float, shift: int = 1) -> FloatArray:
        """Return (|noise + shift| - |noise|)/scale."""
        e = np.asarray(noise, np.float64)
        return self._rate * np.clip(2 * e + shift, -shift, shift)

    def privacy_loss(self, shift: int = 1) -> LossLaw:
        """Return the values of the loss and their probabilities: it is constant outside (-shift, 0)."""
        inner = np.arange(1 - shift, 0)
        losses = self.loss_at(np.arange(-shift, 1), shift)
        weights = np.concatenate(
            (
                self._at_least(np.array([shift])),
                np.exp(self.log_pmf(inner)),
                self._at_least(np.zeros(1)),
            )
        )
        return LossLaw(losses, weights)

    def hockey_stick(self, epsilon: FloatArray, shift: int = 1) -> FloatArray:
        """Return the tight delta at each epsilon: a sum over the values of the loss."""
        return hockey_stick_of(*self.privacy_loss(shift), epsilon)

    def loss_masses(self, shift: int = 1) -> LossMasses | None:
        """Return the law of (|noise + shift| - |noise|)/scale; None where tables are too long."""
        return None if self.scale > _LARGEST_TABLE else _loss_masses(self.scale, shift)

    def cost(self, sensitivity: Sensitivity) -> PureDP:
        """Return epsilon = (L1 sensitivity) / scale."""
        return PureDP(sensitivity.l1 / self.scale)

    def sample(self, size: int, *, rng: BitSource) -> IntArray:
        """Draw `size` independent values, exactly."""
        if self.scale > _LARGEST_TABLE:
            return rejection.draw_discrete_laplace(self.scale, size, rng)
        return _tables(self.scale).sample(size, rng)


@lru_cache(maxsize=256)
def _tables(scale: Fraction) -> Inversion:
    return invert(_weights_of(scale))


def _weights_of(scale: Fraction) -> Weights:
    def weights(bits: int, tail_bits: int) -> tuple[list[int], list[int], int]:
        """Enclose a^k, a = exp(-1/scale); the tail beyond K is a^(K+1)/(1-a)."""
        one, small = 1 << bits, 1 << (bits - tail_bits)
        ratio_low, ratio_high = enclose_exp_minus(1 / scale, bits)
        low, high = [one], [one]
        while True:
            tail = high[-1] * ratio_high // (one - ratio_high) + 1
            if high[-1] + tail < small:
                return low, high, tail
            low.append(low[-1] * ratio_low >> bits)
            high.append((high[-1] * ratio_high >> bits) + 1)

    return weights


@lru_cache(maxsize=256)
def _loss_masses(scale: Fraction, shift: int) -> LossMasses:
    """Return the shift + 1 values of the loss: it is constant outside (-shift, 0)."""
    lowest, probabilities, beyond = probabilities_at_most(_weights_of(scale), BITS)
    masses: Counter[int] = Counter({shift: beyond})
    for noise, mass in enumerate(probabilities, lowest):
        masses[min(max(2 * noise + shift, -shift), shift)] += mass
    return LossMasses(tuple(LossAtom(moved / scale, mass) for moved, mass in masses.items()), 0)
