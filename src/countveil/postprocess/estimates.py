"""Estimates: consistent non-negative integers for every unit and cell, with their certificate."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from countveil.base.histograms import Histograms, roll_up
from countveil.base.numerics import IntArray
from countveil.errors import InputError
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.plan.workload import Query
from countveil.postprocess.certificate import LevelCertificate


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Estimates:
    """The histograms of every level, from the top to the lowest measured one.

    Attributes
    ----------
    plan : Plan
        The plan that they were made by.
    geography : Geography
        The units of every level.
    levels : dict of str to Histograms
        The people in each cell of each unit, zeros left out, by level.
    certificate : tuple of LevelCertificate
        How good the solutions are, one per measured level.
    information : str
        "tree" if each level was estimated from all measurements below it too, "level" if from its own
        alone; "level: " and a reason if the plan asks for the tree and it was too large.

    """

    plan: Plan
    geography: Geography
    levels: dict[str, Histograms]
    certificate: tuple[LevelCertificate, ...]
    information: str = "level"

    def __repr__(self) -> str:
        return f"<Estimates of {self.plan.title!r}: {', '.join(self.levels)}>"

    def table(self, level: str, query: str) -> pa.Table:
        """Return the counts of a query for every unit of a level.

        Parameters
        ----------
        level : str
            A level of the plan, from the top to the lowest measured one.
        query : str
            Attributes and recodes joined by `*`, or "TOTAL".

        Returns
        -------
        pyarrow.Table
            A row per unit and cell, zeros included: geocode, a column per attribute, estimate.

        """
        parsed = self.plan.schema.query(query)
        values = self.counts(level, parsed)
        return labelled(self.geography.geocodes(level), parsed, values)

    def counts(self, level: str, query: Query, start: int = 0, stop: int | None = None) -> IntArray:
        """Return a query of units start … stop - 1, or of all units: units × cells of the query."""
        histograms = self._of(level)
        stop = histograms.units if stop is None else stop
        unit, cell, count = histograms.entries(start, stop)
        where = query.cells_at(cell)
        counted = where >= 0
        key = unit[counted] * query.cells + where[counted]
        flat = np.bincount(key, count[counted], (stop - start) * query.cells)
        return flat.astype(np.int64).reshape(-1, query.cells)

    @property
    def people(self) -> int:
        """The number of people in all cells of the lowest level."""
        lowest = list(self.levels)[-1]
        return int(self.levels[lowest].counts.sum(dtype=np.int64))

    def consistency_gap(self) -> int:
        """Return the largest difference between a cell of a unit and the sum over its children."""
        worst = 0
        for above, level in pairwise(self.levels):
            parents = self.geography.ancestors(level, above)
            worst = max(
                worst,
                _largest_difference(
                    self.levels[above], self.levels[level], parents, self.plan.schema.cells
                ),
            )
        return worst

    def _of(self, level: str) -> Histograms:
        if level not in self.levels:
            raise InputError(f"no estimates of {level!r}; choose from {', '.join(self.levels)}")
        return self.levels[level]


def labelled(geocodes: pa.StringArray, query: Query, values: IntArray) -> pa.Table:
    """Return units × cells as a table with labels, a row per unit and cell."""
    units, cells = values.shape
    columns: dict[str, pa.Array] = {
        "geocode": geocodes.take(pa.array(np.repeat(np.arange(units), cells)))
    }
    number = np.tile(np.arange(cells), units)
    for name, codes, categories in label_codes(query):
        columns[name] = pa.DictionaryArray.from_arrays(codes[number], pa.array(categories))
    columns["estimate"] = pa.array(values.reshape(-1), pa.int64())
    return pa.table(columns)


class LabelCodes(NamedTuple):
    """One attribute of a query: its name, the category number of each cell, and its categories."""

    name: str
    codes: NDArray[np.int32]
    categories: tuple[str, ...]


def label_codes(query: Query) -> list[LabelCodes]:
    """Return the categories of every cell of a query, attribute by attribute."""
    sizes = [len(categories) for _, categories in query.labels]
    codes = np.unravel_index(np.arange(query.cells), sizes) if sizes else ()
    return [
        LabelCodes(name, code.astype(np.int32), categories)
        for (name, categories), code in zip(query.labels, codes, strict=True)
    ]


def _largest_difference(above: Histograms, below: Histograms, parents: IntArray, cells: int) -> int:
    """Compare parents with the sums of their children, some parents at a time."""
    worst = 0
    position = 0
    for unit, cell, count in roll_up(below, parents, cells):
        last = int(unit[-1]) + 1
        own_unit, own_cell, own_count = above.entries(position, last)
        keys = np.concatenate([unit * cells + cell, (own_unit + position) * cells + own_cell])
        _, index = np.unique(keys, return_inverse=True)
        difference = np.bincount(index, np.concatenate([count, -own_count]))
        worst = max(worst, int(np.abs(difference).max(initial=0)))
        position = last
    _, _, rest = above.entries(position, above.units)
    return max(worst, int(rest.max(initial=0)))
