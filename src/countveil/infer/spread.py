"""What replicates say of a release: bias, error and intervals of every count, cell and area."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from countveil.errors import InputError
from countveil.histograms import Histograms, roll_up, store
from countveil.infer.areas import units_of
from countveil.infer.interval import checked
from countveil.infer.replicate_methods import METHODS, Gathered, Method, Parts
from countveil.infer.taken_names import refuse_taken_names
from countveil.infer.two_pass import LeastSquares
from countveil.numerics import FloatArray, IntArray
from countveil.postprocess.estimates import Estimates, labelled
from countveil.postprocess.workplace import Workplace
from countveil.schema.plan import Plan
from countveil.schema.workload import TOTAL, Query

SIZE_CLASSES = ("0", "1-9", "10-99", "100-999", "1,000-9,999", "10,000+")

_VALUES = 10_000_000  # numbers of replicates held at a time
_AREAS = 256  # whose covariances are held at a time
_LEAST = 10 ** np.arange(len(SIZE_CLASSES) - 1)


class Held:
    """A temporary folder that is deleted when nobody holds it any more."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="countveil-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)


@dataclass(frozen=True, eq=False, slots=True)
class Replicates:
    """Released estimates, and as many replicates of them, read from a folder as they are needed.

    `unbiased` are the estimates of least squares from the same measurements.
    """

    estimates: Estimates
    unbiased: LeastSquares
    plan: Plan
    folder: Path
    count: int
    held: Held | None = field(default=None, repr=False)
    _opened: dict[str, list[Histograms]] = field(default_factory=dict, repr=False)

    def values(self, level: str, query: Query, start: int, stop: int) -> IntArray:
        """Return a query of units start … stop - 1 in every replicate: replicates × units × cells."""
        made = self._of(level)
        found = np.empty((self.count, stop - start, query.cells), np.int64)
        for number, histograms in enumerate(made):
            unit, cell, count = histograms.entries(start, stop)
            where = query.cells_at(cell)
            counted = where >= 0
            key = unit[counted] * query.cells + where[counted]
            flat = np.bincount(key, count[counted], (stop - start) * query.cells)
            found[number] = flat.reshape(stop - start, query.cells)
        return found

    def interval(
        self,
        level: str,
        query: str,
        *,
        confidence: float | None = None,
        method: Method = METHODS[0],
    ) -> pa.Table:
        """Return every unit and cell: estimate, bias, standard_error, lower and upper.

        Bias-corrected: bias is what released counts differ from unbiased estimates, pooled over units
        alike. Basic: bias is what replicates differ from the release, and the ends are the release less
        where the middle of these differences lies. Percentile: where the middle of replicates lies.
        The confidence is the plan's if not given.
        """
        asked = self._query(level, query)
        found = self._gathered(level, asked, self._parts(confidence, method))
        return _table(self.estimates.geography.geocodes(level), asked, found)

    def errors(self, query: str = TOTAL) -> pa.Table:
        """Return bias and root mean squared error by level and size class of the released total.

        Both are as `interval` has them: against unbiased estimates, pooled over units alike. Counts
        that measurements do not determine are left out.
        """
        rows: list[dict[str, Any]] = []
        for level in self.estimates.levels:
            found = self._gathered(level, self._query(level, query), self._parts(None, METHODS[0]))
            total = self.estimates.counts(level, self.plan.schema.query(TOTAL))
            size = np.searchsorted(_LEAST, total.ravel(), side="right")
            size = np.repeat(size, found.released.shape[1])
            bias, error = (
                found.columns[name].to_numpy(zero_copy_only=False)
                for name in ("bias", "standard_error")
            )
            for number, name in enumerate(SIZE_CLASSES):
                inside = (size == number) & np.isfinite(bias)
                if inside.any():
                    square = error[inside] ** 2 + bias[inside] ** 2
                    row: dict[str, Any] = {"level": level, "query": query, "size_class": name}
                    row |= {"cells": int(inside.sum()), "bias": float(bias[inside].mean())}
                    rows.append(row | {"root_mean_squared_error": float(square.mean() ** 0.5)})
        return pa.Table.from_pylist(rows)

    def areas(
        self,
        areas: Mapping[str, Sequence[str]],
        query: str,
        *,
        level: str | None = None,
        confidence: float | None = None,
        method: Method = METHODS[0],
    ) -> pa.Table:
        """Return the sums of some units of a level, the lowest if not said, with their intervals.

        Areas tell each other's bias, as units do, unless they overlap.
        """
        level = list(self.estimates.levels)[-1] if level is None else level
        asked, parts = self._query(level, query), self._parts(confidence, method)
        refuse_taken_names(asked)
        if not areas:
            raise InputError("areas: none is given; name at least one with its units")
        value: list[FloatArray] = []
        error: list[FloatArray] = []
        left = iter(areas.items())
        while some := dict(
            islice(left, max(1, min(_AREAS, _VALUES // (self.count * asked.cells))))
        ):
            parts.add(*self._sums(level, some, asked))
            if parts.corrects:
                found = self.unbiased.areas(some, query, level=level, undetermined=True)
                value.append(found.value)
                error.append(found.standard_error)
        unbiased = (np.concatenate(value), np.concatenate(error)) if value else None
        # Areas that share units share their noise as well, and tell nothing of each other.
        units = [code for codes in areas.values() for code in pa.array(codes).to_pylist()]
        alone = len(set(units)) < len(units)
        table = _table(pa.array(list(areas)), asked, parts.gathered(unbiased, alone=alone))
        return table.rename_columns({"geocode": "area"})

    def area(
        self,
        units: Sequence[str],
        query: str,
        *,
        level: str | None = None,
        confidence: float | None = None,
        method: Method = METHODS[0],
    ) -> pa.Table:
        """Return one area as `areas` does."""
        found = self.areas(
            {"area": units}, query, level=level, confidence=confidence, method=method
        )
        return found.drop_columns(["area"])

    def _gathered(self, level: str, query: Query, parts: Parts) -> Gathered:
        """Return all units of a level, with unbiased estimates where the method asks for them."""
        refuse_taken_names(query)
        for _, _, released, made in self._batches(level, query):
            parts.add(released, made)
        if not parts.corrects or not self.unbiased.determines(level, query.name):
            return parts.gathered(None)
        found = list(self.unbiased.batches(level, query.name))
        value = np.concatenate([part.value for part in found])
        return parts.gathered((value, np.concatenate([part.standard_error for part in found])))

    def _sums(
        self, level: str, areas: dict[str, Sequence[str]], query: Query
    ) -> tuple[IntArray, IntArray]:
        """Add up units: areas × cells as released, and replicates × areas × cells."""
        geography = self.estimates.geography
        members = [units_of(geography, level, codes, name) for name, codes in areas.items()]
        area = np.repeat(np.arange(len(members)), [len(units) for units in members])
        unit = np.concatenate(members)
        released = np.zeros((len(members), query.cells), np.int64)
        drawn = np.zeros((len(members), self.count * query.cells), np.int64)
        step = self._step(query)
        for start in range(0, geography.units(level), step):
            stop = min(start + step, geography.units(level))
            inside = (unit >= start) & (unit < stop)
            if not inside.any():
                continue
            pairs = (area[inside], unit[inside] - start)
            adder = sp.csr_array(
                (np.ones(len(pairs[0]), np.int64), pairs), shape=(len(members), stop - start)
            )
            released += adder @ self.estimates.counts(level, query, start, stop)
            values = self.values(level, query, start, stop)
            drawn += adder @ values.transpose(1, 0, 2).reshape(stop - start, -1)
        return released, drawn.reshape(len(members), self.count, -1).transpose(1, 0, 2)

    def _of(self, level: str) -> list[Histograms]:
        if level not in self._opened:
            try:
                self._opened[level] = [
                    self._histograms(Workplace(self.folder / f"{number:04d}"), level)
                    for number in range(self.count)
                ]
            except (OSError, ValueError) as error:
                raise InputError(
                    f"{self.folder}: a replicate in it is damaged ({error}); delete the folder, or "
                    f"name another"
                ) from error
        return self._opened[level]

    def _histograms(self, place: Workplace, level: str) -> Histograms:
        geography, cells = self.estimates.geography, self.plan.schema.cells
        if self.plan.at(level):
            return place.read_finished(level, geography.units(level), cells)
        # A level that is not measured is the sum of the next one that is.
        levels = self.plan.levels
        below = next(name for name in levels[levels.index(level) :] if self.plan.at(name))
        lower = place.read_finished(below, geography.units(below), cells)
        sums = roll_up(lower, geography.ancestors(below, level), cells)
        return store(sums, geography.units(level), place.folder)

    def _batches(self, level: str, query: Query) -> Iterator[tuple[int, int, IntArray, IntArray]]:
        step, units = self._step(query), self.estimates.geography.units(level)
        for start in range(0, units, step):
            stop = min(start + step, units)
            released = self.estimates.counts(level, query, start, stop)
            yield start, stop, released, self.values(level, query, start, stop)

    def _query(self, level: str, query: str) -> Query:
        if level not in self.estimates.levels:
            known = ", ".join(self.estimates.levels)
            raise InputError(f"no estimates of {level!r}; choose from {known}")
        return self.plan.schema.query(query)

    def _parts(self, confidence: float | None, method: Method) -> Parts:
        chosen = self.unbiased.confidence if confidence is None else checked(confidence)
        return Parts(chosen, method, self.count)

    def _step(self, query: Query) -> int:
        return max(1, _VALUES // (self.count * query.cells))


def _table(names: pa.Array, query: Query, gathered: Gathered) -> pa.Table:
    table = labelled(names, query, gathered.released)
    for name, column in gathered.columns.items():
        table = table.append_column(name, column)
    return table
