"""A query only reads: what is not listed here as harmless is refused before anything runs."""

from __future__ import annotations

import re

from countveil.engines.query.catalog import Catalog, files_of, is_file, options_of, table_name
from countveil.engines.query.functions import (
    AGGREGATES,
    BARE_FUNCTIONS,
    READERS,
    ROW_FUNCTIONS,
    TABLE_FUNCTIONS,
    WINDOWS,
    words,
)
from countveil.engines.query.tree import Tree, arguments, name_of, nodes, parse
from countveil.errors import RecordsError
from countveil.schema.attributes import listed

_EXPRESSIONS = words(
    """
    BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT FUNCTION LAMBDA LAMBDA_REF
    OPERATOR POSITIONAL_REFERENCE STAR SUBQUERY TYPE WINDOW
    """
)
# Queries, tables, what follows a query, and the order of something.
_PARTS = words(
    """
    SELECT_NODE SET_OPERATION_NODE RECURSIVE_CTE_NODE
    BASE_TABLE EMPTY EXPRESSION_LIST JOIN PIVOT SUBQUERY TABLE_FUNCTION
    DISTINCT_MODIFIER LIMIT_MODIFIER LIMIT_PERCENT_MODIFIER ORDER_MODIFIER
    ASCENDING DESCENDING ORDER_DEFAULT
    """
)
_WRITING_OPTIONS = ("store_rejects", "rejects_scan", "rejects_table", "rejects_limit")


def refuse_all_but_reading(tree: Tree, catalog: Catalog, label: str) -> bool:
    """Refuse a query that does more than read; return whether it reads files."""
    waiting, seen, files = [tree], set[str](), False
    while waiting:
        query = waiting.pop()
        own = _names_within(query)
        table_functions = {
            id(part["function"]) for part in nodes(query) if part.get("type") == "TABLE_FUNCTION"
        }
        for part in nodes(query):
            reason = _refusal(part, id(part) in table_functions, catalog, own)
            if reason is not None:
                raise RecordsError(f"{label}: {reason}; a query in [records] only reads records")
            if part.get("type") == "TABLE_FUNCTION":
                files |= part["function"]["function_name"].lower() in READERS
            if part.get("type") != "BASE_TABLE":
                continue
            name = table_name(part)[-1].lower()
            if name in catalog.views and name not in seen:
                seen.add(name)
                view = catalog.views[name]
                if view is None:
                    raise RecordsError(
                        f"{label}: the view {name} cannot be looked into; name its tables instead"
                    )
                waiting.append(parse(view.query, f"{label}: the view {name}")[1])
            files |= name not in (*catalog.views, *catalog.tables, *own)
    return files


def _names_within(query: Tree) -> frozenset[str]:
    """Return the names of all common table expressions of a query."""
    return frozenset(
        str(entry["key"]).lower()
        for part in nodes(query)
        if isinstance(part.get("cte_map"), dict)
        for entry in part["cte_map"].get("map", [])
    )


def _refusal(part: Tree, of_table: bool, catalog: Catalog, own: frozenset[str]) -> str | None:
    """Return why a part of a query is refused, if it is."""
    if isinstance(part.get("class"), str):
        return _refused_expression(part, of_table, catalog)
    kind = part.get("type")
    if not isinstance(kind, str):
        return None
    if kind not in _PARTS:
        what = kind.lower().removesuffix("_node").removesuffix("_ref").replace("_", " ")
        return f"holds a part that is not a plain SELECT ({what})"
    if kind == "TABLE_FUNCTION":
        return _refused_table_function(part["function"], catalog)
    if kind == "BASE_TABLE":
        return _refused_table(part, catalog, own)
    return None


def _refused_expression(part: Tree, of_table: bool, catalog: Catalog) -> str | None:
    kind = part["class"]
    if kind not in _EXPRESSIONS:
        return f"holds an expression that is not computed from a row ({kind.lower()})"
    if kind == "COLUMN_REF" and len(part["column_names"]) == 1 and name_of(part) in BARE_FUNCTIONS:
        return f"{name_of(part)} is not in the records, and changes from run to run; write it out"
    if kind not in ("FUNCTION", "WINDOW") or of_table:
        return None
    name = str(part["function_name"]).lower()
    if name in catalog.macros:
        return f"the function {name} is a macro of the database; write out what it does"
    if kind == "WINDOW":
        known = name in WINDOWS or name in AGGREGATES
    else:
        known = name in ROW_FUNCTIONS or name in AGGREGATES or name == "unnest"
        known &= name != "age" or len(arguments(part)) == 2  # else it asks what day it is
    if known:
        return None
    return (
        f"the function {name} is not allowed: it is unknown, has an effect, or returns something "
        f"else each time"
    )


def _refused_table_function(function: Tree, catalog: Catalog) -> str | None:
    name = str(function.get("function_name", "")).lower()
    if name in catalog.macros:
        return f"the table function {name} is a macro of the database; write out what it does"
    if name not in TABLE_FUNCTIONS:
        allowed = listed(sorted(TABLE_FUNCTIONS), most=20)
        return f"the table function {name} is not allowed; choose from {allowed}"
    if name not in READERS:
        return None
    files, options = files_of(function), options_of(function)
    if files is None or any(_computed(value) for value in options.values()):
        return f"{name} must name its files and options as constants"
    if any(_is_remote(file) for file in files):
        return f"{name} reads files of this machine by their plain paths; copy the file here first"
    for option in _WRITING_OPTIONS:
        if option in options:
            return f"{option} makes {name} write tables; remove it"
    return None


def _is_remote(file: str) -> bool:
    """Return whether a file is named by something other than a path: a URL, or somebody's home."""
    return file.startswith("~") or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", file) is not None


def _computed(option: Tree) -> bool:
    return any(part.get("class") in ("COLUMN_REF", "SUBQUERY", "STAR") for part in nodes(option))


def _refused_table(table: Tree, catalog: Catalog, own: frozenset[str]) -> str | None:
    path = table_name(table)
    name = path[-1].lower()
    if len(path) == 1 and name in own:
        return None
    if name in catalog.ambiguous:
        return f"several schemas of the database have a table or view {name}; rename all but one"
    if name in catalog.tables or name in catalog.views:
        return None
    if name in catalog.system:
        return f"{name} is a table of DuckDB's own, which holds no records"
    if is_file(path) and _is_remote(path[0]):
        return "reads files of this machine by their plain paths; copy the file here first"
    if len(path) == 1 and ("." in name or "/" in name) and not is_file(path):
        return (
            f"{path[0]!r} is neither a table nor a file named as CSV, TSV, JSON or Parquet; read it "
            f"by a function such as read_csv"
        )
    return None
