"""The records a plan names, opened in DuckDB: what is read, by which names, with which errors."""

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

from countveil.engines import rules
from countveil.engines.query import accept
from countveil.engines.records_file import locate
from countveil.errors import RecordsError, Stopped
from countveil.schema.attributes import Attribute
from countveil.schema.delimited import read_header
from countveil.schema.plan import Plan

# Errors about the SQL text; all others may quote a value taken from a record.
_ABOUT_SQL = (duckdb.ParserException, duckdb.CatalogException)


@dataclass(frozen=True, eq=False, slots=True)
class Source:
    """An open connection and the SQL by which the plan's names are read from it."""

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
        """Return the single value a query yields."""
        return self.connection.execute(query).fetchall()[0][0]

    def text(self, name: str) -> str:
        """Return the SQL of an attribute's code as text, missing ones replaced where declared."""
        text = f"CAST({self.columns[name]} AS VARCHAR)"
        if name in self.missing:
            return f"coalesce(nullif({text}, ''), {literal(self.missing[name])})"
        return text

    def category(self, attribute: Attribute) -> str:
        """Return the SQL of an attribute's declared category, NULL where it is none."""
        declared = ", ".join(literal(category) for category in attribute.categories)
        return f"TRY_CAST({self.text(attribute.name)} AS ENUM({declared}))"

    def rows(self) -> str:
        """Return the SQL of the rows that count: at most `max_rows` of each person."""
        if self.person is None:
            return self.relation
        # Which rows are kept depends on that person's rows alone, so sensitivity is max_rows.
        order = ", ".join([self.geocode, *(self.text(name) for name in self.columns)])
        return (
            f"(SELECT * FROM {self.relation} QUALIFY row_number() OVER "
            f"(PARTITION BY {self.person} ORDER BY {order}) <= {self.max_rows})"
        )

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Turn DuckDB's errors into ours; they may quote records, so their text stays here."""
        with _translated(self.label, self.kind, self.show_values):
            yield

    def close(self) -> None:
        """Close the connection; temporary tables and spill files go with it."""
        self.connection.close()


def open_source(plan: Plan, spill: Path, memory: str, threads: int, show_values: bool) -> Source:
    """Open the records of a plan and find the columns it names."""
    records = plan.records
    assert records is not None
    place = locate(plan)
    label, kind = place.label, place.kind
    database = place.path if kind == "query" else None
    connection = _connect(database, spill, memory, threads)
    try:
        with _translated(label, kind, show_values):
            relation = _relation(plan, kind, connection, label)
            found = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
            types = {row[0]: str(row[1]) for row in found}
            rules.refuse_reserved(label, list(types))
            names = _names(relation, kind, place.path, connection)
            if kind == "Parquet":
                rules.refuse_twice(label, names)
        lowest = plan.levels[-1]
        renamed = records.columns
        rules.refuse_unknown_renames(plan)

        def column(name: str, key: str) -> str:
            if name not in types:
                # Without a header, the first line of a CSV file is a record.
                shown = kind == "Parquet" or show_values
                raise rules.no_column(label, name, key, list(types) if shown else None)
            rules.refuse_twice(label, [other for other in names if other == name])
            return identifier(name)

        geocode = column(renamed.get(lowest, lowest), f"the level {lowest}")
        geocode_type = types[renamed.get(lowest, lowest)]
        if not geocode_type.startswith(("VARCHAR", "ENUM")):
            raise rules.not_text(label, renamed.get(lowest, lowest), geocode_type)
        counts = None if records.counts is None else column(records.counts, "records.counts")
        return Source(
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
    """Return the SQL of a count, NULL where it is not whole."""
    if kind.startswith(("VARCHAR", "ENUM")):
        # By a rule of our own: DuckDB takes 1e3 and 1_000 for numbers, and other engines do not.
        whole = literal(rf"\A{rules.WHOLE}\z")
        digits = f"regexp_extract(CAST({counts} AS VARCHAR), {whole}, 1)"
        return f"TRY_CAST(nullif({digits}, '') AS BIGINT)"
    whole, real = f"TRY_CAST({counts} AS BIGINT)", f"TRY_CAST({counts} AS DOUBLE)"
    return f"CASE WHEN {whole} = {real} THEN {whole} END"


def _names(
    relation: str, kind: str, path: Path | None, connection: duckdb.DuckDBPyConnection
) -> list[str]:
    """Return the names of the columns as their source has them; DuckDB numbers those that repeat."""
    if kind == "query":
        return [row[0] for row in connection.execute(f"DESCRIBE {relation}").fetchall()]
    if kind == "CSV":
        return []  # a header that names a column twice is refused
    assert path is not None
    try:
        return list(pq.read_schema(path).names)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise duckdb.IOException(str(error)) from error


def _connect(
    database: Path | None, spill: Path, memory: str, threads: int
) -> duckdb.DuckDBPyConnection:
    config: dict[str, Any] = {
        "memory_limit": memory,
        "threads": threads,
        "temp_directory": str(spill),
        "preserve_insertion_order": True,  # messages name rows as the file counts them
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,  # a query names tables, not Python's variables
    }
    try:
        connection = duckdb.connect(config=config)
        if database is not None:
            # Attached, and not used yet: until its macros are known, none of them may run.
            name = identifier(_catalog_name(database))
            connection.execute(
                f"ATTACH {literal(str(database))} AS {name} (READ_ONLY, TYPE duckdb)"
            )
        return connection
    except duckdb.Error as error:
        raise RecordsError(
            f"{database}: cannot be opened as a DuckDB database; export the table to Parquet and "
            f"name that under records.path"
        ) from error


def _catalog_name(database: Path) -> str:
    """Return the name that queries may give a database: that of its file, as DuckDB does."""
    taken = database.stem.lower() in ("", "main", "memory", "system", "temp")
    return f"{rules.RESERVED}database" if taken else database.stem


def _relation(plan: Plan, kind: str, connection: duckdb.DuckDBPyConnection, label: str) -> str:
    """Return the SQL to select from; from then on no setting of the connection can be changed."""
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
    """Return the SQL that reads a CSV file as text, with nothing left to guess.

    DuckDB's own detection may skip lines it cannot place: records would be lost in silence.
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
    """Quote a path that names one file, even where it holds the characters of a pattern."""
    return literal(re.sub(r"([\[*?])", r"[\1]", str(path)))


@contextmanager
def _translated(label: str, kind: str, show_values: bool) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if "interrupted" in str(error):  # how DuckDB passes on a signal
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
                f"{label}: counting needs more memory or disk than there is"
            ) from error
        raise rules.unreadable(label, kind, detail=detail, show_values=show_values) from (
            error if show_values else None
        )
