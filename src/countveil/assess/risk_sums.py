"""Sums of R' by group, and the largest ones: of one run of units as a task, and of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numba import njit

from countveil.assess.realised_losses import realised_log_odds
from countveil.measure.measurement import Measurements
from countveil.numerics import Array, FloatArray, IntArray

SIZES = ("1", "2", "3-4", "5-9", "10+")
_FIRST_OF_SIZE = np.array([2, 3, 5, 10])
Entries = tuple[IntArray, IntArray, IntArray]  # unit, cell and count, where there is anyone


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class RiskTask:
    """Units start … stop - 1: the place of each, and confidential entries where the map is internal."""

    start: int
    stop: int
    places: IntArray
    entries: Entries | None

    def __repr__(self) -> str:
        return f"<risk of units {self.start} … {self.stop - 1}>"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class RiskSums:
    """Of the groups that were met, `rows` of sums; and the largest risks, each with unit, cell, count.

    A row has cells, people, their risk added up, the largest risk, and people above each threshold.
    """

    groups: IntArray
    rows: FloatArray
    largest: list[tuple[float, int, int, int]]

    def __repr__(self) -> str:
        return f"<sums of {len(self.groups)} groups>"


@dataclass(frozen=True, eq=False, slots=True)
class RiskJob:
    """What all runs of a map share: the noise, the intruder, and how cells fall into groups.

    `query` is the one whose published values are mapped, None where exact counts are. The groups of a
    kind begin at its number in `first`; `codes` holds the category of each cell by attribute.
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
        """Sum up the risk of some units."""
        values = self._values(task)
        unit, cell, count, log_odds = self._cells(values, task.entries)
        sums = np.zeros((int(self.first[-1]), 4 + len(self.thresholds)))
        with np.errstate(over="ignore"):
            risk = 1 / (self.prior + (1 - self.prior) * np.exp(-log_odds))
        _add_to_groups(
            sums,
            self.first,
            *(task.places[unit], self.codes, cell, count),
            *(risk, np.array(self.thresholds)),
        )
        few = min(self.worst, len(risk))
        most = np.argpartition(risk, len(risk) - few)[len(risk) - few :] if few else ()
        met = np.flatnonzero(sums[:, 0])
        return RiskSums(
            met,
            sums[met],
            [
                (float(risk[i]), int(unit[i]) + task.start, int(cell[i]), int(count[i]))
                for i in most
            ],
        )

    def _values(self, task: RiskTask) -> dict[str, Array]:
        whole = self.measurements.units(self.level, task.start, task.stop)
        values, at = {}, 0
        for item in self.measurements.plan.at(self.level):
            values[item.query.name] = np.ascontiguousarray(whole[:, at : at + item.query.cells])
            at += item.query.cells
        return values

    def _cells(
        self, values: Mapping[str, Array], entries: Entries | None
    ) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
        """Return the cells that are mapped, with the log-odds of a person in each."""
        plan, laws = self.measurements.plan, self.measurements.mechanisms
        if entries is not None:
            return *entries, realised_log_odds(plan, self.level, values, laws, *entries)
        assert self.query is not None
        rows, table = plan.rows_per_person, values[self.query]
        unit, cell = np.nonzero(table >= 1)
        seen = table[unit, cell].astype(float)
        log_odds = laws[self.level, self.query].loss_at(seen - rows, rows)
        return unit, cell, np.ones(len(unit), np.int64), log_odds


def together(job: RiskJob, parts: Iterable[RiskSums]) -> RiskSums:
    """Add up the sums of all runs, and keep the largest risks of all."""
    sums = np.zeros((int(job.first[-1]), 4 + len(job.thresholds)))
    largest: list[tuple[float, int, int, int]] = []
    for part in parts:
        highest = np.maximum(sums[part.groups, 3], part.rows[:, 3])
        sums[part.groups] += part.rows
        sums[part.groups, 3] = highest
        largest = sorted([*largest, *part.largest], reverse=True)[: job.worst]
    return RiskSums(np.arange(len(sums)), sums, largest)


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
