"""The records of a plan as a Spark DataFrame with known column names."""

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

from countveil.base.delimited import read_header
from countveil.engines import record_rules
from countveil.engines.records_file import Kind, is_parquet, locate
from countveil.engines.spark.spark_person_alone import refuse_dependent
from countveil.engines.spark.spark_query import bracketed, refuse_programs, refuse_programs_in_views
from countveil.errors import RecordsError
from countveil.plan.plan_basis import PlanBasis

# Spark's CSV reader ends a record at every line break, even within quotes: one person's text could
# contain what looks like another record. So a file is scanned once, and refused if a line is not a
# record.

LINE = "value"  # Spark's name for the text of a line

_RUNS_OVER = (
    "a line break in a quoted field, which Spark would read as two records; write Parquet, or remove "
    "the line breaks"
)
_RETURN = (
    "a carriage return inside a line, where Spark would end a record; write Parquet, or end lines "
    "with line feeds and remove other returns"
)
_STRAY = (
    'a quotation mark in a field that is not quoted as a whole; write it as "" in a quoted field, or '
    "write Parquet"
)
_BLANK = "only blanks, which is neither a record nor an empty line; remove it"


@dataclass(frozen=True, eq=False, slots=True)
class Lines:
    """The lines of a file with their positions, the delimiter, and the limit of fields per line."""

    frame: DataFrame
    delimiter: str
    most_fields: int


def faults_of(lines: Lines) -> list[tuple[Column, str]]:
    """Return the ways in which a line is not a record, each with its message, worst first."""
    line = sql.col(LINE)
    returns = sql.when(line.endswith("\r"), 1).otherwise(0)
    quotes = _times('"')
    # Spark treats a line as empty after Java's `trim`, which strips all characters up to the blank.
    blank = (line < "!") & line.rlike(r"\A[\x00-\x20]+\z") & ~line.isin("", "\r")
    too_many = (
        f"more than {lines.most_fields:,} fields, far more than the header names; fix the line"
    )
    return [
        (quotes % 2 == 1, _RUNS_OVER),
        (_times("\r") > returns, _RETURN),
        ((quotes > 0) & ~line.rlike(_well_quoted(lines.delimiter)), _STRAY),
        (blank, _BLANK),
        (_times(lines.delimiter) >= lines.most_fields, too_many),
    ]


def _times(mark: str) -> Column:
    """Return how often a one-byte character occurs in a line."""
    line = sql.col(LINE)
    return sql.octet_length(line) - sql.octet_length(sql.replace(line, sql.lit(mark), sql.lit("")))


def _well_quoted(delimiter: str) -> str:
    """Return the pattern of a line whose fields are quoted as a whole or not at all (RFC 4180).

    Its quantifiers are possessive, so Java matches a line of any length without recursion.
    """
    mark = f"\\x{ord(delimiter):02x}"
    field = rf'(?:"(?:[^"]++|"")*+"|[^"{mark}\r]*+)'
    return rf"\A{field}(?:{mark}{field})*+\r?\z"


GEOCODE, PERSON, TORN = "geocode", "person", "torn"
AMOUNT, WHOLE = "amount", "whole"  # a count as written, and as a whole number if it is one
BLOCK, ROW = "block", "row"  # together the position of a row in its file
_TORN = "__countveil_torn"  # where Spark puts a line that does not fit the header
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")  # PySpark's own
_TEXT = (StringType, CharType, VarcharType)
_FILE = "_metadata"  # where Spark keeps the position of a row


@dataclass(frozen=True, eq=False, slots=True)
class SparkSource:
    """Records with columns `geocode`, `code0` … for the attributes, and others that the plan needs.

    `ordered` says whether rows have a position in one file, which messages can name.
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
        """Turn Spark's errors into ours, without their text, which may quote records."""
        with _translated(self.label, self.kind, self.show_values):
            yield


def open_source(
    plan: PlanBasis, session: SparkSession, records: DataFrame | None, show_values: bool
) -> SparkSource:
    """Open the records of a plan, or the DataFrame `records` instead, and find its columns."""
    assert plan.records is not None
    if records is not None:
        return _of(plan, records, records.columns, "records", "query", False, show_values)
    if plan.records.database is not None:
        raise RecordsError(
            f"{plan.name}: records.database: is a DuckDB file, which Spark cannot read; name a Spark "
            f"table in records.query, or export it to Parquet"
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


def _of_file(plan: PlanBasis, session: SparkSession, show_values: bool) -> SparkSource:
    assert plan.records is not None
    name = str(plan.records.path)
    file = plan.folder / name
    if "://" in name or (file.is_dir() and is_parquet(file)):
        # A folder of Parquet files, or something on a remote file system.
        label = name if "://" in name else str(file)
        if not is_parquet(Path(name)):
            raise RecordsError(f"{label}: is not Parquet by its name; Spark needs *.parquet there")
        with _translated(label, "Parquet", show_values):
            frame = session.read.parquet(name if "://" in name else _uri(file))
        return _of(plan, frame, frame.columns, label, "Parquet", False, show_values)
    place = locate(plan)
    assert place.path is not None
    if place.path.name.startswith(("_", ".")) or ":" in str(place.path.absolute()):
        raise RecordsError(
            f"{place.label}: Spark ignores files whose names begin with _ or ., and cannot read one "
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
    """Return a session that reads files as they are: no guesses, and nothing left unread."""
    own = session.newSession()
    own.conf.set("spark.sql.caseSensitive", True)
    own.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", False)
    # Otherwise a line is not parsed beyond the columns that are selected.
    own.conf.set("spark.sql.csv.parser.columnPruning.enabled", False)
    return own


def _csv(path: Path, session: SparkSession) -> tuple[DataFrame, list[str], Lines]:
    """Read a CSV file as text; lines that do not fit the header go to a separate column."""
    try:
        names, delimiter = read_header(path)
    except ValueError as error:
        raise RecordsError(f"{path}: {error}") from None
    # With the names of the header: Spark would log those that differ, and they may be a record.
    columns = [StructField(name, StringType()) for name in names]
    most = max(20480, 2 * len(names))  # a line with more would cause an error that quotes it
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
    """Return the position of a row in its file; not by name, which a column may have too."""
    return frame.metadataColumn(_FILE)["file_block_start"], sql.monotonically_increasing_id()


def _uri(path: Path) -> str:
    """Return the address of one file, whose name may contain characters of a pattern."""
    return "file://" + re.sub(r"([\\\[\]{}*?])", r"\\\1", str(path.absolute()))


def _of(
    plan: PlanBasis,
    raw: DataFrame,
    names: list[str],
    label: str,
    kind: Kind,
    ordered: bool,
    show_values: bool,
) -> SparkSource:
    """Return the columns of a plan, selected by position, since names may contain anything."""
    records = plan.records
    assert records is not None
    record_rules.refuse_reserved(label, names)
    record_rules.refuse_unknown_renames(plan)
    with _translated(label, kind, show_values):
        added = [TORN] * (kind == "CSV") + [BLOCK, ROW] * ordered
        plain = raw.toDF(*(f"c{number}" for number in range(len(names))), *added)
        types = {field.name: field.dataType for field in plain.schema.fields}

    def column(name: str, key: str) -> str:
        if name not in names:
            # If a CSV file lacks a header, its first line is a record.
            shown = kind == "Parquet" or show_values
            raise record_rules.no_column(label, name, key, names if shown else None)
        record_rules.refuse_twice(label, [other for other in names if other == name])
        return f"c{names.index(name)}"

    lowest = plan.levels[-1]
    name = records.columns.get(lowest, lowest)
    geocode = column(name, f"the level {lowest}")
    if not isinstance(types[geocode], _TEXT):
        raise record_rules.not_text(label, name, types[geocode].simpleString())
    missing = {} if records.missing == "refuse" else records.missing
    columns = {GEOCODE: sql.col(geocode)}
    for number, item in enumerate(plan.schema.attributes):
        code = column(records.columns.get(item.name, item.name), f"the attribute {item.name}")
        columns[f"code{number}"] = _text(sql.col(code), missing.get(item.name))
    if records.counts is not None:
        counts = column(records.counts, "records.counts")
        columns[AMOUNT] = sql.col(counts)
        columns[WHOLE] = _whole(sql.col(counts), types[counts])
    if records.person_id is not None:
        columns[PERSON] = sql.col(column(records.person_id, "records.person_id"))
    columns[TORN] = sql.col(TORN).isNotNull() if kind == "CSV" else sql.lit(False)
    columns |= {name: sql.col(name) for name in (BLOCK, ROW) if ordered}
    frame = plain.select(*(value.alias(name) for name, value in columns.items()))
    max_rows = None if records.person_id is None else records.max_rows or 1
    real_ids = tuple(records.real_ids)
    return SparkSource(frame, label, kind, ordered, max_rows, real_ids, show_values)


def _whole(column: Column, kind: DataType) -> Column:
    """Return a count, NULL if it is not a whole number."""
    if isinstance(kind, _TEXT):
        digits = sql.regexp_extract(column, rf"\A{record_rules.WHOLE}\z", 1)
        return sql.nullif(digits, sql.lit("")).try_cast("bigint")
    whole, real = (column.try_cast(name) for name in ("bigint", "double"))
    return sql.when(whole.cast("double") == real, whole)


def _text(column: Column, missing: str | None) -> Column:
    """Return a code as text, with a missing one replaced if that is declared."""
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
            raise record_rules.named_twice(label) from None
        detail = f": {text}" if show_values or (kind == "query" and about_sql) else ""
        source = None if not show_values else error
        if isinstance(error, AnalysisException) or "FAILED_READ_FILE" in text or about_sql:
            raise record_rules.unreadable(
                label, kind, detail=detail, show_values=show_values
            ) from source
        hint = "" if show_values else "use --show-values to see Spark's message, "
        raise RecordsError(
            f"{label}: Spark could not count the records{detail}; {hint}fix the cluster or the "
            f"records, and run it again"
        ) from source


@contextlib.contextmanager
def _unlogged() -> Iterator[None]:
    """Stop PySpark from logging the errors that it raises, which quote records."""
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled
