"""Delta_z of a count, exactly: how much one person's value moves it beside public information.

The secret is one person's value, 0 or 1; public information makes the others' values depend on it. On
floats this fails: quantiles of SciPy give 22 where 100 is right. So all sums are of whole numbers.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

from countveil.congenial.wasserstein import infinity_distance, merged_distance
from countveil.errors import InputError
from countveil.numerics import Exact, exact

Dependence = Literal["independent", "comonotone"]

_MOST_PEOPLE = 20_000


def delta_z(*, n: int, z0: Exact, z1: Exact, dependence: Dependence = "independent") -> int:
    """Return W∞ between the counts of n people given that one has the value 0, and given that he has 1.

    z0 and z1 are the probabilities that another person has 1, given his value. The others are
    independent of each other given it, or, "comonotone", all the same. Beside any dependence it is n.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise InputError(f"n: {n!r} is not allowed; it is a number of people, 1 or more")
    if n > _MOST_PEOPLE:
        raise InputError(
            f"n: {n:,} people are more than {_MOST_PEOPLE:,}, which are summed exactly"
        )
    chances = [_probability(z, name) for z, name in ((z0, "z0"), (z1, "z1"))]
    if dependence == "comonotone":
        first, second = (_all_or_none(n - 1, p, shift) for shift, p in enumerate(chances))
        return infinity_distance(first, second)
    if dependence != "independent":
        raise InputError(
            f'dependence: {dependence!r} is not known; choose "independent" or "comonotone"'
        )
    scale = math.lcm(*(p.denominator for p in chances))
    atoms = [_binomial(n - 1, int(p * scale), scale, shift) for shift, p in enumerate(chances)]
    return merged_distance(*atoms)


def _probability(value: Exact, name: str) -> Fraction:
    found = exact(value, name)
    if not 0 <= found <= 1:
        raise InputError(f"{name}: {value} is not allowed; it is a probability, from 0 to 1")
    return found


def _all_or_none(others: int, p: Fraction, shift: int) -> dict[int, Fraction]:
    if others == 0:
        return {shift: Fraction(1)}
    return {shift: 1 - p, shift + others: p}


def _binomial(others: int, part: int, scale: int, shift: int) -> list[tuple[int, int]]:
    """Return shift + k and C(others, k) part^k (scale - part)^(others - k), as far as above 0."""
    rest = scale - part
    if part == 0:
        return [(shift, scale**others)]
    if rest == 0:
        return [(shift + others, scale**others)]
    weight, atoms = rest**others, []
    for k in range(others + 1):
        atoms.append((shift + k, weight))
        weight = weight * (others - k) * part // ((k + 1) * rest)
    return atoms
