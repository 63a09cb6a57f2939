"""Nested exact sums of 0s and 1s, with bounds on the whole: which values are possible, for any number.

A part of the people whose smaller parts have fixed sums can have any sum between two ends. So a
fixed sum is possible if it lies between them, from the smallest parts to the largest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from countveil.congenial.public_information import (
    CountFact,
    Fact,
    FixedTotal,
    FixedTotals,
    PreviousCounts,
)


@dataclass(frozen=True, slots=True)
class Part:
    """People with one total: those in no smaller part, and the smaller parts."""

    own: tuple[int, ...]
    inner: tuple[int, ...]
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class NestedSums:
    """Parts from the smallest to the largest, which holds everyone."""

    parts: tuple[Part, ...]

    def feasible(self, person: int | None = None, value: int = 0) -> bool:
        """Whether some database agrees, in which this person has this value."""
        ends: list[tuple[int, int]] = []
        for part in self.parts:
            low, high = 0, len(part.own)
            if person is not None and person in part.own:
                low, high = value, high - 1 + value
            low += sum(ends[i][0] for i in part.inner)
            high += sum(ends[i][1] for i in part.inner)
            low, high = max(low, part.low), min(high, part.high)
            if low > high:
                return False
            ends.append((low, high))
        return True

    def alike(self) -> list[tuple[int, ...]]:
        """Return groups of people whom nothing public tells apart."""
        return [part.own for part in self.parts if part.own]


def as_nested(facts: Iterable[Fact], people: int) -> NestedSums | None:
    """Return the facts as nested sums; none if one of them is something else."""
    bounds: dict[frozenset[int], tuple[int, int]] = {frozenset(range(people)): (0, people)}
    for fact in facts:
        if isinstance(fact, FixedTotals | FixedTotal):
            totals = fact.totals if isinstance(fact, FixedTotals) else (fact,)
            limits = [(each.members(people), (each.total, each.total)) for each in totals]
        elif isinstance(fact, CountFact):
            window = fact.window(people)
            assert window is not None  # only a total can be of a part of the people
            limits = [(frozenset(range(people)), window)]
        elif isinstance(fact, PreviousCounts):
            continue
        else:
            return None
        for members, (low, high) in limits:
            known = bounds.get(members, (0, len(members)))
            bounds[members] = max(known[0], low), min(known[1], high)
    ordered = sorted(bounds, key=len)
    parts: list[Part] = []
    outermost: list[int] = []  # parts that no part seen so far holds
    for members in ordered:
        inner = [i for i in outermost if ordered[i] <= members]
        if any(ordered[i] & members for i in outermost if i not in inner):
            return None
        rest = members.difference(*(ordered[i] for i in inner))
        parts.append(Part(tuple(sorted(rest)), tuple(inner), *bounds[members]))
        outermost = [i for i in outermost if i not in inner] + [len(parts) - 1]
    return NestedSums(tuple(parts))
