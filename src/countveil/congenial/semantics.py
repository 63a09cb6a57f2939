"""What epsilon means to someone who knows the public information, as bounds that are never too good."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

from countveil.errors import InputError
from countveil.numerics import Exact, exact

_DIGITS = 60
_SLACK = (
    Decimal(10) ** -50
)  # relative: far above the rounding of 60 digits, far below that of a float


def odds_bounds(epsilon: Exact) -> tuple[float, float]:
    """Return e^-epsilon and e^epsilon, rounded outwards.

    A release multiplies the odds of two secrets of a pair by a factor between them (003, Lemma 4).
    """
    value = _epsilon(epsilon)
    with localcontext(prec=_DIGITS):
        low, high = _exp(-value) * (1 - _SLACK), _exp(value) * (1 + _SLACK)
        return _below(low), -_below(-high)


def largest_shift(epsilon: Exact) -> float:
    """Return tanh(epsilon/4), rounded up: by how much the probability of a secret can move at most.

    Odds that grow by e^epsilon take a probability from q to at most q e^epsilon/(1 - q + q
    e^epsilon); the difference is largest at q = 1/(1 + e^(epsilon/2)).
    """
    return _tanh_above(_epsilon(epsilon) / 4)


def posterior_to_posterior(epsilon: Exact) -> float:
    """Return tanh(epsilon/2), rounded up: a bound of the total variation in (3) and (5) of paper 003.

    Compared are the beliefs about the database after a release from it, and after a release from
    the one in which a person's record was replaced. They differ by weights between e^-epsilon and
    e^epsilon, which are normalised; so odds of an event change by e^(2 epsilon) at most, and its
    probability by tanh(epsilon/2), which is attained. The paper's e^epsilon - 1 holds too, but
    exceeds 1 from epsilon = 0.7 on.
    """
    return _tanh_above(_epsilon(epsilon) / 2)


def printed_posterior_to_posterior(epsilon: Exact) -> float:
    """Return e^epsilon - 1, the bound that (3) and (5) print, rounded up."""
    value = _epsilon(epsilon)
    with localcontext(prec=_DIGITS):
        return -_below(-(_exp(value) * (1 + _SLACK) - 1))


def _epsilon(epsilon: Exact) -> Fraction:
    value = exact(epsilon, "epsilon")
    if value < 0:
        raise InputError(f"epsilon: {epsilon} is not allowed; it is 0 or more")
    return value


def _exp(value: Fraction) -> Decimal:
    return (Decimal(value.numerator) / Decimal(value.denominator)).exp()


def _tanh_above(value: Fraction) -> float:
    with localcontext(prec=_DIGITS):
        grown = _exp(2 * value) * (1 + _SLACK)  # tanh grows with it, so rounding up rounds up
        return min(1.0, -_below(-(1 - 2 / (grown + 1))))


def _below(value: Decimal) -> float:
    """Return a float that is not above the number."""
    nearest = float(value)
    return nearest if Decimal(nearest) <= value else math.nextafter(nearest, -math.inf)
