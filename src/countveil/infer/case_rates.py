"""Case rates from a release of cases and deaths: deaths are of no interest, but were released too."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from countveil.infer.death_rates import DeathRates
from countveil.infer.mixture import Family
from countveil.infer.public_facts import PublicFacts
from countveil.numerics import FloatArray, IntArray


@dataclass(frozen=True, eq=False, slots=True)
class CaseRates(DeathRates):
    """The parameters of the model of cases; deaths ~ Binomial(cases, rate), rate ~ Beta(a, b)."""

    @property
    def parameter(self) -> str:
        """What the parameter of a place is called."""
        return self.cases.parameter

    def law(
        self, place: int, cases: IntArray, deaths: IntArray, point: int, facts: PublicFacts
    ) -> tuple[Family, FloatArray, FloatArray]:
        """Return the law that the model of cases gives."""
        return self.cases.law(place, cases, deaths, point, facts)

    def draw(self, tables: IntArray, points: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw the parameters of cases."""
        return self.cases.draw(tables, points, rng)
