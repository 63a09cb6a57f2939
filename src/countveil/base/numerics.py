"""Exact fractions from text, and enclosures of transcendental numbers by integers."""

from __future__ import annotations

import math
import re
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from countveil.errors import InputError

Exact: TypeAlias = str | int | Fraction | Decimal
Array: TypeAlias = NDArray[Any]
IntArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float64]

_NUMBER = re.compile(
    r"[+-]?\d+(\.\d*)?([eE][+-]?\d{1,3})?|[+-]?\d+/\d+|[+-]?\.\d+([eE][+-]?\d{1,3})?"
)
_LONGEST_NUMBER = 400
_MOST_DIGITS = 40  # of a number in a message


def exact(value: Exact, name: str = "value") -> Fraction:
    """Return a number as an exact fraction.

    Parameters
    ----------
    value
        Text such as "2.56", "1e-10" or "104/4099", or an exact number. A float is refused: 0.1 is
        not 1/10.
    name
        What error messages call it.

    Examples
    --------
    >>> exact("0.1")
    Fraction(1, 10)

    """
    if isinstance(value, bool) or not isinstance(value, str | int | Fraction | Decimal):
        raise InputError(
            f"{name}: {value!r} is a {type(value).__name__}, but privacy costs are exact; "
            f'write it as text, such as "2.56" or "104/4099"'
        )
    if isinstance(value, Fraction | int):
        return Fraction(value)
    text = str(value).strip()
    if len(text) > _LONGEST_NUMBER or not _NUMBER.fullmatch(text):
        raise InputError(
            f'{name}: {text[:40]!r} is not a number; write "2.56", "1e-10" or "104/4099", with a point '
            f"and without separators"
        )
    try:
        return Fraction(text)
    except ZeroDivisionError:
        raise InputError(f"{name}: {text!r} divides by zero; write another number") from None


def shortened(value: object) -> str:
    """Return a number for a message, without most of its digits if it has many."""
    text = str(value)
    return text if len(text) <= _MOST_DIGITS else f"{text[:20]}… ({len(text):,} characters)"


def positive(value: Exact, name: str = "value") -> Fraction:
    """Return `value` as an exact fraction above zero."""
    fraction = exact(value, name)
    if fraction <= 0:
        raise InputError(f"{name}: {shortened(value)} is not allowed; it must be above 0")
    return fraction


def log_theta(rho: float) -> float:
    """Return the log of the sum over all integers k of exp(-rho k²).

    Direct series for rho >= 1, its Poisson dual sqrt(pi/rho) sum exp(-pi² k²/rho) below:
    either needs at most six terms.
    """
    if rho >= 1:
        return math.log1p(2 * sum(math.exp(-rho * k * k) for k in range(1, 7)))
    dual = math.log1p(2 * sum(math.exp(-((math.pi * k) ** 2) / rho) for k in range(1, 7)))
    return 0.5 * math.log(math.pi / rho) + dual


def enclose_exp_minus(q: Fraction, bits: int) -> tuple[int, int]:
    """Return integers with low <= 2**bits · exp(-q) <= high, for q >= 0."""
    halvings = max(0, (q.numerator // q.denominator).bit_length() + 1)
    scale = bits + 2 * halvings + 16
    one = 1 << scale
    n, d = q.numerator, q.denominator << halvings
    # Alternating Taylor series of exp(-q / 2**halvings), an argument of at most 1/2.
    term_low = term_high = sum_low = sum_high = one
    k = 0
    while term_high > 1:
        k += 1
        term_low = term_low * n // (d * k)
        term_high = -(-term_high * n // (d * k))
        if k % 2:
            sum_low, sum_high = sum_low - term_high, sum_high - term_low
        else:
            sum_low, sum_high = sum_low + term_low, sum_high + term_high
    low, high = sum_low - 1, sum_high + 1  # the remainder is smaller than the last term
    for _ in range(halvings):
        low, high = low * low >> scale, (high * high >> scale) + 1
    shift = scale - bits
    return low >> shift, -(-high >> shift)


def rounded_up_text(value: Fraction, digits: int = 6) -> str:
    """Return a number with few digits, rounded up: a bound stays one."""
    with localcontext(prec=digits, rounding=ROUND_CEILING):
        return str(Decimal(value.numerator) / Decimal(value.denominator))


def decimal(value: Fraction) -> str:
    """Return a number as people write it if it has few digits, and as a fraction otherwise."""
    text = f"{float(value):.15g}"
    return text if "e" not in text and Fraction(text) == value else str(value)
