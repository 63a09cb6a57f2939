"""INTERNAL: how far a release is from the confidential counts it was made from."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from countveil import storage
from countveil.assess.error_text import ALL, WATERMARK, short_report
from countveil.errors import FolderError, InputError
from countveil.histograms import Entries, Histograms
from countveil.measure import manifest
from countveil.numerics import Array, FloatArray, IntArray
from countveil.postprocess.estimates import Estimates
from countveil.schema.plan import Plan
from countveil.schema.workload import TOTAL, Query
from countveil.tabulate.counts import Counts

SIZE_CLASSES = ("0", "1-9", "10-99", "100-999", "1,000-9,999", "10,000-99,999", "100,000+")
QUANTILES = (5, 25, 50, 75, 95)

_LEAST = 10 ** np.arange(len(SIZE_CLASSES) - 1)  # true total of each size class but the first
_MOST_WAYS = 3
_ENTRIES = 1 << 18  # entries and units held at a time, unless one unit has more
_SPAN = 1 << 33  # errors lie between -2**31 and 2**31

_TEXT = ("level", "query", "size_class", "attributes", "attribute", "category")
_WHOLE = ("cells", "ways", "units", "units_empty_in_one", "units_empty_in_both", "people")
_QUANTILES = tuple(f"error_{percent:02d}" for percent in QUANTILES)
_COLUMNS = {
    "errors": (
        *("level", "query", "size_class", "cells"),
        *("mean_absolute_error", "bias", "root_mean_squared_error", *_QUANTILES),
        "mean_absolute_percentage_error",
    ),
    "marginals": (
        *("level", "ways", "attributes", "units", "units_empty_in_one", "units_empty_in_both"),
        "total_variation_distance",
    ),
    "groups": (
        *("level", "attribute", "category", "units", "people"),
        *("mean_absolute_error", "bias", "relative_bias"),
    ),
}
_FILES = {"errors": "error", "marginals": "error-marginals", "groups": "error-groups"}

_Row = tuple[Any, ...]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Accuracy:
    """Internal. Error is estimate minus count; three tidy tables hold it, and `repr` no number.

    `errors`: by level, query and size class of the unit's true total, over all cells of its units,
    empty ones included; a class without units has no row. The p % quantile is the smallest error that
    at least p % of the cells do not exceed. Percentages are of TOTAL, over units with people.
    `marginals`: ½ Σ |share - share|, averaged over the units with people in both; units empty in one
    or in both have no shares to compare, and are counted beside. `groups`: the count of each category,
    over all units; `relative_bias` is the sum of its errors over the sum of its counts.
    """

    title: str
    errors: pa.Table
    marginals: pa.Table
    groups: pa.Table
    audience: ClassVar[Literal["internal"]] = "internal"

    def __repr__(self) -> str:
        return "<internal: the error of a release against confidential counts>"

    def write(self, folder: str | Path) -> None:
        """Write the tables and a short report, private, into the internal folder of a release."""
        folder = Path(folder).absolute()
        for place in (folder, *folder.parents):
            if (place / manifest.NAME).exists():
                raise FolderError(
                    f"{folder}: {place} is what may be published, and the error against confidential "
                    f"counts may not be; name the internal folder, {place.name}-internal"
                )
        storage.make_folder(folder, 0o700)
        document: dict[str, Any] = {
            "audience": self.audience,
            "notice": WATERMARK,
            "title": self.title,
        }
        for name, stem in _FILES.items():
            table = getattr(self, name)
            with storage.replacing_private(folder / f"{stem}.parquet") as path:
                pq.write_table(table, path)
            document[name] = table.to_pylist()
        with storage.replacing_private(folder / "error.json") as path:
            path.write_bytes((json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode())
        with storage.replacing_private(folder / "error-report.md") as path:
            path.write_bytes(
                short_report(
                    self.title, *(getattr(self, name).to_pylist() for name in _FILES)
                ).encode()
            )


def accuracy(estimates: Estimates, counts: Counts) -> Accuracy:
    """Compare estimates with the confidential counts they were made from; the result is internal."""
    _refuse_other_counts(estimates, counts)
    rows: dict[str, list[_Row]] = {name: [] for name in _COLUMNS}
    for level, mine in estimates.levels.items():
        found = _Level(estimates.plan, level)
        for start, stop in _batches(mine, counts.levels[level]):
            found.add(
                _Part.of(
                    mine.entries(start, stop),
                    counts.entries(level, start, stop),
                    stop - start,
                    counts.cells,
                )
            )
        rows["errors"] += found.error_rows()
        rows["marginals"] += found.marginal_rows()
        rows["groups"] += found.group_rows()
    tables = {name: _table(name, found_rows) for name, found_rows in rows.items()}
    return Accuracy(estimates.plan.title, **tables)


@dataclass(frozen=True, eq=False)
class _Part:
    """Some units: the cells where either side has people, in order, and both sides there."""

    units: int
    unit: IntArray
    cell: IntArray
    estimate: IntArray
    count: IntArray

    @classmethod
    def of(cls, mine: Entries, theirs: Entries, units: int, cells: int) -> _Part:
        """Join the entries of both sides."""
        keys = [unit * cells + cell for unit, cell, _ in (mine, theirs)]
        key = np.sort(np.concatenate(keys), kind="stable")  # two sorted runs: one merge
        key = key[np.diff(key, prepend=-1) > 0]
        values = np.zeros((2, len(key)), np.int64)
        for row, own, (_, _, count) in zip(values, keys, (mine, theirs), strict=True):
            row[np.searchsorted(key, own)] = count
        return cls(units, key // cells, key % cells, *values)

    @cached_property
    def totals(self) -> tuple[IntArray, IntArray]:
        """The people of each unit, estimated and counted."""
        estimated, counted = (
            np.bincount(self.unit, side, self.units).astype(np.int64)
            for side in (self.estimate, self.count)
        )
        return estimated, counted

    def wrong(self) -> Entries:
        """Return (unit, cell, error) where the error is not 0."""
        error = self.estimate - self.count
        at = np.flatnonzero(error)
        return self.unit[at], self.cell[at], error[at]

    def shifted(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Return (unit, cell, share - share) where both sides of the unit have people."""
        estimated, counted = (total[self.unit] for total in self.totals)
        at = np.flatnonzero((estimated > 0) & (counted > 0))
        share = self.estimate[at] / estimated[at] - self.count[at] / counted[at]
        return self.unit[at], self.cell[at], share


class _Level:
    """What is known of a level so far: sums and tallies, never a unit."""

    def __init__(self, plan: Plan, level: str) -> None:
        self.level = level
        self.attributes = plan.schema.attributes
        self.shape = plan.schema.shape
        queries = (plan.schema.query(TOTAL), *(item.query for item in plan.at(level)))
        self.tallies = {query.name: _Tally(query) for query in queries}
        self.units = np.zeros(len(SIZE_CLASSES), np.int64)
        self.percentages = np.zeros(len(SIZE_CLASSES))
        axes = range(len(self.shape))
        ways = [k for k in range(1, len(axes) + 1) if k <= _MOST_WAYS or k == len(axes)]
        self.distances = {chosen: 0.0 for k in ways for chosen in combinations(axes, k)}
        self.compared = self.empty = 0
        # People, sum of errors, sum of absolute errors of each category of each attribute.
        self.groups = [np.zeros((3, size), np.int64) for size in self.shape]

    def add(self, part: _Part) -> None:
        """Take in some units."""
        estimated, counted = part.totals
        size_class = np.searchsorted(_LEAST, counted, side="right")
        self.units += np.bincount(size_class, minlength=len(SIZE_CLASSES))
        with_people = counted > 0
        percent = 100 * np.abs(estimated - counted)[with_people] / counted[with_people]
        self.percentages += np.bincount(size_class[with_people], percent, len(SIZE_CLASSES))
        self.compared += int((with_people & (estimated > 0)).sum())
        self.empty += int((~with_people & (estimated == 0)).sum())

        unit, cell, error = part.wrong()
        for tally in self.tallies.values():
            tally.add(unit, cell, error, size_class)
        codes, people = self._codes(cell), self._codes(part.cell)
        for axis, (size, sums) in enumerate(zip(self.shape, self.groups, strict=True)):
            sums[0] += np.bincount(people[axis], part.count, size).astype(np.int64)
            sums[1] += np.bincount(codes[axis], error, size).astype(np.int64)
            key, together = _added(unit * size + codes[axis], error, part.units * size)
            sums[2] += np.bincount(key % size, np.abs(together), size).astype(np.int64)

        unit, cell, share = part.shifted()
        codes = self._codes(cell)
        for chosen in self.distances:
            key, size = unit, part.units
            for axis in chosen:
                key, size = key * self.shape[axis] + codes[axis], size * self.shape[axis]
            self.distances[chosen] += float(np.abs(_added(key, share, size)[1]).sum()) / 2

    def _codes(self, cell: IntArray) -> tuple[IntArray, ...]:
        """Return the category of each cell, attribute by attribute."""
        return np.unravel_index(cell, self.shape) if self.shape else ()

    def error_rows(self) -> Iterator[_Row]:
        """Yield the rows of `errors`."""
        every = np.arange(len(SIZE_CLASSES))
        for name, tally in self.tallies.items():
            for label, members in [
                *((label, every == number) for number, label in enumerate(SIZE_CLASSES)),
                (ALL, every >= 0),
            ]:
                units = int(self.units[members].sum())
                if units == 0:
                    continue
                percentage = None
                with_people = int(self.units[members & (every > 0)].sum())
                if name == TOTAL and with_people:
                    percentage = float(self.percentages[members].sum()) / with_people
                yield (self.level, name, label, *tally.summary(members, units), percentage)

    def marginal_rows(self) -> Iterator[_Row]:
        """Yield the rows of `marginals`."""
        one_empty = int(self.units.sum()) - self.compared - self.empty
        for chosen, distance in self.distances.items():
            name = "*".join(self.attributes[axis].name for axis in chosen)
            mean = distance / self.compared if self.compared else None
            yield self.level, len(chosen), name, self.compared, one_empty, self.empty, mean

    def group_rows(self) -> Iterator[_Row]:
        """Yield the rows of `groups`."""
        units = int(self.units.sum())
        for attribute, sums in zip(self.attributes, self.groups, strict=True):
            for category, (people, error, absolute) in zip(
                attribute.categories, sums.T.tolist(), strict=True
            ):
                relative = error / people if people else None
                row = (units, people, absolute / units, error / units, relative)
                yield self.level, attribute.name, category, *row


class _Tally:
    """How often each error of a query that is not 0 occurs in each size class.

    Errors are whole numbers, so that these few numbers give every quantile exactly.
    """

    def __init__(self, query: Query) -> None:
        self.query = query
        self.keys = np.empty(0, np.int64)  # size class × _SPAN + error + _SPAN/2, sorted
        self.times = np.empty(0, np.int64)

    def add(self, unit: IntArray, cell: IntArray, error: IntArray, size_class: IntArray) -> None:
        """Take in the cells of some units that are wrong."""
        where = self.query.cells_at(cell)
        kept = np.flatnonzero(where >= 0)
        cells = self.query.cells
        key, together = _added(
            unit[kept] * cells + where[kept], error[kept], len(size_class) * cells
        )
        signed = together.astype(np.int64)
        signed += size_class[key // cells] * _SPAN + _SPAN // 2
        seen, times = np.unique(signed[together != 0], return_counts=True)
        self.keys, position = np.unique(np.append(self.keys, seen), return_inverse=True)
        counted = np.bincount(position, np.append(self.times, times), len(self.keys))
        self.times = counted.astype(np.int64)

    def summary(self, members: Array, units: int) -> _Row:
        """Return cells, mean absolute error, bias, root mean squared error and quantiles."""
        cells = units * self.query.cells
        held = members[self.keys // _SPAN]
        error = self.keys[held] % _SPAN - _SPAN // 2
        times = self.times[held]
        value = np.append(error, 0)
        often = np.append(times, cells - times.sum())
        order = np.argsort(value, kind="stable")
        reached = np.cumsum(often[order])
        ranks = [-(-percent * cells // 100) for percent in QUANTILES]
        return (
            cells,
            int((np.abs(error) * times).sum()) / cells,
            int((error * times).sum()) / cells,
            math.sqrt(float((error.astype(float) ** 2 * times).sum()) / cells),
            *value[order][np.searchsorted(reached, ranks)].tolist(),
        )


def _added(key: IntArray, amount: Array, size: int) -> tuple[IntArray, FloatArray]:
    """Add up the amounts of each key below `size`; return keys that occur, sorted, and their sums."""
    if size <= 8 * len(key):
        sums = np.bincount(key, amount, size)
        at = np.flatnonzero(sums).astype(np.int64, copy=False)
        return at, np.asarray(sums[at], np.float64)
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    if len(first) == 0:
        return key, np.empty(0)
    return key[first], np.add.reduceat(amount[order].astype(np.float64), first)


def _batches(mine: Histograms, theirs: Histograms) -> Iterator[tuple[int, int]]:
    """Cut the units into runs of about _ENTRIES entries of both sides; a unit weighs one as well."""
    start = 0
    while start < mine.units:
        stop = min(start + _ENTRIES, mine.units)
        weight = mine.offsets[start : stop + 1] + theirs.offsets[start : stop + 1]
        weight = weight - weight[0] + np.arange(stop + 1 - start)
        stop = start + max(1, int(np.searchsorted(weight, _ENTRIES, side="right")) - 1)
        yield start, stop
        start = stop


def _refuse_other_counts(estimates: Estimates, counts: Counts) -> None:
    if counts.counted_as != estimates.plan.counting_digest:
        raise InputError("the counts were tabulated for another plan; tabulate this one")
    mine, theirs = estimates.geography, counts.geography
    for level in estimates.levels:
        if not mine.geocodes(level).equals(theirs.geocodes(level)):
            raise InputError(
                f"the estimates and the counts list different units of level {level}; tabulate with "
                f"the crosswalk of the release"
            )


def _table(name: str, rows: Iterable[_Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(_COLUMNS[name])
    arrays = {
        column: pa.array(values, _kind(column))
        for column, values in zip(_COLUMNS[name], columns, strict=True)
    }
    return pa.table(arrays, metadata={"audience": "internal"})


def _kind(column: str) -> pa.DataType:
    if column in _TEXT:
        return pa.string()
    return pa.int64() if column in (*_WHOLE, *_QUANTILES) else pa.float64()
