"""Exact draws from finitely many points with weights exp(-q), q fractions: proposals by powers of two.

Point k is proposed with the whole weight 2**(30 - m), m at most (q - reference)/log 2, and kept
with the chance 2**m exp(reference - q), decided by integers that enclose it. All arithmetic that
matters is of whole numbers; about two proposals in three are kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from countveil.congenial.exact_chance import Scaled, below, those_that_happen
from countveil.errors import InputError
from countveil.numerics import FloatArray, IntArray
from countveil.randomness import BitSource

MOST_POINTS = 200_000  # times 2**30 is below 2**50, as uniform whole numbers must be

_DEEPEST = 30  # beyond 2**-30 all points are proposed alike, and hardly ever
_LOG2_E_BELOW = Fraction(14426950408889634073, 10**19)
_LOG2_E_ABOVE = Fraction(14426950408889634074, 10**19)
_MARGIN = 2.0**-40  # far above the rounding of exp
_WORDS = 64  # words that belong to one attempt: one decides it but once in 2**50


@dataclass(frozen=True, eq=False, slots=True)
class FiniteDraw:
    """Points with exponents rate·numerators[k]/denominators[k]."""

    rate: Fraction
    numerators: IntArray
    denominators: IntArray
    reference: Fraction
    halvings: IntArray
    ends: IntArray

    @classmethod
    def of(cls, rate: Fraction, numerators: IntArray, denominators: IntArray) -> FiniteDraw:
        """Build the proposals; numerators are 0 or more, denominators above 0."""
        if len(numerators) > MOST_POINTS:
            raise InputError(
                f"points: {len(numerators):,} came; up to {MOST_POINTS:,} are drawn exactly"
            )
        nearest = int(np.argmin(numerators / denominators))
        top, bottom = int(numerators[nearest]), int(denominators[nearest])
        # Any reference is right; this one is the least exponent, or within rounding of it.
        scale_below, scale_above = rate * _LOG2_E_BELOW / bottom, rate * _LOG2_E_ABOVE / bottom
        halvings = np.empty(len(numerators), np.int64)
        for k, (n, d) in enumerate(zip(numerators.tolist(), denominators.tolist(), strict=True)):
            beyond = n * bottom - top * d  # (n/d - top/bottom)·d·bottom
            scale = scale_below if beyond >= 0 else scale_above
            halvings[k] = min(beyond * scale.numerator // (scale.denominator * d), _DEEPEST)
        ends = np.cumsum(np.int64(1) << (_DEEPEST - halvings))
        return cls(rate, numerators, denominators, rate * Fraction(top, bottom), halvings, ends)

    def sample(self, size: int, *, rng: BitSource) -> IntArray:
        """Draw `size` independent points, exactly."""
        rng.begin(size)
        out = np.empty(size, np.int64)
        open_ = np.arange(size)
        depth = 0
        while len(open_):
            limits = np.full(len(open_), self.ends[-1])
            values, depth = below(limits, rng, open_, depth)
            proposed = np.searchsorted(self.ends, values, side="right")
            chances = [self._chance(point) for point in proposed.tolist()]
            happened = those_that_happen(
                np.array([chance.log for chance in chances]),
                _MARGIN,
                lambda event, chances=chances: chances[event].enclose,  # type: ignore[misc]
                rng,
                open_,
                depth,
            )
            kept = np.zeros(len(open_), bool)
            kept[list(happened)] = True
            out[open_[kept]] = proposed[kept]
            open_ = open_[~kept]
            depth += _WORDS
        return out

    def _chance(self, point: int) -> Scaled:
        """Return the chance a proposed point is taken with: its weight over its proposal's."""
        beyond = self._exponent(point) - self.reference
        return Scaled(-beyond, Fraction(2) ** int(self.halvings[point]))

    def _exponent(self, point: int) -> Fraction:
        return self.rate * Fraction(int(self.numerators[point]), int(self.denominators[point]))

    @property
    def log_probabilities(self) -> FloatArray:
        """The logarithm of the probability of each point."""
        log_weights = -float(self.rate) * (self.numerators / self.denominators)
        log_weights -= log_weights.max()
        found: FloatArray = log_weights - math.log(float(np.exp(log_weights).sum()))
        return found
