"""Finite mixtures of Gamma or Beta laws: the posterior of a rate, given a noisy release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from scipy import optimize, special

from countveil.base.numerics import FloatArray

MixtureFamily: TypeAlias = Literal["gamma", "beta"]


class ParameterLaw(NamedTuple):
    """Gamma(first, rate second) or Beta(first, second) laws of one parameter, one per count."""

    family: MixtureFamily
    first: FloatArray
    second: FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class Mixture:
    """A mixture of Gamma(first, rate second) or Beta(first, second) laws.

    Parameters
    ----------
    family
        "gamma" or "beta".
    first, second
        The parameters of each law.
    weights
        The weight of each law; they sum to 1.

    Examples
    --------
    >>> import numpy as np
    >>> mixture = Mixture("beta", np.array([1.0, 3.0]), np.array([1.0, 1.0]), np.array([0.5, 0.5]))
    >>> mixture.mean
    0.625
    """

    family: MixtureFamily
    first: FloatArray
    second: FloatArray
    weights: FloatArray

    @property
    def mean(self) -> float:
        """The mean."""
        return float((self.weights * self._means).sum())

    @property
    def variance(self) -> float:
        """The variance: within the laws, and between them."""
        a, b = self.first, self.second
        within = a / b**2 if self.family == "gamma" else a * b / ((a + b) ** 2 * (a + b + 1))
        between = (self._means - self.mean) ** 2
        return float((self.weights * (within + between)).sum())

    def cdf(self, at: float) -> float:
        """Return P(parameter <= at)."""
        if self.family == "gamma":
            parts = special.gammainc(self.first, self.second * max(at, 0.0))
        else:
            parts = special.betainc(self.first, self.second, min(max(at, 0.0), 1.0))
        return float((self.weights * parts).sum())

    def quantile(self, probability: float) -> float:
        """Return the value below which the parameter lies with this probability."""
        # It is between the smallest and the largest quantile of the laws.
        if self.family == "gamma":
            ends = special.gammaincinv(self.first, probability) / self.second
        else:
            ends = special.betaincinv(self.first, self.second, probability)
        ends = ends[self.weights > 0]
        low, high = float(ends.min()), float(ends.max())
        if self.cdf(low) >= probability or low == high:
            return low
        if self.cdf(high) <= probability:
            return high
        return float(optimize.brentq(lambda at: self.cdf(at) - probability, low, high, xtol=1e-300))

    @property
    def _means(self) -> FloatArray:
        a, b = self.first, self.second
        return a / b if self.family == "gamma" else a / (a + b)
