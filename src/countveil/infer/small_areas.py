"""Rates of small areas that borrow strength: one Gamma law for all, mean and shape unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from countveil.errors import InputError
from countveil.infer.gamma_poisson import log_negative_binomial, refuse_deaths
from countveil.infer.mixture import Family
from countveil.infer.model import at, check_length, positive_array
from countveil.infer.public_facts import PublicFacts
from countveil.numerics import FloatArray, IntArray

_MOST_POINTS = 10_000


@dataclass(frozen=True, eq=False, slots=True)
class SmallAreaRates:
    """Count ~ Poisson(exposure · rate), rate ~ Gamma(shape, shape/mean), mean and shape shared.

    Before the release, log mean and log shape are normal around the logs of `mean` and `shape`, with
    standard deviations `mean_spread` and `shape_spread`, cut into `steps` values each: the middles of
    equally likely parts. This finite law is the prior itself, so all methods have the same target.
    """

    exposure: float | Sequence[float] | FloatArray
    mean: float
    mean_spread: float = 1.0
    shape: float = 2.0
    shape_spread: float = 0.7
    steps: int = 15

    def __post_init__(self) -> None:
        positive_array(self.exposure, "exposure")
        for name in ("mean", "mean_spread", "shape", "shape_spread"):
            if positive_array(getattr(self, name), name).ndim:
                raise InputError(f"{name}: it is shared by all places; give one number")
        if not isinstance(self.steps, int) or not 1 <= self.steps**2 <= _MOST_POINTS:
            raise InputError(
                f"steps: {self.steps!r} is not allowed; 1 to 100 values of mean and of shape are taken"
            )

    @property
    def parameter(self) -> str:
        """What the parameter of a place is called."""
        return "rate"

    @property
    def means(self) -> FloatArray:
        """The shared mean at every point."""
        return np.repeat(self._values(self.mean, self.mean_spread), self.steps)

    @property
    def shapes(self) -> FloatArray:
        """The shared shape at every point."""
        return np.tile(self._values(self.shape, self.shape_spread), self.steps)

    @property
    def log_points(self) -> FloatArray:
        """All points are equally likely before the release."""
        return np.full(self.steps**2, -2 * np.log(self.steps))

    def check(self, facts: PublicFacts, *, deaths: bool) -> None:
        """Refuse lists that are not for the places, and deaths."""
        refuse_deaths(deaths, "SmallAreaRates")
        check_length(self._exposure, "exposure", facts.places)

    def most(self, place: int) -> int | None:
        """Counts have no largest value."""
        return None

    def log_marginal(
        self, place: int, cases: IntArray, deaths: IntArray, point: int | IntArray
    ) -> FloatArray:
        """Return the negative binomial log-probabilities at one mean and shape, or at many."""
        shape = self.shapes[point]
        rate = shape / self.means[point]
        return log_negative_binomial(cases, shape, rate, at(self._exposure, place))

    def law(
        self, place: int, cases: IntArray, deaths: IntArray, point: int, facts: PublicFacts
    ) -> tuple[Family, FloatArray, FloatArray]:
        """Return Gamma(shape + count, shape/mean + exposure)."""
        shape = float(self.shapes[point])
        rate = shape / float(self.means[point]) + at(self._exposure, place)
        return "gamma", shape + cases.astype(np.float64), np.full_like(cases, rate, float)

    def draw(self, tables: IntArray, points: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw rates given counts and the shared parameters' points."""
        shape, mean = self.shapes[points][:, None], self.means[points][:, None]
        drawn: FloatArray = rng.gamma(shape + tables[:, :, 0]) / (shape / mean + self._exposure)
        return drawn

    def _values(self, middle: float, spread: float) -> FloatArray:
        parts = (np.arange(self.steps) + 0.5) / self.steps
        found: FloatArray = middle * np.exp(spread * special.ndtri(parts))
        return found

    @property
    def _exposure(self) -> FloatArray:
        return np.asarray(self.exposure, float)
