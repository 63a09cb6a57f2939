"""Delta_z, exactly: how far one person's value moves a count, given public information.

The secret is one person's value, 0 or 1, and public information makes the others' values depend on it.
Delta_z is the Wasserstein-infinity distance between the laws under both secrets: how far some mass must
move. Floats fail here (SciPy's quantiles give 22 where 100 is right), so all sums are of whole numbers.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Literal, TypeAlias, TypeVar

from countveil.base.numerics import Exact
from countveil.congenial.guarantee.public_information import (
    CountFact,
    CountRange,
    Dependence,
    DependenceKind,
    JointLaw,
    PreviousCounts,
    PublicFact,
    join_facts,
)
from countveil.errors import InfeasibleError, InputError

PointT = TypeVar("PointT")
MeasuredIn: TypeAlias = Literal["count", "database"]
_Atoms: TypeAlias = list[tuple[int, int]]  # values in order, each with a whole weight above 0

_MOST_PEOPLE = 20_000
_MOST_PAIRS = 250_000


def delta_z(
    *,
    n: int | None = None,
    z0: Exact | None = None,
    z1: Exact | None = None,
    dependence: DependenceKind | JointLaw | Mapping[tuple[int, ...], Exact] = "independent",
    of: MeasuredIn = "count",
    public: Sequence[PublicFact] = (),
) -> int:
    """Return W∞ between the laws of a count, given that one person has 0 and given that they have 1.

    Parameters
    ----------
    n
        The number of people.
    z0, z1
        The probability that another person has 1, if this person has 0, and if they have 1.
    dependence
        Whether the others are "independent" of each other given this person's value, or all the same
        ("comonotone"). A joint law of small databases may be given in place of n, z0 and z1; then the
        result is the largest distance over all people whose secret remains.
    of
        "count" measures the distance of counts. "database" counts the people whose value differs; it
        serves every release at once, is never smaller, and is n if the others depend on this person at
        all.
    public
        Facts on which both laws are conditioned.

    Returns
    -------
    int
        Delta_z.

    Examples
    --------
    >>> delta_z(n=10, z0="0.1", z1="0.9")
    9
    >>> from countveil.congenial import KAnonymity
    >>> delta_z(n=10, z0="0.1", z1="0.9", public=[KAnonymity(3)])
    4
    """
    if of not in ("count", "database"):
        raise InputError(f'of: unknown measure {of!r}; choose "count" or "database"')
    if not isinstance(dependence, str):
        if n is not None or z0 is not None or z1 is not None:
            raise InputError("n, z0, z1: a joint law already contains them; leave them out")
        law = dependence if isinstance(dependence, JointLaw) else JointLaw(dependence)
        return _of_joint_law(law, of, public)
    if n is None or z0 is None or z1 is None:
        raise InputError(
            "n, z0, z1: give all three, such as n=1000, z0='0.01', z1='0.02'; or give a "
            "joint law as dependence={(0, 0): '1/2', (1, 1): '1/2'}"
        )
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise InputError(f"n: {n!r} is not allowed; give a number of people, 1 or more")
    if n > _MOST_PEOPLE:
        raise InputError(
            f"n: {n:,} people are too many; exact sums are for at most {_MOST_PEOPLE:,}"
        )
    return _of_two_probabilities(n, Dependence(z0, z1, dependence), of, public)


def _of_two_probabilities(
    n: int, others: Dependence, of: MeasuredIn, public: Sequence[PublicFact]
) -> int:
    low, high = count_range(public, n)
    scale = math.lcm(others.z0.denominator, others.z1.denominator)
    sides: list[_Atoms] = []
    for value, probability in enumerate((others.z0, others.z1)):
        part = int(probability * scale)
        # The others are exchangeable, even if the count is bounded, so coupled sets of them can be
        # nested. The people who differ are then the difference of the others' counts, and the person.
        atoms = _count_atoms(others.kind, n - 1, part, scale)
        possible = [(k, weight) for k, weight in atoms if low <= k + value <= high]
        if not possible:
            raise InfeasibleError(
                f"public: no one can have the value {value}, as {join_facts(public)}: no secret pair "
                f"remains, so there is nothing left to protect"
            )
        sides.append([(k + value, weight) for k, weight in possible] if of == "count" else possible)
    sums = [sum(weight for _, weight in side) for side in sides]
    if sums[0] != sums[1]:
        sides = [
            [(k, weight * other) for k, weight in side]
            for side, other in zip(sides, reversed(sums), strict=True)
        ]
    return merged_distance(*sides) + (of == "database")


def _count_atoms(kind: DependenceKind, others: int, part: int, scale: int) -> _Atoms:
    if kind == "independent":
        return _binomial(others, part, scale)
    if others == 0:
        return [(0, scale)]
    return [(k, weight) for k, weight in ((0, scale - part), (others, part)) if weight]


def _binomial(others: int, part: int, scale: int) -> _Atoms:
    """Return k and C(others, k) part^k (scale - part)^(others - k), where it is above 0."""
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


def _of_joint_law(law: JointLaw, of: MeasuredIn, public: Sequence[PublicFact]) -> int:
    conditional = law.conditional_on(*public)
    distances = []
    for person in range(law.people):
        sides = [{x: p for x, p in conditional.items() if x[person] == value} for value in (0, 1)]
        if all(sides):
            first, second = (_normalized(side) for side in sides)
            if of == "database":
                distances.append(int(bottleneck_distance(first, second, _differing)))
            else:
                distances.append(infinity_distance(_counts(first), _counts(second)))
    if not distances:
        raise InfeasibleError(
            f"public: every value is certain, as {join_facts((law, *public))}: no secret pair remains, "
            f"so there is nothing left to protect"
        )
    return max(distances)


def _normalized(law: Mapping[tuple[int, ...], Fraction]) -> dict[tuple[int, ...], Fraction]:
    whole = sum(law.values())
    return {x: p / whole for x, p in law.items()}


def _counts(law: Mapping[tuple[int, ...], Fraction]) -> dict[int, Fraction]:
    counts: dict[int, Fraction] = {}
    for x, p in law.items():
        counts[sum(x)] = counts.get(sum(x), Fraction(0)) + p
    return counts


def _differing(first: tuple[int, ...], second: tuple[int, ...]) -> float:
    return float(sum(a != b for a, b in zip(first, second, strict=True)))


# The Wasserstein-infinity distance of two laws.
#
# Probabilities are fractions. On the integers the best plan moves quantiles to quantiles, so the jumps
# of both distribution functions are merged. Elsewhere, look for the smallest distance within which all
# mass can be moved, as a flow of whole numbers.


def infinity_distance(
    first: Mapping[int, Fraction],
    second: Mapping[int, Fraction],
) -> int:
    """Return W∞ of two laws on the integers.

    Parameters
    ----------
    first, second
        The exact probability of each value.

    Returns
    -------
    int
        The distance.

    Examples
    --------
    >>> half = Fraction(1, 2)
    >>> infinity_distance({0: half, 3: half}, {1: half, 3: half})
    1
    """
    laws = [_proper(law) for law in (first, second)]
    scale = math.lcm(*(p.denominator for law in laws for p in law.values()))
    atoms = [[(k, int(p * scale)) for k, p in sorted(law.items())] for law in laws]
    return merged_distance(*atoms)


def merged_distance(first: _Atoms, second: _Atoms) -> int:
    """Return W∞ of two lists of atoms with the same sum of weights."""
    i, j, left, right = 0, 0, first[0][1], second[0][1]
    far = abs(first[0][0] - second[0][0])
    while True:
        # Match quantiles up to the smaller of the two sums, then move on where one is used up.
        used = min(left, right)
        left, right = left - used, right - used
        i, j = i + (left == 0), j + (right == 0)
        if i == len(first) or j == len(second):
            return far
        left, right = left or first[i][1], right or second[j][1]
        far = max(far, abs(first[i][0] - second[j][0]))


def bottleneck_distance(
    first: Mapping[PointT, Fraction],
    second: Mapping[PointT, Fraction],
    distance: Callable[[PointT, PointT], float],
) -> float:
    """Return W∞ of two laws on any points, in this metric; for small cases."""
    laws = [_proper(law) for law in (first, second)]
    if len(laws[0]) * len(laws[1]) > _MOST_PAIRS:
        raise InputError(
            f"laws: {len(laws[0]):,} and {len(laws[1]):,} points are too many; at most "
            f"{_MOST_PAIRS:,} pairs of them are supported"
        )
    scale = math.lcm(*(p.denominator for law in laws for p in law.values()))
    supplies = [int(p * scale) for p in laws[0].values()]
    demands = [int(p * scale) for p in laws[1].values()]
    distances = [[float(distance(a, b)) for b in laws[1]] for a in laws[0]]
    steps = sorted({value for row in distances for value in row})
    low, high = -1, len(steps) - 1
    while high - low > 1:
        middle = (low + high) // 2
        near = [[j for j, value in enumerate(row) if value <= steps[middle]] for row in distances]
        low, high = (low, middle) if _all_moves(supplies, demands, near) else (middle, high)
    return steps[high]


def _proper(law: Mapping[PointT, Fraction]) -> dict[PointT, Fraction]:
    """Return the points with a probability above 0; refuse what is not a law."""
    exact = {point: Fraction(p) for point, p in law.items() if p}
    if any(p < 0 for p in exact.values()) or sum(exact.values()) != 1:
        raise InputError("law: its probabilities must not be negative, and must sum to 1 exactly")
    return exact


def _all_moves(supplies: list[int], demands: list[int], near: list[list[int]]) -> bool:
    """Whether all supplies reach demands along allowed pairs: a maximum flow by shortest paths."""
    left, missing = list(supplies), list(demands)
    flow: dict[tuple[int, int], int] = {}
    for source in range(len(supplies)):
        while left[source]:
            path = _path(source, missing, flow, near)
            if path is None:
                return False
            forward = list(zip(path[::2], path[1::2], strict=True))
            back = list(zip(path[2::2], path[1::2], strict=False))
            amount = min(left[source], missing[path[-1]], *(flow[pair] for pair in back))
            for pair in forward:
                flow[pair] = flow.get(pair, 0) + amount
            for pair in back:
                flow[pair] -= amount
            left[source] -= amount
            missing[path[-1]] -= amount
    return True


def _path(
    source: int, missing: list[int], flow: dict[tuple[int, int], int], near: list[list[int]]
) -> list[int] | None:
    """Return supply, demand, supply, … demand along which more can be moved, or None."""
    before: dict[tuple[str, int], tuple[str, int] | None] = {("supply", source): None}
    queue: deque[tuple[str, int]] = deque([("supply", source)])
    while queue:
        kind, at = node = queue.popleft()
        if kind == "demand" and missing[at]:
            path = [at]
            step = before[node]
            while step is not None:
                path.append(step[1])
                step = before[step]
            return path[::-1]
        if kind == "supply":
            following = [("demand", j) for j in near[at]]
        else:
            following = [("supply", i) for (i, j), amount in flow.items() if j == at and amount]
        for item in following:
            if item not in before:
                before[item] = node
                queue.append(item)
    return None


def count_range(facts: Iterable[PublicFact], people: int) -> CountRange:
    """Return the counts that agree with facts which are all about the count of all people."""
    low, high = 0, people
    listed = tuple(facts)
    for fact in listed:
        bounds = fact.window(people) if isinstance(fact, CountFact) else None
        if bounds is None and not isinstance(fact, PreviousCounts):
            raise InputError(
                f"public: {fact.sentence!r} is not about the count of all people; give a joint law "
                f"instead, which is enumerated"
            )
        if bounds is not None:
            low, high = max(low, bounds.low), min(high, bounds.high)
    if low > high:
        raise InfeasibleError(
            f"public: no count of {people} people agrees that {join_facts(listed)}"
        )
    return CountRange(low, high)
