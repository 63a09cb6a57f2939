"""The Wasserstein-infinity distance of two laws, exactly: how far some mass must move at least.

Probabilities are fractions. On the integers the best plan moves quantiles to quantiles, so the
jumps of both distribution functions are merged. Elsewhere the least distance is looked for at which
all mass can be moved, as a flow of whole numbers.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TypeVar

from countveil.errors import InputError

Point = TypeVar("Point")

_MOST_PAIRS = 250_000


def infinity_distance(
    first: Mapping[int, Fraction],
    second: Mapping[int, Fraction],
) -> int:
    """Return the distance of two laws on the integers, given by their probabilities."""
    laws = [_proper(law) for law in (first, second)]
    scale = math.lcm(*(p.denominator for law in laws for p in law.values()))
    atoms = [[(k, int(p * scale)) for k, p in sorted(law.items())] for law in laws]
    return merged_distance(*atoms)


def merged_distance(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> int:
    """Return the same for atoms in order, each with a whole weight above 0; both have the same sum."""
    i, j, left, right = 0, 0, first[0][1], second[0][1]
    far = abs(first[0][0] - second[0][0])
    while True:
        # Quantiles up to the smaller of the two sums are matched; whoever is used up moves on.
        used = min(left, right)
        left, right = left - used, right - used
        i, j = i + (left == 0), j + (right == 0)
        if i == len(first) or j == len(second):
            return far
        left, right = left or first[i][1], right or second[j][1]
        far = max(far, abs(first[i][0] - second[j][0]))


def bottleneck_distance(
    first: Mapping[Point, Fraction],
    second: Mapping[Point, Fraction],
    distance: Callable[[Point, Point], float],
) -> float:
    """Return the distance of two laws on any points, in the metric given; for small cases."""
    laws = [_proper(law) for law in (first, second)]
    if len(laws[0]) * len(laws[1]) > _MOST_PAIRS:
        raise InputError(
            f"laws: {len(laws[0]):,} and {len(laws[1]):,} points came; at most {_MOST_PAIRS:,} "
            f"pairs of them are looked at"
        )
    scale = math.lcm(*(p.denominator for law in laws for p in law.values()))
    supplies = [int(p * scale) for p in laws[0].values()]
    demands = [int(p * scale) for p in laws[1].values()]
    apart = [[float(distance(a, b)) for b in laws[1]] for a in laws[0]]
    steps = sorted({value for row in apart for value in row})
    low, high = -1, len(steps) - 1
    while high - low > 1:
        middle = (low + high) // 2
        near = [[j for j, value in enumerate(row) if value <= steps[middle]] for row in apart]
        low, high = (low, middle) if _all_moves(supplies, demands, near) else (middle, high)
    return steps[high]


def _proper(law: Mapping[Point, Fraction]) -> dict[Point, Fraction]:
    """Return the points that have a probability; refuse what is no law."""
    exact = {point: Fraction(p) for point, p in law.items() if p}
    if any(p < 0 for p in exact.values()) or sum(exact.values()) != 1:
        raise InputError("law: its probabilities must not be negative, and sum to 1 exactly")
    return exact


def _all_moves(supplies: list[int], demands: list[int], near: list[list[int]]) -> bool:
    """Whether all supplies reach demands along allowed pairs: a largest flow by shortest paths."""
    left, missing = list(supplies), list(demands)
    moved: dict[tuple[int, int], int] = {}
    for source in range(len(supplies)):
        while left[source]:
            path = _path(source, missing, moved, near)
            if path is None:
                return False
            forward = list(zip(path[::2], path[1::2], strict=True))
            back = list(zip(path[2::2], path[1::2], strict=False))
            amount = min(left[source], missing[path[-1]], *(moved[pair] for pair in back))
            for pair in forward:
                moved[pair] = moved.get(pair, 0) + amount
            for pair in back:
                moved[pair] -= amount
            left[source] -= amount
            missing[path[-1]] -= amount
    return True


def _path(
    source: int, missing: list[int], moved: dict[tuple[int, int], int], near: list[list[int]]
) -> list[int] | None:
    """Return supply, demand, supply, … demand along which more can be moved, or none."""
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
            following = [("supply", i) for (i, j), amount in moved.items() if j == at and amount]
        for item in following:
            if item not in before:
                before[item] = node
                queue.append(item)
    return None
