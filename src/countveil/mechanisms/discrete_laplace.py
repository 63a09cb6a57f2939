"""Discrete Laplace (two-sided geometric) noise: P(k) ∝ exp(-|k|/scale), priced in pure DP."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from countveil.errors import InputError
from countveil.mechanisms import rejection
from countveil.mechanisms.inversion import Inversion, invert
from countveil.numerics import Array, Exact, FloatArray, IntArray, enclose_exp_minus, positive
from countveil.privacy.costs import PureDP, Sensitivity
from countveil.randomness import BitSource

_LARGEST_TABLE = 10**4  # scale beyond which a draw by rejection beats building tables


@dataclass(frozen=True, slots=True, init=False)
class DiscreteLaplace:
    """Integer noise with ratio a = exp(-1/scale) between neighbours (Ghosh et al. 2009)."""

    scale: Fraction
    name = "discrete-laplace"

    def __init__(self, scale: Exact | None = None, *, epsilon: Exact | None = None) -> None:
        if (scale is None) == (epsilon is None):
            raise InputError('give either scale="20" or epsilon="0.05", not both and not neither')
        value = positive(scale, "scale") if scale is not None else None
        if epsilon is not None:
            value = 1 / positive(epsilon, "epsilon")
        object.__setattr__(self, "scale", value)

    @property
    def parameters(self) -> dict[str, str]:
        """The exact parameter as text."""
        return {"scale": str(self.scale)}

    @property
    def _rate(self) -> float:
        return float(1 / self.scale)

    @property
    def variance(self) -> float:
        """2a/(1-a)², which is 1/(2 sinh²(1/(2 scale)))."""
        half = self._rate / 2
        if half > 300:  # where sinh² would overflow
            return 2 * math.exp(-2 * half)
        return 1 / (2 * math.sinh(half) ** 2)

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
        """Return P(noise >= k) = a^k/(1+a) for k >= 1, and one minus its mirror below."""
        far = np.where(k >= 1, k, 1 - k)
        upper = np.exp(-self._rate * far - math.log1p(math.exp(-self._rate)))
        return np.where(k >= 1, upper, 1 - upper)

    def loss_at(self, noise: Array | float, shift: int = 1) -> FloatArray:
        """Return (|noise + shift| - |noise|)/scale."""
        e = np.asarray(noise, np.float64)
        return self._rate * np.clip(2 * e + shift, -shift, shift)

    def privacy_loss(self, shift: int = 1) -> tuple[FloatArray, FloatArray]:
        """Return the loss at -shift and below, between, and at 0 and above."""
        inner = np.arange(1 - shift, 0)
        losses = self.loss_at(np.arange(-shift, 1), shift)
        weights = np.concatenate(
            (
                self._at_least(np.array([shift])),
                np.exp(self.log_pmf(inner)),
                self._at_least(np.zeros(1)),
            )
        )
        return losses, weights

    def cost(self, sensitivity: Sensitivity) -> PureDP:
        """Return epsilon = (L1 sensitivity) / scale."""
        return PureDP(sensitivity.l1 / self.scale)

    def sample(self, size: int, *, rng: BitSource) -> IntArray:
        """Draw `size` independent values, exactly."""
        if self.scale > _LARGEST_TABLE:
            return rejection.discrete_laplace(self.scale, size, rng)
        return _tables(self.scale).sample(size, rng)


@lru_cache(maxsize=256)
def _tables(scale: Fraction) -> Inversion:
    def weights(bits: int, tail_bits: int) -> tuple[list[int], list[int], int]:
        """Enclose a^k, a = exp(-1/scale); what lies beyond K is a^(K+1)/(1-a)."""
        one, small = 1 << bits, 1 << (bits - tail_bits)
        ratio_low, ratio_high = enclose_exp_minus(1 / scale, bits)
        low, high = [one], [one]
        while True:
            tail = high[-1] * ratio_high // (one - ratio_high) + 1
            if high[-1] + tail < small:
                return low, high, tail
            low.append(low[-1] * ratio_low >> bits)
            high.append((high[-1] * ratio_high >> bits) + 1)

    return invert(weights)
