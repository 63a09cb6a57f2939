"""Records of people, opened in DuckDB: a CSV or Parquet file, or a table in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa

from countveil.base.delimited import read_header
from countveil.base.spill_folder import private_folder
from countveil.errors import InputError, RecordsError
from countveil.plan.attributes import choices

Records: TypeAlias = str | os.PathLike[str] | Any
"""The path of a CSV or Parquet file, or a pandas, Polars or Arrow table."""

_MEMORY = "400MB"


@dataclass(frozen=True, eq=False, slots=True)
class PeopleFile:
    """Open records: a connection, the SQL that reads them, and what messages call them."""

    connection: duckdb.DuckDBPyConnection
    relation: str
    label: str

    def table(self, query: str) -> pa.Table:
        """Return the rows of a query."""
        return self.connection.sql(query).to_arrow_table()

    def refuse_missing(self, columns: Sequence[str]) -> None:
        """Refuse records with a missing value in one of the columns, or without any row."""
        columns_of = self.connection.execute(f"DESCRIBE SELECT * FROM {self.relation}").fetchall()
        types = {row[0]: str(row[1]) for row in columns_of}
        missing = ", ".join(f"count(*) FILTER ({_is_missing(c, types[c])})" for c in columns)
        rows, *counts = self.connection.execute(
            f"SELECT count(*), {missing} FROM {self.relation}"
        ).fetchall()[0]
        if not rows:
            raise RecordsError(f"{self.label}: has no rows; give one row per person")
        for column, count in zip(columns, counts, strict=True):
            if count:
                raise RecordsError(
                    f"{self.label}: column {column!r} has {count:,} missing values; fill them in, "
                    f"or leave those rows out"
                )


@contextmanager
def open_people(records: Records, columns: Sequence[str]) -> Iterator[PeopleFile]:
    """Open the named columns of a file, or of a pandas, Polars or Arrow table."""
    with private_folder() as spill, _connected(spill) as connection:
        if isinstance(records, str | os.PathLike):
            path = Path(records)
            with _translated(str(path)):
                relation = _file(path, connection, columns)
                yield PeopleFile(connection, relation, str(path))
        else:
            connection.register("records", as_arrow(records, columns))
            with _translated("records"):
                yield PeopleFile(connection, "records", "records")


def as_arrow(frame: Any, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the named columns of a pandas, Polars or Arrow table, or all of them."""
    names = getattr(frame, "column_names", getattr(frame, "columns", None))
    if names is None or not hasattr(frame, "__arrow_c_stream__"):
        raise InputError(
            f"records: got a {type(frame).__name__}; give the path of a CSV or Parquet file, or a "
            f"pandas, Polars or pyarrow table"
        )
    named = {str(name): name for name in names}  # pandas may name columns by numbers
    if len(named) != len(names):
        raise InputError("records: two columns have the same name; rename one")
    kept = list(named) if columns is None else list(columns)
    _refuse_absent("records", list(named), kept)
    columns_of = [named[name] for name in kept]
    part = frame.select(columns_of) if isinstance(frame, pa.Table) else pa.table(frame[columns_of])
    plain = [_plain(field) for field in part.schema][: len(kept)]
    return part.select(range(len(kept))).cast(pa.schema(plain)).rename_columns(kept)


def identifier(name: str) -> str:
    """Quote a column name."""
    return '"' + name.replace('"', '""') + '"'


def _plain(field: pa.Field) -> pa.Field:
    """Return a column's type, with Polars' newer text type replaced by the usual one."""
    return field.with_type(pa.string()) if pa.types.is_string_view(field.type) else field


@contextmanager
def _connected(spill: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": _MEMORY,
        "temp_directory": str(spill),
        "autoinstall_known_extensions": False,
    }
    connection = duckdb.connect(config=config)
    try:
        yield connection
    finally:
        connection.close()


def _file(path: Path, connection: duckdb.DuckDBPyConnection, columns: Sequence[str]) -> str:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "no such file"
        raise RecordsError(f"{path}: {what}; name a CSV or Parquet file")
    if path.suffix.lower() in (".parquet", ".pq"):
        relation = f"read_parquet({_one_file(path)}, hive_partitioning = false)"
        described = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
        _refuse_absent(str(path), [row[0] for row in described], columns)
        return relation
    try:
        names, delimiter = read_header(path)
    except ValueError as error:
        raise RecordsError(f"{path}: {error}") from None
    except OSError as error:
        raise RecordsError(f"{path}: {error.strerror}; make it readable for this user") from error
    _refuse_absent(
        str(path), names, columns, shown=False
    )  # without a header the first line is a record
    typed = ", ".join(f"{_literal(name)}: 'VARCHAR'" for name in names)
    # Nothing is left for DuckDB to guess, so that no line is skipped silently.
    return (
        f"read_csv({_one_file(path)}, hive_partitioning = false, auto_detect = false, header = "
        f"true, delim = {_literal(delimiter)}, quote = '\"', escape = '\"', columns = {{{typed}}})"
    )


def _refuse_absent(
    label: str, names: Sequence[str], columns: Sequence[str], *, shown: bool = True
) -> None:
    has = f"; its columns are {choices(names, 20)}" if shown else ""
    for name in columns:
        if name not in names:
            raise RecordsError(f"{label}: no column {name!r}{has}; name one of its columns")


def _is_missing(column: str, kind: str) -> str:
    name = identifier(column)
    number = kind.startswith(("FLOAT", "DOUBLE"))
    text = kind == "VARCHAR"  # where a missing number is written "nan"
    more = f" OR isnan({name})" if number else f" OR lower({name}) = 'nan'" if text else ""
    return f"WHERE {name} IS NULL{more}"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _one_file(path: Path) -> str:
    """Quote a path that names one file, even if it contains wildcard characters."""
    return _literal(re.sub(r"([\[*?])", r"[\1]", str(path)))


@contextmanager
def _translated(label: str) -> Iterator[None]:
    """Turn DuckDB's errors into ours, without their text, which may quote records."""
    try:
        yield
    except duckdb.Error as error:
        line = re.search(r"Line:\s*(\d+)", str(error))
        where = f" at line {line.group(1)}" if line else ""
        raise RecordsError(f"{label}: cannot be read{where}; check the file") from None
