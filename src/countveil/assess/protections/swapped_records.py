"""Swapping: some records exchange their places with others, within a larger unit.

Each record is chosen with a stated probability. The chosen ones of a group, who are in the same larger
unit and alike in what is matched, exchange their lowest units in a random order. So counts of what is
matched stay as they are everywhere, and all counts of the larger unit and above.

A record may be a person, or a household. Plans count people without their households, so those are
made up: the people of a lowest unit are put into households at random, of the sizes that US households
have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from scipy.special import expit, logit

from countveil.assess.protections.exact_tables import ExactTables, TableKey
from countveil.assess.protections.known_others import Flags, Targets, separations
from countveil.assess.protections.protection import Disclosure, ProtectedTable
from countveil.base.numerics import FloatArray, IntArray
from countveil.errors import InputError
from countveil.plan.plans import Plan

SIZE = "size"
HOUSEHOLD_SIZES = (0.267, 0.328, 0.161, 0.134, 0.065, 0.027, 0.018)
"""Shares of households of 1, 2, … people in the 2010 census; 7 stands for 7 and more."""

MOST_PEOPLE = 500
"""Kinds of people whose place is examined for the lower end of the risk. Larger numbers are sampled."""


@dataclass(frozen=True, slots=True)
class Swapping:
    """Records exchanged between lowest units.

    Attributes
    ----------
    rate : float
        The probability that a record is chosen.
    within : str
        The level of the larger unit that records do not leave.
    match : tuple of str
        Attributes in which records that are exchanged are alike; for households, "size" or nothing.
    households : bool
        Whether whole households are exchanged, rather than people.

    """

    rate: float
    within: str
    match: tuple[str, ...] = ()
    households: bool = False

    @property
    def label(self) -> str:
        """The protection and its settings."""
        what = "households" if self.households else "records"
        alike = f", matched on {' and '.join(self.match)}" if self.match else ""
        return f"swapping of {100 * self.rate:g} % of {what} within {self.within}{alike}"

    @property
    def limits(self) -> tuple[str, ...]:
        """What the figures leave out."""
        bracket = (
            "Swapping: two ends of the risk, unless it is certainty. Lower end: someone who uses one "
            "count of the lowest unit. Upper end: someone who sees which record took the target's "
            "place. Both know the shares of the records that may come in, as if these were drawn "
            "independently, and use no tables of other places."
        )
        if self.households:
            return bracket, "Swapping: households are made up at random from people of one place."
        return (bracket,)

    def protect(self, tables: ExactTables, rng: Generator) -> dict[TableKey, ProtectedTable]:
        """Return the tables of the records after the exchange."""
        records = records_of(tables, self, rng)
        moved = exchanged(records, self.rate, rng)
        cells = tables.plan.schema.cells
        code, people = np.unique(
            moved[records.household] * cells + records.cell, return_counts=True
        )
        after = tables.of_people(code // cells, code % cells, people)
        return {key: ProtectedTable(counts.astype(float)) for key, counts in after.counts.items()}

    def disclosure(
        self,
        tables: ExactTables,
        published: Mapping[TableKey, ProtectedTable],
        targets: Targets,
        priors: Sequence[float],
        rng: Generator,
    ) -> Disclosure:
        """Return the expected posteriors, for the probability that a record was exchanged."""
        kept, differs = self._kept(tables, targets)
        settled = targets.worst(kept.astype(float)) > 0
        records = records_of(tables, self, rng)
        seen = CountLaw(tables, records, self.rate)
        own, other = seen.place_of[targets.cell[targets.entry]], seen.place_of[targets.other]
        separates = (own >= 0) & ((own != other) | (targets.other < 0))
        counted = targets.worst(separates.astype(float)) > 0
        belief = np.array(priors)[:, None]
        size = (len(priors), len(targets.unit))
        low = np.broadcast_to(np.where(settled, 1.0, belief), size).copy()
        certain_low = settled.astype(float)
        if not self.households and targets.other[:1].tolist() != [-1]:
            high, certain_high = self._slots(tables, targets, records, kept, differs, priors)
        else:
            stays = 1 - self._least_replaced(tables, records, targets)
            high = np.where(settled, 1.0, stays + (1 - stays) * belief)
            certain_high = np.where(settled, 1.0, stays)
        separated = targets.worst(differs.astype(float)) > 0
        open_ones = some = np.flatnonzero(~settled & counted)
        if len(some) > MOST_PEOPLE:
            some = np.sort(rng.choice(some, MOST_PEOPLE, replace=False))
        rarest = seen.rarest(targets)
        for entry in some:
            unit, cell = int(targets.unit[entry]), int(targets.cell[entry])
            posteriors = seen.expected(unit, cell, None, priors)
            if rarest[entry] >= 0:  # each is a lower end, so the larger one is
                posteriors = np.maximum(
                    posteriors, seen.expected(unit, cell, int(rarest[entry]), priors)
                )
            low[:, entry] = np.minimum(posteriors, high[:, entry])
        if len(some) < len(open_ones):  # those not examined, as the examined ones are on average
            rest = np.setdiff1d(open_ones, some)
            mean = np.average(low[:, some], axis=1, weights=targets.people[some])
            low[:, rest] = np.minimum(mean[:, None], high[:, rest])
        nothing = ~settled & ~separated
        high[:, nothing], certain_high[nothing] = belief, 0.0
        return Disclosure(
            targets.attack,
            targets.people.astype(float),
            low,
            high,
            certain_low,
            certain_high,
            targets.sampled or len(some) < len(open_ones),
        )

    def _least_replaced(
        self, tables: ExactTables, records: Records, targets: Targets
    ) -> FloatArray:
        """Return the probability that a record was replaced, for the least protected of each kind."""
        cells = tables.plan.schema.cells
        moved = np.array([replaced(self.rate, int(size)) for size in np.bincount(records.group)])
        code = records.unit[records.household] * cells + records.cell
        kinds, which = np.unique(code, return_inverse=True)
        least = np.ones(len(kinds))
        np.minimum.at(least, which, moved[records.group[records.household]])
        return np.asarray(least[np.searchsorted(kinds, targets.unit * cells + targets.cell)])

    def _kept(self, tables: ExactTables, targets: Targets) -> tuple[Flags, Flags]:
        """Return which alternatives counts rule out that swapping keeps, and which change any count.

        Swapping keeps the tables of larger units, and everywhere the counts of what is matched. People
        who are exchanged one for one keep the number of people of every unit.
        """
        plan = tables.plan
        names = [item.name for item in plan.schema.attributes]
        matched = [names.index(name) for name in self.match if name != SIZE]
        whole = not self.households or SIZE in self.match
        kept = np.zeros(len(targets.entry), bool)
        differs = kept.copy()
        own = np.array(np.unravel_index(targets.cell[targets.entry], plan.schema.shape))
        other = np.array(np.unravel_index(np.maximum(targets.other, 0), plan.schema.shape))
        absent = targets.other < 0
        for item in separations(tables, targets):
            differs |= item.differs & item.known
            query = tables.query(item.key)
            if plan.levels.index(item.key.level) <= plan.levels.index(self.within):
                kept |= item.differs & item.known
            elif whole and query.complete:
                kept |= absent & item.known
                for factor in query.factors:
                    if factor.axis in matched:
                        group = factor.group
                        moved = group[own[factor.axis]] != group[other[factor.axis]]
                        kept |= ~absent & item.known & moved
        return kept, differs

    def _slots(
        self,
        tables: ExactTables,
        targets: Targets,
        records: Records,
        kept: Flags,
        differs: Flags,
        priors: Sequence[float],
    ) -> tuple[FloatArray, FloatArray]:
        """Return the posteriors of someone who sees which record took the target's place."""
        cells = tables.plan.schema.cells
        group = records.group_of(targets.unit[targets.entry], targets.cell[targets.entry])
        sizes = np.bincount(records.group)
        code, number = np.unique(records.group * cells + records.cell, return_counts=True)

        def share(cell: IntArray, own: int) -> FloatArray:
            codes = group * cells + cell
            at = np.minimum(np.searchsorted(code, codes), len(code) - 1)
            slots = np.where(code[at] == codes, number[at], 0) - own
            return np.asarray(slots / np.maximum(sizes[group] - 1, 1), float)

        moved = np.array([replaced(self.rate, int(size)) for size in sizes])[group]
        mine = moved * share(targets.cell[targets.entry], 1)
        theirs = moved * share(np.maximum(targets.other, 0), 0)
        stays, posteriors = 1 - moved, []
        with np.errstate(divide="ignore"):
            shown, hinted = np.log((stays + mine) / mine), np.log(theirs / (stays + theirs))
        for prior in priors:
            odds = logit(prior)
            rest = moved - mine - theirs
            value = (stays + mine) * expit(odds + shown) + rest * prior
            value += np.where(theirs > 0, theirs * expit(odds + hinted), 0.0)
            posteriors.append(np.where(kept, 1.0, np.where(differs, value, prior)))
        certain = np.where(kept, 1.0, np.where(differs & (mine == 0), stays, 0.0))
        return targets.worst(np.array(posteriors)), targets.worst(certain)


class Records(NamedTuple):
    """People and their households, sorted by lowest unit.

    `cell` and `household` are of each person; `unit` and `group` are of each household: where it is,
    and the households that it may be exchanged with. A person who is exchanged alone is a household.
    """

    cell: IntArray
    household: IntArray
    unit: IntArray
    group: IntArray

    def group_of(self, unit: IntArray, cell: IntArray) -> IntArray:
        """Return the group of people, each a household, in some cells of some units."""
        own = self.unit[self.household]
        width = int(self.cell.max()) + 1
        code = own * width + self.cell  # sorted: people are by unit, then by cell
        return self.group[self.household[np.searchsorted(code, unit * width + cell)]]


def records_of(tables: ExactTables, how: Swapping, rng: Generator) -> Records:
    """Return the people behind tables as records that may be exchanged."""
    cell = np.repeat(tables.cell, tables.people)
    unit = np.repeat(tables.unit, tables.people)
    larger = tables.place(how.within)
    if not how.households:
        names = [item.name for item in tables.plan.schema.attributes]
        axes = [names.index(name) for name in how.match]
        where = np.unravel_index(cell, tables.plan.schema.shape) if axes else ()
        alike = np.zeros(len(cell), np.int64)
        for axis in axes:
            alike = alike * tables.plan.schema.shape[axis] + where[axis]
        key = larger[unit] * (int(alike.max(initial=0)) + 1) + alike
        return Records(cell, np.arange(len(cell)), unit, np.unique(key, return_inverse=True)[1])
    household = _households(unit, rng)
    order = np.lexsort((rng.random(len(cell)), unit))  # who lives with whom is left to chance
    cell, first = cell[order], np.flatnonzero(np.diff(household, prepend=-1))
    size = np.bincount(household)
    key = larger[unit[first]] * (int(size.max()) + 1) + (size if SIZE in how.match else 0)
    return Records(cell, household, unit[first], np.unique(key, return_inverse=True)[1])


def _households(unit: IntArray, rng: Generator) -> IntArray:
    """Return a household for each person; people are sorted by unit, and share one within it only."""
    shares = np.array(HOUSEHOLD_SIZES)
    sizes = 1 + rng.choice(len(shares), len(unit), p=shares / shares.sum())
    ends = np.cumsum(sizes)
    number = np.searchsorted(ends, np.arange(len(unit)), side="right")
    new = (np.diff(number, prepend=-1) != 0) | (np.diff(unit, prepend=-1) != 0)
    return np.asarray(np.cumsum(new) - 1)


def exchanged(records: Records, rate: float, rng: Generator) -> IntArray:
    """Return where each household is after the exchange."""
    sample = np.flatnonzero(rng.random(len(records.unit)) < rate)
    group = records.group[sample]
    one, other = (sample[np.lexsort((rng.random(len(sample)), group))] for _ in range(2))
    after = records.unit.copy()
    after[one] = records.unit[other]
    return after


def replaced(rate: float, size: int) -> float:
    """Return the probability that another record takes the place of one, in a group of `size`.

    It is chosen with probability `rate`, and among m chosen ones it gets its own place back with
    probability 1/m.

    Examples
    --------
    >>> replaced(0.1, 1), replaced(0.5, 2)
    (0.0, 0.125)
    """
    return 0.0 if size == 1 else rate + ((1 - rate) ** size - 1) / size


class CountLaw:
    """The law of one count of a lowest unit after the exchange, and what it says about a target."""

    def __init__(self, tables: ExactTables, records: Records, rate: float) -> None:
        lowest = [key for key in tables.counts if key.level == tables.lowest]
        finest = max(lowest, key=lambda key: tables.query(key).cells)
        query = tables.query(finest)
        self.place_of = query.cells_at(np.arange(tables.plan.schema.cells))
        self.records, self.rate = records, rate
        self.place = self.place_of[records.cell]
        self.sizes = np.bincount(records.group)
        self.cells = query.cells
        # How many households of each group have k people in each place.
        inside = self.place >= 0
        pair, k = np.unique(
            records.household[inside] * self.cells + self.place[inside], return_counts=True
        )
        self.most = int(k.max(initial=0)) + 1
        code = (records.group[pair // self.cells] * self.cells + pair % self.cells) * self.most + k
        self.codes, self.number = np.unique(code, return_counts=True)
        self.starts = np.searchsorted(records.unit, np.arange(int(records.unit.max()) + 2))
        self.law = lru_cache(maxsize=1 << 14)(self._law)
        self.power = lru_cache(maxsize=1 << 14)(self._power)

    def _law(self, group: int, place: int) -> FloatArray:
        """Return the law of how many people in a place a household of a group has."""
        first = (group * self.cells + place) * self.most
        start, stop = np.searchsorted(self.codes, [first, first + self.most])
        law = np.zeros(self.most + 1)
        law[self.codes[start:stop] - first] = self.number[start:stop]
        law[0] = self.sizes[group] - law[1:].sum()
        return law

    def _slot(self, group: int, place: int, own: int) -> FloatArray:
        """Return the law of a household's own contribution after the exchange."""
        size = int(self.sizes[group])
        moved = replaced(self.rate, size)
        law = self.law(group, place).copy()
        law[own] -= 1  # it is replaced by another
        law *= moved / max(size - 1, 1)
        law[own] += 1 - moved
        return law

    def _power(self, group: int, place: int, own: int, number: int) -> FloatArray:
        one, total = self._slot(group, place, own), np.ones(1)
        while number:
            if number & 1:
                total = np.convolve(total, one)
            number >>= 1
            one = np.convolve(one, one) if number else one
        return np.trim_zeros(np.where(total > 1e-18, total, 0.0), "b")

    def rarest(self, targets: Targets) -> IntArray:
        """Return the alternative of each target whose place has fewest people, or -1."""
        place = self.place_of[targets.other]
        width = self.cells
        unit = self.records.unit[self.records.household]
        inside = self.place >= 0
        codes, number = np.unique(unit[inside] * width + self.place[inside], return_counts=True)
        keys = targets.unit[targets.entry] * width + place
        at = np.minimum(np.searchsorted(codes, keys), len(codes) - 1)
        here = np.where(codes[at] == keys, number[at], 0)
        everywhere = np.bincount(self.place[inside], minlength=width)
        same = place == self.place_of[targets.cell[targets.entry]]
        useless = (place < 0) | same | (targets.other < 0)
        order = np.lexsort((everywhere[place], here, useless, targets.entry))
        first = order[np.searchsorted(targets.entry, np.arange(len(targets.unit)))]
        return np.where(useless[first], -1, targets.other[first])

    def expected(
        self, unit: int, cell: int, other: int | None, priors: Sequence[float]
    ) -> FloatArray:
        """Return the expected posterior for each prior of someone who sees one count of a unit.

        It is the count that the target adds to, or the one that they would add to as `other`.
        """
        place = int(self.place_of[cell if other is None else other])
        start, stop = self.starts[unit], self.starts[unit + 1]
        households = np.arange(start, stop)
        first, last = np.searchsorted(self.records.household, [start, stop])
        here = self.place[first:last] == place
        inside = np.bincount(
            self.records.household[first:last][here] - start, minlength=len(households)
        )
        group = self.records.group[households]
        mine = first + int(np.flatnonzero(self.records.cell[first:last] == cell)[0])
        target = int(self.records.household[mine]) - int(start)
        keys, numbers = np.unique(np.stack([group, inside]), axis=1, return_counts=True)
        total = np.ones(1)
        for (at, own), number in zip(keys.T, numbers, strict=True):
            alone = bool(at == group[target] and own == inside[target])
            if number - alone:
                total = np.convolve(
                    total, self.power(int(at), place, int(own), int(number - alone))
                )
        own = int(inside[target])
        true = np.append(self._slot(int(group[target]), place, own), 0.0)
        size = int(self.sizes[group[target]])
        stays = 1 - replaced(self.rate, size)
        alternative = true.copy()
        alternative[own] -= stays
        alternative[own + (-1 if other is None else 1)] += stays
        one, another = np.convolve(total, true), np.convolve(total, np.maximum(alternative, 0.0))
        seen = one > 0
        with np.errstate(divide="ignore"):
            loss = np.log(one[seen]) - np.log(another[seen])
        return np.array([float(one[seen] @ expit(logit(prior) + loss)) for prior in priors])


def read_people(value: str, options: Mapping[str, str], plan: Plan) -> Swapping:
    """Return the protection that the text `swapping:RATE,within=LEVEL,match=A+B` describes."""
    known = [item.name for item in plan.schema.attributes]
    return _read("swapping", value, options, plan, known)


def read_households(value: str, options: Mapping[str, str], plan: Plan) -> Swapping:
    """Return the protection that `household-swapping:RATE,within=LEVEL,match=size` describes."""
    return _read("household-swapping", value, options, plan, [SIZE])


def _read(
    name: str, value: str, options: Mapping[str, str], plan: Plan, known: Sequence[str]
) -> Swapping:
    try:
        rate = float(value)
    except ValueError:
        rate = -1.0
    if not 0 < rate <= 1:
        raise InputError(
            f"{name}: the rate is {value!r}; give a number above 0 and at most 1, such as {name}:0.05"
        )
    for option in options:
        if option not in ("within", "match"):
            raise InputError(f"{name}: unknown option {option!r}; choose within or match")
    levels = plan.estimated_levels
    if len(levels) < 2:
        raise InputError(f"{name}: needs two levels, as records change places within a larger unit")
    within = options.get("within", levels[1] if len(levels) > 2 else levels[0])
    if within not in levels[:-1]:
        raise InputError(f"{name}: unknown level {within!r}; choose from {', '.join(levels[:-1])}")
    match = tuple(options["match"].split("+")) if "match" in options else ()
    for item in match:
        if item not in known:
            raise InputError(f"{name}: cannot match on {item!r}; choose from {', '.join(known)}")
    return Swapping(rate, within, match, name == "household-swapping")
