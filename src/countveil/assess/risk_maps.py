"""What a release reveals about each person, cell by cell: an INTERNAL map and a public one.

The internal map takes every non-empty cell of the confidential counts, an intruder who knows everyone
else in the unit, and all published measurements of the level, and computes R' for the noise that was
actually drawn. The public map uses published values alone.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numba import njit

from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.risk import THRESHOLDS
from countveil.base import storage
from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.engines.counts import Counts
from countveil.engines.workers import Workers, hired
from countveil.errors import InputError
from countveil.estimate.release_error import WATERMARK
from countveil.measure import manifest
from countveil.measure.measurements import Measurements
from countveil.noise.law import Mechanism
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.plan.workload import Query

SIZES = ("1", "2", "3-4", "5-9", "10+")
Entries = tuple[IntArray, IntArray, IntArray]  # unit, cell and count of every non-empty cell
Progress = Callable[[int, int], None]  # units completed, all units

_FIRST_OF_SIZE = np.array([2, 3, 5, 10])  # counts from which the next size begins
_TABLE = 4_096  # losses of noise other than Gaussian are constant or never seen beyond this


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class RiskMap:
    """R' of many cells, summarised by group.

    Attributes
    ----------
    level : str
        The level of the unit in which the intruder knows everyone else.
    prior : float
        The intruder's prior.
    thresholds : tuple of float
        The values of R' for which people above are counted.
    groups : pyarrow.Table
        A row per place, size and category: the number of cells and people, the mean and the largest
        R' over people, and how many people are above each threshold.
    worst : pyarrow.Table
        The cells with the largest R'.
    audience : {"public", "internal"}
        "internal" if the map was computed from confidential counts.
    """

    level: str
    prior: float
    thresholds: tuple[float, ...]
    groups: pa.Table
    worst: pa.Table
    audience: Literal["public", "internal"]

    def __repr__(self) -> str:
        return f"<{self.audience}: risk map of level {self.level}>"

    @property
    def document(self) -> dict[str, Any]:
        """The map as JSON."""
        return {
            "audience": self.audience,
            "level": self.level,
            "prior": self.prior,
            "groups": self.groups.to_pylist(),
            "worst": self.worst.to_pylist(),
        }

    def write(self, folder: Path) -> None:
        """Write an internal map into the internal folder of a release, readable by its owner only."""
        storage.make_folder(folder, 0o700)
        for name, table in (("risk", self.groups), ("risk-worst", self.worst)):
            with storage.replacing_private(folder / f"{name}.parquet") as path:
                pq.write_table(table, path)
        with storage.replacing_private(folder / "risk.json") as path:
            path.write_text(json.dumps({"notice": WATERMARK, **self.document}, indent=2) + "\n")


def internal_map(
    measurements: Measurements,
    counts: Counts,
    *,
    prior: float,
    level: str | None = None,
    places: str | None = None,
    thresholds: Sequence[float] = THRESHOLDS,
    worst: int = 20,
    workers: int | Workers = 1,
    progress: Progress = lambda done, units: None,
) -> RiskMap:
    """Return the risk of everyone who was counted, for the noise that was drawn; it is internal.

    The intruder knows everyone else in the unit. They see all queries of the level. The number is R',
    their posterior over their prior, of a person in each non-empty cell.

    Parameters
    ----------
    measurements : Measurements
        What was released.
    counts : Counts
        The confidential counts it was made from.
    prior : float
        The intruder's probability that the target is there.
    level : str, optional
        The level of the unit in which they know everyone else; the plan's judged level by default.
    places : str, optional
        The level by which risks are summarised; the highest by default.
    thresholds : sequence of float
        Values of R' for which people above are counted.
    worst : int
        How many of the largest risks are listed.
    workers : int or Workers
        A number of processes, or the workers of an engine.
    progress : callable
        Called with the units completed and all units.

    Returns
    -------
    RiskMap
        Internal.
    """
    plan, geography = measurements.plan, counts.geography
    level = plan.judged_level if level is None else level
    if counts.counted_as != plan.counting_digest:
        raise InputError("the counts were tabulated for another plan; tabulate this one")
    labels = [(item.name, list(item.categories)) for item in plan.schema.attributes]
    groups = _Groups.of(plan, geography, level, places, labels)
    job = groups.job(measurements, None, prior, thresholds, worst)
    entries = partial(counts.entries, level)
    return groups.run_tasks(job, entries, workers, progress)


def public_map(
    measurements: Measurements,
    geography: Geography,
    *,
    prior: float,
    query: str | None = None,
    level: str | None = None,
    places: str | None = None,
    thresholds: Sequence[float] = THRESHOLDS,
    worst: int = 20,
    workers: int | Workers = 1,
    progress: Progress = lambda done, units: None,
) -> RiskMap:
    """Return the risk of a target who would be alone in their cell, from published values alone.

    The intruder knows that no one else is in the cell. They see its noisy count in one query. The
    number is R', their posterior over their prior, for every cell that reads 1 or more.

    Parameters
    ----------
    measurements : Measurements
        What was released.
    geography : Geography
        The units of the release.
    query : str, optional
        The query whose values are mapped; the most detailed one by default.
    prior, level, places, thresholds, worst, workers, progress
        As for `internal_map`.

    Returns
    -------
    RiskMap
        Public.
    """
    plan = measurements.plan
    level = plan.judged_level if level is None else level
    map_query = _finest(plan, level) if query is None else plan.schema.query(query)
    if map_query.name not in {item.query.name for item in plan.at(level)}:
        measured = ", ".join(item.query.name for item in plan.at(level))
        raise InputError(
            f"query: {map_query.name} is not measured at level {level}; choose from {measured}"
        )
    labels = [(name, list(categories)) for name, categories in map_query.labels]
    groups = _Groups.of(plan, geography, level, places, labels)
    job = groups.job(measurements, map_query.name, prior, thresholds, worst)
    return groups.run_tasks(job, None, workers, progress)


def _finest(plan: Plan, level: str) -> Query:
    return max((item.query for item in plan.at(level)), key=lambda query: query.cells)


@dataclass(frozen=True, eq=False, slots=True)
class _Groups:
    """How cells of a level are grouped: all, by place, by size, and by category of each attribute."""

    plan: Plan
    geography: Geography
    level: str
    ancestor: IntArray
    labels: list[tuple[str, list[str]]]
    kinds: list[tuple[str, Sequence[str]]]

    @classmethod
    def of(
        cls,
        plan: Plan,
        geography: Geography,
        level: str,
        places: str | None,
        labels: list[tuple[str, list[str]]],
    ) -> _Groups:
        places = plan.levels[0] if places is None else places
        if plan.levels.index(places) > plan.levels.index(level):
            raise InputError(
                f"places: {places} is below {level}; choose {level} or a level above it"
            )
        kinds: list[tuple[str, Sequence[str]]] = [
            ("all", ["all"]),
            ("place", geography.geocodes(places).to_pylist()),
            ("size", SIZES),
            *labels,
        ]
        return cls(plan, geography, level, geography.ancestors(level, places), labels, kinds)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(categories) for _, categories in self.labels)

    def job(
        self,
        measurements: Measurements,
        query: str | None,
        prior: float,
        thresholds: Sequence[float],
        worst: int,
    ) -> RiskJob:
        """Return what all tasks of a map share."""
        if not thresholds or any(not t > 0 for t in thresholds):
            raise InputError("thresholds: give at least one, all above 0")
        who = Intruder(prior=prior, rows=self.plan.rows_per_person)
        cells = int(np.prod(self.shape, dtype=np.int64))
        codes = np.unravel_index(np.arange(cells), self.shape) if self.shape else ()
        return RiskJob(
            # Workers run in folders of their own, so the job names its files by their full paths.
            dataclasses.replace(measurements, folder=measurements.folder.absolute()),
            self.level,
            query,
            who.prior,
            tuple(thresholds),
            worst,
            np.cumsum([0, *(len(names) for _, names in self.kinds)]),
            np.array(codes, np.int64).reshape(len(self.labels), cells),
        )

    def run_tasks(
        self,
        job: RiskJob,
        entries: Callable[[int, int], Entries] | None,
        workers: int | Workers,
        progress: Progress,
    ) -> RiskMap:
        """Run the tasks of a map, and combine their sums."""
        runs, units = job.measurements.runs(self.level), self.geography.units(self.level)

        def task(start: int, stop: int) -> RiskTask:
            exact = None if entries is None else entries(start, stop)
            return RiskTask(start, stop, self.ancestor[start:stop], exact)

        def reported(parts: Iterable[RiskSums]) -> Iterator[RiskSums]:
            for (_, stop), part in zip(runs, parts, strict=True):
                yield part
                progress(stop, units)

        with hired(workers) as team:
            team.reach(job.measurements.folder / manifest.NAME)
            tasks = (task(*run) for run in runs)
            sums = add_up(job, reported(team.map(job, tasks, large=len(runs) > 1)))
        return self._labelled(job, sums, "public" if entries is None else "internal")

    def _labelled(
        self, job: RiskJob, sums: RiskSums, audience: Literal["public", "internal"]
    ) -> RiskMap:
        rows = []
        for number, (kind, names) in enumerate(self.kinds):
            of_kind = sums.rows[job.first[number] : job.first[number + 1]]
            if kind == "size" and audience == "public":
                continue  # sizes are confidential
            for name, (cells, people, total, most, *above) in zip(names, of_kind, strict=True):
                if cells:
                    known = [kind, name, int(cells), int(people), total / people, most]
                    rows.append([*known, *(int(number) for number in above)])
        columns = ["by", "group", "cells", "people", "mean_risk", "largest_risk"]
        columns += [f"above_{threshold:g}" for threshold in job.thresholds]
        groups = pa.table({name: [row[i] for row in rows] for i, name in enumerate(columns)})
        worst = self._worst(sums.largest)
        return RiskMap(self.level, job.prior, job.thresholds, groups, worst, audience)

    def _worst(self, largest: list[CellRisk]) -> pa.Table:
        codes = self.geography.geocodes(self.level)
        data: dict[str, list[Any]] = {"geocode": [], **{name: [] for name, _ in self.labels}}
        data["people"], data["risk"] = [], []
        for risk, unit, cell, people in largest:
            data["geocode"].append(codes[unit].as_py())
            numbers = np.unravel_index(cell, self.shape) if self.shape else ()
            for (name, categories), number in zip(self.labels, numbers, strict=True):
                data[name].append(categories[int(number)])
            data["people"].append(people)
            data["risk"].append(risk)
        return pa.table(data)


# Sums of R' by group and the largest ones: one task per run of units, on any worker.


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class RiskTask:
    """Units start … stop - 1: the place of each, and for an internal map the confidential entries."""

    start: int
    stop: int
    places: IntArray
    entries: Entries | None

    def __repr__(self) -> str:
        return f"<risk of units {self.start} … {self.stop - 1}>"


class CellRisk(NamedTuple):
    """The risk of one cell, and how many people it has."""

    risk: float
    unit: int
    cell: int
    people: int


class _MappedCells(NamedTuple):
    """Cells by unit, the people in each, and what the release adds to their log-odds."""

    unit: IntArray
    cell: IntArray
    people: IntArray
    log_odds: FloatArray


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class RiskSums:
    """Sums over the groups that occur, and the largest risks.

    A row has cells, people, their summed risk, the largest risk, and people above each threshold.
    """

    groups: IntArray
    rows: FloatArray
    largest: list[CellRisk]

    def __repr__(self) -> str:
        return f"<sums of {len(self.groups)} groups>"


@dataclass(frozen=True, eq=False, slots=True)
class RiskJob:
    """What all tasks of a map share: the noise, the intruder, and how cells are grouped.

    `query` is the one whose published values are mapped, None for an internal map. The groups of each
    kind begin at its entry in `first`; `codes` has the category of each cell by attribute.
    """

    measurements: Measurements
    level: str
    query: str | None
    prior: float
    thresholds: tuple[float, ...]
    worst: int
    first: IntArray
    codes: IntArray

    def run(self, task: RiskTask) -> RiskSums:
        """Return the sums over some units."""
        values = self._values(task)
        cells = self._cells(values, task.entries)
        sums = np.zeros((int(self.first[-1]), 4 + len(self.thresholds)))
        with np.errstate(over="ignore"):
            risk = 1 / (self.prior + (1 - self.prior) * np.exp(-cells.log_odds))
        _add_to_groups(
            sums,
            self.first,
            *(task.places[cells.unit], self.codes, cells.cell, cells.people),
            *(risk, np.array(self.thresholds)),
        )
        few = min(self.worst, len(risk))
        most = np.argpartition(risk, len(risk) - few)[len(risk) - few :] if few else ()
        groups = np.flatnonzero(sums[:, 0])
        largest = [
            CellRisk(
                float(risk[i]),
                int(cells.unit[i]) + task.start,
                int(cells.cell[i]),
                int(cells.people[i]),
            )
            for i in most
        ]
        return RiskSums(groups, sums[groups], largest)

    def _values(self, task: RiskTask) -> dict[str, Array]:
        whole = self.measurements.units(self.level, task.start, task.stop)
        values, at = {}, 0
        for item in self.measurements.plan.at(self.level):
            values[item.query.name] = np.ascontiguousarray(whole[:, at : at + item.query.cells])
            at += item.query.cells
        return values

    def _cells(self, values: Mapping[str, Array], entries: Entries | None) -> _MappedCells:
        """Return the cells to map, with what the release adds to the log-odds of a person in each."""
        plan, laws = self.measurements.plan, self.measurements.mechanisms
        if entries is not None:
            log_odds = realised_log_odds(plan, self.level, values, laws, *entries)
            return _MappedCells(*entries, log_odds)
        assert self.query is not None
        rows, table = plan.rows_per_person, values[self.query]
        unit, cell = np.nonzero(table >= 1)
        counts = table[unit, cell].astype(float)
        log_odds = laws[self.level, self.query].loss_at(counts - rows, rows)
        return _MappedCells(unit, cell, np.ones(len(unit), np.int64), log_odds)


def add_up(job: RiskJob, parts: Iterable[RiskSums]) -> RiskSums:
    """Add up the sums of all tasks, and keep the largest risks."""
    sums = np.zeros((int(job.first[-1]), 4 + len(job.thresholds)))
    largest: list[CellRisk] = []
    for part in parts:
        highest = np.maximum(sums[part.groups, 3], part.rows[:, 3])
        sums[part.groups] += part.rows
        sums[part.groups, 3] = highest
        largest = sorted([*largest, *part.largest], reverse=True)[: job.worst]
    return RiskSums(np.arange(len(sums)), sums, largest)


# Compiled loops over cells.


def realised_log_odds(
    plan: Plan,
    level: str,
    values: Mapping[str, Array],
    mechanisms: Mapping[tuple[str, str], Mechanism],
    unit: IntArray,
    cell: IntArray,
    count: IntArray,
) -> FloatArray:
    """Return what all queries add to the log-odds of a person who is counted, for each cell.

    It is the loss of each query's realised noise: its value minus the exact count.
    """
    log_odds = np.zeros(len(cell))
    for item in plan.at(level):
        law = mechanisms[level, item.query.name]
        variance = law.gaussian_variance
        if variance is not None:
            rate, table = 1 / (2 * variance), np.empty((0, 0))
        else:
            noise = np.arange(-_TABLE, _TABLE + 1)
            shifts = range(1, plan.rows_per_person + 1)
            rate, table = 0.0, np.array([law.loss_at(noise, shift) for shift in shifts])
        add_losses(
            log_odds,
            *(unit, count, item.query.cells_at(cell), values[item.query.name]),
            *(rate, table, plan.rows_per_person),
        )
    return log_odds


@njit(cache=True, nogil=True)
def add_losses(
    log_odds: FloatArray,
    unit: IntArray,
    count: IntArray,
    place: IntArray,
    values: Array,
    rate: float,
    table: FloatArray,
    rows: int,
) -> None:
    """Add the losses of one query; entries are sorted by unit, `place` is the query's cell of each."""
    exact = np.zeros(values.shape[1], np.int64)
    start = 0
    while start < len(unit):
        stop = start
        while stop < len(unit) and unit[stop] == unit[start]:
            if place[stop] >= 0:
                exact[place[stop]] += count[stop]
            stop += 1
        for i in range(start, stop):
            at = place[i]
            if at < 0:
                continue
            noise = values[unit[i], at] - exact[at]
            shift = min(rows, count[i])
            if len(table) == 0:
                log_odds[i] += rate * shift * (2 * noise + shift)
            else:
                half = table.shape[1] // 2
                log_odds[i] += table[shift - 1, min(max(noise, -half), half) + half]
        for i in range(start, stop):
            if place[i] >= 0:
                exact[place[i]] = 0
        start = stop


@njit(cache=True, nogil=True)
def _add_to_groups(
    sums: FloatArray,
    first: IntArray,
    place: IntArray,
    codes: IntArray,
    cell: IntArray,
    count: IntArray,
    risk: FloatArray,
    thresholds: FloatArray,
) -> None:
    """Add cells, people, risk and people above thresholds to each cell's groups; keep the largest risk.

    The groups of a cell are all, its place, its size, and its category of each attribute.
    """
    for i in range(len(cell)):
        size = 0
        while size < len(_FIRST_OF_SIZE) and count[i] >= _FIRST_OF_SIZE[size]:
            size += 1
        for kind in range(3 + len(codes)):
            if kind == 0:
                group = first[0]
            elif kind == 1:
                group = first[1] + place[i]
            elif kind == 2:
                group = first[2] + size
            else:
                group = first[kind] + codes[kind - 3, cell[i]]
            sums[group, 0] += 1
            sums[group, 1] += count[i]
            sums[group, 2] += count[i] * risk[i]
            sums[group, 3] = max(sums[group, 3], risk[i])
            for j in range(len(thresholds)):
                if risk[i] > thresholds[j]:
                    sums[group, 4 + j] += count[i]
