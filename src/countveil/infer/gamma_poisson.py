"""Rates: counts are Poisson(exposure · rate), and rates have Gamma laws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from countveil.errors import InputError
from countveil.infer.mixture import Family
from countveil.infer.model import at, check_length, positive_array
from countveil.infer.public_facts import PublicFacts
from countveil.numerics import Array, FloatArray, IntArray


@dataclass(frozen=True, eq=False, slots=True)
class GammaPoisson:
    """Count ~ Poisson(exposure · rate), rate ~ Gamma(shape, rate); each one number, or one a place.

    Summed over the rate a count is negative binomial, and given its count a rate is
    Gamma(shape + count, rate + exposure).
    """

    shape: float | Sequence[float] | FloatArray
    rate: float | Sequence[float] | FloatArray
    exposure: float | Sequence[float] | FloatArray | None = None

    def __post_init__(self) -> None:
        positive_array(self.shape, "shape")
        positive_array(self.rate, "rate")
        positive_array(1.0 if self.exposure is None else self.exposure, "exposure")

    @property
    def parameter(self) -> str:
        """What the parameter of a place is called."""
        return "rate"

    @property
    def log_points(self) -> FloatArray:
        """There are no shared parameters."""
        return np.zeros(1)

    def check(self, facts: PublicFacts, *, deaths: bool) -> None:
        """Refuse lists that are not for the places, and deaths."""
        refuse_deaths(deaths, "GammaPoisson")
        for name, values in zip(("shape", "rate", "exposure"), self._arrays, strict=True):
            check_length(values, name, facts.places)

    def most(self, place: int) -> int | None:
        """Counts have no largest value."""
        return None

    def log_marginal(
        self, place: int, cases: IntArray, deaths: IntArray, point: int | IntArray
    ) -> FloatArray:
        """Return the negative binomial log-probabilities."""
        shape, rate, exposure = (at(values, place) for values in self._arrays)
        return log_negative_binomial(cases, shape, rate, exposure)

    def law(
        self, place: int, cases: IntArray, deaths: IntArray, point: int, facts: PublicFacts
    ) -> tuple[Family, FloatArray, FloatArray]:
        """Return Gamma(shape + count, rate + exposure)."""
        shape, rate, exposure = (at(values, place) for values in self._arrays)
        return (
            "gamma",
            shape + cases.astype(np.float64),
            np.full_like(cases, rate + exposure, float),
        )

    def draw(self, tables: IntArray, points: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw rates given counts."""
        shape, rate, exposure = self._arrays
        drawn: FloatArray = rng.gamma(shape + tables[:, :, 0]) / (rate + exposure)
        return drawn

    def prior_draw(self, draws: int, places: int, rng: np.random.Generator) -> FloatArray:
        """Draw rates from the prior."""
        shape, rate, _ = self._arrays
        drawn: FloatArray = rng.gamma(np.broadcast_to(shape, (draws, places))) / rate
        return drawn

    def log_prior(self, parameters: FloatArray) -> FloatArray:
        """Return the log-density of rates, up to a constant."""
        shape, rate, _ = self._arrays
        constant = shape * np.log(rate) - special.gammaln(shape)
        terms = constant + (shape - 1) * np.log(parameters) - rate * parameters
        found: FloatArray = terms.sum(axis=1)
        return found

    def log_given(self, place: int, cases: IntArray, parameter: FloatArray) -> FloatArray:
        """Return Poisson log-probabilities."""
        mean = parameter[:, None] * at(self._arrays[2], place)
        found: FloatArray = cases * np.log(mean) - mean - special.gammaln(cases + 1.0)
        return found

    @property
    def _arrays(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        exposure = 1.0 if self.exposure is None else self.exposure
        return (
            np.asarray(self.shape, float),
            np.asarray(self.rate, float),
            np.asarray(exposure, float),
        )


def log_negative_binomial(
    count: Array, shape: float | FloatArray, rate: float | FloatArray, exposure: float
) -> FloatArray:
    """Return log P(count) of a Poisson count whose rate is Gamma(shape, rate)."""
    found: FloatArray = (
        special.gammaln(count + shape)
        - special.gammaln(shape)
        - special.gammaln(count + 1.0)
        + shape * np.log(rate / (rate + exposure))
        + count * np.log(exposure / (rate + exposure))
    )
    return found


def refuse_deaths(deaths: bool, name: str) -> None:
    """Refuse a release of cases and deaths where a model has one count a place."""
    if deaths:
        raise InputError(
            f"model: {name} is for one count a place; use DeathRates for cases and deaths"
        )
