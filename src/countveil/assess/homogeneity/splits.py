"""How n people of a cell take their labels: by fixed shares, or by shares that vary between cells."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from countveil.assess.homogeneity.weights import log_negative_binomial, log_poisson
from countveil.errors import InputError
from countveil.numerics import Array, FloatArray

_SMALLEST, _LARGEST = 1e-100, 1e100  # of alphas, so that none of their products overflows
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False, slots=True)
class Multinomial:
    """Every person takes label k with probability shares[k]: independent Poisson counts, given n."""

    shares: FloatArray

    @property
    def labels(self) -> int:
        """How many labels there are."""
        return len(self.shares)

    def log_weights(self, around: int, most: int) -> FloatArray:
        """Return the log of Poisson(around × share) at 0 … most."""
        means = around * self.shares[self.shares > 0]
        return log_poisson(np.arange(most + 1), means[:, None])

    def log_coefficients(self, around: int, sizes: Array) -> FloatArray:
        """Return the log of Poisson(around)."""
        return log_poisson(sizes, float(around))


@dataclass(frozen=True, eq=False, slots=True)
class Dirichlet:
    """Shares of labels that vary between cells: their mean, and their concentration Σ alpha.

    At concentration 0 every cell has a single label; at infinity all cells have the mean shares.
    `source` says where it comes from; `score` is the largest derivative by log alpha that a fit left,
    per cell.
    """

    shares: FloatArray
    concentration: float
    source: str = "given"
    score: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is no prior."""
        shares = np.array(self.shares, np.float64)
        if (
            not (shares >= 0).all()
            or abs(shares.sum() - 1) > _ROUNDING
            or not self.concentration >= 0
        ):
            raise InputError(
                "prior: shares are numbers from 0 on with sum 1, and a concentration is 0 or more; "
                "give those"
            )
        shares.setflags(write=False)
        object.__setattr__(self, "shares", shares)
        if not _SMALLEST <= self.concentration <= _LARGEST:  # as good as none, or as one for all
            limit = 0.0 if self.concentration < _SMALLEST else math.inf
            object.__setattr__(self, "concentration", limit)

    @classmethod
    def of(cls, alphas: Array) -> Dirichlet:
        """Take the parameters, all above 0."""
        try:
            given = np.array(alphas, np.float64)
        except (TypeError, ValueError):
            given = np.full(1, np.nan)
        inside = (given >= _SMALLEST) & (given <= _LARGEST)
        if given.ndim != 1 or len(given) < 2 or not inside.all():
            raise InputError(
                "prior: alphas are numbers above 0, from 1e-100 to 1e100, one per label; give those, "
                'or "moments" or "likelihood"'
            )
        return cls(given / given.sum(), float(given.sum()))

    @property
    def alphas(self) -> FloatArray:
        """The parameters: concentration × shares."""
        if math.isinf(self.concentration):
            return np.where(self.shares > 0, np.inf, 0.0)
        return self.concentration * self.shares

    @property
    def labels(self) -> int:
        """How many labels there are."""
        return len(self.shares)

    def log_weights(self, around: int, most: int) -> FloatArray:
        """Return the log of negative binomial weights Γ(alpha + m)/(Γ(alpha) m!) θ^m (1 - θ)^alpha."""
        alphas, total = self.alphas[self.shares > 0], self.concentration
        return np.array([log_negative_binomial(most, alpha, total, around) for alpha in alphas])

    def log_coefficients(self, around: int, sizes: Array) -> FloatArray:
        """Return the log of the same weights of the concentration."""
        total = self.concentration
        return log_negative_binomial(int(sizes.max()), total, total, around)[sizes]

    def one_label(self, most: int) -> FloatArray:
        """Return the chance that all n have one label, Σ_k Γ(alpha + n)Γ(A)/(Γ(alpha)Γ(A + n))."""
        n = np.arange(most)
        if self.concentration == 0:
            return np.ones(most + 1)
        if math.isinf(self.concentration):
            return np.asarray((self.shares[:, None] ** np.arange(most + 1)).sum(axis=0))
        alphas = self.alphas[self.shares > 0]
        log_ratio = np.log((alphas[:, None] + n) / (self.concentration + n)).cumsum(axis=1)
        return np.concatenate(([float(len(alphas))], np.exp(log_ratio).sum(axis=0)))
