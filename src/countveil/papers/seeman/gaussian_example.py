"""A normal mean given a normal public number: how far one person's value moves it (003, Example 1).

Equation (16) of the paper has z - mu_Z where 0 belongs: what is public is the same on both sides, so
only the person's own value moves the mean of the conditional law.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from countveil.base.numerics import Exact, exact, positive
from countveil.errors import InputError


@dataclass(frozen=True, slots=True)
class GaussianMean:
    """The mean of n people, given one person's value v and the public Z, which is normal.

    E[mean | v, z] = mu + coefficient_value·(v - mu) + coefficient_public·(z - mu_Z)

    Parameters
    ----------
    width
        The largest difference of two people's values.
    coefficient_value, coefficient_public
        The coefficients above.
    """

    width: Fraction
    coefficient_value: Fraction
    coefficient_public: Fraction

    @property
    def sensitivity(self) -> Fraction:
        """W∞ between the laws given two values that are `width` apart; both have the same shape."""
        return self.width * abs(self.coefficient_value)

    def printed(self, away: Exact) -> Fraction:
        """Return what equation (16) prints for z - mu_Z = `away`, for comparison only."""
        return self.width * self.coefficient_value + exact(away, "away") * self.coefficient_public


def gaussian_mean(
    *,
    n: int,
    variance: Exact,
    width: Exact = 1,
    mean_with_public: Exact = 0,
    person_with_public: Exact = 0,
    public_variance: Exact = 1,
) -> GaussianMean:
    """Return how the mean of n people depends on one person's value.

    With s² the variance of a person's value, t² that of Z, and r and c the covariances of Z with the
    person and with the mean, coefficient_value = (s²t²/n - rc)/(s²t² - r²).

    Parameters
    ----------
    n
        The number of people.
    variance
        The variance of a person's value.
    width
        The largest difference of two people's values.
    mean_with_public, person_with_public
        The covariances of the mean and of a person's value with the public number.
    public_variance
        The variance of the public number.

    Returns
    -------
    GaussianMean
        Its coefficients and sensitivity, exact.

    Examples
    --------
    >>> gaussian_mean(n=10, variance=1).sensitivity
    Fraction(1, 10)
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise InputError(f"n: {n!r} is not allowed; give a number of people, 1 or more")
    s2, t2 = positive(variance, "variance"), positive(public_variance, "public_variance")
    c = exact(mean_with_public, "mean_with_public")
    r = exact(person_with_public, "person_with_public")
    determinant = s2 * t2 - r * r
    if determinant <= 0:
        raise InputError(
            f"person_with_public: {r} is not allowed; its square must be below the product of both "
            f"variances, {s2 * t2}. Otherwise the public number reveals the person's value, and no "
            f"secret pair remains"
        )
    by_value = (s2 * t2 / n - r * c) / determinant
    by_public = (s2 * c - r * s2 / n) / determinant
    if s2 / n - by_value * s2 / n - by_public * c < 0:
        raise InputError(
            f"mean_with_public: {c} is not allowed; no mean of {n} people with variance {s2} has that "
            f"covariance with the public number"
        )
    return GaussianMean(positive(width, "width"), by_value, by_public)
