"""State the layout of CSV files that a query reads as text, so that DuckDB guesses nothing.

DuckDB finds delimiter, quotes and header of a CSV file from all of its rows, so that one odd row can
hide the others. `read_csv('people.csv', all_varchar = true)` is therefore run with all of that stated,
by the rule that files under `records.path` are read by: the first line has the names of the columns.
"""

from __future__ import annotations

import re
from pathlib import Path

from countveil.engines.query.catalog import files_of, options_of
from countveil.engines.query.functions import words
from countveil.engines.query.tree import Tree, constant, nodes, parse
from countveil.errors import RecordsError
from countveil.schema.delimited import read_header

_READERS = words("read_csv read_csv_auto")


def state_layouts(tree: Tree, folder: Path, label: str) -> bool:
    """Change a query in place; return whether there was anything to change."""
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
    known = function["function_name"].lower() in _READERS
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
