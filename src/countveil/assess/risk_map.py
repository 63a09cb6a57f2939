"""What a release tells about each person, cell by cell: an INTERNAL map, and a public one.

The internal map takes every non-empty cell of the confidential counts, an intruder who knows everyone
else in the unit, and all published measurements of the level: R' as it came out. The public map uses
published values alone.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from countveil import storage
from countveil.assess.error_text import WATERMARK
from countveil.assess.intruder import Intruder
from countveil.assess.risk import THRESHOLDS
from countveil.assess.risk_sums import SIZES, Entries, RiskJob, RiskSums, RiskTask, together
from countveil.errors import InputError
from countveil.measure import manifest
from countveil.measure.measurement import Measurements
from countveil.numerics import IntArray
from countveil.schema.geography import Geography
from countveil.schema.plan import Plan
from countveil.tabulate.counts import Counts
from countveil.workers import Workers, hired

Progress = Callable[[int, int], None]  # units done, units


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class RiskMap:
    """R' of many cells, summed up: `groups` by place, size and attribute; `worst` the largest ones.

    `groups` has, for each group, the number of cells and people, the mean and largest R' (over people),
    and how many people are above each threshold.
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
        """The map as JSON holds it."""
        return {
            "audience": self.audience,
            "level": self.level,
            "prior": self.prior,
            "groups": self.groups.to_pylist(),
            "worst": self.worst.to_pylist(),
        }

    def write(self, folder: Path) -> None:
        """Write an internal map into the internal folder of a release, for its owner alone."""
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
    """Map the risk of everyone who was counted; it is internal.

    He knows all others in the unit; he sees all queries of the level; the number is R' of a person in
    each cell, as the noise came out. `places` is the level that risks are summed up by, the highest if
    not said. `workers` are a number of processes, or those of an engine.
    """
    plan, geography = measurements.plan, counts.geography
    level = plan.judged_level if level is None else level
    if counts.counted_as != plan.counting_digest:
        raise InputError("the counts were tabulated for another plan; tabulate this one")
    labels = [(item.name, list(item.categories)) for item in plan.schema.attributes]
    groups = _Groups.of(plan, geography, level, places, labels)
    job = groups.job(measurements, None, prior, thresholds, worst)
    entries = partial(counts.entries, level)
    return groups.mapped(job, entries, workers, progress)


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
    """Map R' of a target who would be alone in his cell, from published values alone.

    He knows that nobody else is in the cell; he sees its value in one query, the most detailed one if
    not said; the number is R' if his target were there, for every cell that reads 1 or more.
    """
    plan = measurements.plan
    level = plan.judged_level if level is None else level
    chosen = _finest(plan, level) if query is None else plan.schema.query(query)
    if chosen.name not in {item.query.name for item in plan.at(level)}:
        raise InputError(f"query: {chosen.name} is not measured at level {level}")
    labels = [(name, list(categories)) for name, categories in chosen.labels]
    groups = _Groups.of(plan, geography, level, places, labels)
    job = groups.job(measurements, chosen.name, prior, thresholds, worst)
    return groups.mapped(job, None, workers, progress)


def _finest(plan: Plan, level: str) -> Any:
    return max((item.query for item in plan.at(level)), key=lambda query: query.cells)


@dataclass(frozen=True, eq=False, slots=True)
class _Groups:
    """How cells of a level are summed up: all, by place, by size, and by category of each attribute."""

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
            raise InputError(f"places: {places} lies below {level}; choose a level above it")
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
        """Return what all tasks of the map share."""
        if not thresholds or any(not t > 0 for t in thresholds):
            raise InputError("thresholds: give some, all above 0")
        who = Intruder(prior=prior, rows=self.plan.rows_per_person)
        cells = int(np.prod(self.shape, dtype=np.int64))
        codes = np.unravel_index(np.arange(cells), self.shape) if self.shape else ()
        return RiskJob(
            # Workers stand in folders of their own: what travels to them names its files in full.
            dataclasses.replace(measurements, folder=measurements.folder.absolute()),
            self.level,
            query,
            who.prior,
            tuple(thresholds),
            worst,
            np.cumsum([0, *(len(names) for _, names in self.kinds)]),
            np.array(codes, np.int64).reshape(len(self.labels), cells),
        )

    def mapped(
        self,
        job: RiskJob,
        entries: Callable[[int, int], Entries] | None,
        workers: int | Workers,
        progress: Progress,
    ) -> RiskMap:
        """Do the tasks of a map, and put their sums together."""
        runs, units = job.measurements.runs(self.level), self.geography.units(self.level)

        def task(start: int, stop: int) -> RiskTask:
            exact = None if entries is None else entries(start, stop)
            return RiskTask(start, stop, self.ancestor[start:stop], exact)

        def told(parts: Iterable[RiskSums]) -> Iterator[RiskSums]:
            for (_, stop), part in zip(runs, parts, strict=True):
                yield part
                progress(stop, units)

        with hired(workers) as team:
            team.reach(job.measurements.folder / manifest.NAME)
            tasks = (task(*run) for run in runs)
            sums = together(job, told(team.map(job, tasks, large=len(runs) > 1)))
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

    def _worst(self, largest: list[tuple[float, int, int, int]]) -> pa.Table:
        codes = self.geography.geocodes(self.level)
        data: dict[str, list[Any]] = {"geocode": [], **{name: [] for name, _ in self.labels}}
        data["people"], data["risk"] = [], []
        for risk, unit, cell, count in largest:
            data["geocode"].append(codes[unit].as_py())
            numbers = np.unravel_index(cell, self.shape) if self.shape else ()
            for (name, categories), number in zip(self.labels, numbers, strict=True):
                data[name].append(categories[int(number)])
            data["people"].append(count)
            data["risk"].append(risk)
        return pa.table(data)
