"""The discrete laws again, enclosed by python-flint's arb and sharing no code with ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray

from countveil.base.numerics import FloatArray

BITS = 400


@dataclass(frozen=True, slots=True)
class Gaussian:
    """P(k) ∝ exp(-k²/(2 sigma²)), with terms until they fall below 2**-depth."""

    sigma2: Fraction
    depth: int
    _tails: list[Any] = field(init=False, repr=False, compare=False)  # sums of terms from k on
    _all: Any = field(init=False, repr=False, compare=False)
    _moments: tuple[Any, Any] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ctx.prec = BITS
        rate = _ball(1 / (2 * self.sigma2))
        reach = math.ceil(math.sqrt(2 * self.sigma2 * Fraction(self.depth * math.log(2)))) + 1
        terms = [(-rate * (k * k)).exp() for k in range(reach + 1)]
        # Ratios of neighbours fall, so a geometric series bounds the omitted terms.
        ratio = (-rate * (2 * reach + 1)).exp()
        tail = arb(0).union(terms[-1] * ratio / (1 - ratio))
        second = fourth = arb(0)
        tails = []
        for k in range(reach, -1, -1):
            tail += terms[k]
            tails.append(tail)
            second += 2 * k**2 * terms[k]
            fourth += 2 * k**4 * terms[k]
        tails.reverse()
        every = 2 * tails[0] - terms[0]
        object.__setattr__(self, "_tails", tails)
        object.__setattr__(self, "_all", every)
        object.__setattr__(self, "_moments", (second / every, fourth / every))

    @property
    def reach(self) -> int:
        """The largest k with a term."""
        return len(self._tails) - 1

    def at_least(self, k: int) -> Any:
        """Enclose P(noise >= k)."""
        return self._tails[k] / self._all if k >= 1 else 1 - self._tails[1 - k] / self._all

    def moments(self) -> tuple[float, float]:
        """Return the variance and the fourth moment."""
        return float(self._moments[0]), float(self._moments[1])


@dataclass(frozen=True, slots=True)
class Laplace:
    """P(k) ∝ a^|k| with a = exp(-1/scale), in closed form."""

    scale: Fraction
    depth: int
    _ratio: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ctx.prec = BITS
        object.__setattr__(self, "_ratio", (-_ball(1 / self.scale)).exp())

    @property
    def reach(self) -> int:
        """The k at which a^k falls below 2**-depth."""
        return math.ceil(self.scale * Fraction(self.depth * math.log(2))) + 1

    def at_least(self, k: int) -> Any:
        """Enclose P(noise >= k) = a^k/(1 + a), one minus its mirror for k <= 0."""
        a = self._ratio
        return a**k / (1 + a) if k >= 1 else 1 - a ** (1 - k) / (1 + a)

    def moments(self) -> tuple[float, float]:
        """Return 2a/(1-a)² and 2a(1 + 10a + a²)/(1-a)⁴."""
        a = self._ratio
        return float(2 * a / (1 - a) ** 2), float(2 * a * (1 + 10 * a + a * a) / (1 - a) ** 4)


def probabilities(law: Gaussian | Laplace, edges: Sequence[int]) -> FloatArray:
    """Return the probabilities of falling below edges[0], between the edges, and beyond the last."""
    ctx.prec = BITS
    at_least = [arb(1), *(law.at_least(edge) for edge in edges), arb(0)]
    return np.array([float(at_least[i] - at_least[i + 1]) for i in range(len(edges) + 1)])


def floors(law: Gaussian | Laplace, lowest: int, size: int) -> NDArray[np.uint64]:
    """Return floor(2**64 P(noise <= k)) from k = lowest on; each is certain."""
    ctx.prec = BITS
    certain = []
    for k in range(lowest, lowest + size):
        floor = ((1 - law.at_least(k + 1)) * arb(2) ** 64).floor().unique_fmpz()
        if floor is None:
            raise ArithmeticError(f"{BITS} bits do not determine floor(2**64 F({k})); use more")
        certain.append(int(floor))
    return np.array(certain, np.uint64)


def _ball(value: Fraction) -> Any:
    return arb(value.numerator) / value.denominator
