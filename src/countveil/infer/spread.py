"""What replicates say of a release: bias, error and intervals of every count, cell and area."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from countveil.errors import InputError
from countveil.histograms import Histograms, roll_up, store
from countveil.numerics import FloatArray, IntArray
from countveil.postprocess.estimates import Estimates, labelled
from countveil.postprocess.workplace import Workplace
from countveil.schema.plan import Plan
from countveil.schema.workload import TOTAL, Query

Method = Literal["bias-corrected", "percentile"]
METHODS: tuple[Method, ...] = ("bias-corrected", "percentile")
SIZE_CLASSES = ("0", "1-9", "10-99", "100-999", "1,000-9,999", "10,000+")

_VALUES = 10_000_000  # numbers of replicates held at a time
_LEAST = 10 ** np.arange(len(SIZE_CLASSES) - 1)


class Held:
    """A temporary folder that is deleted when nobody holds it any more."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="countveil-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)


@dataclass(frozen=True, eq=False, slots=True)
class Replicates:
    """Released estimates, and as many replicates of them, read from a folder as they are needed."""

    estimates: Estimates
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
            where = query.cell_of[cell]
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
        confidence: float = 0.9,
        method: Method = "bias-corrected",
    ) -> pa.Table:
        """Return every unit and cell: estimate, bias, standard_error, lower and upper."""
        asked, parts = self._query(level, query), []
        for start, stop, released, made in self._batches(level, asked):
            codes = self.estimates.geography.geocodes(level, start, stop)
            spread = summary(released, made, confidence, method)
            table = labelled(codes, asked, released)
            for name, column in spread.items():
                table = table.append_column(name, pa.array(column.reshape(-1)))
            parts.append(table)
        return pa.concat_tables(parts).unify_dictionaries().combine_chunks()

    def errors(self, query: str = TOTAL) -> pa.Table:
        """Return bias and root mean squared error by level and size class of the released total."""
        rows: list[dict[str, Any]] = []
        for level in self.estimates.levels:
            asked = self._query(level, query)
            sums = np.zeros((len(SIZE_CLASSES), 3))
            for start, stop, released, made in self._batches(level, asked):
                total = self.estimates.counts(level, self.plan.schema.query(TOTAL), start, stop)
                group = np.searchsorted(_LEAST, total.ravel(), side="right")
                error = made - released
                for at, amount in enumerate(
                    (
                        np.ones(released.shape),
                        error.mean(axis=0),
                        (error.astype(float) ** 2).mean(axis=0),
                    )
                ):
                    sums[:, at] += np.bincount(group, amount.sum(axis=1), len(sums))
            for name, (cells, bias, square) in zip(SIZE_CLASSES, sums, strict=True):
                if cells:
                    row = {"level": level, "query": query, "size_class": name, "cells": int(cells)}
                    row |= {
                        "bias": bias / cells,
                        "root_mean_squared_error": (square / cells) ** 0.5,
                    }
                    rows.append(row)
        return pa.Table.from_pylist(rows)

    def area(
        self,
        units: Sequence[str],
        query: str,
        *,
        level: str | None = None,
        confidence: float = 0.9,
        method: Method = "bias-corrected",
    ) -> pa.Table:
        """Return the sum of some units of a level, the lowest if not said, with its interval."""
        level = list(self.estimates.levels)[-1] if level is None else level
        asked = self._query(level, query)
        wanted = self._numbers(level, units)
        released = np.zeros((1, asked.cells), np.int64)
        made = np.zeros((self.count, 1, asked.cells), np.int64)
        for start, stop, own, drawn in self._batches(level, asked):
            inside = wanted[(wanted >= start) & (wanted < stop)] - start
            released += own[inside].sum(axis=0)
            made[:, 0] += drawn[:, inside].sum(axis=1)
        table = labelled(pa.array(["area"]), asked, released).drop_columns(["geocode"])
        for name, column in summary(released, made, confidence, method).items():
            table = table.append_column(name, pa.array(column.reshape(-1)))
        return table

    def _of(self, level: str) -> list[Histograms]:
        if level not in self._opened:
            self._opened[level] = [
                self._histograms(Workplace(self.folder / f"{number:04d}"), level)
                for number in range(self.count)
            ]
        return self._opened[level]

    def _histograms(self, place: Workplace, level: str) -> Histograms:
        if self.plan.at(level):
            return place.read(level)
        # A level that is not measured is the sum of the next one that is.
        levels = self.plan.levels
        below = next(name for name in levels[levels.index(level) :] if self.plan.at(name))
        geography = self.estimates.geography
        sums = roll_up(place.read(below), geography.ancestors(below, level), self.plan.schema.cells)
        return store(sums, geography.units(level), place.folder)

    def _batches(self, level: str, query: Query) -> Iterator[tuple[int, int, IntArray, IntArray]]:
        step = max(1, _VALUES // (self.count * query.cells))
        units = self.estimates.geography.units(level)
        for start in range(0, units, step):
            stop = min(start + step, units)
            released = self.estimates.counts(level, query, start, stop)
            yield start, stop, released, self.values(level, query, start, stop)

    def _query(self, level: str, query: str) -> Query:
        if level not in self.estimates.levels:
            known = ", ".join(self.estimates.levels)
            raise InputError(f"no estimates of {level!r}; choose from {known}")
        return self.plan.schema.query(query)

    def _numbers(self, level: str, units: Sequence[str]) -> IntArray:
        """Return the numbers of units by their codes, each once."""
        number = {
            code: i for i, code in enumerate(self.estimates.geography.geocodes(level).to_pylist())
        }
        unknown = [code for code in units if code not in number]
        if unknown:
            raise InputError(
                f"units: {len(unknown)} of {len(units)} are no {level} of the release, the first is "
                f"{unknown[0]!r}"
            )
        return np.unique(np.array([number[code] for code in units], np.int64))


def summary(
    released: IntArray, made: IntArray, confidence: float, method: Method
) -> dict[str, FloatArray]:
    """Return bias, standard error and the ends of an interval, from replicates along the first axis.

    Percentile: where the middle of the replicates lies. Bias-corrected: the release less where the
    middle of their errors lies, so that a bias is taken off. Ends are whole numbers, rounded outwards,
    and never negative.
    """
    if not 0 < confidence < 1:
        raise InputError(f"confidence: {confidence} is not allowed; it lies between 0 and 1")
    if method not in METHODS:
        raise InputError(f"method: {method!r} is not known; choose from {', '.join(METHODS)}")
    tail = (1 - confidence) / 2
    low = np.quantile(made, tail, axis=0, method="lower")
    high = np.quantile(made, 1 - tail, axis=0, method="higher")
    if method == "bias-corrected":
        low, high = 2 * released - high, 2 * released - low
    return {
        "bias": made.mean(axis=0) - released,
        "standard_error": made.std(axis=0, ddof=1),
        "lower": np.maximum(low, 0).astype(np.int64),
        "upper": np.maximum(high, 0).astype(np.int64),
    }
