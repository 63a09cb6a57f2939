"""Count records with Spark: checked by the shared rules, grouped, sorted, streamed to the driver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sql

from countveil.base.histograms import Entries
from countveil.base.numerics import IntArray
from countveil.engines import counts as counting
from countveil.engines import record_rules
from countveil.engines.counts import Counts
from countveil.engines.record_rules import SHOWN
from countveil.engines.spark.spark_source import (
    AMOUNT,
    BLOCK,
    GEOCODE,
    LINE,
    PERSON,
    ROW,
    TORN,
    WHOLE,
    SparkSource,
    faults_of,
)
from countveil.plan import person_ids
from countveil.plan.geography import Geography
from countveil.plan.plan_basis import PlanBasis


def cell_of(plan: PlanBasis) -> Column:
    """Return the number of a row's cell, NULL if a code is not declared."""
    stride, cell = plan.schema.cells, sql.lit(0)
    for number, attribute in enumerate(plan.schema.attributes):
        stride //= len(attribute.categories)
        cell += category_of(number, attribute.categories) * stride
    return sql.when(~sql.col(TORN), cell)


def category_of(number: int, categories: tuple[str, ...]) -> Column:
    """Return the number of an attribute's category, NULL if the code is not declared."""
    pairs = [sql.lit(item) for place, name in enumerate(categories) for item in (name, place)]
    return sql.create_map(*pairs)[sql.col(f"code{number}")]


@dataclass(frozen=True, eq=False, slots=True)
class _Check:
    """A rule: where it is broken, the column to show, and the message."""

    broken: Column
    value: str
    words: str


def check_lines(source: SparkSource) -> None:
    """Refuse a CSV file with a line that is not a record, in one scan before Spark parses it."""
    if source.lines is None:
        return
    frame = source.lines.frame
    checks = [_Check(broken, LINE, words) for broken, words in faults_of(source.lines)]
    _refuse_first(replace(source, frame=frame), frame, checks, each="line")


def check_rows(source: SparkSource) -> None:
    """Refuse rows without a person id, and counts that are missing, negative or not whole."""
    checks = []
    if source.max_rows is not None:
        text = sql.coalesce(sql.col(PERSON).cast("string"), sql.lit(""))
        visible = sql.regexp_replace(text, person_ids.INVISIBLE, "")
        blank = visible.rlike(rf"\A{person_ids.BLANK}\z")
        bare = sql.regexp_replace(visible, person_ids.MARKS, "")
        placeholder = visible.rlike(rf"\A(?:{person_ids.NUMBER})\z")
        placeholder |= bare.rlike(rf"\A(?:{person_ids.WORD})\z")
        if source.real_ids:
            placeholder &= ~text.isin(*source.real_ids)
        checks.append(_Check(blank, PERSON, record_rules.BLANK_PERSON))
        checks.append(_Check(placeholder, PERSON, record_rules.PLACEHOLDER))
    if WHOLE in source.frame.columns:
        whole = sql.col(WHOLE)
        checks.append(_Check(whole.isNull(), AMOUNT, record_rules.NOT_WHOLE))
        checks.append(
            _Check(sql.coalesce(whole < 0, sql.lit(False)), AMOUNT, record_rules.NEGATIVE)
        )
    _refuse_first(source, source.frame, checks)


def explain(source: SparkSource, plan: PlanBasis, places: DataFrame) -> NoReturn:
    """Raise the error that names the rows that could not be counted, by the first rule they break."""
    lowest = plan.levels[-1]
    for number, _ in _first(source, source.frame, sql.col(TORN), GEOCODE)[:1]:
        detail = "" if number is None else f" at line {number + 1}"
        raise record_rules.unreadable(
            source.label, source.kind, detail=detail, show_values=source.show_values
        )
    checks = [
        _Check(_blank(sql.col(GEOCODE)), GEOCODE, record_rules.no_geocode(lowest)),
        _Check(sql.col("unit").isNull(), GEOCODE, record_rules.unknown_geocode(lowest)),
    ]
    for number, attribute in enumerate(plan.schema.attributes):
        name = f"code{number}"
        known = category_of(number, attribute.categories).isNotNull()
        checks.append(_Check(_blank(sql.col(name)), name, record_rules.missing_code(attribute)))
        checks.append(_Check(~known, name, record_rules.unknown_category(attribute)))
    _refuse_first(source, source.frame.join(places, GEOCODE, "left"), checks)
    raise AssertionError("rows that could not be counted break no rule")


def _blank(text: Column) -> Column:
    return sql.coalesce(text, sql.lit("")) == ""


def _refuse_first(
    source: SparkSource, frame: DataFrame, checks: list[_Check], each: str = "row"
) -> None:
    """Find in one pass which rules are broken, and name the rows that break the first of them."""
    results = frame.agg(*(sql.max(check.broken) for check in checks)).first()
    assert results is not None
    for check, broken in zip(checks, results, strict=True):
        if broken:
            rows = _first(source, frame, check.broken, check.value)
            numbers = [number for number, _ in rows if number is not None]
            values = [value for _, value in rows] if source.show_values else None
            raise record_rules.broken(source.label, numbers, check.words, values, each=each)


def _first(
    source: SparkSource, frame: DataFrame, broken: Column, value: str
) -> list[tuple[int | None, Any]]:
    """Return the first rows that break a rule, with their number in the file if they have one."""
    faults = frame.filter(broken)
    if not source.ordered:
        return [(None, row[0]) for row in faults.select(value).limit(SHOWN + 1).collect()]
    rows = faults.select(BLOCK, ROW, value).orderBy(BLOCK, ROW).limit(SHOWN + 1).collect()
    if not rows:
        return []
    # Spark splits a file into blocks and numbers the rows of each; add the rows of earlier blocks.
    per_block = source.frame.groupBy(BLOCK).agg(sql.count(sql.lit(1)), sql.min(ROW)).orderBy(BLOCK)
    before, starts = 0, {}
    for block, count, first in per_block.collect():
        starts[block] = before - first + 1
        before += count
    return [(starts[row[0]] + row[1], row[2]) for row in rows]


_TOO_MANY = 2**62  # for a sum beyond 64 bits; such a count is refused
_ROWS = 1 << 17
_PACKED = ("unit", "cell", "n")


def count(source: SparkSource, plan: PlanBasis, geography: Geography) -> Counts:
    """Return the counts of every level, once the records are checked against the plan."""
    places = units_of(source, geography)
    with source.translated_errors():
        check_lines(source)
        if source.max_rows is not None or WHOLE in source.frame.columns:
            check_rows(source)
        frame = _tally(source, plan).join(places, GEOCODE, "left")
        unit, cell = (sql.coalesce(name, sql.lit(-1)).cast("int") for name in ("unit", "cell"))
        ordered = frame.select(unit.alias("unit"), cell.alias("cell"), "n").orderBy("unit", "cell")
        entries = _checked(_streamed(ordered), source, plan, places)
        rows = _rows_read(source, places, len(geography.codes[-1]))
        return counting.build(geography, plan.schema.cells, entries, plan.counting_digest, rows)


def _rows_read(source: SparkSource, places: DataFrame, units: int) -> IntArray | None:
    """Return the rows of each lowest unit before `max_rows` is applied; None if it is not."""
    if source.max_rows is None:
        return None
    counted = source.frame.groupBy(GEOCODE).agg(sql.count(sql.lit(1)).alias("n"))
    rows: IntArray = np.zeros(units, np.int64)
    ordered = counted.join(places, GEOCODE).select(
        "unit", sql.lit(0).cast("int").alias("cell"), "n"
    )
    for unit, _, count in _streamed(ordered):
        rows[unit] = count
    return rows


def units_of(source: SparkSource, geography: Geography) -> DataFrame:
    """Return the places of the lowest level, with their numbers."""
    codes = geography.codes[-1]
    numbers = pa.array(np.arange(len(codes)), pa.int32())
    return source.frame.sparkSession.createDataFrame(
        pa.table({GEOCODE: codes.cast(pa.string()), "unit": numbers})
    )


def _tally(source: SparkSource, plan: PlanBasis) -> DataFrame:
    """Return (geocode, cell, n)."""
    amount = sql.count(sql.lit(1))
    if WHOLE in source.frame.columns:
        amount = sql.coalesce(sql.try_sum(WHOLE), sql.lit(_TOO_MANY))
    rows = _bounded(source, plan).select(GEOCODE, cell_of(plan).alias("cell"), *_also(source))
    return rows.groupBy(GEOCODE, "cell").agg(amount.alias("n"))


def _also(source: SparkSource) -> list[str]:
    return [WHOLE] if WHOLE in source.frame.columns else []


def _bounded(source: SparkSource, plan: PlanBasis) -> DataFrame:
    """Return the rows to count: at most `max_rows` per person."""
    if source.max_rows is None:
        return source.frame
    # Which rows are kept depends on that person's rows alone, so the sensitivity is max_rows.
    order = [GEOCODE, *(f"code{number}" for number in range(len(plan.schema.attributes)))]
    window = Window.partitionBy(PERSON).orderBy(*(sql.col(name).asc_nulls_last() for name in order))
    numbered = source.frame.withColumn("turn", sql.row_number().over(window))
    return numbered.filter(sql.col("turn") <= source.max_rows)


def _streamed(ordered: DataFrame) -> Iterator[Entries]:
    """Yield (unit, cell, n) by partition; at most two partitions are on the driver."""
    packed = ordered.mapInArrow(_pack, ", ".join(f"{name} binary" for name in _PACKED))
    for row in packed.toLocalIterator(prefetchPartitions=True):
        unit, cell, n = (np.frombuffer(row[name], np.int64) for name in _PACKED)
        yield unit, cell, n


def _pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack many small rows into a few large ones, as the driver fetches row by row."""
    batched: list[pa.RecordBatch] = []

    def packed() -> pa.RecordBatch:
        table = pa.Table.from_batches(batched)
        columns = [table[name].to_numpy().astype(np.int64).tobytes() for name in _PACKED]
        return pa.RecordBatch.from_pydict(
            {
                name: pa.array([data], pa.binary())
                for name, data in zip(_PACKED, columns, strict=True)
            }
        )

    for batch in batches:
        batched.append(batch)
        if sum(part.num_rows for part in batched) >= _ROWS:
            yield packed()
            batched = []
    if any(part.num_rows for part in batched):
        yield packed()


def _checked(
    entries: Iterator[Entries], source: SparkSource, plan: PlanBasis, places: DataFrame
) -> Iterator[Entries]:
    """Yield the non-zero counts; refuse rows without a unit or a cell, and records without rows."""
    empty = True
    for unit, cell, n in entries:
        empty = False
        if (unit < 0).any() or (cell < 0).any():
            explain(source, plan, places)
        some = n > 0
        yield unit[some], cell[some], n[some]
    if empty:
        raise record_rules.no_rows(source.label, plan)
