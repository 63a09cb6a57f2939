"""Counts with independent noise, no sum fixed: what a flat base measure on all whole numbers gives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from countveil.congenial.exact_chance import Scaled
from countveil.congenial.product import Shape
from countveil.mechanisms.discrete_gaussian import DiscreteGaussian
from countveil.mechanisms.discrete_laplace import DiscreteLaplace
from countveil.numerics import FloatArray, IntArray, enclose_exp_minus, log_theta
from countveil.randomness import BitSource


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Independent:
    """Targets plus discrete Laplace or Gaussian noise; every proposal is taken."""

    shape: Shape
    targets: IntArray
    margin: float = 1e-12

    def __repr__(self) -> str:
        return f"<noise around {len(self.targets)} confidential counts>"

    @property
    def entries(self) -> int:
        """It holds nothing of its own."""
        return 0

    @property
    def log_constant(self) -> float:
        """The logarithm of the sum of all weights."""
        return self.targets.size * log_weight_of_noise(self.shape)

    def propose(self, size: int, rng: BitSource) -> tuple[IntArray, FloatArray, int]:
        """Return tables, the logarithms of their chances, and the next free depth of the batch."""
        rate, power = self.shape.rate, self.shape.power
        law = DiscreteLaplace(1 / rate) if power == 1 else DiscreteGaussian(1 / (2 * rate))
        noise = law.sample(size * self.targets.size, rng=rng)
        return self.targets + noise.reshape(size, *self.targets.shape), np.zeros(size), 0

    def taken(self, size: int, rng: BitSource) -> IntArray:
        """Return so many tables: all proposals are taken."""
        return self.propose(size, rng)[0]

    def enclose_worth(self, table: IntArray, times: Scaled, bits: int) -> tuple[int, int]:
        """Return whole numbers with low <= 2**bits · (sum of all weights) · times <= high."""
        size = self.targets.size
        deep = bits + 64 + 2 * math.ceil(self.log_constant)
        low, high = _enclose_sum(self.shape, deep)
        times_low, times_high = times.enclose(deep)
        down = deep * (size + 1) - bits
        return low**size * times_low >> down, -(-(high**size) * times_high >> down)


def log_weight_of_noise(shape: Shape) -> float:
    """Return log of the sum of exp(-cost) over all whole numbers."""
    if shape.power == 1:
        return -math.log(math.tanh(float(shape.rate) / 2))
    return log_theta(float(shape.rate))


def _enclose_sum(shape: Shape, bits: int) -> tuple[int, int]:
    """Enclose 2**bits times the sum of exp(-cost) over all whole numbers."""
    one = 1 << bits
    if shape.power == 1:
        low, high = enclose_exp_minus(shape.rate, bits)
        return one * (one + low) // (one - low), -(-one * (one + high) // (one - high))
    if shape.rate < Fraction(1, 200):
        return _enclose_wide_sum(shape.rate, bits)
    total_low = total_high = one
    k = 0
    while True:
        k += 1
        low, high = enclose_exp_minus(shape.rate * k * k, bits)
        total_low, total_high = total_low + 2 * low, total_high + 2 * high
        if high <= 1:
            # What follows falls at least by exp(-rate·(2k + 1)) a step.
            _, ratio = enclose_exp_minus(shape.rate * (2 * k + 1), 64)
            return total_low, total_high + 2 * ((1 << 64) // max((1 << 64) - ratio, 1) + 1)


def _enclose_wide_sum(rate: Fraction, bits: int) -> tuple[int, int]:
    """Enclose the sum of exp(-rate k²) by Poisson's: √(π/rate)·(1 + 2 Σ exp(-π² k²/rate))."""
    deep = bits + 64
    low_pi, high_pi = _enclose_pi(2 * deep)
    n, d = rate.numerator, rate.denominator
    low, high = math.isqrt(low_pi * d // n), math.isqrt(-(-high_pi * d // n)) + 1
    # The sum of the rest is below 3 exp(-9.8/rate): 9.8 is below π².
    _, rest = enclose_exp_minus(Fraction(98, 10) / rate, deep)
    return low >> 64, -(-high * ((1 << deep) + 3 * rest) >> (deep + 64)) + 1


def _enclose_pi(bits: int) -> tuple[int, int]:
    """Enclose 2**bits π by Machin's formula, 16 arctan(1/5) - 4 arctan(1/239)."""
    one = 1 << (bits + 32)

    def arctan_of_one_over(x: int) -> tuple[int, int]:
        total, power, k = 0, one // x, 0
        while power:
            total += -(power // (2 * k + 1)) if k % 2 else power // (2 * k + 1)
            power //= x * x
            k += 1
        return total, 2 * k + 2  # each division is off by less than one, twice

    (five, off_five), (far, off_far) = arctan_of_one_over(5), arctan_of_one_over(239)
    middle, off = 16 * five - 4 * far, 16 * off_five + 4 * off_far
    return (middle - off) >> 32, -(-(middle + off) >> 32)
