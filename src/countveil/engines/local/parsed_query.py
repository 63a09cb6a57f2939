"""A query as DuckDB parses it: a tree of plain JSON, from a database without access to anything."""

from __future__ import annotations

import json
import string
from collections.abc import Iterator
from functools import cache
from typing import Any

import duckdb

from countveil.errors import RecordsError

Tree = dict[str, Any]

_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)

_ALONE: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,
    "python_enable_replacements": False,
    "lock_configuration": True,
}
_LOCATIONS = ("query_location", "query_location_length")
_NOT_COMPUTED = ("sample", "qualified_name")  # they hold numbers and names only


def parse(query: str, label: str) -> tuple[str, Tree]:
    """Return the text and the tree of a query, which must be one SELECT; nothing is run."""
    if "\0" in query:
        raise RecordsError(f"{label}: contains a null character; remove it")
    with _connection() as connection:
        statements = connection.extract_statements(query)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise RecordsError(f"{label}: is not a single SELECT statement; write one")
        text = statements[0].query.strip().rstrip(";")
        tree = _tree(connection, text, label)
        # It will run within parentheses; if it parses differently there, we checked the wrong query.
        inside = _tree(connection, f"SELECT * FROM {bracketed(text)}", label)
        if _plain(inside["from_table"]["subquery"]["node"]) != _plain(tree):
            raise RecordsError(f"{label}: is not a single SELECT statement; write one")
    return text, tree


def bracketed(text: str) -> str:
    """Return a query in parentheses, to select from; it may end in a comment."""
    return f"({text}\n)"


def select(expressions: list[Tree] | None, source: Tree, common: list[Tree], label: str) -> str:
    """Return the SQL that selects *, or expressions as c0, c1 …, from part of a checked query."""
    with _connection() as connection:
        node = _tree(connection, "SELECT * FROM x", label)
        if expressions is not None:
            node["select_list"] = [
                {**item, "alias": f"c{number}"} for number, item in enumerate(expressions)
            ]
        node["from_table"], node["cte_map"] = source, {"map": common}
    return sql_of(node)


def sql_of(tree: Tree) -> str:
    """Return the SQL of a tree."""
    document = {"error": False, "statements": [{"node": tree, "named_param_map": []}]}
    with _connection() as connection:
        ((text,),) = connection.execute(
            "SELECT json_deserialize_sql(?::JSON)", [json.dumps(document)]
        ).fetchall()
    return str(text)


def column(name: str) -> Tree:
    """Return the tree of a column name without a table."""
    return {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", "column_names": [name]}


def nodes(tree: Any) -> Iterator[Tree]:
    """Yield every node of a tree: queries, tables, expressions and so on."""
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
        elif isinstance(part, dict):
            yield part
            if part.get("class") != "CONSTANT":
                waiting += [value for key, value in part.items() if key not in _NOT_COMPUTED]


def arguments(function: Tree) -> list[Tree]:
    """Return the arguments of a function."""
    return [item["expression"] for item in function["arguments"]]


def constant(expression: Tree) -> str | None:
    """Return the text of a constant; None for anything else, and for NULL."""
    if expression.get("class") != "CONSTANT":
        return None
    text = expression["literal"].get("text")
    return None if text is None else str(text)


def fold(name: object) -> str:
    """Return a name in lower case by DuckDB's rule, which is that of ASCII: É and é differ."""
    return str(name).translate(_LOWER)


def name_of(reference: Tree) -> str:
    """Return the last part of a column's name, in lower case."""
    return fold(reference["column_names"][-1])


def _connection() -> duckdb.DuckDBPyConnection:
    """Return a new connection to the database that parses and holds nothing."""
    return _database().cursor()


@cache  # to open a database takes fifty times longer than to parse a query
def _database() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config=_ALONE)


def _tree(connection: duckdb.DuckDBPyConnection, text: str, label: str) -> Tree:
    ((json_text,),) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchall()
    try:
        document = json.loads(json_text)
    except RecursionError:
        raise too_deep(label) from None
    if document["error"]:
        raise duckdb.ParserException(str(document["error_message"]))
    (statement,) = document["statements"]
    return dict(statement["node"])


def too_deep(label: str) -> RecordsError:
    """Return the error for a query that is nested too deeply."""
    return RecordsError(f"{label}: is nested too deeply; store its result as a table and name that")


def _plain(tree: Any) -> Any:
    """Return a tree without positions in the text."""
    if isinstance(tree, list):
        return [_plain(part) for part in tree]
    if isinstance(tree, dict):
        return {key: _plain(part) for key, part in tree.items() if key not in _LOCATIONS}
    return tree
