"""What epsilon means for the beliefs of someone who knows the public information: safe bounds."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import NamedTuple

from countveil.base.numerics import Exact, exact
from countveil.errors import InputError

_DIGITS = 60
# Relative; far above the rounding error of 60 digits and far below that of a float.
_SLACK = Decimal(10) ** -50


class OddsBounds(NamedTuple):
    """The smallest and the largest factor by which a release changes the odds of a secret pair."""

    low: float
    high: float


def odds_bounds(epsilon: Exact) -> OddsBounds:
    """Return e^-epsilon and e^epsilon, rounded outwards.

    A release multiplies the odds of the two secrets of a pair by a factor between them (003,
    Lemma 4).

    Parameters
    ----------
    epsilon
        The epsilon-TP of the release, 0 or more.

    Returns
    -------
    OddsBounds
        The smallest factor `low` and the largest factor `high`.

    Examples
    --------
    >>> bounds = odds_bounds("1/2")
    >>> round(bounds.low, 4), round(bounds.high, 4)
    (0.6065, 1.6487)
    """
    value = _epsilon(epsilon)
    with localcontext(prec=_DIGITS):
        low, high = _exp(-value) * (1 - _SLACK), _exp(value) * (1 + _SLACK)
        return OddsBounds(_below(low), -_below(-high))


def largest_shift(epsilon: Exact) -> float:
    """Return tanh(epsilon/4), rounded up: the most that the probability of a secret can move.

    Odds that grow by e^epsilon take a probability from q to at most q e^epsilon/(1 - q + q
    e^epsilon). The difference is largest at q = 1/(1 + e^(epsilon/2)).

    Parameters
    ----------
    epsilon
        The epsilon-TP of the release, 0 or more.

    Returns
    -------
    float
        A difference of probabilities, from 0 to 1.

    Examples
    --------
    >>> round(largest_shift(1), 4)
    0.2449
    """
    return _tanh_above(_epsilon(epsilon) / 4)


def posterior_to_posterior(epsilon: Exact) -> float:
    """Return tanh(epsilon/2), rounded up: a bound on the total variation in (3) and (5) of paper 003.

    The comparison is between beliefs about the database after a release from it and after a release
    from the database in which one person's record was replaced. They differ by normalized weights
    between e^-epsilon and e^epsilon, so the odds of an event change by at most e^(2 epsilon) and its
    probability by tanh(epsilon/2), which is attained. The paper's e^epsilon - 1 holds too, but
    exceeds 1 from epsilon = 0.7 on.

    Parameters
    ----------
    epsilon
        The epsilon-TP of the release, 0 or more.

    Returns
    -------
    float
        A total variation distance, from 0 to 1.

    Examples
    --------
    >>> round(posterior_to_posterior(1), 4)
    0.4621
    """
    return _tanh_above(_epsilon(epsilon) / 2)


def printed_posterior_to_posterior(epsilon: Exact) -> float:
    """Return e^epsilon - 1, the bound printed in (3) and (5) of paper 003, rounded up.

    Parameters
    ----------
    epsilon
        The epsilon-TP of the release, 0 or more.

    Returns
    -------
    float
        The printed bound, which may exceed 1.

    Examples
    --------
    >>> round(printed_posterior_to_posterior(1), 4)
    1.7183
    """
    value = _epsilon(epsilon)
    with localcontext(prec=_DIGITS):
        return -_below(-(_exp(value) * (1 + _SLACK) - 1))


def _epsilon(epsilon: Exact) -> Fraction:
    value = exact(epsilon, "epsilon")
    if value < 0:
        raise InputError(f"epsilon: {epsilon} is not allowed; it must be 0 or more")
    return value


def _exp(value: Fraction) -> Decimal:
    return (Decimal(value.numerator) / Decimal(value.denominator)).exp()


def _tanh_above(value: Fraction) -> float:
    with localcontext(prec=_DIGITS):
        # tanh increases with its argument, so rounding this up rounds the result up.
        above = _exp(2 * value) * (1 + _SLACK)
        return min(1.0, -_below(-(1 - 2 / (above + 1))))


def _below(value: Decimal) -> float:
    """Return a float that is not above the number."""
    nearest = float(value)
    return nearest if Decimal(nearest) <= value else math.nextafter(nearest, -math.inf)
