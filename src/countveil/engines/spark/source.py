"""The records a plan names, as a Spark DataFrame whose columns have plain names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import CharType, StringType, StructField, StructType, VarcharType

from countveil.engines import rules
from countveil.engines.records_file import Kind, is_parquet, locate
from countveil.errors import RecordsError
from countveil.schema.delimited import read_header
from countveil.schema.plan import Plan

GEOCODE, AMOUNT, PERSON, TORN = "geocode", "amount", "person", "torn"
BLOCK, ROW = "block", "row"  # together the order of the rows of a file
_TORN = "__countveil_torn"  # where Spark puts a line that is not what the header says
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
    show_values: bool

    @contextmanager
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
        with _translated(label, "query", show_values):
            # Within brackets Spark's grammar takes a query, and nothing that changes anything.
            frame = session.sql(f"SELECT * FROM ({plan.records.query.strip().rstrip(';')}\n)")
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
    with _translated(place.label, place.kind, show_values):
        if place.kind == "Parquet":
            frame = session.read.parquet(_uri(place.path))
            names = frame.columns
            position = sql.lit(0), sql.col(f"{_FILE}.row_index")
        else:
            frame, names = _csv(place.path, session)
            position = sql.col(f"{_FILE}.file_block_start"), sql.monotonically_increasing_id()
        frame = frame.select("*", *position)
    return _of(plan, frame, names, place.label, place.kind, True, show_values)


def _reading(session: SparkSession) -> SparkSession:
    """Return a session that takes files as they are: nothing guessed, nothing left unread."""
    own = session.newSession()
    own.conf.set("spark.sql.caseSensitive", True)
    own.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", False)
    # Otherwise a line is not looked at past the columns that are asked for.
    own.conf.set("spark.sql.csv.parser.columnPruning.enabled", False)
    return own


def _csv(path: Path, session: SparkSession) -> tuple[DataFrame, list[str]]:
    """Read a CSV file as text; what is not as the header says goes to a column of its own."""
    try:
        names, delimiter = read_header(path)
    except ValueError as error:
        raise RecordsError(f"{path}: {error}") from None
    # By the names of the header: Spark would log those that differ, and they may be a record.
    columns = [StructField(name, StringType()) for name in names]
    frame = (
        session.read.schema(StructType([*columns, StructField(_TORN, StringType())]))
        .options(
            header=True,
            sep=delimiter,
            quote='"',
            escape='"',
            mode="PERMISSIVE",
            columnNameOfCorruptRecord=_TORN,
            maxColumns=max(20480, 2 * len(names)),
        )
        .csv(_uri(path))
    )
    return frame, names


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
        return f"c{names.index(name)}"

    lowest = plan.levels[-1]
    named = records.columns.get(lowest, lowest)
    geocode = column(named, f"the level {lowest}")
    if not isinstance(types[geocode], StringType | CharType | VarcharType):
        raise rules.not_text(label, named, types[geocode].simpleString())
    missing = {} if records.missing == "refuse" else records.missing
    wanted = {GEOCODE: sql.col(geocode)}
    for number, item in enumerate(plan.schema.attributes):
        code = column(records.columns.get(item.name, item.name), f"the attribute {item.name}")
        wanted[f"code{number}"] = _text(sql.col(code), missing.get(item.name))
    if records.counts is not None:
        wanted[AMOUNT] = sql.col(column(records.counts, "records.counts"))
    if records.person_id is not None:
        wanted[PERSON] = sql.col(column(records.person_id, "records.person_id"))
    wanted[TORN] = sql.col(TORN).isNotNull() if kind == "CSV" else sql.lit(False)
    wanted |= {name: sql.col(name) for name in (BLOCK, ROW) if ordered}
    frame = plain.select(*(value.alias(name) for name, value in wanted.items()))
    max_rows = None if records.person_id is None else records.max_rows or 1
    return SparkSource(frame, label, kind, ordered, max_rows, show_values)


def _text(column: Column, missing: str | None) -> Column:
    """Return a code as text, a missing one replaced where that is declared."""
    text = column.cast("string")
    if missing is None:
        return text
    return sql.coalesce(sql.nullif(text, sql.lit("")), sql.lit(missing))


@contextmanager
def _translated(label: str, kind: Kind, show_values: bool) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        about_sql = isinstance(error, ParseException) or (
            isinstance(error, AnalysisException) and "TABLE_OR_VIEW_NOT_FOUND" in text
        )
        detail = f": {text}" if show_values or (kind == "query" and about_sql) else ""
        source = None if not show_values else error
        if isinstance(error, AnalysisException) or "FAILED_READ_FILE" in text or about_sql:
            raise rules.unreadable(label, kind, detail=detail, show_values=show_values) from source
        raise RecordsError(
            f"{label}: Spark could not count it{detail}; see the log of its driver, mend the cluster "
            f"or the records, and run it again"
        ) from source
