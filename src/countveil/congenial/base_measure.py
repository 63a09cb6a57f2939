"""Base measures: where a release may lie, and what is believed of it from public information alone.

Any measure that does not look at the confidential counts keeps the guarantee. So the weights are
floats, taken as the exact numbers they are: rounding gives another measure, as good, and as public.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

import numpy as np
from scipy import special

from countveil.errors import InputError
from countveil.numerics import Exact, FloatArray, IntArray, exact, positive

_WEAKEST, _STRONGEST = Fraction(1, 10**12), Fraction(10**12)  # where floats of log Γ are good


class BaseMeasure(Protocol):
    """Log-weights of each count, for tables whose weight is the product of them."""

    @property
    def places(self) -> int | None:
        """How many counts it is for; none if for any number."""
        ...

    def log_weights(self, place: int | IntArray, at: IntArray) -> FloatArray:
        """Return the log-weight of counts, each of its place."""
        ...

    def slope(self, members: IntArray, total: int) -> float:
        """Return a tilt that levels the weights of members whose sum is the total."""
        ...

    def peak(self, place: int, slope: float, most: int) -> float:
        """Return a bound on log-weight + slope·count, over counts from 0 to `most`."""
        ...


@dataclass(frozen=True, slots=True)
class Flat:
    """Every table that agrees with what is public weighs the same."""

    @property
    def places(self) -> int | None:
        """It is for any number of places."""
        return None

    def log_weights(self, place: int | IntArray, at: IntArray) -> FloatArray:
        """Return zeros."""
        return np.zeros(np.shape(at))

    def slope(self, members: IntArray, total: int) -> float:
        """Return no tilt."""
        return 0.0

    def peak(self, place: int, slope: float, most: int) -> float:
        """Return the larger end of a line."""
        return max(0.0, slope * most)


@dataclass(frozen=True, slots=True, init=False)
class DirichletMultinomial:
    """What previous counts let one expect: shares near the previous ones, alpha·previous strong.

    Counts of a place weigh Γ(count + a)/(Γ(a) count!) with a = alpha·previous + pseudo_count. Where
    previous counts are 0 a pseudo-count is needed, or the release could only be 0 there. The previous
    counts must be public: published as they were, or the private release of an earlier period.
    """

    previous: tuple[int, ...]
    alpha: Fraction
    pseudo_count: Fraction
    strengths: FloatArray = field(compare=False, repr=False)  # the a of every place

    def __init__(
        self, previous: Sequence[int] | IntArray, alpha: Exact = 1, pseudo_count: Exact = 0
    ) -> None:
        found = np.asarray(previous)
        if found.ndim != 1 or len(found) == 0 or not np.issubdtype(found.dtype, np.integer):
            raise InputError("previous: a list of whole numbers is needed, one for each place")
        if (found < 0).any():
            raise InputError(
                f"previous: {int((found < 0).sum())} counts are negative (corrections?); a prior needs "
                f"counts of 0 or more: set them to 0, or use an earlier period"
            )
        object.__setattr__(self, "previous", tuple(int(value) for value in found))
        object.__setattr__(self, "alpha", positive(alpha, "alpha"))
        object.__setattr__(self, "pseudo_count", exact(pseudo_count, "pseudo_count"))
        if self.pseudo_count < 0:
            raise InputError(f"pseudo_count: {pseudo_count} is not allowed; it is 0 or more")
        if self.pseudo_count == 0 and 0 in self.previous:
            raise InputError(
                f"previous: {self.previous.count(0)} places had a count of 0, which forces 0 again; "
                f'give a pseudo-count, such as pseudo_count="1/2"'
            )
        for x in self.previous:
            if not _WEAKEST <= self.alpha * x + self.pseudo_count <= _STRONGEST:
                raise InputError(
                    f"alpha: {alpha} times a previous count, and the pseudo-count, is "
                    f"{float(min(self.alpha * x + self.pseudo_count, Fraction(10) ** 300)):.3g}; it "
                    f"must lie between {float(_WEAKEST):g} and {float(_STRONGEST):g}"
                )
        strengths = np.array([float(self.alpha * x + self.pseudo_count) for x in self.previous])
        strengths.setflags(write=False)
        object.__setattr__(self, "strengths", strengths)

    @property
    def places(self) -> int | None:
        """How many places have a previous count."""
        return len(self.previous)

    def log_weights(self, place: int | IntArray, at: IntArray) -> FloatArray:
        """Return log Γ(count + a) - log Γ(a) - log count!."""
        a = self.strengths[place]
        weights: FloatArray = (
            special.gammaln(at + a) - special.gammaln(a) - special.gammaln(at + 1.0)
        )
        return weights

    def slope(self, members: IntArray, total: int) -> float:
        """Return log(total/(total + A)): tilted by it, each count has its mean at its share."""
        together = float(self.strengths[members].sum())
        return math.log(max(total, 0.5) / (max(total, 0.5) + together))

    def peak(self, place: int, slope: float, most: int) -> float:
        """Return the largest tilted log-weight: at the mode, as the weights rise and then fall."""
        a, p = float(self.strengths[place]), math.exp(slope)
        if p >= 1:  # rising to the end, or falling and then rising
            ends = np.array([0, most])
            return float((self.log_weights(place, ends) + slope * ends).max())
        mode = min(max(math.floor((a * p - 1) / (1 - p)) + 1, 0), most)
        near = np.arange(max(mode - 1, 0), min(mode + 1, most) + 1)
        near = np.append(near, 0)
        return float((self.log_weights(place, near) + slope * near).max())
