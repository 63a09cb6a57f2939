"""Death rates of cases: deaths are binomial given cases, and both counts were released with noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from countveil.errors import InputError
from countveil.infer.gamma_poisson import GammaPoisson
from countveil.infer.mixture import Family
from countveil.infer.model import at, check_length, log_beta_binomial, positive_array
from countveil.infer.public_facts import PublicFacts
from countveil.infer.shares import DirichletMultinomialShares
from countveil.numerics import FloatArray, IntArray


@dataclass(frozen=True, eq=False, slots=True)
class DeathRates:
    """Deaths ~ Binomial(cases, rate), rate ~ Beta(a, b); cases follow a model of their own."""

    a: float | Sequence[float] | FloatArray
    b: float | Sequence[float] | FloatArray
    cases: GammaPoisson | DirichletMultinomialShares

    def __post_init__(self) -> None:
        positive_array(self.a, "a")
        positive_array(self.b, "b")

    @property
    def parameter(self) -> str:
        """What the parameter of a place is called."""
        return "death_rate"

    @property
    def log_points(self) -> FloatArray:
        """There are no shared parameters."""
        return np.zeros(1)

    def check(self, facts: PublicFacts, *, deaths: bool) -> None:
        """Refuse releases without deaths, and what the model of cases refuses."""
        if not deaths:
            raise InputError("model: DeathRates is for releases of cases and deaths: (places, 2)")
        check_length(np.asarray(self.a, float), "a", facts.places)
        check_length(np.asarray(self.b, float), "b", facts.places)
        self.cases.check(facts, deaths=False)

    def most(self, place: int) -> int | None:
        """Return the largest number of cases that a place can have, or none."""
        return self.cases.most(place)

    def log_marginal(
        self, place: int, cases: IntArray, deaths: IntArray, point: int | IntArray
    ) -> FloatArray:
        """Return log P(cases, deaths); minus infinity where deaths are above cases."""
        alive = np.maximum(cases - deaths, 0)
        a, b = at(np.asarray(self.a, float), place), at(np.asarray(self.b, float), place)
        inside = log_beta_binomial(np.minimum(deaths, cases), deaths + alive, a, b)
        found = self.cases.log_marginal(place, cases, deaths, point) + inside
        return np.where(deaths <= cases, found, -np.inf)

    def law(
        self, place: int, cases: IntArray, deaths: IntArray, point: int, facts: PublicFacts
    ) -> tuple[Family, FloatArray, FloatArray]:
        """Return Beta(a + deaths, b + cases - deaths)."""
        a, b = at(np.asarray(self.a, float), place), at(np.asarray(self.b, float), place)
        alive = np.maximum(cases - deaths, 0).astype(np.float64)
        return "beta", a + deaths.astype(np.float64), b + alive

    def draw(self, tables: IntArray, points: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw death rates given cases and deaths."""
        cases, deaths = tables[:, :, 0], tables[:, :, 1]
        return rng.beta(
            np.asarray(self.a, float) + deaths, np.asarray(self.b, float) + cases - deaths
        )
