"""Records to counts with group-bys: one pass, sorted by Spark, streamed to the driver in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sql

from countveil.engines import rules
from countveil.engines.spark import diagnosis
from countveil.engines.spark.cells import cell_of
from countveil.engines.spark.source import GEOCODE, PERSON, WHOLE, SparkSource
from countveil.histograms import Entries
from countveil.schema.geography import Geography
from countveil.schema.plan import Plan
from countveil.tabulate import counts as counting
from countveil.tabulate.counts import Counts

_TOO_MANY = 2**62  # stands for a sum that has no 64 bits; no count may be that large
_ROWS = 1 << 17
_PACKED = ("unit", "cell", "n")


def count(source: SparkSource, plan: Plan, geography: Geography) -> Counts:
    """Check the records against the plan and count them at every level."""
    places = units_of(source, geography)
    with source.translated_errors():
        diagnosis.check_lines(source)
        if source.max_rows is not None or WHOLE in source.frame.columns:
            diagnosis.check_rows(source)
        frame = _tally(source, plan).join(places, GEOCODE, "left")
        unit, cell = (sql.coalesce(name, sql.lit(-1)).cast("int") for name in ("unit", "cell"))
        ordered = frame.select(unit.alias("unit"), cell.alias("cell"), "n").orderBy("unit", "cell")
        entries = _checked(_streamed(ordered), source, plan, places)
        return counting.build(geography, plan.schema.cells, entries, plan.counting_digest)


def units_of(source: SparkSource, geography: Geography) -> DataFrame:
    """Return the places of the lowest level, with their numbers."""
    codes = geography.codes[-1]
    numbers = pa.array(np.arange(len(codes)), pa.int32())
    return source.frame.sparkSession.createDataFrame(
        pa.table({GEOCODE: codes.cast(pa.string()), "unit": numbers})
    )


def _tally(source: SparkSource, plan: Plan) -> DataFrame:
    """Return (geocode, cell, n)."""
    amount = sql.count(sql.lit(1))
    if WHOLE in source.frame.columns:
        amount = sql.coalesce(sql.try_sum(WHOLE), sql.lit(_TOO_MANY))
    rows = _bounded(source, plan).select(GEOCODE, cell_of(plan).alias("cell"), *_also(source))
    return rows.groupBy(GEOCODE, "cell").agg(amount.alias("n"))


def _also(source: SparkSource) -> list[str]:
    return [WHOLE] if WHOLE in source.frame.columns else []


def _bounded(source: SparkSource, plan: Plan) -> DataFrame:
    """Return the rows that count: at most `max_rows` of each person."""
    if source.max_rows is None:
        return source.frame
    # Which rows are kept depends on that person's rows alone, so sensitivity is max_rows.
    order = [GEOCODE, *(f"code{number}" for number in range(len(plan.schema.attributes)))]
    window = Window.partitionBy(PERSON).orderBy(*(sql.col(name).asc_nulls_last() for name in order))
    numbered = source.frame.withColumn("turn", sql.row_number().over(window))
    return numbered.filter(sql.col("turn") <= source.max_rows)


def _streamed(ordered: DataFrame) -> Iterator[Entries]:
    """Yield (unit, cell, n) partition by partition; no more than two of them are on the driver."""
    packed = ordered.mapInArrow(_pack, ", ".join(f"{name} binary" for name in _PACKED))
    for row in packed.toLocalIterator(prefetchPartitions=True):
        unit, cell, n = (np.frombuffer(row[name], np.int64) for name in _PACKED)
        yield unit, cell, n


def _pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack many small rows into few large ones: what a driver fetches row by row."""
    held: list[pa.RecordBatch] = []

    def together() -> pa.RecordBatch:
        table = pa.Table.from_batches(held)
        columns = [table[name].to_numpy().astype(np.int64).tobytes() for name in _PACKED]
        return pa.RecordBatch.from_pydict(
            {
                name: pa.array([data], pa.binary())
                for name, data in zip(_PACKED, columns, strict=True)
            }
        )

    for batch in batches:
        held.append(batch)
        if sum(part.num_rows for part in held) >= _ROWS:
            yield together()
            held = []
    if any(part.num_rows for part in held):
        yield together()


def _checked(
    entries: Iterator[Entries], source: SparkSource, plan: Plan, places: DataFrame
) -> Iterator[Entries]:
    """Pass on what counts someone; refuse rows without a place or a cell, and no rows at all."""
    empty = True
    for unit, cell, n in entries:
        empty = False
        if (unit < 0).any() or (cell < 0).any():
            diagnosis.explain(source, plan, places)
        some = n > 0
        yield unit[some], cell[some], n[some]
    if empty:
        raise rules.no_rows(source.label, plan)
