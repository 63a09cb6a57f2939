"""INTERNAL: how far a release is from the confidential counts it was made from."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from countveil import storage
from countveil.errors import FolderError, InputError
from countveil.histograms import Entries, Histograms
from countveil.measure import manifest
from countveil.numerics import Array, FloatArray, IntArray
from countveil.postprocess.estimates import Estimates
from countveil.schema.plan import Plan
from countveil.schema.workload import TOTAL, Query
from countveil.tabulate.counts import Counts

WATERMARK = "INTERNAL: COMPUTED FROM CONFIDENTIAL COUNTS, NOT TO BE PUBLISHED"
SIZE_CLASSES = ("0", "1-9", "10-99", "100-999", "1,000-9,999", "10,000-99,999", "100,000+")
ALL = "all"
QUANTILES = (5, 25, 50, 75, 95)

_LEAST = 10 ** np.arange(len(SIZE_CLASSES) - 1)  # true total of each size class but the first
_MOST_WAYS = 3
_ENTRIES = 1 << 18  # entries and units held at a time, unless one unit has more
_SPAN = 1 << 33  # errors lie between -2**31 and 2**31

_LAYOUTS = {
    "errors": {
        "level": pa.string(),
        "query": pa.string(),
        "size_class": pa.string(),
        "cells": pa.int64(),
        "mean_absolute_error": pa.float64(),
        "bias": pa.float64(),
        "root_mean_squared_error": pa.float64(),
        **{f"error_{percent:02d}": pa.int64() for percent in QUANTILES},
        "mean_absolute_percentage_error": pa.float64(),
    },
    "marginals": {
        "level": pa.string(),
        "ways": pa.int64(),
        "attributes": pa.string(),
        "units": pa.int64(),
        "units_empty_in_one": pa.int64(),
        "units_empty_in_both": pa.int64(),
        "total_variation_distance": pa.float64(),
    },
    "groups": {
        "level": pa.string(),
        "attribute": pa.string(),
        "category": pa.string(),
        "units": pa.int64(),
        "people": pa.int64(),
        "mean_absolute_error": pa.float64(),
        "bias": pa.float64(),
        "relative_bias": pa.float64(),
    },
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
            with _private(folder / f"{stem}.parquet") as path:
                pq.write_table(table, path)
            document[name] = table.to_pylist()
        with _private(folder / "error.json") as path:
            path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        with _private(folder / "error-report.md") as path:
            path.write_text(_report(self))


def accuracy(estimates: Estimates, counts: Counts) -> Accuracy:
    """Compare estimates with the confidential counts they were made from; the result is internal."""
    _refuse_other_counts(estimates, counts)
    rows: dict[str, list[_Row]] = {name: [] for name in _LAYOUTS}
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
        key = np.union1d(*keys)
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
        ways = dict.fromkeys([*range(1, min(_MOST_WAYS, len(self.shape)) + 1), len(self.shape)])
        axes = range(len(self.shape))
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
        codes = np.unravel_index(cell, self.shape)
        people = np.unravel_index(part.cell, self.shape)
        for axis, (size, sums) in enumerate(zip(self.shape, self.groups, strict=True)):
            sums[0] += np.bincount(people[axis], part.count, size).astype(np.int64)
            sums[1] += np.bincount(codes[axis], error, size).astype(np.int64)
            key, together = _added(unit * size + codes[axis], error, part.units * size)
            sums[2] += np.bincount(key % size, np.abs(together), size).astype(np.int64)

        unit, cell, share = part.shifted()
        codes = np.unravel_index(cell, self.shape)
        for chosen in self.distances:
            key, size = unit, part.units
            for axis in chosen:
                key, size = key * self.shape[axis] + codes[axis], size * self.shape[axis]
            self.distances[chosen] += float(np.abs(_added(key, share, size)[1]).sum()) / 2

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
        where = self.query.cell_of[cell]
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
        at = np.flatnonzero(sums)
        return at, sums[at]
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
    layout = pa.schema(_LAYOUTS[name], metadata={"audience": "internal"})
    columns = list(zip(*rows, strict=True)) or [()] * len(layout)
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, layout, strict=True)]
    return pa.Table.from_arrays(arrays, schema=layout)


@contextmanager
def _private(path: Path) -> Iterator[Path]:
    """Yield a temporary path only its owner can read; it replaces `path` when the block ends well."""
    with storage.replacing(path) as temporary:
        temporary.touch(0o600)
        temporary.chmod(0o600)  # whatever a killed run left there
        yield temporary


def _report(found: Accuracy) -> str:
    """Return the short report."""
    errors, marginals, groups = (getattr(found, name).to_pylist() for name in _FILES)
    levels = list(dict.fromkeys(row["level"] for row in errors))
    every = [row for row in errors if row["size_class"] == ALL]
    totals = [row for row in errors if row["query"] == TOTAL]
    mean = {(row["query"], row["level"]): row["mean_absolute_error"] for row in every}
    ways = sorted({row["ways"] for row in marginals})
    far: dict[tuple[int, str], list[float]] = {}
    for row in marginals:
        if row["total_variation_distance"] is not None:
            far.setdefault((row["ways"], row["level"]), []).append(row["total_variation_distance"])
    extremes = []
    for level in levels:
        here = [r for r in groups if r["level"] == level and r["relative_bias"] is not None]
        if here:
            extremes += [choose(here, key=lambda r: r["relative_bias"]) for choose in (min, max)]
    return "\n".join(
        [
            f"# {WATERMARK}",
            "",
            f"Error of the release against the confidential counts: {found.title}",
            "",
            "Error is estimate minus count. All tables are in error.json and the Parquet files.",
            "",
            "## TOTAL, by level",
            "",
            *_lines(
                ("level", "units", *_SHOWN),
                ((row["level"], row["cells"], *_shown(row)) for row in totals if row in every),
            ),
            f"## TOTAL of the {levels[-1]}s, by the size of the unit",
            "",
            *_lines(
                ("people", "units", *_SHOWN),
                (
                    (row["size_class"], row["cells"], *_shown(row))
                    for row in totals
                    if row["level"] == levels[-1]
                ),
            ),
            "## Mean absolute error of a cell, by query",
            "",
            *_lines(
                ("query", *levels),
                (
                    (query, *(mean.get((query, level)) for level in levels))
                    for query in dict.fromkeys(query for query, _ in mean)
                ),
            ),
            "## Total variation distance, by the number of attributes of the marginal",
            "",
            "The mean over units with people in both, averaged over the marginals.",
            "",
            *_lines(
                ("attributes", *levels),
                ((k, *(_average(far.get((k, level), [])) for level in levels)) for k in ways),
            ),
            "## The groups with the lowest and the highest relative bias, by level",
            "",
            *_lines(
                ("level", "group", "people", "bias", "relative bias"),
                (
                    (
                        row["level"],
                        f"{row['attribute']} = {row['category']}",
                        row["people"],
                        row["bias"],
                        row["relative_bias"],
                    )
                    for row in extremes
                ),
            ),
        ]
    )


_SHOWN = ("mean absolute error", "bias", "RMSE", "5 %", "95 %", "mean % error")


def _shown(row: dict[str, Any]) -> _Row:
    names = (
        "mean_absolute_error",
        "bias",
        "root_mean_squared_error",
        "error_05",
        "error_95",
        "mean_absolute_percentage_error",
    )
    return tuple(row[name] for name in names)


def _average(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _lines(header: _Row, rows: Iterable[_Row]) -> list[str]:
    """Lay out a Markdown table, and a blank line after it."""

    def text(value: Any) -> str:
        if value is None:
            return ""
        if isinstance(value, str):
            return value.replace("|", "\\|")
        return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"

    lines = [header, ("---",) * len(header), *rows]
    return [f"| {' | '.join(map(text, line))} |" for line in lines] + [""]
