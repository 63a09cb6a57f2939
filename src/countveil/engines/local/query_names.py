"""What the names in a query refer to: tables, views and macros of the database, and files."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from countveil.engines.local.parsed_query import Tree, arguments, constant, fold, name_of, parse
from countveil.errors import RecordsError

_SUFFIX = re.compile(r"\.(csv|tsv|parquet|json|jsonl|ndjson)(\.(gz|zst))?\Z", re.IGNORECASE)
_KINDS = {"csv": "csv", "tsv": "csv", "parquet": "parquet"} | dict.fromkeys(
    ("json", "jsonl", "ndjson"), "json"
)
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


Name = tuple[str, ...]  # the database, its schemas, and a table or view, in lower case
MAIN: Name = ("main",)


@dataclass(frozen=True, slots=True)
class Catalog:
    """The names in the database that a query uses, in lower case, and those of DuckDB itself.

    A name in a query is that of a table only if exactly this table exists: DuckDB looks for a file if
    there is none, and `FROM people.parquet` may then read the file people.parquet.
    """

    database: str  # "" if the query uses none
    tables: frozenset[Name]
    views: dict[Name, DatabaseView | None]
    generated: dict[Name, dict[str, str]]  # generated columns of tables: their expressions as SQL
    macros: frozenset[str]
    system: frozenset[str]  # DuckDB's own tables and views
    ambiguous: frozenset[str]  # tables and views in several schemas
    collations: bool  # whether a column compares texts other than letter by letter
    folder: Path

    @classmethod
    def of(cls, connection: duckdb.DuckDBPyConnection, folder: Path, label: str) -> Catalog:
        """Return the names in the database that a connection has attached; read no table.

        The connection must not `USE` it yet: a macro of that database would run in place of DuckDB's
        function of the same name. Databases with such macros are refused.
        """

        def rows(query: str) -> list[tuple[Any, ...]]:
            return connection.execute(query).fetchall()

        def names(query: str) -> list[str]:
            return [fold(row[0]) for row in rows(query)]

        functions = rows("SELECT DISTINCT function_name, internal FROM duckdb_functions()")
        macros = frozenset(fold(name) for name, internal in functions if not internal)
        built_in = {fold(name) for name, internal in functions if internal}
        for name in sorted(macros.intersection(built_in)):
            raise RecordsError(
                f"{label}: the database has a macro {name}, which would replace DuckDB's function of "
                f"that name; drop the macro, or copy the tables to a database without it"
            )
        schemas = _schemas(
            rows(
                "SELECT oid, database_name, schema_name, parent_schema_oid FROM duckdb_schemas() "
                "WHERE NOT internal OR schema_name = 'main'"
            )
        )
        views: dict[Name, DatabaseView | None] = {}
        for database, schema, name, sql in rows(
            "SELECT database_name, schema_oid, view_name, sql FROM duckdb_views() WHERE NOT internal"
        ):
            match = _VIEW.match(sql)
            views[(*schemas[database, schema], fold(name))] = (
                None
                if match is None
                else DatabaseView(match["query"], match["columns"] is not None)
            )
        tables = [
            (*schemas[database, schema], fold(name))
            for database, schema, name in rows(
                "SELECT database_name, schema_oid, table_name FROM duckdb_tables() WHERE NOT internal"
            )
        ]
        generated: dict[Name, dict[str, str]] = {}
        for database, schema, name, column, expression in rows(
            "SELECT database_name, schema_oid, table_name, column_name, generation_expression "
            "FROM duckdb_columns() WHERE is_generated"
        ):
            table = (*schemas[database, schema], fold(name))
            generated.setdefault(table, {})[fold(column)] = str(expression)
        attached = names(
            "SELECT database_name FROM duckdb_databases() WHERE NOT internal AND path IS NOT NULL"
        )
        seen = Counter(name[-1] for name in [*tables, *views])
        return cls(
            attached[0] if attached else "",
            frozenset(tables),
            views,
            generated,
            macros,
            frozenset(
                names("SELECT view_name FROM duckdb_views() WHERE internal")
                + names("SELECT table_name FROM duckdb_tables() WHERE internal")
            ),
            frozenset(name for name, number in seen.items() if number > 1),
            bool(names("SELECT 1 FROM duckdb_tables() WHERE contains(lower(sql), 'collate')")),
            folder,
        )

    def find(self, path: tuple[str, ...], home: Name = MAIN) -> list[Name]:
        """Return the tables and views that a name in a query may refer to: one, if it is exact.

        `home` are the schemas of the view that contains the query. Common table expressions come
        first, and are not looked for here.
        """
        own, *rest = path = tuple(map(fold, path))
        names = [(self.database, *path)]
        if not rest:
            names = [(self.database, *schemas, own) for schemas in (home, MAIN)]
        elif own == self.database:
            names += [path, *((own, *schemas, *rest) for schemas in (home, MAIN))]
        return [name for name in dict.fromkeys(names) if name in self.tables or name in self.views]


def _schemas(rows: list[tuple[Any, ...]]) -> dict[tuple[str, int], Name]:
    """Return the full names of schemas, which may contain each other, by database and number."""
    parents = {(database, oid): (fold(name), parent) for oid, database, name, parent in rows}

    def full(database: str, oid: int) -> Name:
        name, parent = parents[database, oid]
        outer = (database, parent) in parents and parent != oid
        return (*full(database, parent), name) if outer else (fold(database), name)

    return {(database, oid): full(database, oid) for database, oid in parents}


@dataclass(frozen=True, slots=True)
class Scope:
    """The common table expressions that are visible at some point of a query."""

    entries: tuple[Tree, ...] = ()

    def within(self, node: Tree) -> Scope:
        """Return the scope inside a query, with its own expressions."""
        return Scope((*self.entries, *node.get("cte_map", {}).get("map", [])))

    def query(self, path: tuple[str, ...]) -> tuple[Tree, Scope] | None:
        """Return the query that a name refers to, and the scope in which it was written."""
        for number in range(len(self.entries) - 1, -1, -1):
            entry = self.entries[number]
            if (fold(entry["key"]),) == tuple(map(fold, path)):
                return entry["value"], self._before(number)
        return None

    def _before(self, number: int) -> Scope:
        """Return the scope in which an expression was written: those before it, or also itself."""
        recursive = query_of(self.entries[number]["value"])["type"] == "RECURSIVE_CTE_NODE"
        return Scope(self.entries[: number + recursive])

    def tables(self, tree: Any) -> Iterator[tuple[Tree, Scope]]:
        """Yield each table that part of a query names, and the expressions that are visible there."""
        if isinstance(tree, list):
            for part in tree:
                yield from self.tables(part)
        if not isinstance(tree, dict) or tree.get("class") == "CONSTANT":
            return
        if tree.get("type") == "BASE_TABLE":
            yield tree, self
        inner = self.within(tree) if isinstance(tree.get("cte_map"), dict) else self
        for number in range(len(self.entries), len(inner.entries)):
            yield from inner._before(number).tables(query_of(inner.entries[number]["value"]))
        yield from inner.tables([part for key, part in tree.items() if key != "cte_map"])


def query_of(expression: Tree) -> Tree:
    """Return the query of a common table expression: the tree itself, which is known by its id."""
    query: Tree = expression["query_node"]
    return query


def view_query(catalog: Catalog, name: Name, label: str) -> Tree:
    """Return the query of a view, in which the names of tables are written in full."""
    view = catalog.views[name]
    if view is None:
        raise RecordsError(
            f"{label}: cannot look into the view {name[-1]}; name its tables instead"
        )
    tree = parse(view.query, f"{label}: the view {name[-1]}")[1]
    for table, scope in Scope().tables(tree):
        path = table_name(table)
        names = catalog.find(path, name[1:-1]) if scope.query(path) is None else []
        if len(names) == 1:
            database, *schemas, table["table_name"] = names[0]
            table["catalog_name"], table["schema_name"] = database, schemas[-1]
            table["qualified_name"] = {"path": list(names[0])}
    return tree


def generated_columns(catalog: Catalog, name: Name, label: str) -> dict[str, Tree]:
    """Return the expressions of the generated columns of a table, which DuckDB computes on reading."""
    trees = {}
    for column, expression in catalog.generated.get(name, {}).items():
        where = f"{label}: the generated column {column} of {name[-1]}"
        trees[column] = parse(f"SELECT {expression}", where)[1]
    return trees


def identities(files: list[str], ask: Callable[[str], list[tuple[Any, ...]]]) -> list[str]:
    """Return the identities of the files behind patterns, by any path or link."""
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
    """Return the parts of a table's name as written."""
    return tuple(str(part) for part in table["qualified_name"]["path"])


def is_file(path: tuple[str, ...]) -> bool:
    """Whether a name that is not a table's is that of a file that a query may name as a table.

    DuckDB would also read a file for a name of several parts, joined by dots; that is refused.
    """
    return len(path) == 1 and kind_of_file(path[0]) is not None


def kind_of_file(name: str) -> str | None:
    """Return how DuckDB reads a file that a query names as a table: csv, json or parquet."""
    match = _SUFFIX.search(name)
    return None if match is None else _KINDS[match[1].lower()]


def files_of(function: Tree) -> list[str] | None:
    """Return the files that a reader names as constants; None if it computes their names."""
    positional, _ = _split(function)
    if len(positional) != 1:
        return None
    first = positional[0]
    listed = [first]
    if first.get("class") == "FUNCTION" and fold(first["function_name"]) == "list_value":
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
            options[fold(argument["name"])] = item
        elif (
            item.get("type") == "COMPARE_EQUAL"
            and item["left"].get("class") == "COLUMN_REF"
            and len(item["left"]["column_names"]) == 1
        ):
            options[name_of(item["left"])] = item["right"]
        else:
            positional.append(item)
    return positional, options
