"""Which secret pairs remain beside public information (003, Definition 3), and why the others are gone.

A pair says that a person has 0, or that he has 1. It remains if both are possible given what is
public.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from countveil.congenial.nested_sums import NestedSums, as_nested
from countveil.congenial.public_information import (
    AtMost,
    Database,
    Fact,
    FixedTotal,
    FixedTotals,
    JointLaw,
    joined,
)
from countveil.errors import InfeasibleError, InputError

_MOST_BITS = 14
_MOST_TABLES = 1_000_000


@dataclass(frozen=True, slots=True)
class Secret:
    """One person has this value."""

    person: int
    value: int

    def __call__(self, database: Database) -> bool:
        """Whether it is so in a database."""
        return database[self.person] == self.value


@dataclass(frozen=True, slots=True)
class Certain:
    """People whose value is not secret any more, and the facts that give it away."""

    people: tuple[int, ...]
    value: int
    because: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """Who, what and why."""
        many = len(self.people)
        who = f"person {self.people[0]}" if many == 1 else f"{many} people"
        return f"{who} can only have the value {self.value}, because {' and '.join(self.because)}"


@dataclass(frozen=True, slots=True)
class SecretPairs:
    """How many secret pairs remain, of as many as there are people, and why the rest are gone."""

    people: int
    certain: tuple[Certain, ...]

    @property
    def remaining(self) -> int:
        """How many people still have a secret."""
        return self.people - sum(len(group.people) for group in self.certain)

    @property
    def pairs(self) -> tuple[tuple[Secret, Secret], ...]:
        """The pairs that remain."""
        gone = {person for group in self.certain for person in group.people}
        return tuple((Secret(i, 0), Secret(i, 1)) for i in range(self.people) if i not in gone)

    @property
    def sentence(self) -> str:
        """How many remain, and why the rest are gone."""
        head = f"{self.remaining} of {self.people} secret pairs remain"
        return "; ".join((head, *(group.sentence for group in self.certain)))


def secret_pairs(
    *facts: Fact, people: int | None = None, laws: Sequence[JointLaw] = ()
) -> SecretPairs:
    """Return the secret pairs of people with the value 0 or 1.

    Without `laws`, every database that agrees with the facts is possible under some distribution.
    With laws, a pair remains only if both values are possible under each of them (003, equation
    10). Totals that nest and bounds on the count are solved for any number of people; other facts
    by looking at every database of up to 14 people.
    """
    n = _people(people, laws)
    facts = tuple(_one_by_one(facts))
    if laws:
        # Each law is a fact of its own: whoever is certain under one of them has lost his pair.
        found = [_enumerated((*facts, law), [x for x, _ in law.probabilities], n) for law in laws]
        return SecretPairs(n, _merged(found))
    nested = as_nested(facts, n)
    if nested is not None:
        return SecretPairs(n, _solved(nested, facts, n))
    if n > _MOST_BITS:
        raise InputError(
            f"people: {n} came; beside facts other than nested totals and bounds on the count, up "
            f"to {_MOST_BITS} are enumerated"
        )
    return SecretPairs(n, _enumerated(facts, list(product((0, 1), repeat=n)), n))


@dataclass(frozen=True, slots=True)
class CellPairs:
    """Which cells a person may be in, and so which pairs of cells are secrets still."""

    cells: int
    possible: tuple[int, ...]

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Pairs of cells, either of which a person may be in."""
        return tuple((a, b) for a in self.possible for b in self.possible if a < b)

    @property
    def sentence(self) -> str:
        """How many pairs remain."""
        every = self.cells * (self.cells - 1) // 2
        return (
            f"{len(self.pairs)} of {every} pairs of cells remain secret: a person may be in "
            f"{len(self.possible)} of {self.cells} cells"
        )


def cell_pairs(*facts: Fact, cells: int, largest: int) -> CellPairs:
    """Return the pairs of cells of a small table whose counts are `largest` or less, by looking at all.

    Where an entry is at most another (deaths among cases), who is in the latter is not in the
    former.
    """
    if cells < 1 or largest < 0 or (largest + 1) ** cells > _MOST_TABLES:
        raise InputError(
            f"cells and largest: {cells} and {largest} came; up to {_MOST_TABLES:,} tables, "
            f"(largest + 1)**cells, are enumerated"
        )
    within = [
        pair for f in facts if isinstance(f, AtMost) for pair in zip(f.lower, f.upper, strict=True)
    ]
    possible: set[int] = set()
    agreeing = False
    for table in product(range(largest + 1), repeat=cells):
        if not all(fact.agrees(table) for fact in facts):
            continue
        agreeing = True
        alone = list(table)
        for low, high in within:
            alone[high] -= table[low]
        possible.update(cell for cell, count in enumerate(alone) if count > 0)
    if not agreeing:
        raise InfeasibleError(f"public: no table agrees that {joined(facts)}")
    return CellPairs(cells, tuple(sorted(possible)))


def _one_by_one(facts: Iterable[Fact]) -> Iterator[Fact]:
    """Return totals singly, so that only those are named which give a value away."""
    for fact in facts:
        yield from fact.totals if isinstance(fact, FixedTotals) else (fact,)


def _people(people: int | None, laws: Sequence[JointLaw]) -> int:
    sizes = {law.people for law in laws} | ({people} if people is not None else set())
    if len(sizes) != 1:
        raise InputError(
            f"people: {people} came beside {len(laws)} laws; give people=20, or laws of as many "
            f"people"
        )
    (found,) = sizes
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise InputError(f"people: {found!r} is not allowed; it is a number of people, 1 or more")
    return found


def _solved(nested: NestedSums, facts: Sequence[Fact], n: int) -> tuple[Certain, ...]:
    if not nested.feasible():
        raise InfeasibleError(f"public: no database of {n} people agrees that {joined(facts)}")
    certain = []
    for group in nested.alike():
        for value in (0, 1):
            if not nested.feasible(group[0], 1 - value):
                near = _nearest_first(facts, group[0], n)

                def excluded(
                    kept: Sequence[Fact], who: int = group[0], other: int = 1 - value
                ) -> bool:
                    part = as_nested(kept, n)
                    assert part is not None  # a part of nested sums nests
                    return not part.feasible(who, other)

                certain.append(Certain(group, value, _culprits(near, excluded)))
    return tuple(certain)


def _enumerated(
    facts: Sequence[Fact], databases: Sequence[tuple[int, ...]], n: int
) -> tuple[Certain, ...]:
    agreeing = list(_agreeing(facts, databases))
    if not agreeing:
        raise InfeasibleError(f"public: no database of {n} people agrees that {joined(facts)}")
    certain = []
    for person in range(n):
        values = {x[person] for x in agreeing}
        if len(values) == 1:
            (value,) = values

            def excluded(kept: Sequence[Fact], who: int = person, only: int = value) -> bool:
                # Without the law that listed the databases, too many may be left to look at.
                if n > _MOST_BITS:
                    return False
                every = product((0, 1), repeat=n)
                return all(x[who] == only for x in _agreeing(kept, every))

            certain.append(Certain((person,), value, _culprits(facts, excluded)))
    return tuple(certain)


def _agreeing(
    facts: Sequence[Fact], databases: Iterable[tuple[int, ...]]
) -> Iterator[tuple[int, ...]]:
    return (x for x in databases if all(fact.agrees(x) for fact in facts))


def _culprits(facts: Sequence[Fact], excluded: Callable[[Sequence[Fact]], bool]) -> tuple[str, ...]:
    """Return the sentences of facts none of which can be left out without bringing the secret back."""
    for fact in facts:
        if excluded([fact]):
            return (fact.sentence,)
    kept = list(facts)
    for fact in facts:
        fewer = [other for other in kept if other is not fact]
        if excluded(fewer):
            kept = fewer
    return tuple(fact.sentence for fact in kept)


def _nearest_first(facts: Sequence[Fact], person: int, n: int) -> list[Fact]:
    """Return totals that the person is in, from the smallest, then other facts."""

    def reach(fact: Fact) -> int:
        members = fact.members(n) if isinstance(fact, FixedTotal) else frozenset[int]()
        return len(members) if person in members else n + 1

    return sorted(facts, key=reach)


def _merged(found: Sequence[tuple[Certain, ...]]) -> tuple[Certain, ...]:
    """Return one group for each person who is certain under some law."""
    first: dict[int, Certain] = {}
    for groups in found:
        for group in groups:
            first.setdefault(group.people[0], group)
    return tuple(first[person] for person in sorted(first))
