"""What is wrong with records that do not fit, found by Spark: the same rules, in the same words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from countveil.engines import rules
from countveil.engines.rules import SHOWN
from countveil.engines.spark.cells import category_of
from countveil.engines.spark.lines import LINE, faults_of
from countveil.engines.spark.source import (
    AMOUNT,
    BLOCK,
    GEOCODE,
    PERSON,
    ROW,
    TORN,
    WHOLE,
    SparkSource,
)
from countveil.schema import person_ids
from countveil.schema.plan import Plan


@dataclass(frozen=True, eq=False, slots=True)
class _Check:
    """A rule: where it is broken, the column that shows it, and its words."""

    broken: Column
    value: str
    words: str


def check_lines(source: SparkSource) -> None:
    """Refuse a CSV file where a line is no record: one scan, before Spark makes records of it."""
    if source.lines is None:
        return
    frame = source.lines.frame
    checks = [_Check(broken, LINE, words) for broken, words in faults_of(source.lines)]
    _refuse_first(replace(source, frame=frame), frame, checks, each="line")


def check_rows(source: SparkSource) -> None:
    """Refuse rows without a person, and counts that are missing, negative or not whole."""
    checks = []
    if source.max_rows is not None:
        text = sql.coalesce(sql.col(PERSON).cast("string"), sql.lit(""))
        visible = sql.regexp_replace(text, person_ids.INVISIBLE, "")
        nobody = visible.rlike(rf"\A{person_ids.NOBODY}\z")
        placeholder = visible.rlike(rf"\A{person_ids.PLACEHOLDER}\z")
        if source.real_ids:
            placeholder &= ~text.isin(*source.real_ids)
        checks.append(_Check(nobody, PERSON, rules.NOBODY))
        checks.append(_Check(placeholder, PERSON, rules.PLACEHOLDER))
    if WHOLE in source.frame.columns:
        whole = sql.col(WHOLE)
        checks.append(_Check(whole.isNull(), AMOUNT, rules.NOT_WHOLE))
        checks.append(_Check(sql.coalesce(whole < 0, sql.lit(False)), AMOUNT, rules.NEGATIVE))
    _refuse_first(source, source.frame, checks)


def explain(source: SparkSource, plan: Plan, places: DataFrame) -> NoReturn:
    """Name the rows that could not be counted, worst rule first, and refuse."""
    lowest = plan.levels[-1]
    for number, _ in _first(source, source.frame, sql.col(TORN), GEOCODE)[:1]:
        detail = "" if number is None else f" at line {number + 1}"
        raise rules.unreadable(
            source.label, source.kind, detail=detail, show_values=source.show_values
        )
    checks = [
        _Check(_blank(sql.col(GEOCODE)), GEOCODE, rules.no_geocode(lowest)),
        _Check(sql.col("unit").isNull(), GEOCODE, rules.unknown_geocode(lowest)),
    ]
    for number, attribute in enumerate(plan.schema.attributes):
        name = f"code{number}"
        known = category_of(number, attribute.categories).isNotNull()
        checks.append(_Check(_blank(sql.col(name)), name, rules.missing_code(attribute)))
        checks.append(_Check(~known, name, rules.unknown_category(attribute)))
    _refuse_first(source, source.frame.join(places, GEOCODE, "left"), checks)
    raise AssertionError("rows that could not be counted, and no rule they break")


def _blank(text: Column) -> Column:
    return sql.coalesce(text, sql.lit("")) == ""


def _refuse_first(
    source: SparkSource, frame: DataFrame, checks: list[_Check], each: str = "row"
) -> None:
    """Find in one pass which rules are broken, and name the rows that break the first of them."""
    found = frame.agg(*(sql.max(check.broken) for check in checks)).first()
    assert found is not None
    for check, broken in zip(checks, found, strict=True):
        if broken:
            rows = _first(source, frame, check.broken, check.value)
            numbers = [number for number, _ in rows if number is not None]
            values = [value for _, value in rows] if source.show_values else None
            raise rules.broken(source.label, numbers, check.words, values, each=each)


def _first(
    source: SparkSource, frame: DataFrame, broken: Column, value: str
) -> list[tuple[int | None, Any]]:
    """Return the first rows where something is broken, by their number in the file if they have one."""
    found = frame.filter(broken)
    if not source.ordered:
        return [(None, row[0]) for row in found.select(value).limit(SHOWN + 1).collect()]
    rows = found.select(BLOCK, ROW, value).orderBy(BLOCK, ROW).limit(SHOWN + 1).collect()
    if not rows:
        return []
    # Spark cuts a file into blocks and numbers the rows of each; what lies before a block is added up.
    per_block = source.frame.groupBy(BLOCK).agg(sql.count(sql.lit(1)), sql.min(ROW)).orderBy(BLOCK)
    before, starts = 0, {}
    for block, count, first in per_block.collect():
        starts[block] = before - first + 1
        before += count
    return [(starts[row[0]] + row[1], row[2]) for row in rows]
