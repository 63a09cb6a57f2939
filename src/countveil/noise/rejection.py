"""Exact draws by rejection, with integers only, for scales too large for the tables of inversion.

Canonne, Kamath & Steinke (2020), Algorithms 1 to 3: exact, but only thousands of draws per second.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from countveil.base.numerics import IntArray
from countveil.base.randomness import BitSource


def draw_discrete_laplace(scale: Fraction, size: int, rng: BitSource) -> IntArray:
    """Draw `size` values from P(k) ∝ exp(-|k|/scale)."""
    return _each(size, rng, lambda bits: _laplace(scale, bits))


def draw_discrete_gaussian(sigma2: Fraction, size: int, rng: BitSource) -> IntArray:
    """Draw `size` values from P(k) ∝ exp(-k²/(2 sigma²))."""
    t = math.isqrt(sigma2.numerator // sigma2.denominator) + 1

    def draw(bits: _Bits) -> int:
        while True:
            k = _laplace(Fraction(t), bits)
            if _happens_exp_minus((abs(k) - sigma2 / t) ** 2 / (2 * sigma2), bits):
                return k

    return _each(size, rng, draw)


@dataclass(slots=True)
class _Bits:
    """The bits of one draw, read 64 at a time."""

    rng: BitSource
    draw: IntArray
    depth: int = 0

    def below(self, n: int) -> int:
        """Return a uniform integer in [0, n)."""
        width = max(1, (n - 1).bit_length())
        while True:
            value = 0
            for _ in range(-(-width // 64)):
                value = value << 64 | int(self.rng.deepen(self.draw, self.depth)[0])
                self.depth += 1
            value >>= -width % 64
            if value < n:
                return value


def _each(size: int, rng: BitSource, draw: Callable[[_Bits], int]) -> IntArray:
    rng.begin(size)
    return np.array([draw(_Bits(rng, np.array([i]))) for i in range(size)], np.int64)


def _happens(p: Fraction, bits: _Bits) -> bool:
    return bits.below(p.denominator) < p.numerator


def _happens_exp_minus(gamma: Fraction, bits: _Bits) -> bool:
    """Return True with probability exp(-gamma)."""
    while gamma > 1:
        if not _happens_exp_minus(Fraction(1), bits):
            return False
        gamma -= 1
    k = 1
    while _happens(gamma / k, bits):
        k += 1
    return k % 2 == 1


def _laplace(scale: Fraction, bits: _Bits) -> int:
    t, s = scale.numerator, scale.denominator
    while True:
        u = bits.below(t)
        if not _happens_exp_minus(Fraction(u, t), bits):
            continue
        v = 0
        while _happens_exp_minus(Fraction(1), bits):
            v += 1
        magnitude = (u + t * v) // s
        negative = bits.below(2) == 1
        if negative and magnitude == 0:
            continue
        return -magnitude if negative else magnitude
