"""Records of people, opened in DuckDB: a CSV or Parquet file, or a table in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from countveil.errors import InputError, RecordsError
from countveil.schema.attributes import listed
from countveil.schema.delimited import read_header
from countveil.tabulate.private_folder import private_folder

_MEMORY = "400MB"


@dataclass(frozen=True, eq=False, slots=True)
class Source:
    """An open connection, the SQL that reads the records, and what to call them."""

    connection: duckdb.DuckDBPyConnection
    relation: str
    label: str

    def table(self, query: str) -> pa.Table:
        """Return the rows of a query."""
        return self.connection.sql(query).to_arrow_table()

    def refuse_missing(self, columns: Sequence[str]) -> None:
        """Refuse records without a value in one of the columns, or no records at all."""
        found = self.connection.execute(f"DESCRIBE SELECT * FROM {self.relation}").fetchall()
        types = {row[0]: str(row[1]) for row in found}
        missing = ", ".join(f"count(*) FILTER ({_is_missing(c, types[c])})" for c in columns)
        rows, *counts = self.connection.execute(
            f"SELECT count(*), {missing} FROM {self.relation}"
        ).fetchall()[0]
        if not rows:
            raise RecordsError(f"{self.label}: holds no rows; give one row per person")
        for column, count in zip(columns, counts, strict=True):
            if count:
                raise RecordsError(
                    f"{self.label}: column {column!r} has {count:,} missing values; every row needs "
                    f"one; fill them in, or leave those rows out"
                )


@contextmanager
def opened(records: Any, columns: Sequence[str]) -> Iterator[Source]:
    """Open the named columns of a file, or of a pandas, Polars or Arrow table."""
    with private_folder() as spill, _connected(spill) as connection:
        if isinstance(records, str | os.PathLike):
            path = Path(records)
            with _translated(str(path)):
                relation = _file(path, connection, columns)
                yield Source(connection, relation, str(path))
        else:
            connection.register("records", as_arrow(records, columns))
            with _translated("records"):
                yield Source(connection, "records", "records")


def as_arrow(frame: Any, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the named columns of a pandas, Polars or Arrow table, or all of them."""
    names = getattr(frame, "column_names", getattr(frame, "columns", None))
    if names is None or not hasattr(frame, "__arrow_c_stream__"):
        raise InputError(
            f"records: a {type(frame).__name__} came; give the path of a CSV or Parquet file, or a "
            f"pandas, Polars or pyarrow table"
        )
    named = {str(name): name for name in names}  # pandas may name columns by numbers
    if len(named) != len(names):
        raise InputError("records: two columns have the same name; rename one")
    wanted = list(named) if columns is None else list(columns)
    _refuse_absent("records", list(named), wanted)
    chosen = [named[name] for name in wanted]
    part = frame.select(chosen) if isinstance(frame, pa.Table) else pa.table(frame[chosen])
    plain = [_plain(field) for field in part.schema][: len(wanted)]
    return part.select(range(len(wanted))).cast(pa.schema(plain)).rename_columns(wanted)


def identifier(name: str) -> str:
    """Quote a column name."""
    return '"' + name.replace('"', '""') + '"'


def _plain(field: pa.Field) -> pa.Field:
    """Return the type of a column as all functions know it; Polars has a newer text."""
    return field.with_type(pa.string()) if pa.types.is_string_view(field.type) else field


@contextmanager
def _connected(spill: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    config: dict[str, Any] = {
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
        found = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
        _refuse_absent(str(path), [row[0] for row in found], columns)
        return relation
    try:
        names, delimiter = read_header(path)
    except ValueError as error:
        raise RecordsError(f"{path}: {error}") from None
    except OSError as error:
        raise RecordsError(f"{path}: {error.strerror}; make it readable for this user") from error
    _refuse_absent(str(path), names, columns, shown=False)  # without a header they are a record
    typed = ", ".join(f"{_literal(name)}: 'VARCHAR'" for name in names)
    # As in engines/source.py: nothing is left to guess, so that no line is skipped in silence.
    return (
        f"read_csv({_one_file(path)}, hive_partitioning = false, auto_detect = false, header = true, "
        f"delim = {_literal(delimiter)}, quote = '\"', escape = '\"', columns = {{{typed}}})"
    )


def _refuse_absent(
    label: str, names: Sequence[str], wanted: Sequence[str], *, shown: bool = True
) -> None:
    has = f"; its columns are {listed(names, 20)}" if shown else ""
    for name in wanted:
        if name not in names:
            raise RecordsError(f"{label}: no column {name!r}{has}; name a column it has")


def _is_missing(column: str, kind: str) -> str:
    name = identifier(column)
    number = kind.startswith(("FLOAT", "DOUBLE"))
    text = kind == "VARCHAR"  # as it is written where a number is missing
    more = f" OR isnan({name})" if number else f" OR lower({name}) = 'nan'" if text else ""
    return f"WHERE {name} IS NULL{more}"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _one_file(path: Path) -> str:
    """Quote a path that names one file, even where it holds the characters of a pattern."""
    return _literal(re.sub(r"([\[*?])", r"[\1]", str(path)))


@contextmanager
def _translated(label: str) -> Iterator[None]:
    """Turn DuckDB's errors into ours; they may quote records, so their text stays here."""
    try:
        yield
    except duckdb.Error as error:
        line = re.search(r"Line:\s*(\d+)", str(error))
        where = f" at line {line.group(1)}" if line else ""
        raise RecordsError(f"{label}: cannot be read{where}; check it") from None
