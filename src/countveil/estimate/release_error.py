"""INTERNAL: how far a release is from the confidential counts it was made from."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, TypeAlias, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from countveil.base import storage
from countveil.base.histograms import Entries, Histograms
from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.engines.counts import Counts
from countveil.errors import FolderError, InputError
from countveil.estimate.plan_error import expected_error
from countveil.measure import manifest
from countveil.plan.plans import Plan
from countveil.plan.workload import TOTAL, Query
from countveil.postprocess.estimates import Estimates

WATERMARK = "INTERNAL: COMPUTED FROM CONFIDENTIAL COUNTS, NOT TO BE PUBLISHED"
SIZE_CLASSES = ("0", "1-9", "10-99", "100-999", "1,000-9,999", "10,000-99,999", "100,000+")
QUANTILES = (5, 25, 50, 75, 95)
ALL = "all"  # size classes

_LEAST = 10 ** np.arange(len(SIZE_CLASSES) - 1)  # true total of each size class but the first
_MOST_WAYS = 3
_ENTRIES = 1 << 18  # entries and units in memory at a time, unless one unit has more
_SPAN = 1 << 33  # errors are between -2**31 and 2**31
_SHOWN_GROUP = 100  # people a group needs to appear in the short report


class ErrorRow(NamedTuple):
    """A row of `Accuracy.errors`."""

    level: str
    query: str
    size_class: str
    cells: int
    mean_absolute_error: float
    bias: float
    root_mean_squared_error: float
    error_05: int
    error_25: int
    error_50: int
    error_75: int
    error_95: int
    mean_absolute_percentage_error: float | None


class MarginalRow(NamedTuple):
    """A row of `Accuracy.marginals`."""

    level: str
    ways: int
    attributes: str
    units: int
    units_empty_in_one: int
    units_empty_in_both: int
    total_variation_distance: float | None


class GroupRow(NamedTuple):
    """A row of `Accuracy.groups`."""

    level: str
    attribute: str
    category: str
    units: int
    people: int
    mean_absolute_error: float
    bias: float
    relative_bias: float | None


class ForecastRow(NamedTuple):
    """A row of `Accuracy.forecasts`."""

    level: str
    query: str
    cells: int
    expected: float | None
    realised: float
    ratio: float | None
    largest_departure: float | None


class DroppedRow(NamedTuple):
    """A row of `Accuracy.dropped`."""

    level: str
    units: int
    units_with_dropped_rows: int
    rows_dropped: int
    mean_dropped: float
    most_dropped: int


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Accuracy:
    """The error of a release, estimate minus count, in tables. Internal: `repr` has no number.

    Attributes
    ----------
    title : str
        The title of the plan.
    errors : pyarrow.Table
        By level, query and size class of the unit's true total, over all cells of its units, empty ones
        included; a class without units has no row. The p % quantile is the smallest error that at least
        p % of the cells do not exceed. Percentages are of TOTAL, over units with people.
    marginals : pyarrow.Table
        The total variation distance ½ Σ |share - share|, averaged over the units with people in both
        the estimates and the counts. Units empty in one or both have no shares; they are counted.
    groups : pyarrow.Table
        The count of each category, over all units; `relative_bias` is the sum of its errors divided by
        the sum of its counts.
    forecasts : pyarrow.Table
        By level and query, the root mean square error over all cells: what the plan forecast, and what
        it turned out to be. `largest_departure` is how far rounding moved a cell at most.
    dropped : pyarrow.Table
        By level, the rows that were read but not counted because a person has more of them than the
        plan counts. Errors do not include them: they compare with what was counted. Empty if rows per
        person are not limited.

    """

    title: str
    errors: pa.Table
    marginals: pa.Table
    groups: pa.Table
    forecasts: pa.Table
    dropped: pa.Table
    audience: ClassVar[Literal["internal"]] = "internal"

    def __repr__(self) -> str:
        return "<internal: the error of a release against confidential counts>"

    def write(self, folder: str | Path) -> None:
        """Write the tables and a short report, private, into the internal folder of a release."""
        folder = Path(folder).absolute()
        for parent in (folder, *folder.parents):
            if (parent / manifest.NAME).exists():
                raise FolderError(
                    f"{folder}: {parent} may be published, and the error against confidential counts "
                    f"may not be; name the internal folder, {parent.name}-internal"
                )
        storage.make_folder(folder, 0o700)
        document: dict[str, object] = {
            "audience": self.audience,
            "notice": WATERMARK,
            "title": self.title,
        }
        for name, table, stem in (
            ("errors", self.errors, "error"),
            ("marginals", self.marginals, "error-marginals"),
            ("groups", self.groups, "error-groups"),
            ("forecasts", self.forecasts, "error-forecasts"),
            ("dropped", self.dropped, "error-dropped-rows"),
        ):
            with storage.replacing_private(folder / f"{stem}.parquet") as path:
                pq.write_table(table, path)
            document[name] = table.to_pylist()
        with storage.replacing_private(folder / "error.json") as path:
            path.write_bytes((json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode())
        with storage.replacing_private(folder / "error-report.md") as path:
            path.write_bytes(_short_report(self).encode())


def accuracy(estimates: Estimates, counts: Counts) -> Accuracy:
    """Compare estimates with the confidential counts they were made from; the result is internal.

    Parameters
    ----------
    estimates : Estimates
        The consistent counts of a release.
    counts : Counts
        The confidential counts, tabulated for the same plan and crosswalk.

    Returns
    -------
    Accuracy
        The errors by level, query and size; by marginal; by category; and next to their forecast.

    """
    _refuse_other_counts(estimates, counts)
    errors: list[ErrorRow] = []
    marginals: list[MarginalRow] = []
    groups: list[GroupRow] = []
    for level, mine in estimates.levels.items():
        sums = _LevelSums(estimates.plan, level)
        for start, stop in _batches(mine, counts.levels[level]):
            sums.add(
                _BothSides.of(
                    mine.entries(start, stop),
                    counts.entries(level, start, stop),
                    stop - start,
                    counts.cells,
                )
            )
        errors += sums.error_rows()
        marginals += sums.marginal_rows()
        groups += sums.group_rows()
    return Accuracy(
        estimates.plan.title,
        _table(ErrorRow, errors),
        _table(MarginalRow, marginals),
        _table(GroupRow, groups),
        _table(ForecastRow, list(_forecast_rows(estimates, errors))),
        _table(DroppedRow, list(_dropped_rows(counts))),
    )


def _forecast_rows(estimates: Estimates, errors: Sequence[ErrorRow]) -> Iterator[ForecastRow]:
    """Yield, for each measured query, the forecast and the realised error."""
    plan, places = estimates.plan, estimates.geography
    expected = {
        (item.level, item.query): item.overall_standard_error
        for item in expected_error(plan, geography=places)
    }
    departures = {item.level: item.largest_departure for item in estimates.certificate}
    for row in errors:
        if row.size_class != ALL or (row.level, row.query) not in expected:
            continue
        forecast, realised = expected[row.level, row.query], row.root_mean_squared_error
        yield ForecastRow(
            *(row.level, row.query, row.cells, forecast, realised),
            realised / forecast if forecast else None,
            departures.get(row.level, {}).get(row.query),
        )


def _dropped_rows(counts: Counts) -> Iterator[DroppedRow]:
    for level in counts.geography.levels:
        dropped = counts.rows_dropped(level)
        if dropped is not None:
            touched, rows = int((dropped > 0).sum()), int(dropped.sum())
            yield DroppedRow(
                level, len(dropped), touched, rows, rows / len(dropped), int(dropped.max())
            )


# Gathering errors, some units at a time.


class _Shifts(NamedTuple):
    """Cells whose share of their unit differs: unit, cell, estimated minus counted share."""

    unit: IntArray
    cell: IntArray
    shift: FloatArray


@dataclass(frozen=True, eq=False)
class _BothSides:
    """Some units: the cells where estimate or count has people, in order, and both numbers."""

    units: int
    unit: IntArray
    cell: IntArray
    estimate: IntArray
    count: IntArray

    @classmethod
    def of(cls, mine: Entries, theirs: Entries, units: int, cells: int) -> _BothSides:
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

    def errors(self) -> Entries:
        """Return (unit, cell, error) where the error is not 0."""
        error = self.estimate - self.count
        at = np.flatnonzero(error)
        return self.unit[at], self.cell[at], error[at]

    def shifts(self) -> _Shifts:
        """Return the differences of shares in units with people on both sides."""
        estimated, counted = (total[self.unit] for total in self.totals)
        at = np.flatnonzero((estimated > 0) & (counted > 0))
        shift = self.estimate[at] / estimated[at] - self.count[at] / counted[at]
        return _Shifts(self.unit[at], self.cell[at], shift)


class _LevelSums:
    """A level so far: sums and tallies, never single units."""

    def __init__(self, plan: Plan, level: str) -> None:
        self.level = level
        self.attributes = plan.schema.attributes
        self.shape = plan.schema.shape
        queries = (plan.schema.query(TOTAL), *(item.query for item in plan.at(level)))
        self.tallies = {query.name: _ErrorTally(query) for query in queries}
        self.units = np.zeros(len(SIZE_CLASSES), np.int64)
        self.percentages = np.zeros(len(SIZE_CLASSES))
        axes = range(len(self.shape))
        ways = [k for k in range(1, len(axes) + 1) if k <= _MOST_WAYS or k == len(axes)]
        self.distances = {chosen: 0.0 for k in ways for chosen in combinations(axes, k)}
        self.compared = self.empty = 0
        # People, sum of errors, sum of absolute errors of each category of each attribute.
        self.groups = [np.zeros((3, size), np.int64) for size in self.shape]

    def add(self, some: _BothSides) -> None:
        """Add some units."""
        estimated, counted = some.totals
        size_class = np.searchsorted(_LEAST, counted, side="right")
        self.units += np.bincount(size_class, minlength=len(SIZE_CLASSES))
        with_people = counted > 0
        percent = 100 * np.abs(estimated - counted)[with_people] / counted[with_people]
        self.percentages += np.bincount(size_class[with_people], percent, len(SIZE_CLASSES))
        self.compared += int((with_people & (estimated > 0)).sum())
        self.empty += int((~with_people & (estimated == 0)).sum())

        unit, cell, error = some.errors()
        for tally in self.tallies.values():
            tally.add(unit, cell, error, size_class)
        codes, people = self._codes(cell), self._codes(some.cell)
        for axis, (size, sums) in enumerate(zip(self.shape, self.groups, strict=True)):
            sums[0] += np.bincount(people[axis], some.count, size).astype(np.int64)
            sums[1] += np.bincount(codes[axis], error, size).astype(np.int64)
            key, summed = _sums_by_key(unit * size + codes[axis], error, some.units * size)
            sums[2] += np.bincount(key % size, np.abs(summed), size).astype(np.int64)

        unit, cell, shift = some.shifts()
        codes = self._codes(cell)
        for chosen in self.distances:
            key, size = unit, some.units
            for axis in chosen:
                key, size = key * self.shape[axis] + codes[axis], size * self.shape[axis]
            self.distances[chosen] += float(np.abs(_sums_by_key(key, shift, size).sums).sum()) / 2

    def _codes(self, cell: IntArray) -> tuple[IntArray, ...]:
        """Return the category of each cell, attribute by attribute."""
        return np.unravel_index(cell, self.shape) if self.shape else ()

    def error_rows(self) -> Iterator[ErrorRow]:
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
                summary = tally.summary(members, units)
                *first, quantiles = summary
                yield ErrorRow._make((self.level, name, label, *first, *quantiles, percentage))

    def marginal_rows(self) -> Iterator[MarginalRow]:
        """Yield the rows of `marginals`."""
        one_empty = int(self.units.sum()) - self.compared - self.empty
        for chosen, distance in self.distances.items():
            name = "*".join(self.attributes[axis].name for axis in chosen)
            mean = distance / self.compared if self.compared else None
            yield MarginalRow(
                self.level, len(chosen), name, self.compared, one_empty, self.empty, mean
            )

    def group_rows(self) -> Iterator[GroupRow]:
        """Yield the rows of `groups`."""
        units = int(self.units.sum())
        for attribute, sums in zip(self.attributes, self.groups, strict=True):
            for category, (people, error, absolute) in zip(
                attribute.categories, sums.T.tolist(), strict=True
            ):
                yield GroupRow(
                    self.level,
                    attribute.name,
                    category,
                    units,
                    people,
                    absolute / units,
                    error / units,
                    error / people if people else None,
                )


class _Summary(NamedTuple):
    """The errors of a query in some size classes; `quantiles` are those of QUANTILES."""

    cells: int
    mean_absolute_error: float
    bias: float
    root_mean_squared_error: float
    quantiles: list[int]


class _ErrorTally:
    """How often each non-zero error of a query occurs in each size class.

    Errors are integers, so these few numbers give every quantile exactly.
    """

    def __init__(self, query: Query) -> None:
        self.query = query
        self.keys = np.empty(0, np.int64)  # size class × _SPAN + error + _SPAN/2, sorted
        self.times = np.empty(0, np.int64)

    def add(self, unit: IntArray, cell: IntArray, error: IntArray, size_class: IntArray) -> None:
        """Add the wrong cells of some units."""
        where = self.query.cells_at(cell)
        kept = np.flatnonzero(where >= 0)
        cells = self.query.cells
        key, summed = _sums_by_key(
            unit[kept] * cells + where[kept], error[kept], len(size_class) * cells
        )
        signed = summed.astype(np.int64)
        signed += size_class[key // cells] * _SPAN + _SPAN // 2
        seen, times = np.unique(signed[summed != 0], return_counts=True)
        self.keys, position = np.unique(np.append(self.keys, seen), return_inverse=True)
        counted = np.bincount(position, np.append(self.times, times), len(self.keys))
        self.times = counted.astype(np.int64)

    def summary(self, members: Array, units: int) -> _Summary:
        """Return the errors in some size classes, which have `units` units."""
        cells = units * self.query.cells
        inside = members[self.keys // _SPAN]
        error = self.keys[inside] % _SPAN - _SPAN // 2
        times = self.times[inside]
        value = np.append(error, 0)
        often = np.append(times, cells - times.sum())
        order = np.argsort(value, kind="stable")
        reached = np.cumsum(often[order])
        ranks = [-(-percent * cells // 100) for percent in QUANTILES]
        return _Summary(
            cells,
            int((np.abs(error) * times).sum()) / cells,
            int((error * times).sum()) / cells,
            math.sqrt(float((error.astype(float) ** 2 * times).sum()) / cells),
            value[order][np.searchsorted(reached, ranks)].tolist(),
        )


class _KeySums(NamedTuple):
    """Keys that occur, sorted, and the sum of each."""

    keys: IntArray
    sums: FloatArray


def _sums_by_key(key: IntArray, amount: Array, size: int) -> _KeySums:
    """Add up the amounts of each key; keys are below `size`."""
    if size <= 8 * len(key):
        sums = np.bincount(key, amount, size)
        at = np.flatnonzero(sums).astype(np.int64, copy=False)
        return _KeySums(at, np.asarray(sums[at], np.float64))
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    if len(first) == 0:
        return _KeySums(key, np.empty(0))
    return _KeySums(key[first], np.add.reduceat(amount[order].astype(np.float64), first))


def _batches(mine: Histograms, theirs: Histograms) -> Iterator[tuple[int, int]]:
    """Cut the units into runs of about _ENTRIES entries of both sides; a unit counts as one too."""
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
                f"the estimates and the counts have different units of level {level}; tabulate with "
                f"the crosswalk of the release"
            )


def _table(
    kind: type[ErrorRow | MarginalRow | GroupRow | ForecastRow | DroppedRow],
    rows: Sequence[NamedTuple],
) -> pa.Table:
    """Return rows as a table, with a column per field."""
    types = {str: pa.string(), int: pa.int64()}
    fields = get_type_hints(kind)
    columns = list(zip(*rows, strict=True)) or [()] * len(fields)
    arrays = {
        name: pa.array(values, types.get(of, pa.float64()))
        for (name, of), values in zip(fields.items(), columns, strict=True)
    }
    return pa.table(arrays, metadata={"audience": "internal"})


# The short report, in Markdown.

_Line: TypeAlias = Sequence[str | int | float | None]
_SHOWN = {
    "mean_absolute_error": "mean absolute error",
    "bias": "bias",
    "root_mean_squared_error": "RMSE",
    "error_05": "5 %",
    "error_95": "95 %",
    "mean_absolute_percentage_error": "mean % error",
}


def _short_report(tables: Accuracy) -> str:
    errors = [ErrorRow(**row) for row in tables.errors.to_pylist()]
    marginals = [MarginalRow(**row) for row in tables.marginals.to_pylist()]
    groups = [GroupRow(**row) for row in tables.groups.to_pylist()]
    levels = list(dict.fromkeys(row.level for row in errors))
    lowest = levels[-1]
    totals = [row for row in errors if row.query == TOTAL]
    by_level = [(row.level, row) for row in totals if row.size_class == ALL]
    by_size = [(row.size_class, row) for row in totals if row.level == lowest]
    lines = [
        *(
            f"# {WATERMARK}",
            f"Error of the release against the confidential counts: {tables.title}",
        ),
        "Error is estimate minus count. error.json and the Parquet files have all errors.",
        "## TOTAL, by level",
        _markdown(["level", "units", *_SHOWN.values()], _total_lines(by_level)),
        f"## TOTAL at level {lowest}, by the number of people in a unit",
        _markdown(["people", "units", *_SHOWN.values()], _total_lines(by_size)),
        "## Mean absolute error of a cell, by query",
        _markdown(["query", *levels], _mean_lines(errors, levels)),
        "## Forecast and realised error, by level and query",
        "The root mean square error of a cell: what the plan forecast for the best unbiased estimate, "
        "and what the published tables have. Published counts are never negative, so that small "
        "counts can be closer than forecast. Rounding moved a cell by the last column at most.",
        _markdown(
            ["level", "query", "forecast", "realised", "ratio", "rounding"],
            _forecast_lines(tables),
        ),
        *_dropped_lines(tables),
        "## Total variation distance, by the number of attributes of a marginal",
        "Averaged over the marginals and over the units with people in both.",
        _markdown(["attributes", *levels], _distance_lines(marginals, levels)),
        f"## Groups at level {lowest} with the lowest and the highest relative bias",
        f"Of the groups with at least {_SHOWN_GROUP} people.",
        _markdown(
            ["group", "people", "mean absolute error", "bias", "relative bias"],
            _group_lines([row for row in groups if row.level == lowest]),
        ),
    ]
    return "\n\n".join(lines) + "\n"


def _total_lines(totals: Iterable[tuple[str, ErrorRow]]) -> Iterator[_Line]:
    for name, row in totals:
        yield [name, row.cells, *(getattr(row, column) for column in _SHOWN)]


def _mean_lines(errors: Sequence[ErrorRow], levels: Sequence[str]) -> Iterator[_Line]:
    every = [row for row in errors if row.size_class == ALL]
    mean = {(row.query, row.level): row.mean_absolute_error for row in every}
    for query in dict.fromkeys(row.query for row in every):
        yield [query, *(mean.get((query, level)) for level in levels)]


def _forecast_lines(tables: Accuracy) -> Iterator[_Line]:
    for row in (ForecastRow(**row) for row in tables.forecasts.to_pylist()):
        yield [row.level, row.query, *row[3:]]


def _dropped_lines(tables: Accuracy) -> Iterator[str]:
    rows = [DroppedRow(**row) for row in tables.dropped.to_pylist()]
    if not rows:
        return
    yield "## Rows that were dropped, because a person has more than the plan counts"
    yield "Errors above do not include them: they compare with what was counted."
    header = ["level", "units", "units with dropped rows", "rows dropped", "mean", "most"]
    yield _markdown(header, rows)


def _distance_lines(marginals: Sequence[MarginalRow], levels: Sequence[str]) -> Iterator[_Line]:
    by_level = {level: [row for row in marginals if row.level == level] for level in levels}
    for ways in dict.fromkeys(row.ways for row in marginals):
        line: list[str | int | float | None] = [ways]
        for level in levels:
            rows = [row.total_variation_distance for row in by_level[level] if row.ways == ways]
            known = [distance for distance in rows if distance is not None]
            line.append(sum(known) / len(known) if len(known) == len(rows) else None)
        yield line
    for name in ("units", "units_empty_in_one", "units_empty_in_both"):
        if marginals:
            yield [name.replace("_", " "), *(getattr(by_level[level][0], name) for level in levels)]


def _group_lines(groups: Sequence[GroupRow]) -> Iterator[_Line]:
    kept = [row for row in groups if row.people >= _SHOWN_GROUP]
    kept.sort(key=lambda row: row.relative_bias or 0.0)
    for row in kept if len(kept) <= 10 else kept[:5] + kept[-5:]:
        name = f"{row.attribute} = {row.category}"
        yield [name, row.people, row.mean_absolute_error, row.bias, row.relative_bias]


def _markdown(header: _Line, rows: Iterable[_Line]) -> str:
    def text(value: str | int | float | None) -> str:
        if value is None:
            return ""
        if isinstance(value, str):
            return value.replace("|", "\\|")
        return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"

    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(text, line))} |" for line in lines)
