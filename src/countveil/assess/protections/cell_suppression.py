"""Suppression of small counts, and of further ones so that the small ones cannot be computed.

Every suppressed count is protected by a *move*: other people who would leave all shown counts as they
are and change this one by 1. A move sends someone to another place, exchanges them with someone in
another place, or gives them another category; it suppresses all counts that it changes. Of the moves
tried, the one that suppresses least is taken. So what is shown never determines a suppressed count,
not even together with the knowledge that counts are whole and not negative.

The choice uses only which counts are small and which cells are empty. Someone who would change
neither, and only suppressed counts, leaves the published tables exactly as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from countveil.assess.protections.exact_tables import ExactTables, TableKey
from countveil.assess.protections.known_others import Flags, Targets, separations
from countveil.assess.protections.protection import (
    Disclosure,
    ProtectedTable,
    certain_or_nothing,
)
from countveil.base.numerics import FloatArray, IntArray
from countveil.errors import InputError
from countveil.plan.plans import Plan
from countveil.plan.workload import TOTAL

SMALL = 5
"""Counts from 1 to one less than this are suppressed, as health departments do; zeros are shown."""
LARGEST_THRESHOLD = 1000
_SOURCES = 3  # people tried as the one who moves
_PARTNERS = 256  # people in other places tried as the one they are exchanged with


@dataclass(frozen=True, slots=True)
class SmallCellSuppression:
    """Counts from 1 to `below` - 1 suppressed, and others to protect them; zeros are shown."""

    below: int

    @property
    def label(self) -> str:
        """The protection and its settings."""
        return f"suppression of counts below {self.below}"

    @property
    def limits(self) -> tuple[str, ...]:
        """What the figures leave out."""
        return (
            "Suppression: two ends of the risk. Lower end: someone who uses the shown counts of the "
            "unit they know and of the units inside it. Upper end: someone who also knows everyone "
            "elsewhere, and notices any change in which counts are small or which cells are empty.",
            "Suppression: for the error, each suppressed count is estimated from the shown counts and "
            "the larger unit above. Complementary counts are chosen one after the other, not "
            "optimally. If some tables are published exactly, some suppressed counts may have no "
            "protection.",
        )

    def protect(self, tables: ExactTables, rng: Generator) -> dict[TableKey, ProtectedTable]:
        """Return the tables with suppressed counts replaced by a public guess."""
        hidden = suppressed(tables, self.below)
        guess = public_guess(tables, hidden, self.below)
        return {key: ProtectedTable(guess[key], hidden[key]) for key in tables.counts}

    def disclosure(
        self,
        tables: ExactTables,
        published: Mapping[TableKey, ProtectedTable],
        targets: Targets,
        priors: Sequence[float],
        rng: Generator,
    ) -> Disclosure:
        """Return who is certain: wherever a shown count depends on the answer."""
        least = np.zeros(len(targets.entry), bool)
        cells = tables.plan.schema.cells
        alone = targets.people == 1  # without them, their cell would be empty
        full = tables.unit * cells + tables.cell
        other = targets.unit[targets.entry] * cells + targets.other
        most = alone[targets.entry] | ((targets.other >= 0) & ~np.isin(other, full))
        for item in separations(tables, targets):
            counts, hidden = tables.counts[item.key], published[item.key].hidden
            assert hidden is not None
            shown = (item.own >= 0) & ~item.at_own(hidden)
            shown |= (item.other >= 0) & ~item.at_other(hidden)
            least |= shown & item.known
            most |= shown
            if not tables.exact(item.key):
                most |= (item.own >= 0) & np.isin(item.at_own(counts), (1, self.below))
                most |= (item.other >= 0) & np.isin(item.at_other(counts), (0, self.below - 1))
        return certain_or_nothing(targets, least, most, priors)


def suppressed(tables: ExactTables, below: int) -> dict[TableKey, Flags]:
    """Return which counts of each table are suppressed, small ones and complementary ones."""
    return _Suppression(tables, below).run()


@dataclass(frozen=True, slots=True)
class _Layer:
    """One table as moves see it: the cell of each histogram cell, the place of each lowest unit."""

    key: TableKey
    depth: int
    cell: IntArray
    place: IntArray
    offset: int
    cells: int
    weight: float

    def at(self, unit: IntArray, cell: IntArray) -> IntArray:
        """Return the number, over all tables, of the count in which people are; -1 if in none."""
        where = self.cell[cell]
        return np.where(where < 0, -1, self.offset + self.place[unit] * self.cells + where)


class _Suppression:
    """The state of the search: which counts are hidden so far, and which of them a move protects."""

    def __init__(self, tables: ExactTables, below: int) -> None:
        self.tables, plan = tables, tables.plan
        every = np.arange(plan.schema.cells)
        self.layers: list[_Layer] = []
        offset = 0
        for key, counts in tables.counts.items():
            self.layers.append(
                _Layer(
                    key,
                    plan.levels.index(key.level),
                    tables.query(key).cells_at(every),
                    tables.place(key.level),
                    offset,
                    counts.shape[1],
                    1 / counts.size,
                )
            )
            offset += counts.size
        # People are sorted by lowest unit, so those of any unit follow each other.
        self.placed = [tables.place(level)[tables.unit] for level in plan.estimated_levels]
        self.possible = np.flatnonzero(plan.possible)
        small = [
            ((counts > 0) & (counts < below)).ravel() & (not tables.exact(key))
            for key, counts in tables.counts.items()
        ]
        self.hidden: Flags = np.concatenate(small)
        self.covered: Flags = np.zeros(offset + 1, bool)
        # What hiding a count costs: its share of the table, nothing if it is hidden already, and too
        # much if it is published exactly. The last place stands for no count at all.
        weights = [
            np.full(layer.cells * len(tables.counts[layer.key]), np.inf)
            if tables.exact(layer.key)
            else np.full(layer.cells * len(tables.counts[layer.key]), layer.weight)
            for layer in self.layers
        ]
        self.price: FloatArray = np.append(np.concatenate(weights), 0.0)
        self.price[:-1][self.hidden] = 0.0

    def run(self) -> dict[TableKey, Flags]:
        for layer in sorted(self.layers, key=lambda layer: layer.depth):
            size = layer.cells * len(self.tables.counts[layer.key])
            for number in np.flatnonzero(self.hidden[layer.offset : layer.offset + size]):
                if not self.covered[layer.offset + number]:
                    self._cover(layer, *divmod(int(number), layer.cells))
        return {
            layer.key: self.hidden[layer.offset :][: self.tables.counts[layer.key].size].reshape(
                self.tables.counts[layer.key].shape
            )
            for layer in self.layers
        }

    def _cover(self, layer: _Layer, unit: int, cell: int) -> None:
        """Take the cheapest move that changes one count, if one exists."""
        best: tuple[float, IntArray] | None = None
        for changed in self._moves(layer, unit, cell):
            costs = self.price[changed].sum(axis=0)
            if len(costs) and (best is None or costs.min() < best[0]):
                least = int(costs.argmin())
                best = (float(costs[least]), changed[:, least])
                if best[0] == 0:
                    break
        if best is None or not np.isfinite(best[0]):
            return
        numbers = best[1][best[1] >= 0]
        self.hidden[numbers] = True
        self.price[numbers] = 0.0
        self.covered[numbers] = True

    def _moves(self, layer: _Layer, unit: int, cell: int) -> Iterator[IntArray]:
        """Yield moves, tables × moves: the numbers of the counts that they change, -1 for none."""
        tables = self.tables
        first, last = self._people(layer.depth, unit)
        sources = first + np.flatnonzero(layer.cell[tables.cell[first:last]] == cell)
        depth, start, stop = layer.depth, first, last
        while depth > 0 and (start, stop) == (first, last):  # siblings, or the nearest relatives
            depth -= 1
            start, stop = self._people(depth, int(self.placed[depth][first]))
        others = np.concatenate([np.arange(last, stop), np.arange(start, first)])
        new = self.possible[layer.cell[self.possible] != cell]
        near = others[:_PARTNERS]
        for source in sources[:: max(1, len(sources) // _SOURCES)][:_SOURCES]:
            at, own = tables.unit[[source]], tables.cell[[source]]
            yield self._changed(self.layers, at, own, new, None)
            if not len(near):
                continue
            within = [item for item in self.layers if item.depth > depth]
            goes_to = tables.unit[near]
            differs = layer.cell[tables.cell[near]] != cell
            yield self._changed(within, at, own, tables.cell[near][differs], goes_to[differs])
            yield np.stack(
                [
                    row
                    for item in within
                    for row in (
                        np.broadcast_to(item.at(at, own), len(near)),
                        item.at(goes_to, np.broadcast_to(own, len(near))),
                    )
                ]
            )

    def _people(self, depth: int, unit: int) -> tuple[int, int]:
        """Return where the people of a unit begin and end."""
        ends = np.searchsorted(self.placed[depth], [unit, unit + 1])
        return int(ends[0]), int(ends[1])

    def _changed(
        self,
        layers: Sequence[_Layer],
        at: IntArray,
        own: IntArray,
        other: IntArray,
        goes_to: IntArray | None,
    ) -> IntArray:
        """Return what changes if someone becomes `other`, and if `other` elsewhere becomes `own`."""
        rows: list[NDArray[np.int64]] = []
        for layer in layers:
            same = layer.cell[own] == layer.cell[other]
            for unit in (at,) if goes_to is None else (at, goes_to):
                for cell in (own, other):
                    rows.append(np.where(same, -1, layer.at(unit, cell)))
        return np.stack(rows)


def public_guess(
    tables: ExactTables, hidden: Mapping[TableKey, Flags], below: int
) -> dict[TableKey, FloatArray]:
    """Return what a reader would take each count to be.

    A shown sum leaves something for the suppressed counts in it: of the sums of a count, the one with
    the fewest of them is used. They share it in proportion to the same counts of the larger unit
    above, or among places to their totals, as far as published or guessed; otherwise evenly. Without
    such a sum, a count is taken to be in the middle of the small ones. A guess is at least what the
    shown parts of the count add up to, and at most what any shown sum leaves.
    """
    guess: dict[TableKey, FloatArray] = {}
    # In ties, sums within a unit come first.
    every = sorted(sums(tables), key=lambda item: item.total.level != item.part.level)
    for part in sorted(tables.counts, key=lambda key: tables.plan.levels.index(key.level)):
        counts, secret = tables.counts[part], hidden[part]
        value, least = np.full(counts.shape, below / 2), np.zeros(counts.shape)
        most, fewest = np.full(counts.shape, np.inf), np.full(counts.shape, np.inf)
        for item in every:
            if item.total == part:
                inner = np.where(hidden[item.part], 0, tables.counts[item.part])
                added = np.bincount(item.of_part.ravel(), inner.ravel(), counts.size)
                least = np.maximum(least, added.reshape(counts.shape))
            if item.part != part:
                continue
            of, size = item.of_part, tables.counts[item.total].size
            weight = np.where(secret, _likely(tables, guess, item), 0.0)
            shown = np.bincount(of.ravel(), np.where(secret, 0, counts).ravel(), size)
            number = np.bincount(of.ravel(), secret.ravel(), size)
            weights = np.bincount(of.ravel(), weight.ravel(), size)
            left = tables.counts[item.total].ravel() - shown
            use = secret & ~hidden[item.total].ravel()[of]
            most = np.where(use, np.minimum(most, left[of]), most)
            use &= number[of] < fewest
            share = left[of] * weight / np.where(weights > 0, weights, 1.0)[of]
            value, fewest = np.where(use, share, value), np.where(use, number[of], fewest)
        guess[part] = np.where(secret, np.clip(value, least, most), counts)
    return guess


def _likely(
    tables: ExactTables, guess: Mapping[TableKey, FloatArray], item: TableSum
) -> FloatArray:
    """Return how large the counts of a sum are likely to be, relative to each other."""
    levels, part = tables.plan.levels, item.part
    above = [key for key in guess if key.query == part.query and key.level != part.level]
    total = TableKey(part.level, TOTAL)
    if item.total.level != part.level and total in guess and total != part:
        return np.broadcast_to(guess[total] + 0.5, tables.counts[part].shape)
    if item.total.level != part.level or not above:
        return np.ones(tables.counts[part].shape)
    nearest = max(above, key=lambda key: levels.index(key.level))
    return guess[nearest][tables.geography.ancestors(part.level, nearest.level)] + 0.5


@dataclass(frozen=True, eq=False, slots=True)
class TableSum:
    """A table each of whose counts is a sum of counts of another.

    `of_part` has, for each count of `part`, the number of the count of `total` that it adds to.
    """

    total: TableKey
    part: TableKey
    of_part: IntArray


def sums(tables: ExactTables) -> Iterator[TableSum]:
    """Yield the sums that readers can check: over categories in a unit, and over units inside it."""
    every = np.arange(tables.plan.schema.cells)
    for part, counts in tables.counts.items():
        units, cells = counts.shape
        fine = tables.query(part).cells_at(every)
        for total, totals in tables.counts.items():
            if total.query == part.query and _above(tables, total, part):
                parent = tables.geography.ancestors(part.level, total.level)
                yield TableSum(total, part, parent[:, None] * cells + np.arange(cells))
            elif total.level == part.level and total != part:
                coarse = tables.query(total).cells_at(every)
                group = np.full(cells, -1)
                group[fine[fine >= 0]] = coarse[fine >= 0]
                # Whom the total counts, the part counts too, and each of its cells adds to one.
                alike = np.where(fine >= 0, group[fine], -1) == coarse
                if alike.all() and (group >= 0).all():
                    width = totals.shape[1]
                    yield TableSum(total, part, np.arange(units)[:, None] * width + group)


def _above(tables: ExactTables, other: TableKey, key: TableKey) -> bool:
    levels = tables.plan.levels
    return levels.index(other.level) < levels.index(key.level)


def read(value: str, options: Mapping[str, str], plan: Plan) -> SmallCellSuppression:
    """Return the protection that the text `suppression:THRESHOLD` describes."""
    for option in options:
        raise InputError(
            f"suppression: unknown option {option!r}; write suppression:THRESHOLD alone"
        )
    if not value.isascii() or not value.isdigit() or not 2 <= int(value) <= LARGEST_THRESHOLD:
        raise InputError(
            f"suppression: the threshold is {value!r}; give a whole number from 2 to "
            f"{LARGEST_THRESHOLD:,}: suppression:10 suppresses counts from 1 to 9"
        )
    return SmallCellSuppression(int(value))


# One cell, for an intruder who knows everyone else in it.


def posterior_under_suppression(
    others: int, prior: float, *, below: int = SMALL, total: bool = False, rows: int = 1
) -> float:
    """Return the intruder's posterior for a person who is counted, if small cells are suppressed.

    They know everyone else in the cell. They see its count, unless that is from 1 to `below` - 1.

    Parameters
    ----------
    others : int
        How many other people are in the cell.
    prior : float
        The probability they give to the person being counted there.
    below : int
        Counts from 1 to one less than this are suppressed.
    total : bool
        Whether they also see a sum of this cell and others that they know.
    rows : int
        How many rows the person adds to the count.

    Returns
    -------
    float
        The prior where the table reveals nothing, otherwise 1.

    Examples
    --------
    >>> posterior_under_suppression(2, 0.1), posterior_under_suppression(4, 0.1)
    (0.1, 1.0)
    """
    alike = _shown(others + rows, below) == _shown(others, below)
    return prior if alike and not total else 1.0


def kept_secret(below: int = SMALL, rows: int = 1) -> list[int]:
    """Return the numbers of others at which suppression reveals nothing, if no sum is shown.

    Parameters
    ----------
    below : int
        Counts from 1 to one less than this are suppressed.
    rows : int
        How many rows a person adds to the count.

    Returns
    -------
    list of int
        How many other people a cell may have.

    Examples
    --------
    >>> kept_secret()
    [1, 2, 3]
    """
    return [k for k in range(below + 1) if _shown(k + rows, below) == _shown(k, below)]


def _shown(count: int, below: int) -> int | None:
    return None if 0 < count < below else count
