"""Which secret pairs remain given public information, and why others are gone (003, Definition 3).

A pair says that a person has 0, or that they have 1. It remains if both are possible given what is
public.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from countveil.congenial.guarantee.public_information import (
    AtMost,
    CountFact,
    Database,
    FixedTotal,
    FixedTotals,
    JointLaw,
    PreviousCounts,
    PublicFact,
    join_facts,
)
from countveil.errors import InfeasibleError, InputError

_MOST_BITS = 14
_MOST_TABLES = 1_000_000


@dataclass(frozen=True, slots=True)
class ValueSecret:
    """The secret that one person has this value.

    Parameters
    ----------
    person
        The position of the person in a database.
    value
        The value, 0 or 1.
    """

    person: int
    value: int

    def __call__(self, database: Database) -> bool:
        """Whether it is true in a database."""
        return database[self.person] == self.value


class SecretPair(NamedTuple):
    """That a person has the value 0, and that they have 1."""

    zero: ValueSecret
    one: ValueSecret


@dataclass(frozen=True, slots=True)
class KnownValue:
    """People whose value is no longer secret, and the facts that reveal it."""

    people: tuple[int, ...]
    value: int
    because: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """Who has which value, and why."""
        many = len(self.people)
        who = f"person {self.people[0]}" if many == 1 else f"{many} people"
        return f"{who} can only have the value {self.value}, because {' and '.join(self.because)}"


@dataclass(frozen=True, slots=True)
class SecretPairs:
    """How many people's secret pairs remain, and why the others are gone.

    Parameters
    ----------
    people
        The number of people, each with one pair.
    certain
        Those whose value is no longer secret.
    """

    people: int
    certain: tuple[KnownValue, ...]

    @property
    def remaining(self) -> int:
        """The number of people who still have a secret."""
        return self.people - sum(len(group.people) for group in self.certain)

    @property
    def pairs(self) -> tuple[SecretPair, ...]:
        """The pairs that remain."""
        gone = {person for group in self.certain for person in group.people}
        return tuple(
            SecretPair(ValueSecret(i, 0), ValueSecret(i, 1))
            for i in range(self.people)
            if i not in gone
        )

    @property
    def sentence(self) -> str:
        """How many pairs remain, and why the others are gone."""
        head = f"{self.remaining} of {self.people} secret pairs remain"
        return "; ".join((head, *(group.sentence for group in self.certain)))


def secret_pairs(
    *facts: PublicFact, people: int | None = None, laws: Sequence[JointLaw] = ()
) -> SecretPairs:
    """Return the secret pairs that remain for people with the value 0 or 1.

    Nested totals and bounds on the count are solved for any number of people. Other facts are solved by
    looking at every database of up to 14 people.

    Parameters
    ----------
    *facts
        What is public.
    people
        The number of people; not needed with laws.
    laws
        Joint laws of databases. With them a pair remains only if both values are possible under each
        law (003, equation 10). Without, every database that agrees with the facts is possible.

    Returns
    -------
    SecretPairs
        The pairs that remain, and why the others are gone.

    Examples
    --------
    >>> from countveil.congenial import FixedTotal
    >>> secret_pairs(FixedTotal(0, [0, 1]), people=5).remaining
    3
    """
    n = _number_of_people(people, laws)
    facts = tuple(_one_by_one(facts))
    if laws:
        # Each law is a fact of its own: a value that is certain under one of them is no secret.
        by_law = [_enumerate((*facts, law), [x for x, _ in law.probabilities], n) for law in laws]
        return SecretPairs(n, _merge(by_law))
    nested = nested_sums(facts, n)
    if nested is not None:
        return SecretPairs(n, _solve(nested, facts, n))
    if n > _MOST_BITS:
        raise InputError(
            f"people: {n} are too many; with facts other than nested totals and bounds on the count, "
            f"at most {_MOST_BITS} people are enumerated"
        )
    return SecretPairs(n, _enumerate(facts, list(product((0, 1), repeat=n)), n))


class CellPair(NamedTuple):
    """Two cells, either of which a person may be in."""

    first: int
    second: int


@dataclass(frozen=True, slots=True)
class CellPairs:
    """Which cells a person may be in, and so which pairs of cells are still secret.

    Parameters
    ----------
    cells
        The number of cells of the table.
    possible
        The cells that a person may be in.
    """

    cells: int
    possible: tuple[int, ...]

    @property
    def pairs(self) -> tuple[CellPair, ...]:
        """Pairs of cells, either of which a person may be in."""
        return tuple(CellPair(a, b) for a in self.possible for b in self.possible if a < b)

    @property
    def sentence(self) -> str:
        """How many pairs remain secret."""
        every = self.cells * (self.cells - 1) // 2
        return (
            f"{len(self.pairs)} of {every} pairs of cells remain secret: a person may be in "
            f"{len(self.possible)} of {self.cells} cells"
        )


def cell_pairs(*facts: PublicFact, cells: int, largest: int) -> CellPairs:
    """Return the pairs of cells that remain secret in a small table, by looking at all tables.

    Where an entry is at most another, as deaths are at most cases, a person counted in the first is not
    also in the second.

    Parameters
    ----------
    *facts
        What is public.
    cells
        The number of cells.
    largest
        The largest possible count.

    Returns
    -------
    CellPairs
        The cells that a person may be in, and their pairs.
    """
    if cells < 1 or largest < 0 or (largest + 1) ** cells > _MOST_TABLES:
        raise InputError(
            f"cells and largest: {cells} and {largest} make too many tables; at most "
            f"{_MOST_TABLES:,} tables, (largest + 1)**cells, are enumerated"
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
        raise InfeasibleError(f"public: no table agrees that {join_facts(facts)}")
    return CellPairs(cells, tuple(sorted(possible)))


def _one_by_one(facts: Iterable[PublicFact]) -> Iterator[PublicFact]:
    """Yield totals one by one, so that only those that reveal a value are named."""
    for fact in facts:
        yield from fact.totals if isinstance(fact, FixedTotals) else (fact,)


def _number_of_people(people: int | None, laws: Sequence[JointLaw]) -> int:
    sizes = {law.people for law in laws} | ({people} if people is not None else set())
    if len(sizes) != 1:
        raise InputError(
            f"people: {people} does not fit {len(laws)} laws; give people=20, or laws of the same "
            f"number of people"
        )
    (size,) = sizes
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise InputError(f"people: {size!r} is not allowed; give a number of people, 1 or more")
    return size


def _solve(nested: NestedSums, facts: Sequence[PublicFact], n: int) -> tuple[KnownValue, ...]:
    if not nested.feasible():
        raise InfeasibleError(f"public: no database of {n} people agrees that {join_facts(facts)}")
    certain = []
    for group in nested.alike():
        for value in (0, 1):
            if not nested.feasible(group[0], 1 - value):
                near = _nearest_first(facts, group[0], n)

                def excluded(
                    some: Sequence[PublicFact], who: int = group[0], other: int = 1 - value
                ) -> bool:
                    part = nested_sums(some, n)
                    assert part is not None  # some of the nested sums are nested, too
                    return not part.feasible(who, other)

                certain.append(KnownValue(group, value, _revealing_facts(near, excluded)))
    return tuple(certain)


def _enumerate(
    facts: Sequence[PublicFact], databases: Sequence[tuple[int, ...]], n: int
) -> tuple[KnownValue, ...]:
    agreeing = list(_agreeing(facts, databases))
    if not agreeing:
        raise InfeasibleError(f"public: no database of {n} people agrees that {join_facts(facts)}")
    certain = []
    for person in range(n):
        values = {x[person] for x in agreeing}
        if len(values) == 1:
            (value,) = values

            def excluded(some: Sequence[PublicFact], who: int = person, only: int = value) -> bool:
                # Without the law that lists the databases there may be too many to look at.
                if n > _MOST_BITS:
                    return False
                every = product((0, 1), repeat=n)
                return all(x[who] == only for x in _agreeing(some, every))

            certain.append(KnownValue((person,), value, _revealing_facts(facts, excluded)))
    return tuple(certain)


def _agreeing(
    facts: Sequence[PublicFact], databases: Iterable[tuple[int, ...]]
) -> Iterator[tuple[int, ...]]:
    return (x for x in databases if all(fact.agrees(x) for fact in facts))


def _revealing_facts(
    facts: Sequence[PublicFact], excluded: Callable[[Sequence[PublicFact]], bool]
) -> tuple[str, ...]:
    """Return the sentences of a minimal set of facts that reveals the value."""
    for fact in facts:
        if excluded([fact]):
            return (fact.sentence,)
    needed = list(facts)
    for fact in facts:
        fewer = [other for other in needed if other is not fact]
        if excluded(fewer):
            needed = fewer
    return tuple(fact.sentence for fact in needed)


def _nearest_first(facts: Sequence[PublicFact], person: int, n: int) -> list[PublicFact]:
    """Return the totals that the person is in, smallest first, then the other facts."""

    def reach(fact: PublicFact) -> int:
        members = fact.members(n) if isinstance(fact, FixedTotal) else frozenset[int]()
        return len(members) if person in members else n + 1

    return sorted(facts, key=reach)


def _merge(by_law: Sequence[tuple[KnownValue, ...]]) -> tuple[KnownValue, ...]:
    """Return one group for each person whose value is certain under some law."""
    first: dict[int, KnownValue] = {}
    for groups in by_law:
        for group in groups:
            first.setdefault(group.people[0], group)
    return tuple(first[person] for person in sorted(first))


# Nested exact sums of 0s and 1s, with bounds on the whole: which values are possible.
#
# People whose subsets have fixed sums can have any sum between two ends. So a fixed sum is possible if
# it lies between them, from the smallest sets to the largest.


@dataclass(frozen=True, slots=True)
class NestedPart:
    """People with one total: those in no smaller set, and the smaller sets."""

    own: tuple[int, ...]
    inner: tuple[int, ...]
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class NestedSums:
    """Sets of people with a sum, from the smallest to the largest, which contains everyone."""

    parts: tuple[NestedPart, ...]

    def feasible(self, person: int | None = None, value: int = 0) -> bool:
        """Whether some database agrees in which this person has this value."""
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
        """Return groups of people whom nothing public distinguishes."""
        return [part.own for part in self.parts if part.own]


def nested_sums(facts: Iterable[PublicFact], people: int) -> NestedSums | None:
    """Return the facts as nested sums; None if one of them is something else."""
    bounds: dict[frozenset[int], tuple[int, int]] = {frozenset(range(people)): (0, people)}
    for fact in facts:
        if isinstance(fact, FixedTotals | FixedTotal):
            totals = fact.totals if isinstance(fact, FixedTotals) else (fact,)
            limits = [(each.members(people), (each.total, each.total)) for each in totals]
        elif isinstance(fact, CountFact):
            window = fact.window(people)
            assert window is not None  # only a total can be about some of the people
            limits = [(frozenset(range(people)), window)]
        elif isinstance(fact, PreviousCounts):
            continue
        else:
            return None
        for members, (low, high) in limits:
            known = bounds.get(members, (0, len(members)))
            bounds[members] = max(known[0], low), min(known[1], high)
    ordered = sorted(bounds, key=len)
    parts: list[NestedPart] = []
    outermost: list[int] = []  # sets that are inside no other set so far
    for members in ordered:
        inner = [i for i in outermost if ordered[i] <= members]
        if any(ordered[i] & members for i in outermost if i not in inner):
            return None
        rest = members.difference(*(ordered[i] for i in inner))
        parts.append(NestedPart(tuple(sorted(rest)), tuple(inner), *bounds[members]))
        outermost = [i for i in outermost if i not in inner] + [len(parts) - 1]
    return NestedSums(tuple(parts))
