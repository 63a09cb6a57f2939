"""The task of a worker at the door: draw noise for some units, and add their counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from countveil.base.numerics import IntArray
from countveil.base.randomness import BitSource
from countveil.measure.digest import rows_digest
from countveil.measure.measurements import DRAWN, in_layout, open_writer
from countveil.measure.parts import Parts
from countveil.plan.plans import Plan
from countveil.plan.workload import Query

_DIGEST = b"countveil.sha256"  # in the metadata of a part
Narrow = NDArray[np.int32]
Cells = tuple[Narrow, Narrow, Narrow] | tuple[IntArray, IntArray, IntArray]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class DrawTask:
    """Confidential: one part of a level, with the non-zero (unit, cell, count) of its units."""

    level: str
    number: int
    geocodes: pa.StringArray
    entries: Cells

    def __repr__(self) -> str:
        return f"<confidential: part {self.number} of level {self.level}>"


@dataclass(frozen=True, eq=False, slots=True)
class DrawJob:
    """What all parts of a run share. A pickled copy of a secure `rng` draws its own bits."""

    plan: Plan
    rng: BitSource
    parts: Parts

    def run(self, task: DrawTask) -> None:
        """Draw and store a part; if it exists, draw nothing and change nothing."""
        if self.parts.has(task.level, task.number):
            return
        table = draw_measurements(self.plan, task, self.rng)
        sink = pa.BufferOutputStream()
        with open_writer(sink) as writer:
            writer.write_table(table, row_group_size=table.num_rows)
            # The rows are in memory here; the driver would have to unpack them all to seal the release.
            writer.add_key_value_metadata({_DIGEST: rows_digest(table, DRAWN)})
        self.parts.keep(task.level, task.number, sink.getvalue().to_pybytes())


def digest_of(part: bytes) -> str:
    """Return the SHA-256 of the rows of a part."""
    with pq.ParquetFile(pa.BufferReader(part)) as file:
        known = (file.metadata.metadata or {}).get(_DIGEST)
        # Parts drawn by an earlier version lack it.
        return rows_digest(file.read(), DRAWN) if known is None else known.decode()


def draw_measurements(plan: Plan, task: DrawTask, rng: BitSource) -> pa.Table:
    """Return the measurements of a task: draw the noise, then add the counts."""
    names = task.geocodes.to_pylist() if rng.reproducible else ()
    parts = []
    for item in plan.at(task.level):
        mechanism, cells = item.mechanism, item.query.cells
        source = rng.for_units(task.level, names, item.query.name)
        values = mechanism.sample(len(task.geocodes) * cells, rng=source).reshape(-1, cells)
        add_counts(values, item.query, task.entries)
        parts.append((item.query.name, values, mechanism.variance))
    return in_layout(task.geocodes, parts)


def add_counts(values: IntArray, query: Query, entries: Cells) -> None:
    """Add (unit, cell, count) to values[unit, cell of the query]."""
    unit, cell, count = entries
    where = query.cells_at(cell)
    counted = where >= 0
    np.add.at(values, (unit[counted], where[counted]), count[counted])
