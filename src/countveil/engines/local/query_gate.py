"""The gate for the query of a plan: only what reads records, person by person, may run.

`accept` parses a query, refuses everything that is not listed as harmless, states the layout of CSV
files that it reads as text, and has `person_alone` decide whether each person's rows depend on that
person's records alone. Nothing runs before that.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import duckdb

from countveil.base.delimited import read_header
from countveil.engines import record_rules
from countveil.engines.local.allowed_functions import (
    AGGREGATES,
    BARE_FUNCTIONS,
    READERS,
    ROW_FUNCTIONS,
    TABLE_FUNCTIONS,
    WINDOWS,
    names_in,
)
from countveil.engines.local.parsed_query import (
    Tree,
    arguments,
    bracketed,
    constant,
    fold,
    name_of,
    nodes,
    parse,
    sql_of,
    too_deep,
)
from countveil.engines.local.person_alone import Dependent, Judge
from countveil.engines.local.query_names import (
    Catalog,
    Name,
    Scope,
    files_of,
    generated_columns,
    is_file,
    options_of,
    table_name,
    view_query,
)
from countveil.errors import RecordsError
from countveil.plan.attributes import choices
from countveil.plan.plan_file import RecordsSection

# What a query may consist of.
_EXPRESSIONS = names_in(
    """
    BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT FUNCTION LAMBDA LAMBDA_REF
    OPERATOR POSITIONAL_REFERENCE STAR SUBQUERY TYPE WINDOW
    """
)
# Queries, tables, modifiers of a query, and sort orders.
_PARTS = names_in(
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
    waiting, seen, files = [(tree, label)], set[Name](), False
    while waiting:
        query, where = waiting.pop()
        table_functions = {
            id(part["function"]) for part in nodes(query) if part.get("type") == "TABLE_FUNCTION"
        }
        for part in nodes(query):
            reason = _refusal(part, id(part) in table_functions, catalog)
            if reason is not None:
                raise RecordsError(f"{where}: {reason}; a query in [records] only reads records")
            if part.get("type") == "TABLE_FUNCTION":
                files |= fold(part["function"]["function_name"]) in READERS
        for table, scope in Scope().tables(query):
            path = table_name(table)
            if scope.query(path) is not None:
                continue
            reason = _refused_name(path, catalog)
            if reason is not None:
                raise RecordsError(f"{where}: {reason}")
            names = catalog.find(path)
            files |= not names
            for name in names:
                if name in seen:
                    continue
                seen.add(name)
                if name in catalog.views:
                    waiting.append((view_query(catalog, name, label), label))
                for column, expression in generated_columns(catalog, name, label).items():
                    waiting.append(
                        (expression, f"{label}: the generated column {column} of {name[-1]}")
                    )
    return files


def _refusal(part: Tree, of_table: bool, catalog: Catalog) -> str | None:
    """Return why part of a query is refused, None if it is not."""
    if isinstance(part.get("class"), str):
        return _refused_expression(part, of_table, catalog)
    kind = part.get("type")
    if not isinstance(kind, str):
        return None
    if kind not in _PARTS:
        what = kind.lower().removesuffix("_node").removesuffix("_ref").replace("_", " ")
        return f"contains something other than a plain SELECT ({what})"
    if kind == "TABLE_FUNCTION":
        return _refused_table_function(part["function"], catalog)
    return None


def _refused_expression(part: Tree, of_table: bool, catalog: Catalog) -> str | None:
    kind = part["class"]
    if kind not in _EXPRESSIONS:
        return f"contains an expression that is not computed from a row ({kind.lower()})"
    if kind == "COLUMN_REF" and len(part["column_names"]) == 1 and name_of(part) in BARE_FUNCTIONS:
        return f"{name_of(part)} is not in the records and changes from run to run; write the value"
    if kind not in ("FUNCTION", "WINDOW") or of_table:
        return None
    name = fold(part["function_name"])
    if name in catalog.macros:
        return f"the function {name} is a macro of the database; write out what it does"
    if kind == "WINDOW":
        known = name in WINDOWS or name in AGGREGATES
    else:
        known = name in ROW_FUNCTIONS or name in AGGREGATES or name == "unnest"
        known &= name != "age" or len(arguments(part)) == 2  # with one it reads the clock
    if known:
        return None
    return (
        f"the function {name} is not allowed: it is unknown, has side effects, or changes from run to "
        f"run"
    )


def _refused_table_function(function: Tree, catalog: Catalog) -> str | None:
    name = fold(function.get("function_name", ""))
    if name in catalog.macros:
        return f"the table function {name} is a macro of the database; write out what it does"
    if name not in TABLE_FUNCTIONS:
        allowed = choices(sorted(TABLE_FUNCTIONS), most=20)
        return f"the table function {name} is not allowed; choose from {allowed}"
    if name not in READERS:
        return None
    files, options = files_of(function), options_of(function)
    if files is None or any(_computed(value) for value in options.values()):
        return f"{name} must have constant file names and options"
    if any(_is_remote(file) for file in files):
        return f"{name} can read local paths only; copy the file to this machine"
    for option in _WRITING_OPTIONS:
        if option in options:
            return f"the option {option} makes {name} write tables; remove it"
    return None


def _is_remote(file: str) -> bool:
    """Return whether a file name is not a plain path, but a URL or a home folder."""
    return file.startswith("~") or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", file) is not None


def _computed(option: Tree) -> bool:
    return any(part.get("class") in ("COLUMN_REF", "SUBQUERY", "STAR") for part in nodes(option))


def _refused_name(path: tuple[str, ...], catalog: Catalog) -> str | None:
    """Return why the name of a table is refused: it must be that of one table, or a local file's."""
    name, written = fold(path[-1]), ".".join(path)
    if name in catalog.ambiguous:
        return f"several schemas of the database have a table or view {name}; rename all but one"
    if catalog.find(path):
        return None
    if name in catalog.system:
        return f"{name} is a system table of DuckDB, which holds no records"
    if is_file(path):
        remote = _is_remote(path[0])
        return (
            "a query can read local paths only; copy the file to this machine" if remote else None
        )
    if len(path) == 1 and ("." in name or "/" in name):
        return (
            f"{path[0]!r} is neither a table nor a file with the suffix of CSV, TSV, JSON or Parquet; "
            f"read it with a function such as read_csv"
        )
    known = sorted({table[-1] for table in (*catalog.tables, *catalog.views)})
    ways = [f"choose from {choices(known)}"] if known else []
    if len(path) > 1:
        ways.append(f"put the name of a file in quotes, as in FROM '{written}'")
    elif not known:
        ways.append("name a file, as in FROM 'people.parquet'")
    return f"the table {written} does not exist; {', or '.join(ways)}"


# DuckDB detects delimiter, quotes and header of a CSV file from all of its rows, so one odd row can
# hide the others. So `read_csv('people.csv', all_varchar = true)` is run with all of that stated, by
# the rule for files under `records.path`: the first line has the column names.
_READERS = names_in("read_csv read_csv_auto")


def state_layouts(tree: Tree, folder: Path, label: str) -> bool:
    """State the layout of the CSV files that a query reads as text; return whether it changed."""
    changed = False
    for part in list(nodes(tree)):
        if part.get("type") != "TABLE_FUNCTION" or not _is_plain_text(part["function"]):
            continue
        files = files_of(part["function"]) or []
        if len(files) == 1 and not re.search(r"[*?\[]", files[0]):
            part["function"] = _stated(files[0], folder, label)
            changed = True
    return changed


def _is_plain_text(function: Tree) -> bool:
    options = {name: constant(value) for name, value in options_of(function).items()}
    every_column = str(options.pop("all_varchar", None)).lower() in ("true", "t", "1")
    header = str(options.pop("header", True)).lower() in ("true", "t", "1")
    known = fold(function["function_name"]) in _READERS
    return known and every_column and header and not options


def _stated(file: str, folder: Path, label: str) -> Tree:
    path = folder / file
    try:
        names, delimiter = read_header(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RecordsError(f"{label}: {file}: {reason}") from None
    columns = ", ".join(f"{_literal(name)}: 'VARCHAR'" for name in names)
    text = (
        f"FROM read_csv({_literal(file)}, auto_detect = false, header = true, "
        f"delim = {_literal(delimiter)}, quote = '\"', escape = '\"', columns = {{{columns}}})"
    )
    function: Tree = parse(text, label)[1]["from_table"]["function"]
    return function


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def accept(
    records: RecordsSection,
    connection: duckdb.DuckDBPyConnection,
    folder: Path,
    label: str,
    lock: Callable[[bool], None],
) -> str:
    """Return the SQL of a query, in parentheses; refuse one that fails a check.

    `lock` is called before any part of the query is prepared, with whether it reads files. It selects
    the database and locks the settings of the connection for good.
    """
    try:
        text, tree = parse(records.query or "", label)
        catalog = Catalog.of(connection, folder, label)
        lock(refuse_all_but_reading(tree, catalog, label))
        if records.each_person_alone:
            return bracketed(text)
        if state_layouts(tree, folder, label):
            text, tree = parse(sql_of(tree), label)
            refuse_all_but_reading(tree, catalog, label)  # check what will run
        judge = Judge(
            catalog,
            frozenset(records.public_tables),
            label,
            lambda sql: connection.execute(sql).fetchall(),
        )
        counts = () if records.counts is None else (fold(records.counts),)
        rows = judge.whole(tree, frozenset(counts))
    except Dependent as error:
        raise record_rules.depends_on_others(label, str(error)) from None
    except RecursionError:
        raise too_deep(label) from None
    if not rows.sources and judge.uses_public:
        raise record_rules.all_public(label)
    if rows.several is not None and records.person_id is None:
        raise record_rules.several_rows(label, rows.several)
    return bracketed(text)
