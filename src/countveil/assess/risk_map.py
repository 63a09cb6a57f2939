"""What a release tells about each person, cell by cell: an INTERNAL map, and a public one.

The internal map takes every non-empty cell of the confidential counts, an intruder who knows everyone
else in the unit, and all published measurements of the level: R' as it came out. The public map uses
published values alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numba import njit

from countveil import storage
from countveil.assess.error_text import WATERMARK
from countveil.assess.intruder import Intruder
from countveil.assess.risk import THRESHOLDS
from countveil.errors import InputError
from countveil.measure.measurement import Measurement, Measurements
from countveil.mechanisms.discrete_gaussian import DiscreteGaussian
from countveil.numerics import FloatArray, IntArray
from countveil.schema.geography import Geography
from countveil.schema.plan import Plan
from countveil.tabulate.counts import Counts

SIZES = ("1", "2", "3-4", "5-9", "10+")

_FIRST_OF_SIZE = np.array([2, 3, 5, 10])
_TABLE = 4_096  # losses of other noise beyond this are constant or never seen

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
    progress: Progress = lambda done, units: None,
) -> RiskMap:
    """Map the risk of everyone who was counted; it is internal.

    He knows all others in the unit; he sees all queries of the level; the number is R' of a person in
    each cell, as the noise came out. `places` is the level that risks are summed up by, the highest if
    not said.
    """
    plan, geography = measurements.plan, counts.geography
    level = plan.judged_level if level is None else level
    if counts.counted_as != plan.counting_digest:
        raise InputError("the counts were tabulated for another plan; tabulate this one")
    labels = [(item.name, list(item.categories)) for item in plan.schema.attributes]
    summary = _Summary(plan, geography, level, places, prior, tuple(thresholds), worst, labels)
    for start, batch in _batches(measurements, level):
        units = len(next(iter(batch.values())).values)
        entries = counts.entries(level, start, start + units)
        log_odds = realised_log_odds(plan, level, batch, *entries)
        summary.add(start, *entries, log_odds)
        progress(start + units, geography.units(level))
    return summary.result("internal")


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
    progress: Progress = lambda done, units: None,
) -> RiskMap:
    """Map R' of a target who would be alone in his cell, from published values alone.

    He knows that nobody else is in the cell; he sees its value in one query, the most detailed one if
    not said; the number is R' if his target were there, for every cell that reads 1 or more.
    """
    plan = measurements.plan
    level = plan.judged_level if level is None else level
    chosen = _finest(plan, level) if query is None else plan.schema.query(query)
    labels = [(name, list(categories)) for name, categories in chosen.labels]
    summary = _Summary(plan, geography, level, places, prior, tuple(thresholds), worst, labels)
    rows = plan.rows_per_person
    for start, batch in _batches(measurements, level):
        if chosen.name not in batch:
            raise InputError(f"query: {chosen.name} is not measured at level {level}")
        values, law = batch[chosen.name].values, batch[chosen.name].mechanism
        unit, cell = np.nonzero(values >= 1)
        log_odds = law.loss_at(values[unit, cell].astype(float) - rows, rows)
        summary.add(start, unit, cell, np.ones(len(unit), np.int64), log_odds)
        progress(start + len(values), geography.units(level))
    return summary.result("public")


def realised_log_odds(
    plan: Plan,
    level: str,
    batch: dict[str, Measurement],
    unit: IntArray,
    cell: IntArray,
    count: IntArray,
) -> FloatArray:
    """Return what all queries add to the log-odds of a person in each cell, being there.

    The loss of each query's realised noise: its value less the exact count.
    """
    log_odds = np.zeros(len(cell))
    for item in plan.at(level):
        measured = batch[item.query.name]
        law = measured.mechanism
        if isinstance(law, DiscreteGaussian):
            rate, table = float(1 / (2 * law.sigma2)), np.empty((0, 0))
        else:
            noise = np.arange(-_TABLE, _TABLE + 1)
            shifts = range(1, plan.rows_per_person + 1)
            rate, table = 0.0, np.array([law.loss_at(noise, shift) for shift in shifts])
        _add_losses(
            log_odds,
            *(unit, cell, count, item.query.cell_of, measured.values),
            *(rate, table, plan.rows_per_person),
        )
    return log_odds


@njit(cache=True, nogil=True)
def _add_losses(
    log_odds: FloatArray,
    unit: IntArray,
    cell: IntArray,
    count: IntArray,
    place: IntArray,
    values: Any,
    rate: float,
    table: FloatArray,
    rows: int,
) -> None:
    """Add the losses of one query; entries go by unit."""
    exact = np.zeros(values.shape[1], np.int64)
    start = 0
    while start < len(unit):
        stop = start
        while stop < len(unit) and unit[stop] == unit[start]:
            if place[cell[stop]] >= 0:
                exact[place[cell[stop]]] += count[stop]
            stop += 1
        for i in range(start, stop):
            at = place[cell[i]]
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
            if place[cell[i]] >= 0:
                exact[place[cell[i]]] = 0
        start = stop


def _batches(
    measurements: Measurements, level: str
) -> Iterator[tuple[int, dict[str, Measurement]]]:
    start = 0
    for batch in measurements.stream(level):
        yield start, batch
        start += len(next(iter(batch.values())).values)


def _finest(plan: Plan, level: str) -> Any:
    return max((item.query for item in plan.at(level)), key=lambda query: query.cells)


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


class _Summary:
    """Sums of R' by group, and the largest ones, as cells stream by."""

    def __init__(
        self,
        plan: Plan,
        geography: Geography,
        level: str,
        places: str | None,
        prior: float,
        thresholds: tuple[float, ...],
        worst: int,
        labels: Sequence[tuple[str, Sequence[str]]],
    ) -> None:
        if not thresholds or any(not t > 0 for t in thresholds):
            raise InputError("thresholds: give some, all above 0")
        self.who = Intruder(prior=prior, rows=plan.rows_per_person)
        self.plan, self.geography, self.level = plan, geography, level
        self.places = plan.levels[0] if places is None else places
        if plan.levels.index(self.places) > plan.levels.index(level):
            raise InputError(f"places: {self.places} lies below {level}; choose a level above it")
        self.ancestor = geography.ancestors(level, self.places)
        self.thresholds, self.most = thresholds, worst
        self.labels = labels
        self.shape = tuple(len(categories) for _, categories in labels)
        cells = int(np.prod(self.shape, dtype=np.int64))
        codes = np.unravel_index(np.arange(cells), self.shape) if self.shape else ()
        self.kinds: list[tuple[str, Sequence[str]]] = [
            ("all", ["all"]),
            ("place", geography.geocodes(self.places).to_pylist()),
            ("size", SIZES),
            *labels,
        ]
        lengths = [len(names) for _, names in self.kinds]
        self.first = np.cumsum([0, *lengths])  # of each kind, among all groups
        self.sums = np.zeros((self.first[-1], 4 + len(thresholds)))
        self.codes = np.array(codes, np.int64).reshape(len(labels), cells)
        self.largest: list[tuple[float, int, int, int]] = []

    def add(
        self, start: int, unit: IntArray, cell: IntArray, count: IntArray, log_odds: FloatArray
    ) -> None:
        """Add cells of some units, the first of which has the number `start`."""
        if not len(cell):
            return
        p = self.who.prior
        with np.errstate(over="ignore"):
            risk = 1 / (p + (1 - p) * np.exp(-log_odds))
        _add_to_groups(
            self.sums,
            self.first,
            *(self.ancestor[unit + start], self.codes, cell, count),
            *(risk, np.array(self.thresholds)),
        )
        few = min(self.most, len(risk))
        for i in np.argpartition(risk, len(risk) - few)[len(risk) - few :] if few else ():
            self.largest.append((float(risk[i]), int(unit[i]) + start, int(cell[i]), int(count[i])))
        self.largest = sorted(self.largest, reverse=True)[: self.most]

    def result(self, audience: Literal["public", "internal"]) -> RiskMap:
        """Return the map."""
        rows = []
        for number, (kind, names) in enumerate(self.kinds):
            sums = self.sums[self.first[number] : self.first[number + 1]]
            if kind == "size" and audience == "public":
                continue  # sizes are confidential
            for name, (cells, people, total, most, *above) in zip(names, sums, strict=True):
                if cells:
                    known = [kind, name, int(cells), int(people), total / people, most]
                    rows.append([*known, *(int(number) for number in above)])
        columns = ["by", "group", "cells", "people", "mean_risk", "largest_risk"]
        columns += [f"above_{threshold:g}" for threshold in self.thresholds]
        groups = pa.table({name: [row[i] for row in rows] for i, name in enumerate(columns)})
        return RiskMap(self.level, self.who.prior, self.thresholds, groups, self._worst(), audience)

    def _worst(self) -> pa.Table:
        codes = self.geography.geocodes(self.level)
        data: dict[str, list[Any]] = {"geocode": [], **{name: [] for name, _ in self.labels}}
        data["people"], data["risk"] = [], []
        for risk, unit, cell, count in self.largest:
            data["geocode"].append(codes[unit].as_py())
            numbers = np.unravel_index(cell, self.shape) if self.shape else ()
            for (name, categories), number in zip(self.labels, numbers, strict=True):
                data[name].append(categories[int(number)])
            data["people"].append(count)
            data["risk"].append(risk)
        return pa.table(data)
