"""Probabilities exp(q)·r with fractions q and r, and events that happen with exactly that probability.

A float nearly always decides. Where a uniform number is too close to it, integers that enclose the
probability ever more tightly decide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, TypeAlias

import numpy as np

from countveil.base.numerics import FloatArray, IntArray, enclose_exp_minus
from countveil.base.randomness import BitSource, Words64

_WORD = 64


class Enclosure(NamedTuple):
    """Whole numbers with low <= 2**bits · value <= high."""

    low: int
    high: int


# From a number of bits to an enclosure of a probability.
Encloser: TypeAlias = Callable[[int], Enclosure]


@dataclass(frozen=True, slots=True)
class ScaledExponential:
    """exp(exponent)·factor, exactly."""

    exponent: Fraction
    factor: Fraction

    def __mul__(self, other: ScaledExponential) -> ScaledExponential:
        return ScaledExponential(self.exponent + other.exponent, self.factor * other.factor)

    @property
    def log(self) -> float:
        """Its logarithm, as a float."""
        return float(self.exponent) + _log(self.factor)

    def enclose(self, bits: int) -> Enclosure:
        """Return whole numbers with low <= 2**bits · value <= high."""
        size = max(0, math.ceil(_log(self.factor) / math.log(2))) + 8
        low, high = enclose_exp(self.exponent, bits + size)
        n, d = self.factor.numerator, self.factor.denominator << size
        return Enclosure(low * n // d, -(-high * n // d))


def enclose_exp(q: Fraction, bits: int) -> Enclosure:
    """Return whole numbers with low <= 2**bits · exp(q) <= high."""
    if q <= 0:
        return Enclosure(*enclose_exp_minus(-q, bits))
    deep = bits + 2 * (math.ceil(q / Fraction(2, 3)) + 1)
    low, high = enclose_exp_minus(q, deep)
    one = 1 << (bits + deep)
    return Enclosure(one // high, -(-one // low))


def _log(value: Fraction) -> float:
    return _log_int(value.numerator) - _log_int(value.denominator)


def _log_int(value: int) -> float:
    # math.log accepts whole numbers of any size, but is slow for large ones.
    shift = max(0, value.bit_length() - 1000)
    return math.log(value >> shift) + shift * math.log(2)


def events_that_happen(
    log_probabilities: FloatArray,
    margin: float,
    enclose: Callable[[int], Encloser],
    rng: BitSource,
    draws: IntArray,
    depth: int,
) -> Iterator[int]:
    """Yield, in order, the numbers of those independent events that happen.

    The log-probability of event i is within `margin`, plus a part in 2**30, of log_probabilities[i];
    enclose(i) encloses the probability exactly. The uniform number of event i has the bits of draw
    draws[i] of the batch, from `depth` on.
    """
    if np.isnan(log_probabilities).any():
        raise ArithmeticError("a probability is not a number; nothing was decided")
    words = rng.deepen(draws, depth)
    uniform = words / 2.0**_WORD
    # Probabilities are at most 1, so this part of their logarithm is not negative.
    slack = margin - 2.0**-30 * np.maximum(log_probabilities, -1e300)
    sure = uniform + 2.0**-50 < np.exp(np.maximum(log_probabilities, -1e300) - slack)
    highest = np.exp(np.minimum(np.maximum(log_probabilities, -1e300) + slack, 1.0))
    possible = (uniform - 2.0**-50 <= highest) & (log_probabilities > -np.inf)
    for event in np.flatnonzero(possible).tolist():
        if sure[event] or _happens(
            int(words[event]), enclose(event), rng, draws[event : event + 1], depth
        ):
            yield event


def _happens(word: int, enclose: Encloser, rng: BitSource, which: IntArray, first: int) -> bool:
    """Extend the bits of the uniform number until it is certainly on one side of the probability."""
    bits, depth = _WORD, first + 1
    while True:
        low, high = enclose(bits)
        if word + 1 <= low:
            return True
        if word >= high:
            return False
        word = word << _WORD | int(rng.deepen(which, depth)[0])
        bits, depth = bits + _WORD, depth + 1


class UniformDraws(NamedTuple):
    """Uniform whole numbers, and the next unused depth of the batch."""

    values: IntArray
    depth: int


def uniform_below(limits: IntArray, rng: BitSource, draws: IntArray, depth: int) -> UniformDraws:
    """Draw exactly uniform whole numbers below limits of at most 2**50."""
    values = np.empty(len(limits), np.int64)
    pending = np.arange(len(limits))
    while len(pending):
        # Each value below the limit has the same number of words; surplus words are drawn again.
        words: Words64 = rng.deepen(draws[pending], depth)
        words_per_value = np.uint64(2**64 - 1) // limits[pending].astype(np.uint64)
        candidates = words // words_per_value
        valid = candidates < limits[pending].astype(np.uint64)
        values[pending[valid]] = candidates[valid].astype(np.int64)
        pending = pending[~valid]
        depth += 1
    return UniformDraws(values, depth)
