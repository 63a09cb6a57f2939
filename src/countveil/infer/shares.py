"""Shares of a public total: counts are multinomial, and the shares have a Dirichlet law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from countveil.errors import InputError
from countveil.infer.gamma_poisson import refuse_deaths
from countveil.infer.mixture import Family
from countveil.infer.model import at, check_length, positive_array
from countveil.infer.public_facts import PublicFacts
from countveil.numerics import FloatArray, IntArray


@dataclass(frozen=True, eq=False, slots=True)
class DirichletMultinomialShares:
    """Counts ~ Multinomial(total, shares), shares ~ Dirichlet(alpha); alpha one number, or one a place.

    alpha may be counts of an earlier private release: a release is public once it is out, so a prior
    that is made of it costs nothing more.
    """

    alpha: float | Sequence[float] | FloatArray

    def __post_init__(self) -> None:
        positive_array(self.alpha, "alpha")

    @property
    def parameter(self) -> str:
        """What the parameter of a place is called."""
        return "share"

    @property
    def log_points(self) -> FloatArray:
        """There are no shared parameters."""
        return np.zeros(1)

    def check(self, facts: PublicFacts, *, deaths: bool) -> None:
        """Refuse deaths, and counts without a public total."""
        refuse_deaths(deaths, "DirichletMultinomialShares")
        check_length(self._alpha, "alpha", facts.places)
        if facts.total is None:
            raise InputError('public: shares are of a public total; give public={"total": …}')

    def most(self, place: int) -> int | None:
        """Return nothing: the total is the limit."""
        return None

    def log_marginal(
        self, place: int, cases: IntArray, deaths: IntArray, point: int | IntArray
    ) -> FloatArray:
        """Return log Γ(count + alpha) - log count!: given the total, the rest is the same for all."""
        found: FloatArray = special.gammaln(cases + at(self._alpha, place)) - special.gammaln(
            cases + 1.0
        )
        return found

    def law(
        self, place: int, cases: IntArray, deaths: IntArray, point: int, facts: PublicFacts
    ) -> tuple[Family, FloatArray, FloatArray]:
        """Return Beta(alpha + count, all other alphas and counts)."""
        if facts.total is None:
            raise InputError('public: shares are of a public total; give public={"total": …}')
        own = at(self._alpha, place) + cases.astype(np.float64)
        whole = float(np.broadcast_to(self._alpha, facts.places).sum()) + facts.total
        return "beta", own, whole - own

    def draw(self, tables: IntArray, points: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw shares given counts."""
        parts = rng.gamma(self._alpha + tables[:, :, 0])
        shares: FloatArray = parts / parts.sum(axis=1, keepdims=True)
        return shares

    def prior_draw(self, draws: int, places: int, rng: np.random.Generator) -> FloatArray:
        """Draw shares from the prior."""
        return rng.dirichlet(np.broadcast_to(self._alpha, places), draws)

    def log_prior(self, parameters: FloatArray) -> FloatArray:
        """Return the log-density of shares."""
        alpha = np.broadcast_to(self._alpha, parameters.shape[1])
        constant = float(special.gammaln(alpha.sum()) - special.gammaln(alpha).sum())
        found: FloatArray = constant + ((alpha - 1) * np.log(parameters)).sum(axis=1)
        return found

    def log_given(self, place: int, cases: IntArray, parameter: FloatArray) -> FloatArray:
        """Return the factors of the multinomial log-probability."""
        found: FloatArray = cases * np.log(parameter[:, None]) - special.gammaln(cases + 1.0)
        return found

    @property
    def _alpha(self) -> FloatArray:
        return np.asarray(self.alpha, float)
