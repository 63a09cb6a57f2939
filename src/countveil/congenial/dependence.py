"""Delta_z of a count, exactly: how much one person's value moves it beside public information.

The secret is one person's value, 0 or 1; public information makes the others' values depend on it.
On floats this fails: quantiles of SciPy give 22 where 100 is right. So all sums are of whole
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Literal, TypeAlias

from countveil.congenial.public_information import (
    Dependence,
    Fact,
    JointLaw,
    Kind,
    joined,
    window_of,
)
from countveil.congenial.transport import bottleneck_distance, infinity_distance, merged_distance
from countveil.errors import InfeasibleError, InputError
from countveil.numerics import Exact

Of: TypeAlias = Literal["count", "database"]
_Atoms: TypeAlias = list[tuple[int, int]]

_MOST_PEOPLE = 20_000


def delta_z(
    *,
    n: int | None = None,
    z0: Exact | None = None,
    z1: Exact | None = None,
    dependence: Kind | JointLaw | Mapping[tuple[int, ...], Exact] = "independent",
    of: Of = "count",
    public: Sequence[Fact] = (),
) -> int:
    """Return W∞ between what is released given that one person has 0, and given that he has 1.

    z0 and z1 are the probabilities that another of n people has 1, given his value. The others are
    independent of each other given it, or, "comonotone", all the same. A joint law of small
    databases may be given instead; then the largest distance over people whose secret remains is
    returned. Both laws are conditioned on `public`. The distance is that of counts; or of
    databases, in people whose value differs, which serves every release at once and is never
    smaller. Beside any dependence at all it is n.
    """
    if of not in ("count", "database"):
        raise InputError(f'of: {of!r} is not known; choose "count" or "database"')
    if not isinstance(dependence, str):
        if n is not None or z0 is not None or z1 is not None:
            raise InputError("n, z0, z1: a joint law says all that they say; leave them out")
        law = dependence if isinstance(dependence, JointLaw) else JointLaw(dependence)
        return _of_joint_law(law, of, public)
    if n is None or z0 is None or z1 is None:
        raise InputError(
            "n, z0, z1: all three are needed, such as n=1000, z0='0.01', z1='0.02'; or give a "
            "joint law as dependence={(0, 0): '1/2', (1, 1): '1/2'}"
        )
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise InputError(f"n: {n!r} is not allowed; it is a number of people, 1 or more")
    if n > _MOST_PEOPLE:
        raise InputError(
            f"n: {n:,} people are more than {_MOST_PEOPLE:,}, which are summed exactly"
        )
    return _of_two_chances(n, Dependence(z0, z1, dependence), of, public)


def _of_two_chances(n: int, given: Dependence, of: Of, public: Sequence[Fact]) -> int:
    low, high = window_of(public, n)
    scale = math.lcm(given.z0.denominator, given.z1.denominator)
    sides: list[_Atoms] = []
    for value, chance in enumerate((given.z0, given.z1)):
        part = int(chance * scale)
        # The values of the others are exchangeable, also when the count is bounded: sets of them
        # whose sizes are coupled can be coupled nested. So people who differ are those by whom the
        # counts of the others differ, and the person himself.
        atoms = _others(given.kind, n - 1, part, scale)
        kept = [(k, weight) for k, weight in atoms if low <= k + value <= high]
        if not kept:
            raise InfeasibleError(
                f"public: nobody can have the value {value}, as {joined(public)}: no secret pair "
                f"remains, and there is nothing left to protect"
            )
        sides.append([(k + value, weight) for k, weight in kept] if of == "count" else kept)
    sums = [sum(weight for _, weight in side) for side in sides]
    if sums[0] != sums[1]:
        sides = [
            [(k, weight * other) for k, weight in side]
            for side, other in zip(sides, reversed(sums), strict=True)
        ]
    return merged_distance(*sides) + (of == "database")


def _others(kind: Kind, others: int, part: int, scale: int) -> _Atoms:
    if kind == "independent":
        return _binomial(others, part, scale)
    if others == 0:
        return [(0, scale)]
    return [(k, weight) for k, weight in ((0, scale - part), (others, part)) if weight]


def _binomial(others: int, part: int, scale: int) -> _Atoms:
    """Return k and C(others, k) part^k (scale - part)^(others - k), as far as above 0."""
    rest = scale - part
    if part == 0:
        return [(0, scale**others)]
    if rest == 0:
        return [(others, scale**others)]
    weight, atoms = rest**others, []
    for k in range(others + 1):
        atoms.append((k, weight))
        weight = weight * (others - k) * part // ((k + 1) * rest)
    return atoms


def _of_joint_law(law: JointLaw, of: Of, public: Sequence[Fact]) -> int:
    given = law.given(*public)
    distances = []
    for person in range(law.people):
        sides = [{x: p for x, p in given.items() if x[person] == value} for value in (0, 1)]
        if all(sides):
            first, second = (_normalised(side) for side in sides)
            if of == "database":
                distances.append(int(bottleneck_distance(first, second, _differing)))
            else:
                distances.append(infinity_distance(_counts(first), _counts(second)))
    if not distances:
        raise InfeasibleError(
            f"public: every value is certain, as {joined((law, *public))}: no secret pair remains, "
            f"and there is nothing left to protect"
        )
    return max(distances)


def _normalised(law: Mapping[tuple[int, ...], Fraction]) -> dict[tuple[int, ...], Fraction]:
    whole = sum(law.values())
    return {x: p / whole for x, p in law.items()}


def _counts(law: Mapping[tuple[int, ...], Fraction]) -> dict[int, Fraction]:
    found: dict[int, Fraction] = {}
    for x, p in law.items():
        found[sum(x)] = found.get(sum(x), Fraction(0)) + p
    return found


def _differing(first: tuple[int, ...], second: tuple[int, ...]) -> float:
    return float(sum(a != b for a, b in zip(first, second, strict=True)))
