"""The bias, error and intervals of released counts, for units and areas, from replicates."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from countveil.base.histograms import Histograms, roll_up, store
from countveil.base.intervals import checked
from countveil.base.numerics import FloatArray, IntArray
from countveil.errors import InputError
from countveil.estimate.areas import units_of
from countveil.estimate.replication.replicate_intervals import (
    METHODS,
    IntervalColumns,
    IntervalMethod,
    ReplicateSummary,
    UnbiasedCounts,
)
from countveil.estimate.result_tables import refuse_reserved_names
from countveil.estimate.unbiased import LeastSquares
from countveil.plan.plans import Plan
from countveil.plan.workload import TOTAL, Query
from countveil.postprocess.batch_files import BatchFolder
from countveil.postprocess.estimates import Estimates, labelled

SIZE_CLASSES = ("0", "1-9", "10-99", "100-999", "1,000-9,999", "10,000+")

_VALUES = 10_000_000  # numbers of replicates in memory at a time
_AREAS = 256  # whose covariances are in memory at a time
_LEAST = 10 ** np.arange(len(SIZE_CLASSES) - 1)


class TemporaryFolder:
    """A temporary folder that is deleted together with this object."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="countveil-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)


@dataclass(frozen=True, eq=False, slots=True)
class Replicates:
    """Released estimates and their replicates, which are read from a folder when needed.

    Attributes
    ----------
    estimates : Estimates
        The released counts.
    unbiased : LeastSquares
        Least squares from the same measurements.
    plan : Plan
        The plan whose post-processing is replicated.
    folder : path
        Where the replicates are.
    count : int
        How many there are.

    """

    estimates: Estimates
    unbiased: LeastSquares
    plan: Plan
    folder: Path
    count: int
    temporary: TemporaryFolder | None = field(default=None, repr=False)
    _opened: dict[str, list[Histograms]] = field(default_factory=dict, repr=False)

    def values(self, level: str, query: Query, start: int, stop: int) -> IntArray:
        """Return a query of units start … stop - 1 in every replicate: replicates × units × cells."""
        values = np.empty((self.count, stop - start, query.cells), np.int64)
        for number, histograms in enumerate(self._of(level)):
            unit, cell, count = histograms.entries(start, stop)
            where = query.cells_at(cell)
            counted = where >= 0
            key = unit[counted] * query.cells + where[counted]
            flat = np.bincount(key, count[counted], (stop - start) * query.cells)
            values[number] = flat.reshape(stop - start, query.cells)
        return values

    def interval(
        self,
        level: str,
        query: str,
        *,
        confidence: float | None = None,
        method: IntervalMethod = METHODS[0],
    ) -> pa.Table:
        """Return the counts of every unit of a level, with bias, standard error and interval.

        Parameters
        ----------
        level : str
            A level with estimates.
        query : str
            Attributes and recodes joined by `*`, or "TOTAL".
        confidence : float, optional
            The plan's by default.
        method : {"bias-corrected", "basic", "percentile"}
            "bias-corrected": the bias is the difference of released counts from unbiased estimates,
            pooled over similar units. "basic": the bias is the difference of replicates from the
            release; the interval is the release minus central quantiles of these differences.
            "percentile": the interval is central quantiles of the replicates.

        Returns
        -------
        pyarrow.Table
            A row per unit and cell: geocode, a column per attribute, estimate, bias, standard_error,
            lower, upper.

        """
        parsed = self._query(level, query)
        columns = self._columns(level, parsed, self._summary(confidence, method))
        return _table(self.estimates.geography.geocodes(level), parsed, columns)

    def errors(self, query: str = TOTAL) -> pa.Table:
        """Return bias and root mean squared error, by level and size class of the released total.

        Both are those of `interval`: against unbiased estimates, pooled over similar units. Counts that
        measurements do not determine are left out.
        """
        rows: list[dict[str, str | int | float]] = []
        for level in self.estimates.levels:
            summary = self._summary(None, METHODS[0])
            columns = self._columns(level, self._query(level, query), summary)
            total = self.estimates.counts(level, self.plan.schema.query(TOTAL))
            size = np.searchsorted(_LEAST, total.ravel(), side="right")
            size = np.repeat(size, columns.released.shape[1])
            bias, error = (
                columns.columns[name].to_numpy(zero_copy_only=False)
                for name in ("bias", "standard_error")
            )
            for number, name in enumerate(SIZE_CLASSES):
                inside = (size == number) & np.isfinite(bias)
                if inside.any():
                    square = error[inside] ** 2 + bias[inside] ** 2
                    rows.append(
                        {
                            "level": level,
                            "query": query,
                            "size_class": name,
                            "cells": int(inside.sum()),
                            "bias": float(bias[inside].mean()),
                            "root_mean_squared_error": float(square.mean() ** 0.5),
                        }
                    )
        return pa.Table.from_pylist(rows)

    def areas(
        self,
        areas: Mapping[str, Sequence[str]],
        query: str,
        *,
        level: str | None = None,
        confidence: float | None = None,
        method: IntervalMethod = METHODS[0],
    ) -> pa.Table:
        """Return the counts of areas with their intervals, as `interval` does for units.

        Areas are made of units of a level, by default the lowest. Their biases are pooled, as those of
        units are, unless areas overlap.
        """
        level = list(self.estimates.levels)[-1] if level is None else level
        parsed, summary = self._query(level, query), self._summary(confidence, method)
        refuse_reserved_names(parsed)
        if not areas:
            raise InputError("areas: there are none; name at least one, with its units")
        value: list[FloatArray] = []
        error: list[FloatArray] = []
        left = iter(areas.items())
        step = max(1, min(_AREAS, _VALUES // (self.count * parsed.cells)))
        while some := dict(islice(left, step)):
            summary.add(*self._sums(level, some, parsed))
            if summary.corrects:
                part = self.unbiased.areas(some, query, level=level, undetermined=True)
                value.append(part.value)
                error.append(part.standard_error)
        unbiased = UnbiasedCounts(np.concatenate(value), np.concatenate(error)) if value else None
        # Areas that share units share their noise, so they say nothing about each other.
        units = [code for codes in areas.values() for code in pa.array(codes).to_pylist()]
        alone = len(set(units)) < len(units)
        table = _table(pa.array(list(areas)), parsed, summary.columns(unbiased, alone=alone))
        return table.rename_columns({"geocode": "area"})

    def area(
        self,
        units: Sequence[str],
        query: str,
        *,
        level: str | None = None,
        confidence: float | None = None,
        method: IntervalMethod = METHODS[0],
    ) -> pa.Table:
        """Return the counts of one area with their intervals, as `areas` does."""
        table = self.areas(
            {"area": units}, query, level=level, confidence=confidence, method=method
        )
        return table.drop_columns(["area"])

    def _columns(self, level: str, query: Query, summary: ReplicateSummary) -> IntervalColumns:
        """Return all units of a level, with unbiased estimates if the method uses them."""
        refuse_reserved_names(query)
        step, units = self._step(query), self.estimates.geography.units(level)
        for start in range(0, units, step):
            stop = min(start + step, units)
            released = self.estimates.counts(level, query, start, stop)
            summary.add(released, self.values(level, query, start, stop))
        if not summary.corrects or not self.unbiased.determines(level, query.name):
            return summary.columns(None)
        batches = list(self.unbiased.batches(level, query.name))
        value = np.concatenate([part.value for part in batches])
        error = np.concatenate([part.standard_error for part in batches])
        return summary.columns(UnbiasedCounts(value, error))

    def _sums(
        self, level: str, areas: dict[str, Sequence[str]], query: Query
    ) -> tuple[IntArray, IntArray]:
        """Return areas × cells as released, and replicates × areas × cells."""
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
                    self._histograms(BatchFolder(self.folder / f"{number:04d}"), level)
                    for number in range(self.count)
                ]
            except (OSError, ValueError) as error:
                raise InputError(
                    f"{self.folder}: contains a damaged replicate ({error}); delete the folder, or "
                    f"name another"
                ) from error
        return self._opened[level]

    def _histograms(self, replicate: BatchFolder, level: str) -> Histograms:
        geography, cells = self.estimates.geography, self.plan.schema.cells
        if self.plan.at(level):
            return replicate.read_finished(level, geography.units(level), cells)
        # A level that is not measured is the sum of the next measured one.
        levels = self.plan.levels
        below = next(name for name in levels[levels.index(level) :] if self.plan.at(name))
        lower = replicate.read_finished(below, geography.units(below), cells)
        sums = roll_up(lower, geography.ancestors(below, level), cells)
        return store(sums, geography.units(level), replicate.folder)

    def _query(self, level: str, query: str) -> Query:
        if level not in self.estimates.levels:
            known = ", ".join(self.estimates.levels)
            raise InputError(f"no estimates of {level!r}; choose from {known}")
        return self.plan.schema.query(query)

    def _summary(self, confidence: float | None, method: IntervalMethod) -> ReplicateSummary:
        chosen = self.unbiased.confidence if confidence is None else checked(confidence)
        return ReplicateSummary(chosen, method, self.count)

    def _step(self, query: Query) -> int:
        return max(1, _VALUES // (self.count * query.cells))


def _table(names: pa.Array, query: Query, columns: IntervalColumns) -> pa.Table:
    table = labelled(names, query, columns.released)
    for name, column in columns.columns.items():
        table = table.append_column(name, column)
    return table
