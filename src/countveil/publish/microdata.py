"""Synthetic microdata: one row per person, whose tabulation is the estimates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from countveil.base import storage
from countveil.base.histograms import Histograms
from countveil.base.numerics import IntArray
from countveil.postprocess.estimates import Estimates
from countveil.publish.columns import FORMAT, GROUP, categories, dictionary_column, unit_codes

NAME = "microdata.parquet"


def write_microdata(estimates: Estimates, folder: Path) -> str:
    """Write one row per person, with the unit at every estimated level and all attributes."""
    layout = layout_of(estimates)
    with (
        storage.replacing(folder / NAME) as temporary,
        pq.ParquetWriter(temporary, layout, **FORMAT) as writer,
    ):
        for rows in rows_of(estimates):
            writer.write_table(rows)
    return NAME


def layout_of(estimates: Estimates) -> pa.Schema:
    """Return the columns of the file."""
    attributes = (attribute.name for attribute in estimates.plan.schema.attributes)
    return pa.schema([dictionary_column(name) for name in (*estimates.levels, *attributes)])


def rows_of(estimates: Estimates) -> Iterator[pa.Table]:
    """Yield the rows of all people, a row group at a time."""
    geography, layout = estimates.geography, layout_of(estimates)
    *upper, lowest = estimates.levels
    above = {level: geography.ancestors(lowest, level) for level in upper}
    for unit, cell in _people(estimates.levels[lowest]):
        places = [unit_codes(geography, level, above[level][unit]) for level in upper]
        people = categories(estimates.plan.schema, cell)
        columns = [*places, unit_codes(geography, lowest, unit), *people]
        yield pa.table(columns, schema=layout)


def _people(histograms: Histograms) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield the unit and the cell of every person, a row group at a time."""
    for start, stop in histograms.batches():
        unit, cell, count = histograms.entries(start, stop)
        ends = np.cumsum(count)
        people = int(ends[-1]) if len(ends) else 0
        for first in range(0, people, GROUP):
            # Person p belongs to the first entry that ends beyond p.
            entry = np.searchsorted(ends, np.arange(first, min(first + GROUP, people)), "right")
            yield unit[entry] + start, cell[entry]
