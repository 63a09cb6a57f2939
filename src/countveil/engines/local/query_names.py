"""What the names in a query refer to: tables, views and macros of the database, and files."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from countveil.engines.local.parsed_query import Tree, arguments, constant, name_of
from countveil.errors import RecordsError

_SUFFIX = re.compile(r"\.(csv|tsv|parquet|json|jsonl|ndjson)(\.(gz|zst))?\Z", re.IGNORECASE)
_NAME = r'(?:"(?:[^"]|"")*"|[A-Za-z_][A-Za-z0-9_]*)'
_VIEW = re.compile(
    rf"CREATE VIEW (?:IF NOT EXISTS )?{_NAME}(?:\.{_NAME})* "
    rf"(?P<columns>\({_NAME}(?:, {_NAME})*\) )?AS (?P<query>.*?);?\s*\Z",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class DatabaseView:
    """A view of a database: its SELECT, and whether it renames the columns."""

    query: str
    renames: bool


@dataclass(frozen=True, slots=True)
class Catalog:
    """The names in a database, in lower case; DuckDB's own tables and views are `system`."""

    tables: frozenset[str]
    views: dict[str, DatabaseView | None]
    macros: frozenset[str]
    system: frozenset[str]
    ambiguous: frozenset[str]  # tables and views in several schemas
    collations: bool  # whether a column compares texts other than letter by letter
    folder: Path

    @classmethod
    def of(cls, connection: duckdb.DuckDBPyConnection, folder: Path, label: str) -> Catalog:
        """Return the names in the databases that a connection has attached; read no table.

        The connection must not `USE` any of them yet: a macro of that database would run in place of
        DuckDB's function of the same name. Databases with such macros are refused.
        """

        def names(query: str) -> list[str]:
            return [str(row[0]).lower() for row in connection.execute(query).fetchall()]

        views: dict[str, DatabaseView | None] = {}
        for name, sql in connection.execute(
            "SELECT view_name, sql FROM duckdb_views() WHERE NOT internal"
        ).fetchall():
            match = _VIEW.match(sql)
            view = (
                None
                if match is None
                else DatabaseView(match["query"], match["columns"] is not None)
            )
            views[name.lower()] = view
        macros = frozenset(names("SELECT function_name FROM duckdb_functions() WHERE NOT internal"))
        built_in = names("SELECT function_name FROM duckdb_functions() WHERE internal")
        for name in sorted(macros.intersection(built_in)):
            raise RecordsError(
                f"{label}: the database has a macro {name}, which would replace DuckDB's function of "
                f"that name; drop the macro, or copy the tables to a database without it"
            )
        tables = names("SELECT table_name FROM duckdb_tables() WHERE NOT internal")
        seen = Counter(tables + names("SELECT view_name FROM duckdb_views() WHERE NOT internal"))
        return cls(
            frozenset(tables),
            views,
            macros,
            frozenset(
                names("SELECT view_name FROM duckdb_views() WHERE internal")
                + names("SELECT table_name FROM duckdb_tables() WHERE internal")
            ),
            frozenset(name for name, number in seen.items() if number > 1),
            bool(names("SELECT 1 FROM duckdb_tables() WHERE contains(lower(sql), 'collate')")),
            folder,
        )


def identities(files: list[str], ask: Callable[[str], list[tuple[Any, ...]]]) -> list[str]:
    """Return the identities of the files behind patterns, whatever paths or links lead to them."""
    names: list[str] = []
    for pattern in files:
        quoted = pattern.replace("'", "''")
        for (name,) in ask(f"SELECT file FROM glob('{quoted}')") or [(pattern,)]:
            try:
                status = os.stat(name)
            except OSError:
                names.append(f"file {name}")  # reading it will fail
            else:
                names.append(f"file {status.st_dev}:{status.st_ino}")
    return names


def table_name(table: Tree) -> tuple[str, ...]:
    """Return the parts of a table's name, in lower case unless it is a file."""
    parts = (table.get("catalog_name"), table.get("schema_name"), table["table_name"])
    path = tuple(str(part) for part in parts if part)
    return path if is_file(path) else tuple(part.lower() for part in path)


def is_file(path: tuple[str, ...]) -> bool:
    """Whether a name is that of a file that DuckDB reads as a table."""
    return len(path) == 1 and _SUFFIX.search(path[0]) is not None


def files_of(function: Tree) -> list[str] | None:
    """Return the files that a reader names as constants; None if it computes their names."""
    positional, _ = _split(function)
    if len(positional) != 1:
        return None
    first = positional[0]
    listed = [first]
    if first.get("class") == "FUNCTION" and first["function_name"].lower() == "list_value":
        listed = arguments(first)
    elif first.get("type") == "ARRAY_CONSTRUCTOR":
        listed = list(first["children"])
    texts = [constant(item) for item in listed]
    return None if None in texts or not texts else [str(text) for text in texts]


def options_of(function: Tree) -> dict[str, Tree]:
    """Return the named options of a table function, by name."""
    return _split(function)[1]


def _split(function: Tree) -> tuple[list[Tree], dict[str, Tree]]:
    """Return the positional and the named arguments of a table function (`name = x`, `name := x`)."""
    positional, options = [], {}
    for argument in function["arguments"]:
        item = argument["expression"]
        if argument.get("name"):
            options[str(argument["name"]).lower()] = item
        elif (
            item.get("type") == "COMPARE_EQUAL"
            and item["left"].get("class") == "COLUMN_REF"
            and len(item["left"]["column_names"]) == 1
        ):
            options[name_of(item["left"])] = item["right"]
        else:
            positional.append(item)
    return positional, options
