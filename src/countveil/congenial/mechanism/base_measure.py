"""Base measures: where a release may lie, and what public information alone says about it.

Any measure that does not look at the confidential counts keeps the guarantee. So the weights are
floats, used as the exact numbers they are: rounding gives another measure, just as good and just as
public.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

import numpy as np
from scipy import special

from countveil.base.numerics import Exact, FloatArray, IntArray, exact, positive
from countveil.errors import InputError

# Between these strengths the floats of log Γ are accurate.
_WEAKEST, _STRONGEST = Fraction(1, 10**12), Fraction(10**12)


class BaseMeasure(Protocol):
    """The log-weight of each count, for tables whose weight is the product over their places."""

    @property
    def places(self) -> int | None:
        """The number of places it is for; None if it fits any number."""
        ...

    def log_weights(self, place: int | IntArray, at: IntArray) -> FloatArray:
        """Return the log-weights of counts, each at its place."""
        ...

    def slope(self, members: IntArray, total: int) -> float:
        """Return a tilt that levels the weights of places whose counts sum to the total."""
        ...

    def peak(self, place: int, slope: float, most: int) -> float:
        """Return a bound on log-weight + slope·count, over counts from 0 to `most`."""
        ...


@dataclass(frozen=True, slots=True)
class FlatMeasure:
    """Gives every table that agrees with the public information the same weight."""

    @property
    def places(self) -> int | None:
        """None: it fits any number of places."""
        return None

    def log_weights(self, place: int | IntArray, at: IntArray) -> FloatArray:
        """Return zeros."""
        return np.zeros(np.shape(at))

    def slope(self, members: IntArray, total: int) -> float:
        """Return 0: nothing needs levelling."""
        return 0.0

    def peak(self, place: int, slope: float, most: int) -> float:
        """Return the larger end of a line."""
        return max(0.0, slope * most)


@dataclass(frozen=True, slots=True, init=False)
class DirichletMultinomial:
    """A prior from previous counts: shares near the previous ones, with strength alpha·previous.

    The count of a place weighs Γ(count + a)/(Γ(a) count!) with a = alpha·previous + pseudo_count.

    Parameters
    ----------
    previous
        The previous counts, one per place. They must be public: published exactly, or released
        privately in an earlier period.
    alpha
        How much the previous counts weigh, above 0.
    pseudo_count
        Added to every place. Without it a place whose previous count is 0 could only have 0 again.

    Examples
    --------
    >>> DirichletMultinomial([70, 20, 0], alpha="1/10", pseudo_count="1/2").strengths
    array([7.5, 2.5, 0.5])
    """

    previous: tuple[int, ...]
    alpha: Fraction
    pseudo_count: Fraction
    strengths: FloatArray = field(compare=False, repr=False)  # the a of every place

    def __init__(
        self, previous: Sequence[int] | IntArray, alpha: Exact = 1, pseudo_count: Exact = 0
    ) -> None:
        counts = np.asarray(previous)
        if counts.ndim != 1 or len(counts) == 0 or not np.issubdtype(counts.dtype, np.integer):
            raise InputError("previous: give a list of whole numbers, one for each place")
        if (counts < 0).any():
            raise InputError(
                f"previous: {int((counts < 0).sum())} counts are negative (corrections?); a prior "
                f"needs counts of 0 or more: set them to 0, or use an earlier period"
            )
        object.__setattr__(self, "previous", tuple(int(value) for value in counts))
        object.__setattr__(self, "alpha", positive(alpha, "alpha"))
        object.__setattr__(self, "pseudo_count", exact(pseudo_count, "pseudo_count"))
        if self.pseudo_count < 0:
            raise InputError(f"pseudo_count: {pseudo_count} is not allowed; it must be 0 or more")
        if self.pseudo_count == 0 and 0 in self.previous:
            raise InputError(
                f"previous: {self.previous.count(0)} places had a count of 0, which forces 0 again; "
                f'give a pseudo-count, such as pseudo_count="1/2"'
            )
        for x in self.previous:
            if not _WEAKEST <= self.alpha * x + self.pseudo_count <= _STRONGEST:
                raise InputError(
                    f"alpha: {alpha} times a previous count, plus the pseudo-count, is "
                    f"{float(min(self.alpha * x + self.pseudo_count, Fraction(10) ** 300)):.3g}; it "
                    f"must be between {float(_WEAKEST):g} and {float(_STRONGEST):g}"
                )
        strengths = np.array([float(self.alpha * x + self.pseudo_count) for x in self.previous])
        strengths.setflags(write=False)
        object.__setattr__(self, "strengths", strengths)

    @property
    def places(self) -> int | None:
        """The number of places with a previous count."""
        return len(self.previous)

    def log_weights(self, place: int | IntArray, at: IntArray) -> FloatArray:
        """Return log Γ(count + a) - log Γ(a) - log count!."""
        a = self.strengths[place]
        weights: FloatArray = (
            special.gammaln(at + a) - special.gammaln(a) - special.gammaln(at + 1.0)
        )
        return weights

    def slope(self, members: IntArray, total: int) -> float:
        """Return log(total/(total + A)), which puts the mean of each tilted count at its share."""
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
