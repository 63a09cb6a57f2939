"""The records of a plan, opened in DuckDB: their columns as SQL, and errors that quote no record."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from countveil.base.delimited import read_header
from countveil.engines import record_rules
from countveil.engines.local.query_gate import accept
from countveil.engines.records_file import locate
from countveil.errors import RecordsError, Stopped
from countveil.plan.attributes import Attribute
from countveil.plan.plan_basis import PlanBasis

# Errors about the SQL text; all others may quote a value from a record.
_ABOUT_SQL = (duckdb.ParserException, duckdb.CatalogException)


@dataclass(frozen=True, eq=False, slots=True)
class DuckDBSource:
    """An open connection, and the SQL of the columns that the plan names."""

    connection: duckdb.DuckDBPyConnection
    label: str
    kind: str
    relation: str
    geocode: str
    columns: dict[str, str]
    missing: dict[str, str]
    counts: str | None
    whole: str | None
    person: str | None
    max_rows: int
    real_ids: tuple[str, ...]
    show_values: bool

    def one(self, query: str) -> Any:
        """Return the single value of a query."""
        return self.connection.execute(query).fetchall()[0][0]

    def text(self, name: str) -> str:
        """Return the SQL of an attribute's code as text, with missing codes replaced if declared."""
        text = f"CAST({self.columns[name]} AS VARCHAR)"
        if name in self.missing:
            return f"coalesce(nullif({text}, ''), {literal(self.missing[name])})"
        return text

    def category(self, attribute: Attribute) -> str:
        """Return the SQL of an attribute's declared category, NULL if the code is not declared."""
        declared = ", ".join(literal(category) for category in attribute.categories)
        return f"TRY_CAST({self.text(attribute.name)} AS ENUM({declared}))"

    def rows(self) -> str:
        """Return the SQL of the rows to count: at most `max_rows` per person."""
        if self.person is None:
            return self.relation
        # Which rows are kept depends on that person's rows alone, so the sensitivity is max_rows.
        order = ", ".join([self.geocode, *(self.text(name) for name in self.columns)])
        return (
            f"(SELECT * FROM {self.relation} QUALIFY row_number() OVER "
            f"(PARTITION BY {self.person} ORDER BY {order}) <= {self.max_rows})"
        )

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Turn DuckDB's errors into ours, without their text, which may quote records."""
        with _translated(self.label, self.kind, self.show_values):
            yield

    def close(self) -> None:
        """Close the connection, and with it temporary tables and spill files."""
        self.connection.close()


def open_source(
    plan: PlanBasis, spill: Path, memory: str, threads: int, show_values: bool
) -> DuckDBSource:
    """Open the records of a plan and find its columns."""
    records = plan.records
    assert records is not None
    place = locate(plan)
    label, kind = place.label, place.kind
    database = place.path if kind == "query" else None
    connection = _connect(database, spill, memory, threads)
    try:
        with _translated(label, kind, show_values):
            relation = _relation(plan, kind, connection, label)
            described = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
            types = {row[0]: str(row[1]) for row in described}
            record_rules.refuse_reserved(label, list(types))
            names = _names(relation, kind, place.path, connection)
            if kind == "Parquet":
                record_rules.refuse_twice(label, names)
        lowest = plan.levels[-1]
        renamed = records.columns
        record_rules.refuse_unknown_renames(plan)

        def column(name: str, key: str) -> str:
            if name not in types:
                # If a CSV file lacks a header, its first line is a record.
                shown = kind == "Parquet" or show_values
                raise record_rules.no_column(label, name, key, list(types) if shown else None)
            record_rules.refuse_twice(label, [other for other in names if other == name])
            return identifier(name)

        geocode = column(renamed.get(lowest, lowest), f"the level {lowest}")
        geocode_type = types[renamed.get(lowest, lowest)]
        if not geocode_type.startswith(("VARCHAR", "ENUM")):
            raise record_rules.not_text(label, renamed.get(lowest, lowest), geocode_type)
        counts = None if records.counts is None else column(records.counts, "records.counts")
        return DuckDBSource(
            connection=connection,
            label=label,
            kind=kind,
            relation=relation,
            geocode=f"CAST({geocode} AS VARCHAR)",
            columns={
                item.name: column(renamed.get(item.name, item.name), f"the attribute {item.name}")
                for item in plan.schema.attributes
            },
            missing={} if records.missing == "refuse" else dict(records.missing),
            counts=counts,
            whole=None if counts is None else _whole(counts, types[str(records.counts)]),
            person=None
            if records.person_id is None
            else column(records.person_id, "records.person_id"),
            max_rows=records.max_rows or 1,
            real_ids=tuple(records.real_ids),
            show_values=show_values,
        )
    except BaseException:
        connection.close()
        raise


def identifier(name: str) -> str:
    """Quote a column name."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a text value."""
    return "'" + text.replace("'", "''") + "'"


def _whole(counts: str, kind: str) -> str:
    """Return the SQL of a count, NULL if it is not a whole number."""
    if kind.startswith(("VARCHAR", "ENUM")):
        # By our own rule: DuckDB accepts 1e3 and 1_000 as numbers, and other engines do not.
        whole = literal(rf"\A{record_rules.WHOLE}\z")
        digits = f"regexp_extract(CAST({counts} AS VARCHAR), {whole}, 1)"
        return f"TRY_CAST(nullif({digits}, '') AS BIGINT)"
    whole, real = f"TRY_CAST({counts} AS BIGINT)", f"TRY_CAST({counts} AS DOUBLE)"
    return f"CASE WHEN {whole} = {real} THEN {whole} END"


def _names(
    relation: str, kind: str, path: Path | None, connection: duckdb.DuckDBPyConnection
) -> list[str]:
    """Return the column names of the source itself; DuckDB would number those that repeat."""
    if kind == "query":
        return [row[0] for row in connection.execute(f"DESCRIBE {relation}").fetchall()]
    if kind == "CSV":
        return []  # a header that repeats a name was refused
    assert path is not None
    try:
        return list(pq.read_schema(path).names)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise duckdb.IOException(str(error)) from error


def _connect(
    database: Path | None, spill: Path, memory: str, threads: int
) -> duckdb.DuckDBPyConnection:
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory,
        "threads": threads,
        "temp_directory": str(spill),
        "preserve_insertion_order": True,  # for the row numbers in messages
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,  # a name in a query is not a Python variable
    }
    try:
        connection = duckdb.connect(config=config)
        if database is not None:
            # Attached but not in use: until its macros are known, none of them may run.
            name = identifier(_catalog_name(database))
            connection.execute(
                f"ATTACH {literal(str(database))} AS {name} (READ_ONLY, TYPE duckdb)"
            )
        return connection
    except duckdb.Error as error:
        raise RecordsError(
            f"{database}: cannot be opened as a DuckDB database; export the table to Parquet and name "
            f"that file under records.path"
        ) from error


def _catalog_name(database: Path) -> str:
    """Return the name of a database in queries: that of its file, as in DuckDB."""
    reserved = database.stem.lower() in ("", "main", "memory", "system", "temp")
    return f"{record_rules.RESERVED}database" if reserved else database.stem


def _relation(plan: PlanBasis, kind: str, connection: duckdb.DuckDBPyConnection, label: str) -> str:
    """Return the SQL to select from; afterwards the settings of the connection are locked."""
    records = plan.records
    assert records is not None
    if kind == "query":

        def lock(reads_files: bool) -> None:
            if records.database is not None:
                connection.execute(f"USE {identifier(_catalog_name(Path(records.database)))}")
            if not reads_files:
                connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")

        return accept(records, connection, plan.folder, label, lock)
    path = plan.folder / str(records.path)
    folders = {str(file.parent) for file in (path.absolute(), path.resolve())}  # it may be a link
    connection.execute(f"SET allowed_directories = [{', '.join(map(literal, sorted(folders)))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    if kind == "Parquet":
        return f"read_parquet({_one_file(path)}, hive_partitioning = false)"
    return _csv(path)


def _csv(path: Path) -> str:
    """Return the SQL that reads a CSV file as text, with its layout stated.

    DuckDB's own detection may skip lines that do not fit, and records would be lost silently.
    """
    try:
        names, delimiter = read_header(path)
    except ValueError as error:
        raise RecordsError(f"{path}: {error}") from None
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in names)
    return (
        f"read_csv({_one_file(path)}, hive_partitioning = false, auto_detect = false, header = true, "
        f"delim = {literal(delimiter)}, quote = '\"', escape = '\"', columns = {{{columns}}})"
    )


def _one_file(path: Path) -> str:
    """Quote the path of one file, which may contain characters of a pattern."""
    return literal(re.sub(r"([\[*?])", r"[\1]", str(path)))


@contextmanager
def _translated(label: str, kind: str, show_values: bool) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if "interrupted" in str(error):  # how DuckDB reports a signal
            raise Stopped from None
        raise
    except duckdb.Error as error:
        text = str(error)
        detail = ""
        line = re.search(r"Line:\s*(\d+)", text)
        if line:
            detail = f" at line {line.group(1)}"
        if "utf-8" in text.lower() and kind == "CSV":
            raise RecordsError(
                f"{label}: is not UTF-8 text{detail}; save the file as UTF-8"
            ) from None
        if show_values or (kind == "query" and isinstance(error, _ABOUT_SQL)):
            detail += f": {text}"
        if isinstance(error, duckdb.OutOfMemoryException):
            raise RecordsError(
                f"{label}: counting needs more memory or disk space than is available; free some"
            ) from error
        raise record_rules.unreadable(label, kind, detail=detail, show_values=show_values) from (
            error if show_values else None
        )
