"""Chances exp(q)·r with fractions q and r, and events that happen with exactly such a chance.

A float decides nearly always; where a uniform number lies too close to it, integers that enclose the
chance ever more narrowly do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from countveil.numerics import FloatArray, IntArray, enclose_exp_minus
from countveil.randomness import BitSource, Words64

# enclose(bits) -> (low, high) with low <= 2**bits chance <= high
Enclosure = Callable[[int], tuple[int, int]]

_WORD = 64


@dataclass(frozen=True, slots=True)
class Scaled:
    """exp(exponent)·factor, exactly."""

    exponent: Fraction
    factor: Fraction

    def __mul__(self, other: Scaled) -> Scaled:
        return Scaled(self.exponent + other.exponent, self.factor * other.factor)

    def __truediv__(self, other: Scaled) -> Scaled:
        return Scaled(self.exponent - other.exponent, self.factor / other.factor)

    @property
    def log(self) -> float:
        """Its logarithm, as a float."""
        return float(self.exponent) + _log(self.factor)

    def enclose(self, bits: int) -> tuple[int, int]:
        """Return whole numbers with low <= 2**bits · value <= high."""
        size = max(0, math.ceil(_log(self.factor) / math.log(2))) + 8
        low, high = enclose_exp(self.exponent, bits + size)
        n, d = self.factor.numerator, self.factor.denominator << size
        return low * n // d, -(-high * n // d)


def enclose_exp(q: Fraction, bits: int) -> tuple[int, int]:
    """Return whole numbers with low <= 2**bits · exp(q) <= high."""
    if q <= 0:
        return enclose_exp_minus(-q, bits)
    deep = bits + 2 * (math.ceil(q / Fraction(2, 3)) + 1)
    low, high = enclose_exp_minus(q, deep)
    one = 1 << (bits + deep)
    return one // high, -(-one // low)


def _log(value: Fraction) -> float:
    return _log_int(value.numerator) - _log_int(value.denominator)


def _log_int(value: int) -> float:
    shift = max(
        0, value.bit_length() - 1000
    )  # math.log takes whole numbers of any size, but slowly
    return math.log(value >> shift) + shift * math.log(2)


def those_that_happen(
    log_chances: FloatArray,
    margin: float,
    enclose: Callable[[int], Enclosure],
    rng: BitSource,
    draws: IntArray,
    depth: int,
) -> Iterator[int]:
    """Yield, in order, the numbers of those of some independent events that happen.

    Event i has a chance whose logarithm is within `margin` of log_chances[i], and a part in 2**30 of
    it, enclosed by enclose(i); its uniform number has the bits of draw draws[i] of the batch, from
    `depth` on.
    """
    if np.isnan(log_chances).any():
        raise ArithmeticError("a chance is not a number; nothing was decided")
    words = rng.deepen(draws, depth)
    uniform = words / 2.0**_WORD
    slack = margin - 2.0**-30 * np.maximum(log_chances, -1e300)  # chances are at most 1
    sure = uniform + 2.0**-50 < np.exp(np.maximum(log_chances, -1e300) - slack)
    highest = np.exp(np.minimum(np.maximum(log_chances, -1e300) + slack, 1.0))
    possible = (uniform - 2.0**-50 <= highest) & (log_chances > -np.inf)
    for event in np.flatnonzero(possible).tolist():
        if sure[event] or _settled(
            int(words[event]), enclose(event), rng, draws[event : event + 1], depth
        ):
            yield event


def _settled(word: int, enclose: Enclosure, rng: BitSource, which: IntArray, first: int) -> bool:
    """Extend the bits of the uniform number until it is certainly on one side of the chance."""
    bits, depth = _WORD, first + 1
    while True:
        low, high = enclose(bits)
        if word + 1 <= low:
            return True
        if word >= high:
            return False
        word = word << _WORD | int(rng.deepen(which, depth)[0])
        bits, depth = bits + _WORD, depth + 1


def below(limits: IntArray, rng: BitSource, draws: IntArray, depth: int) -> tuple[IntArray, int]:
    """Return exactly uniform whole numbers below limits (at most 2**50), and the next free depth."""
    found = np.empty(len(limits), np.int64)
    open_ = np.arange(len(limits))
    while len(open_):
        # Each value below the limit has the same number of words; words left over are drawn again.
        words: Words64 = rng.deepen(draws[open_], depth)
        each = np.uint64(2**64 - 1) // limits[open_].astype(np.uint64)
        value = words // each
        fine = value < limits[open_].astype(np.uint64)
        found[open_[fine]] = value[fine].astype(np.int64)
        open_ = open_[~fine]
        depth += 1
    return found, depth
