"""How the people of a cell get their labels: by fixed shares, or by shares that vary between cells."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from countveil.base.numerics import Array, FloatArray
from countveil.errors import InputError

_SMALLEST, _LARGEST = 1e-100, 1e100  # alphas between these have no product that overflows
_ROUNDING = 1e-9
_SMALL = 16.0  # below it, log-gamma is as precise as the series


@dataclass(frozen=True, eq=False, slots=True)
class Multinomial:
    """Every person has label k with probability shares[k]: independent Poisson counts, given n."""

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

    Parameters
    ----------
    shares : array
        The mean share of each label.
    concentration : float
        The sum of the parameters alpha, from 0 to infinity.
    source : str
        "moments" or "likelihood" for a prior that was fitted, otherwise "given".
    score : float
        The largest derivative by log alpha that remains after a fit, per cell.
    """

    shares: FloatArray
    concentration: float
    source: str = "given"
    score: float = 0.0

    def __post_init__(self) -> None:
        shares = np.array(self.shares, np.float64)
        if (
            not (shares >= 0).all()
            or abs(shares.sum() - 1) > _ROUNDING
            or not self.concentration >= 0
        ):
            raise InputError(
                "prior: shares must be 0 or more with sum 1, and the concentration 0 or more"
            )
        shares.setflags(write=False)
        object.__setattr__(self, "shares", shares)
        if not _SMALLEST <= self.concentration <= _LARGEST:  # as good as 0 or infinity
            limit = 0.0 if self.concentration < _SMALLEST else math.inf
            object.__setattr__(self, "concentration", limit)

    @classmethod
    def of(cls, alphas: Array) -> Dirichlet:
        """Return the prior with these parameters, all above 0."""
        try:
            values = np.array(alphas, np.float64)
        except (TypeError, ValueError):
            values = np.full(1, np.nan)
        inside = (values >= _SMALLEST) & (values <= _LARGEST)
        if values.ndim != 1 or len(values) < 2 or not inside.all():
            raise InputError(
                "prior: give one alpha per label, each from 1e-100 to 1e100, or "
                '"moments" or "likelihood"'
            )
        return cls(values / values.sum(), float(values.sum()))

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
        """Return the log of the same weights for the concentration."""
        total = self.concentration
        return log_negative_binomial(int(sizes.max()), total, total, around)[sizes]

    def one_label(self, most: int) -> FloatArray:
        """Return the probability that all n have one label, Σ_k Γ(alpha + n)Γ(A)/(Γ(alpha)Γ(A + n))."""
        n = np.arange(most)
        if self.concentration == 0:
            return np.ones(most + 1)
        if math.isinf(self.concentration):
            return np.asarray((self.shares[:, None] ** np.arange(most + 1)).sum(axis=0))
        alphas = self.alphas[self.shares > 0]
        log_ratio = np.log((alphas[:, None] + n) / (self.concentration + n)).cumsum(axis=1)
        return np.concatenate(([float(len(alphas))], np.exp(log_ratio).sum(axis=0)))


# Logarithms of Poisson and negative binomial weights, precise far from 0 (Loader 2000).


def log_poisson(counts: Array | int, means: Array | float) -> FloatArray:
    """Return log of mean^m e^-mean/m!, as -deviance(m, mean) - ½ log(2πm) - rest of Stirling."""
    m, mean = np.broadcast_arrays(np.asarray(counts, float), np.asarray(means, float))
    some = np.maximum(m, 1.0)
    with np.errstate(divide="ignore"):
        log_p = some * _curve((mean - some) / some) - 0.5 * np.log(2 * math.pi * some) - _rest(some)
    return np.where(m == 0, -mean, log_p)


def log_negative_binomial(most: int, alpha: float, total: float, around: float) -> FloatArray:
    """Return log of Γ(alpha + m)/(Γ(alpha) m!) θ^m (1 - θ)^alpha, θ = around/(total + around).

    m goes from 0 to `most`. It is the binomial probability of m among alpha + m, times
    alpha/(alpha + m).
    """
    m = np.arange(1.0, most + 1)
    gap = (m * total - alpha * around) / (total + around)
    log_p = alpha * _curve(gap / alpha) + m * _curve(-gap / m)
    log_p += _rest(alpha + m) - _rest(np.asarray(alpha)) - _rest(m)
    log_p += 0.5 * (np.log(alpha / (alpha + m)) - np.log(2 * math.pi * m))
    return np.concatenate(([-alpha * math.log1p(around / total)], log_p))


def log_rising(alpha: float, n: Array) -> FloatArray:
    """Return log of Γ(alpha + n)/Γ(alpha), also where alpha is much larger than n."""
    ends = _rest(alpha + n) - _rest(np.asarray(alpha))
    return np.asarray((alpha - 0.5) * np.log1p(n / alpha) + n * np.log(alpha + n) - n + ends)


def _curve(d: FloatArray) -> FloatArray:
    """Return log(1 + d) - d."""
    return np.asarray(np.log1p(d) - d)


def _rest(x: FloatArray) -> FloatArray:
    """Return log x! minus Stirling's formula: 1/(12x) - 1/(360x³) + 1/(1260x⁵) - 1/(1680x⁷) far out."""
    far, square = np.maximum(x, _SMALL), np.maximum(x, _SMALL) ** 2
    series = (1 / 12 - (1 / 360 - (1 / 1260 - 1 / 1680 / square) / square) / square) / far
    near = gammaln(x + 1) - (x + 0.5) * np.log(x) + x - 0.5 * math.log(2 * math.pi)
    return np.asarray(np.where(x < _SMALL, near, series))
