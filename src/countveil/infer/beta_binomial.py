"""Rates with public denominators: counts are binomial, and rates have Beta laws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from countveil.errors import InfeasibleError
from countveil.infer.gamma_poisson import refuse_deaths
from countveil.infer.mixture import Family
from countveil.infer.model import at, check_length, log_beta_binomial, positive_array
from countveil.infer.public_facts import PublicFacts
from countveil.numerics import FloatArray, IntArray


@dataclass(frozen=True, eq=False, slots=True)
class BetaBinomial:
    """Count ~ Binomial(trials, rate), rate ~ Beta(a, b); each one number, or one a place.

    The trials are public. Given its count a rate is Beta(a + count, b + trials - count).
    """

    a: float | Sequence[float] | FloatArray
    b: float | Sequence[float] | FloatArray
    trials: int | Sequence[int] | IntArray

    def __post_init__(self) -> None:
        positive_array(self.a, "a")
        positive_array(self.b, "b")
        positive_array(self.trials, "trials", whole=True)

    @property
    def parameter(self) -> str:
        """What the parameter of a place is called."""
        return "rate"

    @property
    def log_points(self) -> FloatArray:
        """There are no shared parameters."""
        return np.zeros(1)

    def check(self, facts: PublicFacts, *, deaths: bool) -> None:
        """Refuse lists that are not for the places, deaths, and totals above all trials."""
        refuse_deaths(deaths, "BetaBinomial")
        for name, values in zip(("a", "b", "trials"), self._arrays, strict=True):
            check_length(values, name, facts.places)
        for group in facts.groups:
            trials = sum(at(self._arrays[2], place) for place in group.members)
            if trials < group.total:
                raise InfeasibleError(
                    f"public: {len(group.members)} places have {trials:,.0f} trials and a total of "
                    f"{group.total:,}; no table has both"
                )

    def most(self, place: int) -> int | None:
        """Return the trials of a place."""
        return int(at(self._arrays[2], place))

    def log_marginal(
        self, place: int, cases: IntArray, deaths: IntArray, point: int | IntArray
    ) -> FloatArray:
        """Return the beta-binomial log-probabilities."""
        a, b, trials = (at(values, place) for values in self._arrays)
        return log_beta_binomial(cases, np.asarray(trials), a, b)

    def law(
        self, place: int, cases: IntArray, deaths: IntArray, point: int, facts: PublicFacts
    ) -> tuple[Family, FloatArray, FloatArray]:
        """Return Beta(a + count, b + trials - count)."""
        a, b, trials = (at(values, place) for values in self._arrays)
        count = cases.astype(np.float64)
        return "beta", a + count, b + trials - count

    def draw(self, tables: IntArray, points: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw rates given counts."""
        a, b, trials = self._arrays
        cases = tables[:, :, 0]
        return rng.beta(a + cases, b + trials - cases)

    def prior_draw(self, draws: int, places: int, rng: np.random.Generator) -> FloatArray:
        """Draw rates from the prior."""
        a, b, _ = self._arrays
        return rng.beta(np.broadcast_to(a, (draws, places)), b)

    def log_prior(self, parameters: FloatArray) -> FloatArray:
        """Return the log-density of rates."""
        a, b, _ = self._arrays
        terms = (
            (a - 1) * np.log(parameters) + (b - 1) * np.log1p(-parameters) - special.betaln(a, b)
        )
        found: FloatArray = terms.sum(axis=1)
        return found

    def log_given(self, place: int, cases: IntArray, parameter: FloatArray) -> FloatArray:
        """Return binomial log-probabilities."""
        trials, p = at(self._arrays[2], place), parameter[:, None]
        ways = special.gammaln(trials + 1) - special.gammaln(cases + 1.0)
        ways = ways - special.gammaln(trials - cases + 1.0)
        found: FloatArray = ways + cases * np.log(p) + (trials - cases) * np.log1p(-p)
        return found

    @property
    def _arrays(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return np.asarray(self.a, float), np.asarray(self.b, float), np.asarray(self.trials, float)
