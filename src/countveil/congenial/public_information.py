"""Public information as records: each says in a sentence what is public, and which databases agree.

A database is a row of whole numbers: one for each person (0 or 1), or one for each cell of a table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from countveil.errors import InfeasibleError, InputError
from countveil.numerics import Exact, exact

Database: TypeAlias = Sequence[int]
Kind: TypeAlias = Literal["independent", "comonotone"]


class Fact(Protocol):
    """Something that everyone knows."""

    @property
    def sentence(self) -> str:
        """What is public."""
        ...

    def agrees(self, database: Database) -> bool:
        """Whether a database may be the one that this was said of."""
        ...


@runtime_checkable
class CountFact(Fact, Protocol):
    """A fact about how many people have the value 1, and about nothing else."""

    def window(self, people: int) -> tuple[int, int] | None:
        """Return the lowest and the highest count that agree; none if it is of a part of the people."""
        ...


@dataclass(frozen=True, slots=True, init=False)
class FixedTotal:
    """The exact sum of some entries of the database: of all of them, if no cells are named."""

    total: int
    cells: frozenset[int] | None

    def __init__(self, total: int, cells: Iterable[int] | None = None) -> None:
        _whole(total, "total")
        members = None if cells is None else frozenset(cells)
        if members is not None and (not members or any(cell < 0 for cell in members)):
            raise InputError("cells: one position or more is needed, each 0 or more")
        object.__setattr__(self, "total", total)
        object.__setattr__(self, "cells", members)

    @property
    def sentence(self) -> str:
        """What is public."""
        where = "all entries" if self.cells is None else f"{_listed(self.cells)}"
        return f"the sum of {where} is exactly {self.total}"

    def agrees(self, database: Database) -> bool:
        """Whether the entries sum to the total."""
        return sum(database[i] for i in self.members(len(database))) == self.total

    def members(self, size: int) -> frozenset[int]:
        """Return the positions that are summed, in a database of this size."""
        if self.cells is None:
            return frozenset(range(size))
        if max(self.cells) >= size:
            raise InputError(
                f"cells: position {max(self.cells)} came; a database of {size} has 0 to {size - 1}"
            )
        return self.cells

    def window(self, people: int) -> tuple[int, int] | None:
        """Return the total twice, if it is the total of all."""
        return (self.total, self.total) if len(self.members(people)) == people else None


@dataclass(frozen=True, slots=True, init=False)
class FixedTotals:
    """Exact sums at nested levels: any two of the parts are apart, or one lies in the other."""

    totals: tuple[FixedTotal, ...]

    def __init__(self, *totals: FixedTotal) -> None:
        if not totals:
            raise InputError("totals: one total or more is needed")
        for a, b in combinations(totals, 2):
            if a.cells is None or b.cells is None or a.cells <= b.cells or b.cells <= a.cells:
                continue
            if a.cells & b.cells:
                raise InputError(
                    f"totals: {_listed(a.cells)} and {_listed(b.cells)} overlap without nesting; "
                    f"give them as single FixedTotal facts, which small cases enumerate"
                )
        object.__setattr__(self, "totals", totals)

    @property
    def sentence(self) -> str:
        """What is public."""
        return ", ".join(total.sentence for total in self.totals)

    def agrees(self, database: Database) -> bool:
        """Whether every sum is right."""
        return all(total.agrees(database) for total in self.totals)


@dataclass(frozen=True, slots=True, init=False)
class PreviousCounts:
    """The counts of an earlier period. They exclude nothing now; they inform priors and dependence."""

    counts: tuple[int, ...]

    def __init__(self, counts: Iterable[int]) -> None:
        object.__setattr__(self, "counts", tuple(int(count) for count in counts))

    @property
    def sentence(self) -> str:
        """What is public."""
        return f"the {len(self.counts)} counts of the previous period are known exactly"

    def agrees(self, database: Database) -> bool:
        """Return True: what was does not limit what is."""
        return True


@dataclass(frozen=True, slots=True, init=False)
class AtMost:
    """Entries that never exceed others: deaths are at most cases, place by place."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]

    def __init__(self, lower: Iterable[int], upper: Iterable[int]) -> None:
        object.__setattr__(self, "lower", tuple(lower))
        object.__setattr__(self, "upper", tuple(upper))
        if not self.lower or len(self.lower) != len(self.upper):
            raise InputError(
                f"lower and upper: {len(self.lower)} and {len(self.upper)} positions came; give as "
                f"many of either, one pair or more"
            )

    @property
    def sentence(self) -> str:
        """What is public."""
        return f"{_listed(self.lower)} are 0 or more and at most {_listed(self.upper)}, one by one"

    def agrees(self, database: Database) -> bool:
        """Whether no entry exceeds its bound."""
        pairs = zip(self.lower, self.upper, strict=True)
        return all(0 <= database[low] <= database[high] for low, high in pairs)


@dataclass(frozen=True, slots=True)
class KAnonymity:
    """The count and its complement are k or more: between k and n - k (003, equation 18)."""

    k: int

    def __post_init__(self) -> None:
        _whole(self.k, "k")

    @property
    def sentence(self) -> str:
        """What is public."""
        return f"at least {self.k} people have the value 1, and at least {self.k} have 0"

    def window(self, people: int) -> tuple[int, int]:
        """Return k and n - k."""
        return self.k, people - self.k

    def agrees(self, database: Database) -> bool:
        """Whether the count lies between."""
        return _inside(self, database)


@dataclass(frozen=True, slots=True, init=False)
class TCloseness:
    """The share with the value 1 is within t of a public reference (003, equation 18)."""

    t: Fraction
    reference: Fraction

    def __init__(self, t: Exact, reference: Exact) -> None:
        object.__setattr__(self, "t", probability(t, "t"))
        object.__setattr__(self, "reference", probability(reference, "reference"))

    @property
    def sentence(self) -> str:
        """What is public."""
        return f"the share of people with the value 1 is within {self.t} of {self.reference}"

    def window(self, people: int) -> tuple[int, int]:
        """Return the lowest and the highest count whose share is close."""
        low, high = people * (self.reference - self.t), people * (self.reference + self.t)
        return max(0, math.ceil(low)), min(people, math.floor(high))

    def agrees(self, database: Database) -> bool:
        """Whether the share is close."""
        return _inside(self, database)


@dataclass(frozen=True, slots=True, init=False)
class Dependence:
    """Another person has 1 with probability z0 if the first has 0, and z1 if the first has 1.

    The others are independent of each other given the first, or, "comonotone", all the same.
    """

    z0: Fraction
    z1: Fraction
    kind: Kind

    def __init__(self, z0: Exact, z1: Exact, kind: Kind = "independent") -> None:
        if kind not in ("independent", "comonotone"):
            raise InputError(
                f'dependence: {kind!r} is not known; choose "independent" or "comonotone", or give '
                f"a joint law"
            )
        object.__setattr__(self, "z0", probability(z0, "z0"))
        object.__setattr__(self, "z1", probability(z1, "z1"))
        object.__setattr__(self, "kind", kind)

    @property
    def sentence(self) -> str:
        """What is public."""
        how = "independently of each other" if self.kind == "independent" else "all alike"
        return (
            f"others have the value 1 with probability {self.z0} beside a person with 0 and "
            f"{self.z1} beside a person with 1, {how}"
        )

    def agrees(self, database: Database) -> bool:
        """Whether the others may have these values, given that of the first."""
        chance = self.z1 if database[0] else self.z0
        others = set(database[1:])
        if self.kind == "comonotone" and len(others) > 1:
            return False
        return all(chance if value else 1 - chance for value in others)


@dataclass(frozen=True, slots=True, init=False)
class JointLaw:
    """How probable each small database of 0s and 1s is, as exact fractions."""

    probabilities: tuple[tuple[tuple[int, ...], Fraction], ...]

    def __init__(self, probabilities: Mapping[tuple[int, ...], Exact]) -> None:
        found = {tuple(x): probability(p, "probability") for x, p in probabilities.items()}
        if len({len(x) for x in found}) != 1 or any(v not in (0, 1) for x in found for v in x):
            raise InputError("joint law: databases of 0s and 1s are needed, all of one length")
        if sum(found.values()) != 1:
            raise InputError(
                f"joint law: the probabilities sum to {sum(found.values())}; they must sum to 1 "
                f"exactly"
            )
        object.__setattr__(self, "probabilities", tuple((x, p) for x, p in found.items() if p))

    @property
    def people(self) -> int:
        """How many people a database holds."""
        return len(self.probabilities[0][0])

    @property
    def sentence(self) -> str:
        """What is public."""
        return f"{len(self.probabilities)} databases are possible, each with a known probability"

    def agrees(self, database: Database) -> bool:
        """Whether the database has a probability above 0."""
        return any(x == tuple(database) for x, _ in self.probabilities)

    def given(self, *facts: Fact) -> dict[tuple[int, ...], Fraction]:
        """Return the law of databases that agree with the facts."""
        kept = {x: p for x, p in self.probabilities if all(fact.agrees(x) for fact in facts)}
        if not kept:
            raise InfeasibleError(
                f"public information: no database of the joint law agrees that {joined(facts)}"
            )
        whole = sum(kept.values())
        return {x: p / whole for x, p in kept.items()}


def window_of(facts: Iterable[Fact], people: int) -> tuple[int, int]:
    """Return the lowest and highest count that agree with facts which are all about the count."""
    low, high = 0, people
    given = tuple(facts)
    for fact in given:
        bounds = fact.window(people) if isinstance(fact, CountFact) else None
        if bounds is None and not isinstance(fact, PreviousCounts):
            raise InputError(
                f"public: {fact.sentence!r} is not about the count of all people; give a joint "
                f"law, which is enumerated"
            )
        if bounds is not None:
            low, high = max(low, bounds[0]), min(high, bounds[1])
    if low > high:
        raise InfeasibleError(f"public: no count of {people} people agrees that {joined(given)}")
    return low, high


def joined(facts: Iterable[Fact]) -> str:
    """Return what is public as one sentence."""
    return "; ".join(fact.sentence for fact in facts) or "nothing is public"


def probability(value: Exact, name: str) -> Fraction:
    """Return `value` as an exact fraction from 0 to 1."""
    found = exact(value, name)
    if not 0 <= found <= 1:
        raise InputError(f"{name}: {value} is not allowed; it is a probability, from 0 to 1")
    return found


def _inside(fact: KAnonymity | TCloseness, database: Database) -> bool:
    low, high = fact.window(len(database))
    return low <= sum(database) <= high


def _whole(value: int, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(f"{name}: {value!r} is not allowed; it is a whole number, 0 or more")


def _listed(cells: Iterable[int]) -> str:
    """Return positions as text: few of them one by one, many by their ends."""
    places = sorted(cells)
    if len(places) == 1:
        return f"entry {places[0]}"
    if len(places) <= 6:
        return f"entries {', '.join(map(str, places[:-1]))} and {places[-1]}"
    return f"{len(places)} entries from {places[0]} to {places[-1]}"
