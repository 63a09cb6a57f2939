"""Public information as records: each says in a sentence what is public, and which databases agree.

A database is a sequence of whole numbers: one per person (0 or 1), or one per cell of a table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np

from countveil.base.numerics import Exact, exact
from countveil.errors import InfeasibleError, InputError

Database: TypeAlias = Sequence[int]
DependenceKind: TypeAlias = Literal["independent", "comonotone"]


class CountRange(NamedTuple):
    """The lowest and the highest count that agree with a fact."""

    low: int
    high: int


class PublicFact(Protocol):
    """Something that everyone knows about the database."""

    @property
    def sentence(self) -> str:
        """What is public."""
        ...

    def agrees(self, database: Database) -> bool:
        """Whether the fact is true of a database."""
        ...


@runtime_checkable
class CountFact(PublicFact, Protocol):
    """A fact about how many people have the value 1, and about nothing else."""

    def window(self, people: int) -> CountRange | None:
        """Return the counts that agree; None if the fact is about some of the people only."""
        ...


@dataclass(frozen=True, slots=True, init=False)
class FixedTotal:
    """The exact sum of some entries of the database.

    Parameters
    ----------
    total
        The sum, 0 or more.
    cells
        The positions that are summed, from 0; all of them if None.

    Examples
    --------
    >>> fact = FixedTotal(2, [0, 1, 4])
    >>> fact.sentence
    'the sum of entries 0, 1 and 4 is exactly 2'
    >>> fact.agrees([1, 1, 0, 1, 0])
    True
    """

    total: int
    cells: frozenset[int] | None

    def __init__(self, total: int, cells: Iterable[int] | None = None) -> None:
        _check_whole(total, "total")
        members = None if cells is None else frozenset(_whole_numbers(cells, "cells", "positions"))
        if members is not None and not members:
            raise InputError("cells: give one position or more, each 0 or more")
        object.__setattr__(self, "total", total)
        object.__setattr__(self, "cells", members)

    @property
    def sentence(self) -> str:
        """What is public."""
        where = "all entries" if self.cells is None else f"{_list_entries(self.cells)}"
        return f"the sum of {where} is exactly {self.total}"

    def agrees(self, database: Database) -> bool:
        """Whether the entries sum to the total."""
        return sum(database[i] for i in self.members(len(database))) == self.total

    def members(self, size: int) -> frozenset[int]:
        """Return the positions that are summed in a database of this size."""
        if self.cells is None:
            return frozenset(range(size))
        if max(self.cells) >= size:
            raise InputError(
                f"cells: position {max(self.cells)} does not exist; a database of {size} entries has "
                f"positions 0 to {size - 1}"
            )
        return self.cells

    def window(self, people: int) -> CountRange | None:
        """Return the total as both ends, if everyone is in it."""
        everyone = len(self.members(people)) == people
        return CountRange(self.total, self.total) if everyone else None


@dataclass(frozen=True, slots=True, init=False)
class FixedTotals:
    """Exact sums at nested levels: any two sets of entries are disjoint, or one contains the other.

    Parameters
    ----------
    *totals
        One `FixedTotal` or more.

    Examples
    --------
    >>> FixedTotals(FixedTotal(1, [2]), FixedTotal(4)).sentence
    'the sum of entry 2 is exactly 1, the sum of all entries is exactly 4'
    """

    totals: tuple[FixedTotal, ...]

    def __init__(self, *totals: FixedTotal) -> None:
        if not totals:
            raise InputError("totals: give one total or more")
        for total in totals:
            if not isinstance(total, FixedTotal):
                raise InputError(f"totals: {total!r} is not allowed; give FixedTotal(…) for each")
        for a, b in combinations(totals, 2):
            if a.cells is None or b.cells is None or a.cells <= b.cells or b.cells <= a.cells:
                continue
            if a.cells & b.cells:
                raise InputError(
                    f"totals: {_list_entries(a.cells)} and {_list_entries(b.cells)} overlap without "
                    f"nesting; give them as separate FixedTotal facts, which are enumerated for small "
                    f"databases"
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
    """The counts of an earlier period; they exclude nothing today, but inform priors and dependence.

    Parameters
    ----------
    counts
        The counts, one per place.
    """

    counts: tuple[int, ...]

    def __init__(self, counts: Iterable[int]) -> None:
        object.__setattr__(self, "counts", _whole_numbers(counts, "counts", "counts"))

    @property
    def sentence(self) -> str:
        """What is public."""
        return f"the {len(self.counts)} counts of the previous period are known exactly"

    def agrees(self, database: Database) -> bool:
        """Return True: earlier counts do not limit today's."""
        return True


@dataclass(frozen=True, slots=True, init=False)
class AtMost:
    """Entries that never exceed others, such as deaths and cases of each place.

    Parameters
    ----------
    lower, upper
        Positions of the smaller and the larger entries, one pair or more, in the same order.

    Examples
    --------
    >>> AtMost([1], [0]).agrees([5, 3])
    True
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]

    def __init__(self, lower: Iterable[int], upper: Iterable[int]) -> None:
        object.__setattr__(self, "lower", _whole_numbers(lower, "lower", "positions"))
        object.__setattr__(self, "upper", _whole_numbers(upper, "upper", "positions"))
        if not self.lower or len(self.lower) != len(self.upper):
            raise InputError(
                f"lower and upper: got {len(self.lower)} and {len(self.upper)} positions; give the "
                f"same number of both, one pair or more"
            )

    @property
    def sentence(self) -> str:
        """What is public."""
        return (
            f"{_list_entries(self.lower)} are 0 or more and at most {_list_entries(self.upper)}, "
            f"one by one"
        )

    def agrees(self, database: Database) -> bool:
        """Whether no entry exceeds its bound."""
        pairs = zip(self.lower, self.upper, strict=True)
        return all(0 <= database[low] <= database[high] for low, high in pairs)


@dataclass(frozen=True, slots=True)
class KAnonymity:
    """The count and its complement are both k or more (003, equation 18).

    Parameters
    ----------
    k
        The smallest group size, 0 or more.
    """

    k: int

    def __post_init__(self) -> None:
        _check_whole(self.k, "k")

    @property
    def sentence(self) -> str:
        """What is public."""
        return f"at least {self.k} people have the value 1, and at least {self.k} have 0"

    def window(self, people: int) -> CountRange:
        """Return k and n - k."""
        return CountRange(self.k, people - self.k)

    def agrees(self, database: Database) -> bool:
        """Whether the count is between k and n - k."""
        return _count_agrees(self, database)


@dataclass(frozen=True, slots=True, init=False)
class TCloseness:
    """The share of people with the value 1 is within t of a public reference (003, equation 18).

    Parameters
    ----------
    t
        The largest difference, from 0 to 1.
    reference
        The public share, from 0 to 1.
    """

    t: Fraction
    reference: Fraction

    def __init__(self, t: Exact, reference: Exact) -> None:
        object.__setattr__(self, "t", probability(t, "t"))
        object.__setattr__(self, "reference", probability(reference, "reference"))

    @property
    def sentence(self) -> str:
        """What is public."""
        return f"the share of people with the value 1 is within {self.t} of {self.reference}"

    def window(self, people: int) -> CountRange:
        """Return the lowest and the highest count whose share is close enough."""
        low, high = people * (self.reference - self.t), people * (self.reference + self.t)
        return CountRange(max(0, math.ceil(low)), min(people, math.floor(high)))

    def agrees(self, database: Database) -> bool:
        """Whether the share is close enough."""
        return _count_agrees(self, database)


@dataclass(frozen=True, slots=True, init=False)
class Dependence:
    """How the values of others depend on one person's value.

    Parameters
    ----------
    z0, z1
        The probability that another person has 1, if the first person has 0, and if they have 1.
    kind
        Whether the others are "independent" of each other given the first person, or all have the
        same value ("comonotone").
    """

    z0: Fraction
    z1: Fraction
    kind: DependenceKind

    def __init__(self, z0: Exact, z1: Exact, kind: DependenceKind = "independent") -> None:
        if kind not in ("independent", "comonotone"):
            raise InputError(
                f'dependence: unknown kind {kind!r}; choose "independent" or "comonotone", or give '
                f"a joint law"
            )
        object.__setattr__(self, "z0", probability(z0, "z0"))
        object.__setattr__(self, "z1", probability(z1, "z1"))
        object.__setattr__(self, "kind", kind)

    @property
    def sentence(self) -> str:
        """What is public."""
        how = "independently of each other" if self.kind == "independent" else "all the same"
        return (
            f"others have the value 1 with probability {self.z0} given a person with 0 and "
            f"{self.z1} given a person with 1, {how}"
        )

    def agrees(self, database: Database) -> bool:
        """Whether the others can have these values, given that of the first person."""
        of_one = self.z1 if database[0] else self.z0
        others = set(database[1:])
        if self.kind == "comonotone" and len(others) > 1:
            return False
        return all(of_one if value else 1 - of_one for value in others)


@dataclass(frozen=True, slots=True, init=False)
class JointLaw:
    """The exact probability of every small database of 0s and 1s.

    Parameters
    ----------
    probabilities
        A probability per database, all of one length; they sum to 1 exactly.

    Examples
    --------
    >>> law = JointLaw({(0, 0): "1/2", (1, 1): "1/4", (0, 1): "1/4"})
    >>> law.conditional_on(FixedTotal(0))
    {(0, 0): Fraction(1, 1)}
    """

    probabilities: tuple[tuple[tuple[int, ...], Fraction], ...]

    def __init__(self, probabilities: Mapping[tuple[int, ...], Exact]) -> None:
        if not isinstance(probabilities, Mapping) or not all(
            isinstance(database, tuple) for database in probabilities
        ):
            raise InputError(
                f"joint law: {probabilities!r} is not allowed; give a dictionary of databases and "
                f'their probabilities, such as {{(0, 0): "1/2", (1, 1): "1/2"}}'
            )
        law = {tuple(x): probability(p, "probability") for x, p in probabilities.items()}
        if len({len(x) for x in law}) != 1 or any(v not in (0, 1) for x in law for v in x):
            raise InputError("joint law: give databases of 0s and 1s, all of one length")
        if sum(law.values()) != 1:
            raise InputError(
                f"joint law: the probabilities sum to {sum(law.values())}; they must sum to 1 "
                f"exactly"
            )
        object.__setattr__(self, "probabilities", tuple((x, p) for x, p in law.items() if p))

    @property
    def people(self) -> int:
        """The number of people in a database."""
        return len(self.probabilities[0][0])

    @property
    def sentence(self) -> str:
        """What is public."""
        return f"{len(self.probabilities)} databases are possible, each with a known probability"

    def agrees(self, database: Database) -> bool:
        """Whether the database has a probability above 0."""
        return any(x == tuple(database) for x, _ in self.probabilities)

    def conditional_on(self, *facts: PublicFact) -> dict[tuple[int, ...], Fraction]:
        """Return the probability of every database, given the facts."""
        agreeing = {x: p for x, p in self.probabilities if all(fact.agrees(x) for fact in facts)}
        if not agreeing:
            raise InfeasibleError(
                f"public information: no database of the joint law agrees that {join_facts(facts)}"
            )
        whole = sum(agreeing.values())
        return {x: p / whole for x, p in agreeing.items()}


def join_facts(facts: Iterable[PublicFact]) -> str:
    """Return what is public as one sentence."""
    return "; ".join(fact.sentence for fact in facts) or "nothing is public"


def probability(value: Exact, name: str) -> Fraction:
    """Return `value` as an exact fraction from 0 to 1."""
    fraction = exact(value, name)
    if not 0 <= fraction <= 1:
        raise InputError(f"{name}: {value} is not allowed; a probability is from 0 to 1")
    return fraction


def _count_agrees(fact: KAnonymity | TCloseness, database: Database) -> bool:
    low, high = fact.window(len(database))
    return low <= sum(database) <= high


def _check_whole(value: int, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(f"{name}: {value!r} is not allowed; give a whole number, 0 or more")


def _whole_numbers(values: Iterable[int], name: str, what: str) -> tuple[int, ...]:
    """Return whole numbers, 0 or more, as a tuple; refuse anything else."""
    listed = None if isinstance(values, str | bytes) else values
    if not isinstance(listed, Iterable):
        raise InputError(f"{name}: {values!r} is not allowed; give a list of {what}")
    numbers = []
    for value in listed:
        whole = value.item() if isinstance(value, np.integer) else value
        _check_whole(whole, name)
        numbers.append(whole)
    return tuple(numbers)


def _list_entries(cells: Iterable[int]) -> str:
    """Return positions as text: a few one by one, many by their ends."""
    places = sorted(cells)
    if len(places) == 1:
        return f"entry {places[0]}"
    if len(places) <= 6:
        return f"entries {', '.join(map(str, places[:-1]))} and {places[-1]}"
    return f"{len(places)} entries from {places[0]} to {places[-1]}"
