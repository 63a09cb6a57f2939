"""The records a plan names, as a Spark DataFrame whose columns have plain names."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import (
    CharType,
    DataType,
    StringType,
    StructField,
    StructType,
    VarcharType,
)

from countveil.engines import rules
from countveil.engines.records_file import Kind, is_parquet, locate
from countveil.engines.spark.alone import refuse_dependent
from countveil.engines.spark.lines import LINE, Lines
from countveil.engines.spark.query import bracketed, refuse_programs, refuse_programs_in_views
from countveil.errors import RecordsError
from countveil.schema.delimited import read_header
from countveil.schema.plan import Plan

GEOCODE, PERSON, TORN = "geocode", "person", "torn"
AMOUNT, WHOLE = "amount", "whole"  # a count as it came, and as a whole number if it is one
BLOCK, ROW = "block", "row"  # together the order of the rows of a file
_TORN = "__countveil_torn"  # where Spark puts a line that is not what the header says
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")  # PySpark's own
_TEXT = (StringType, CharType, VarcharType)
_FILE = "_metadata"  # what Spark knows of where a row lies


@dataclass(frozen=True, eq=False, slots=True)
class SparkSource:
    """Records with a column `geocode`, `code0` … for the attributes, and those that the plan needs.

    `ordered` says whether rows have a place in one file, which messages can name.
    """

    frame: DataFrame
    label: str
    kind: Kind
    ordered: bool
    max_rows: int | None
    real_ids: tuple[str, ...]
    show_values: bool
    lines: Lines | None = None

    @contextlib.contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Turn Spark's errors into ours; they may quote records, so their text stays here."""
        with _translated(self.label, self.kind, self.show_values):
            yield


def open_source(
    plan: Plan, session: SparkSession, given: DataFrame | None, show_values: bool
) -> SparkSource:
    """Open the records of a plan, or the DataFrame given instead, and find the columns it names."""
    assert plan.records is not None
    if given is not None:
        return _of(plan, given, given.columns, "records", "query", False, show_values)
    if plan.records.database is not None:
        raise RecordsError(
            f"{plan.name}: records.database: is a file of DuckDB, which Spark does not read; name a "
            f"table of Spark in records.query, or export it to Parquet"
        )
    if plan.records.query is not None:
        label = f"{plan.name}: records.query"
        query = bracketed(plan.records.query)
        with _translated(label, "query", show_values):
            refuse_programs(session, query, label)
            frame = session.sql(query)
            refuse_programs_in_views(frame, label)
            refuse_dependent(frame, plan.records, plan.folder, label)
        return _of(plan, frame, frame.columns, label, "query", False, show_values)
    return _of_file(plan, _reading(session), show_values)


def _of_file(plan: Plan, session: SparkSession, show_values: bool) -> SparkSource:
    assert plan.records is not None
    named = str(plan.records.path)
    file = plan.folder / named
    if "://" in named or (file.is_dir() and is_parquet(file)):
        # A folder of Parquet files, or something on a file system of Spark's own.
        label = named if "://" in named else str(file)
        if not is_parquet(Path(named)):
            raise RecordsError(f"{label}: is not named as Parquet; on Spark, name *.parquet there")
        with _translated(label, "Parquet", show_values):
            frame = session.read.parquet(named if "://" in named else _uri(file))
        return _of(plan, frame, frame.columns, label, "Parquet", False, show_values)
    place = locate(plan)
    assert place.path is not None
    if place.path.name.startswith(("_", ".")) or ":" in str(place.path.absolute()):
        raise RecordsError(
            f"{place.label}: Spark passes over files whose names begin with _ or ., and reads none "
            f"with a colon in its path; rename it"
        )
    lines = None
    with _translated(place.label, place.kind, show_values):
        if place.kind == "Parquet":
            frame = session.read.parquet(_uri(place.path))
            names = frame.columns
            frame = frame.select("*", sql.lit(0), frame.metadataColumn(_FILE)["row_index"])
        else:
            frame, names, lines = _csv(place.path, session)
            frame = frame.select("*", *_position(frame))
    source = _of(plan, frame, names, place.label, place.kind, True, show_values)
    return replace(source, lines=lines)


def _reading(session: SparkSession) -> SparkSession:
    """Return a session that takes files as they are: nothing guessed, nothing left unread."""
    own = session.newSession()
    own.conf.set("spark.sql.caseSensitive", True)
    own.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", False)
    # Otherwise a line is not looked at past the columns that are asked for.
    own.conf.set("spark.sql.csv.parser.columnPruning.enabled", False)
    return own


def _csv(path: Path, session: SparkSession) -> tuple[DataFrame, list[str], Lines]:
    """Read a CSV file as text; what is not as the header says goes to a column of its own."""
    try:
        names, delimiter = read_header(path)
    except ValueError as error:
        raise RecordsError(f"{path}: {error}") from None
    # By the names of the header: Spark would log those that differ, and they may be a record.
    columns = [StructField(name, StringType()) for name in names]
    most = max(20480, 2 * len(names))  # a line with more would end in an error that quotes it
    frame = (
        session.read.schema(StructType([*columns, StructField(_TORN, StringType())]))
        .options(
            header=True,
            sep=delimiter,
            quote='"',
            escape='"',
            mode="PERMISSIVE",
            columnNameOfCorruptRecord=_TORN,
            maxColumns=most,
        )
        .csv(_uri(path))
    )
    text = session.read.option("lineSep", "\n").text(_uri(path))
    text = text.select(LINE, *_position(text)).toDF(LINE, BLOCK, ROW)
    return frame, names, Lines(text, delimiter, most)


def _position(frame: DataFrame) -> tuple[Column, Column]:
    """Return where in its file a row lies; not by name, which a column of the file may have."""
    return frame.metadataColumn(_FILE)["file_block_start"], sql.monotonically_increasing_id()


def _uri(path: Path) -> str:
    """Name one file, even where its name holds the characters of a pattern."""
    return "file://" + re.sub(r"([\\\[\]{}*?])", r"\\\1", str(path.absolute()))


def _of(
    plan: Plan,
    raw: DataFrame,
    names: list[str],
    label: str,
    kind: Kind,
    ordered: bool,
    show_values: bool,
) -> SparkSource:
    """Take the columns a plan names, by their place: names may hold anything."""
    records = plan.records
    assert records is not None
    rules.refuse_reserved(label, names)
    rules.refuse_unknown_renames(plan)
    with _translated(label, kind, show_values):
        added = [TORN] * (kind == "CSV") + [BLOCK, ROW] * ordered
        plain = raw.toDF(*(f"c{number}" for number in range(len(names))), *added)
        types = {field.name: field.dataType for field in plain.schema.fields}

    def column(name: str, key: str) -> str:
        if name not in names:
            # Without a header, the first line of a CSV file is a record.
            shown = kind == "Parquet" or show_values
            raise rules.no_column(label, name, key, names if shown else None)
        rules.refuse_twice(label, [other for other in names if other == name])
        return f"c{names.index(name)}"

    lowest = plan.levels[-1]
    named = records.columns.get(lowest, lowest)
    geocode = column(named, f"the level {lowest}")
    if not isinstance(types[geocode], _TEXT):
        raise rules.not_text(label, named, types[geocode].simpleString())
    missing = {} if records.missing == "refuse" else records.missing
    wanted = {GEOCODE: sql.col(geocode)}
    for number, item in enumerate(plan.schema.attributes):
        code = column(records.columns.get(item.name, item.name), f"the attribute {item.name}")
        wanted[f"code{number}"] = _text(sql.col(code), missing.get(item.name))
    if records.counts is not None:
        counts = column(records.counts, "records.counts")
        wanted[AMOUNT] = sql.col(counts)
        wanted[WHOLE] = _whole(sql.col(counts), types[counts])
    if records.person_id is not None:
        wanted[PERSON] = sql.col(column(records.person_id, "records.person_id"))
    wanted[TORN] = sql.col(TORN).isNotNull() if kind == "CSV" else sql.lit(False)
    wanted |= {name: sql.col(name) for name in (BLOCK, ROW) if ordered}
    frame = plain.select(*(value.alias(name) for name, value in wanted.items()))
    max_rows = None if records.person_id is None else records.max_rows or 1
    real_ids = tuple(records.real_ids)
    return SparkSource(frame, label, kind, ordered, max_rows, real_ids, show_values)


def _whole(column: Column, kind: DataType) -> Column:
    """Return a count, NULL where it is not whole."""
    if isinstance(kind, _TEXT):
        digits = sql.regexp_extract(column, rf"\A{rules.WHOLE}\z", 1)
        return sql.nullif(digits, sql.lit("")).try_cast("bigint")
    whole, real = (column.try_cast(name) for name in ("bigint", "double"))
    return sql.when(whole.cast("double") == real, whole)


def _text(column: Column, missing: str | None) -> Column:
    """Return a code as text, a missing one replaced where that is declared."""
    text = column.cast("string")
    if missing is None:
        return text
    return sql.coalesce(sql.nullif(text, sql.lit("")), sql.lit(missing))


@contextlib.contextmanager
def _translated(label: str, kind: Kind, show_values: bool) -> Iterator[None]:
    try:
        with contextlib.nullcontext() if show_values else _unlogged():
            yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        about_sql = isinstance(error, ParseException) or (
            isinstance(error, AnalysisException) and "TABLE_OR_VIEW_NOT_FOUND" in text
        )
        if isinstance(error, AnalysisException) and "COLUMN_ALREADY_EXISTS" in text:
            raise rules.named_twice(label) from None
        detail = f": {text}" if show_values or (kind == "query" and about_sql) else ""
        source = None if not show_values else error
        if isinstance(error, AnalysisException) or "FAILED_READ_FILE" in text or about_sql:
            raise rules.unreadable(label, kind, detail=detail, show_values=show_values) from source
        hint = "" if show_values else "run it with --show-values to see what Spark says, "
        raise RecordsError(
            f"{label}: Spark could not count it{detail}; {hint}mend the cluster or the records, and "
            f"run it again"
        ) from source


@contextlib.contextmanager
def _unlogged() -> Iterator[None]:
    """Keep PySpark from logging the errors that it raises, which quote records."""
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled
