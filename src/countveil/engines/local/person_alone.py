"""Whether the rows that a query returns for one person depend on that person's records alone.

The guarantee compares databases that differ in one person. It holds for a query if adding a person
adds rows of that person and changes no others. What is known to preserve this is listed here:
expressions and conditions of one row, UNPIVOT, UNION ALL, joins to public tables, and the plain GROUP
BY of a table of counts. Anything else is refused unless the plan attests it.

In a table of counts a row stands for many people. There, nothing but the count itself may depend on
the count. `amounts` are the columns that hold counts, and they may only be passed on: from one column
of the records to one column of the result. So that no other name refers to a count, every column of
such a query must be one that DuckDB describes, written as its name or as table.name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import duckdb

from countveil.engines.local.allowed_functions import (
    AGGREGATES,
    POSITIONS,
    READERS,
    UNNESTING,
    names_in,
)
from countveil.engines.local.parsed_query import (
    Tree,
    arguments,
    column,
    constant,
    fold,
    name_of,
    nodes,
    select,
)
from countveil.engines.local.query_names import (
    Catalog,
    Name,
    Scope,
    files_of,
    generated_columns,
    identities,
    is_file,
    kind_of_file,
    options_of,
    query_of,
    table_name,
    view_query,
)

_INTEGERS = names_in("BIGINT HUGEINT INTEGER SMALLINT TINYINT")  # as DuckDB describes types
_NUMBERS = names_in(
    """
    BIGINT DOUBLE HUGEINT INT INT2 INT4 INT8 INTEGER LONG SMALLINT TEXT TINYINT UBIGINT UHUGEINT
    UINTEGER USMALLINT UTINYINT VARCHAR
    """
)
# What must be stated about a text file, so that how a record is read depends on no other.
_STATED = {"csv": ("auto_detect", "columns"), "json": ("auto_detect", "columns", "format")}
# Options under which the reading of a record depends on its own text only.
_FIXED_OPTIONS = names_in(
    """
    all_varchar auto_detect buffer_size columns compression convert_strings_to_integers date_format
    dateformat decimal_separator delim delimiter encoding escape filename force_not_null format header
    hive_partitioning hive_types hive_types_autocast max_line_size maximum_line_size
    maximum_object_size new_line null nullstr parallel quote records sep thousands timestamp_format
    timestampformat union_by_name
    """
)
_SELECT_KEYS = names_in(
    """
    type modifiers cte_map select_list from_table where_clause group_expressions group_sets
    aggregate_handling having sample qualify
    """
)
_TABLE_KEYS = {
    "BASE_TABLE": "schema_name table_name column_name_alias catalog_name qualified_name",
    "TABLE_FUNCTION": "function column_name_alias with_ordinality",
    "SUBQUERY": "subquery column_name_alias",
    "PIVOT": "source aggregates unpivot_names pivots groups column_name_alias include_nulls",
    "JOIN": "left right condition join_type ref_type using_columns delim_flipped is_implicit "
    "nearest_count nearest_order_type",
    "EMPTY": "",
    "EXPRESSION_LIST": "expected_names expected_types values column_name_alias",
}
_ANY_TABLE = ("type", "alias", "query_location", "query_location_length")
_EMPTY: tuple[Any, ...] = (None, "", [], {}, False)


class Dependent(Exception):
    """Part of a query makes a row depend on several people; the text names that part."""


Columns = frozenset[str]  # names of columns, in lower case
NONE: Columns = frozenset()


@dataclass(frozen=True, slots=True)
class Rows:
    """What part of a query yields: from which records, and why one person may get several rows."""

    sources: frozenset[str]
    several: str | None = None


@dataclass(slots=True)
class Judge:
    """Decides on the parsed tree of a query.

    `ask` runs SQL on public tables and describes others. How many rows of a public table have the same
    key is not confidential.
    """

    catalog: Catalog
    public: frozenset[str]
    label: str
    ask: Callable[[str], list[tuple[Any, ...]]]
    _views: dict[Name, Tree] = field(default_factory=dict)
    _columns_of: dict[Name, dict[str, Tree]] = field(default_factory=dict)
    _sources: dict[tuple[int, ...], frozenset[str]] = field(default_factory=dict)
    _rows: dict[tuple[Any, ...], Rows] = field(default_factory=dict)
    uses_public: bool = False

    def whole(self, tree: Tree, amounts: Columns) -> Rows:
        """Return what the query of a plan yields; `amounts` are its columns of counts."""
        _refuse_anywhere(tree)
        if self.catalog.collations:
            raise Dependent("a table with COLLATE, which treats different texts as equal,")
        rows = self.judge(tree, Scope(), amounts)
        if rows.sources and _unnests(tree, *self._views.values()):
            return Rows(rows.sources, rows.several or "unnest")
        return rows

    def judge(self, node: Tree, scope: Scope, amounts: Columns) -> Rows:
        """Return what a query yields; raise `Dependent` where people's rows depend on each other."""
        key = (id(node), amounts, *map(id, scope.entries))  # a name may be used many times
        if key not in self._rows:
            self._rows[key] = self._judged(node, scope, amounts)
        return self._rows[key]

    def _judged(self, node: Tree, scope: Scope, amounts: Columns) -> Rows:
        sources = self.sources(node, scope)
        if not sources:
            return Rows(sources)
        inner, kind = scope.within(node), node["type"]
        for modifier in node.get("modifiers", []):
            if modifier["type"] != "ORDER_MODIFIER":
                raise Dependent(modifier["type"].removesuffix("_MODIFIER").replace("_PERCENT", ""))
        if kind == "SET_OPERATION_NODE":
            if _has_aggregate(node.get("modifiers")):
                raise Dependent("an aggregate in ORDER BY")
            return self._union(node, inner, amounts)
        if kind != "SELECT_NODE":
            raise Dependent("a recursive query")
        return self._select(node, inner, amounts)

    def sources(self, tree: Any, scope: Scope) -> frozenset[str]:
        """Return the confidential tables and files that a part of a query reads."""
        if isinstance(tree, list):
            return frozenset[str]().union(*(self.sources(part, scope) for part in tree))
        if not isinstance(tree, dict) or tree.get("class") == "CONSTANT":
            return frozenset()
        key = (id(tree), *map(id, scope.entries))
        if key not in self._sources:
            self._sources[key] = frozenset()  # a recursive query refers to itself
            self._sources[key] = self._read(tree, scope)
        return self._sources[key]

    def _read(self, tree: Tree, scope: Scope) -> frozenset[str]:
        if tree.get("type") == "BASE_TABLE":
            return self._table_sources(tree, scope)
        if tree.get("type") == "TABLE_FUNCTION":
            function = tree["function"]
            if fold(function["function_name"]) in READERS:
                files = files_of(function) or []
                if all(self._declared(file) for file in files):
                    return frozenset()
                return frozenset(identities(files, self.ask))
        if isinstance(tree.get("cte_map"), dict):
            scope = scope.within(tree)  # its expressions are read where they are used
            tree = {key: part for key, part in tree.items() if key != "cte_map"}
        return self.sources(list(tree.values()), scope)

    def _table_sources(self, table: Tree, scope: Scope) -> frozenset[str]:
        path = table_name(table)
        query = scope.query(path)
        if query is not None:
            return self.sources(query_of(query[0]), query[1])
        if self._declared(".".join(path)):
            return frozenset()
        name = self._catalogued(path)
        if name in self.catalog.views:
            return self.sources(self._view(name), Scope())
        if name:
            self._generated(name)
            return frozenset({f"table {'.'.join(name)}"})
        return frozenset(identities([path[0]], self.ask))

    def _catalogued(self, path: tuple[str, ...]) -> Name:
        """Return the table or view that a name refers to, () for a file."""
        names = self.catalog.find(path)
        assert names or is_file(path)  # others were refused
        return names[0] if names else ()

    def _declared(self, name: str) -> bool:
        """Whether the plan declares a table or file public, by the name that the query uses."""
        folder = self.catalog.folder
        public = any((folder / name).resolve() == (folder / item).resolve() for item in self.public)
        if not is_file((name,)):
            public |= fold(name) in {fold(item) for item in self.public}
        self.uses_public |= public
        return public

    def _view(self, name: Name) -> Tree:
        if name not in self._views:
            self._views[name] = view_query(self.catalog, name, self.label)
            _refuse_anywhere(self._views[name])
        return self._views[name]

    def _generated(self, name: Name) -> dict[str, Tree]:
        """Return the expressions of the generated columns of a table."""
        if name not in self._columns_of:
            self._columns_of[name] = generated_columns(self.catalog, name, self.label)
            for expression in self._columns_of[name].values():
                _refuse_anywhere(expression)
        return self._columns_of[name]

    def _union(self, node: Tree, scope: Scope, amounts: Columns) -> Rows:
        kind = str(node["setop_type"])
        if kind not in ("UNION", "UNION_BY_NAME") or not node["setop_all"]:
            raise Dependent(f"{kind.replace('_', ' ')} without ALL" if "UNION" in kind else kind)
        children = node["children"]
        each = [amounts] * len(children)
        if amounts and kind == "UNION":
            each = [_same_place(children, child, amounts) for child in children]
        rows, seen = Rows(frozenset()), frozenset[str]()
        for child, own in zip(children, each, strict=True):
            part = self.judge(child, scope, own)
            several = rows.several or part.several
            if part.sources & seen:
                several = several or "UNION ALL of the same records"
            seen |= part.sources
            rows = Rows(seen, several)
        return rows

    def _select(self, node: Tree, scope: Scope, amounts: Columns) -> Rows:
        _known(node, _SELECT_KEYS)
        for key in ("having", "qualify"):
            if node.get(key) is not None:
                raise Dependent(key.upper())
        grouped = bool(node["group_expressions"]) or bool(
            node["group_sets"]
        )  # GROUP BY () has no other
        grouped |= node["aggregate_handling"] != "STANDARD_HANDLING" or _aggregates(node)
        table = node["from_table"]
        columns = self._counted_columns(table, scope) if amounts else NONE
        passing = _grouping if grouped else _projection
        inner, expressions = passing(node, amounts, columns)
        expressions += [node["where_clause"], *node["group_expressions"]]
        own = {name for item in node["select_list"] if (name := _output(item)) not in columns}
        for expression in expressions:
            self._row_wise(expression, scope)
            if amounts:
                _refuse_amounts(expression, amounts | inner, columns | own, _table_names(table))
        return self._table(table, scope, inner)

    def _row_wise(self, expression: Any, scope: Scope) -> None:
        """Refuse an expression that depends on other rows."""
        for part in nodes(expression):
            kind = part.get("class")
            if kind == "SUBQUERY":
                if self.sources(part["subquery"], scope):
                    raise Dependent("a sub-query over records")
                if _has_aggregate(part["subquery"]):
                    raise Dependent("an aggregate in a sub-query")  # maybe of the outer rows
            elif kind == "FUNCTION" and fold(part["function_name"]) in AGGREGATES:
                raise Dependent(f"the aggregate {part['function_name']}")

    def _counted_columns(self, table: Tree, scope: Scope) -> Columns:
        """Return the columns of a FROM over counts; their names must differ."""
        columns = self._columns(table, scope)
        if columns is None:
            raise Dependent(
                "a lateral join, or tables without names of their own (AS), over counts"
            )
        if len(set(columns)) < len(columns):
            raise Dependent("columns with the same name in a table of counts")
        return frozenset(columns)

    def _table(self, table: Tree, scope: Scope, amounts: Columns) -> Rows:
        """Return what part of FROM yields."""
        sources = self.sources(table, scope)
        if not sources:
            if amounts:
                raise Dependent("a count that is not from the records")
            return Rows(sources)
        kind = table["type"]
        known = _TABLE_KEYS[kind].split() if kind in _TABLE_KEYS else []
        _known(table, frozenset((*_ANY_TABLE, *known)))
        if table.get("column_name_alias") and amounts:
            raise Dependent("new names for the columns of a table of counts in its alias")
        if kind == "BASE_TABLE":
            return self._base(table, scope, amounts, sources)
        if kind == "TABLE_FUNCTION":
            return self._reader(table, sources)
        if kind == "SUBQUERY":
            return self.judge(table["subquery"]["node"], scope, amounts)
        if kind == "PIVOT":
            return self._unpivot(table, scope, amounts)
        if kind == "JOIN":
            return self._join(table, scope, amounts)
        raise Dependent("VALUES over records")

    def _base(self, table: Tree, scope: Scope, amounts: Columns, sources: frozenset[str]) -> Rows:
        path = table_name(table)
        query = scope.query(path)
        if query is not None:
            if query[0].get("aliases") and amounts:
                raise Dependent("new names for the columns of a table of counts in WITH")
            return self.judge(query_of(query[0]), query[1], amounts)
        name = self._catalogued(path)
        view = self.catalog.views.get(name)
        if view is not None:
            if view.renames and amounts:
                raise Dependent(
                    f"new names for the columns of a table of counts in the view {name[-1]}"
                )
            return self.judge(self._view(name), Scope(), amounts)
        if not name:
            kind = kind_of_file(path[0])
            if kind != "parquet":
                raise Dependent(_guessed(path[0], str(kind)))
            return self._of_files(sources, [path[0]], {})
        if amounts:
            _refuse_copies(self._generated(name), amounts)
        return Rows(sources)

    def _reader(self, table: Tree, sources: frozenset[str]) -> Rows:
        function = table["function"]
        name, options = fold(function["function_name"]), options_of(function)
        if table.get("with_ordinality") not in (*_EMPTY, "WITHOUT_ORDINALITY"):
            raise Dependent("WITH ORDINALITY, the position of a row,")
        if name not in READERS:
            raise Dependent("a sub-query over records")
        files = files_of(function) or []
        kind = "csv" if "csv" in name else "json"
        if "parquet" not in name and not _is_stated(options, kind):
            raise Dependent(_guessed(files[0], kind))
        for option in options:
            skips = option == "skip" and _is_true(options.get("header"))
            if option not in _FIXED_OPTIONS and not skips:
                raise Dependent(f"the option {option} of {name}")
        return self._of_files(sources, files, options)

    def _of_files(
        self, sources: frozenset[str], files: list[str], options: dict[str, Tree]
    ) -> Rows:
        settled = "hive_types" in options or any(
            _is_false(options.get(key)) for key in ("hive_partitioning", "hive_types_autocast")
        )
        if not settled and any(set("*?[") & set(file.rpartition("/")[0]) for file in files):
            raise Dependent(
                "the type of a column, guessed from the names of folders (add "
                "hive_types_autocast = false),"
            )
        twice = len(identities(files, self.ask)) > len(sources)
        return Rows(sources, "reading a file twice" if twice else None)

    def _unpivot(self, table: Tree, scope: Scope, amounts: Columns) -> Rows:
        pivots = table["pivots"]
        if table["aggregates"] or table["groups"] or len(pivots) != 1:
            raise Dependent("PIVOT")
        columns = [entry.get("star_expr") for entry in pivots[0]["entries"]]
        stars = [item for item in columns if item and item["class"] == "STAR"]
        names = [name_of(item) for item in columns if item and item["class"] == "COLUMN_REF"]
        if len(stars) + len(names) < len(columns) or (stars and len(columns) > 1):
            raise Dependent("UNPIVOT of something other than columns")
        if stars:
            left_out = {fold(name) for name in stars[0].get("exclude_list", [])}
            names = sorted(self._counted_columns(table["source"], scope) - left_out)
        values = {fold(name) for name in table["unpivot_names"]}
        if len(values) == 1 and amounts == values and len(set(names)) == len(names):
            # Each number of a wide table moves to its own row: no one is counted twice.
            return self._table(table["source"], scope, frozenset(names))
        rows = self._table(table["source"], scope, amounts)
        return Rows(rows.sources, rows.several or "UNPIVOT")

    def _join(self, table: Tree, scope: Scope, amounts: Columns) -> Rows:
        for key in ("ranking_expression", "duplicate_eliminated_columns", "nearest_approx"):
            if table.get(key) not in _EMPTY:
                raise Dependent("a join by rank")
        left, right = (self.sources(table[side], scope) for side in ("left", "right"))
        if left and right:
            raise Dependent("a join of records with records")
        own, other = ("left", "right") if left else ("right", "left")
        kinds = ("INNER", "LEFT", "SEMI", "ANTI") if left else ("INNER", "RIGHT")
        if table["ref_type"] == "NATURAL":
            raise Dependent("NATURAL JOIN, whose columns are not stated (write USING),")
        if table["ref_type"] not in ("REGULAR", "CROSS"):
            raise Dependent(f"{table['ref_type']} JOIN")
        if table["join_type"] not in kinds:
            raise Dependent(f"{table['join_type']} JOIN, which keeps rows of the public table,")
        self._row_wise(table.get("condition"), scope)
        if amounts:
            columns = frozenset(self._columns(table[own], scope) or ())
            public = frozenset(self._columns(table[other], scope) or ())
            _refuse_amounts(table.get("condition"), amounts, columns | public, _table_names(table))
        if any(fold(name) in amounts for name in table.get("using_columns", [])):
            raise Dependent("a join on a column of counts")
        rows = self._table(table[own], scope, amounts)
        if table["join_type"] in ("SEMI", "ANTI"):
            return rows
        looked_up = self._columns(table[other], scope)
        if amounts and (looked_up is None or amounts.intersection(looked_up)):
            raise Dependent("a count that may come from a public table")
        several = None
        if table["ref_type"] != "REGULAR":
            several = "a join without ON or USING (a condition in WHERE does not count)"
        elif looked_up is None or not self._matches_once(table, own, other, scope, looked_up):
            several = "a join to a public table that may match several of its rows"
        return Rows(rows.sources, rows.several or several)

    def _columns(self, table: Tree, scope: Scope) -> list[str] | None:
        """Return the columns of part of FROM; None if they depend on another part."""
        text = select(None, table, list(scope.entries), self.label)
        try:
            return [fold(row[0]) for row in self.ask(f"DESCRIBE {text}")]
        except duckdb.BinderException:
            return None

    def _matches_once(
        self, join: Tree, own: str, other: str, scope: Scope, columns: list[str]
    ) -> bool:
        """Whether a record matches at most one row of the public table, since its keys differ."""
        pairs = [(column(name), column(name)) for name in join.get("using_columns", [])]
        tables = _table_names(join[other])
        for left, right in _equalities(join.get("condition")):
            for mine, theirs in ((left, right), (right, left)):
                if _only_of(theirs, tables, columns) and _none_of(mine, tables, columns):
                    pairs.append((mine, theirs))
        if not pairs or self.catalog.collations:
            return False
        common = list(scope.entries)
        keys = [
            select([pair[side] for pair in pairs], join[table], common, self.label)
            for side, table in enumerate((own, other))
        ]
        try:
            types = [[row[1] for row in self.ask(f"DESCRIBE {text}")] for text in keys]
        except duckdb.BinderException:
            return False
        for mine, theirs in zip(*types, strict=True):
            if mine != theirs and not {mine, theirs} <= _INTEGERS:
                return False  # compared after a conversion, which may make keys equal
        names = [f"c{number}" for number in range(len(pairs))]
        twice = (
            f"SELECT {', '.join(names)}, count(*) FROM ({keys[1]}) "
            f"WHERE {' AND '.join(f'{name} IS NOT NULL' for name in names)} "
            f"GROUP BY ALL HAVING count(*) > 1 LIMIT 1"
        )
        return not self.ask(twice)


def _refuse_anywhere(tree: Tree) -> None:
    """Refuse what depends on other rows or merges rows, wherever it is in a query."""
    unpivoted = {
        id(entry.get("star_expr"))
        for part in nodes(tree)
        for pivot in (part.get("pivots") or [])
        for entry in pivot["entries"]
    }
    for part in nodes(tree):
        kind = part.get("class")
        if part.get("sample") not in _EMPTY:
            raise Dependent("SAMPLE")
        if kind == "WINDOW":
            raise Dependent(f"the window function {part['function_name']}")
        if kind == "POSITIONAL_REFERENCE":
            raise Dependent("a column by its number (write its name)")
        if kind == "COLLATE":
            raise Dependent("COLLATE, which treats different texts as equal,")
        plain = id(part) in unpivoted and part.get("expr") in _EMPTY
        if kind == "STAR" and part.get("columns") and not plain:
            raise Dependent("COLUMNS(…)")
        names = [str(name) for name in part.get("using_columns") or []]
        names += [str(name) for name in (part.get("column_names") or [])[-1:]]
        for name in names:
            if fold(name) in POSITIONS:
                raise Dependent(f"the column {fold(name)}, the position of a row,")


def _refuse_copies(generated: dict[str, Tree], amounts: Columns) -> None:
    """Refuse generated columns that are computed from a count."""
    for name, expression in generated.items():
        if any(
            part.get("class") == "COLUMN_REF" and name_of(part) in amounts | frozenset(generated)
            for part in nodes(expression)
        ):
            raise Dependent(f"the generated column {name}, which may contain a count,")
        if name in amounts:
            raise Dependent(f"the generated column {name} of counts")


def _unnests(*trees: Tree) -> bool:
    return any(
        fold(part.get("function_name", "")) in UNNESTING for tree in trees for part in nodes(tree)
    )


def _refuse_amounts(
    expression: Any, amounts: Columns, columns: Columns, tables: frozenset[str]
) -> None:
    """Refuse an expression that uses a count, or anything that may contain one."""
    for part in nodes(expression):
        kind = part.get("class")
        if kind in ("LAMBDA", "STAR", "SUBQUERY"):
            raise Dependent(f"{kind} in an expression over a table of counts")
        if kind != "COLUMN_REF":
            continue
        *table, name = (fold(name) for name in part["column_names"])
        if name in amounts:
            raise Dependent("an expression or a condition on a column of counts")
        if name not in columns or (table and (len(table) > 1 or table[0] not in tables)):
            raise Dependent(f"{'.'.join([*table, name])}, which may contain a count,")


def _known(node: Tree, keys: frozenset[str]) -> None:
    """Refuse what this version of countveil does not know."""
    for key, value in node.items():
        if key not in keys and value not in _EMPTY:
            raise Dependent(f"an unknown part of the query ({key})")


def _projection(node: Tree, amounts: Columns, columns: Columns) -> tuple[Columns, list[Any]]:
    """Return the columns that the amounts come from, and the other expressions."""
    if not amounts:
        return NONE, list(node["select_list"])
    outputs = _outputs(node, columns)
    names = [name for name, _ in outputs]
    if "" in names or len(set(names)) < len(names):
        raise Dependent("a column without a name of its own in a table of counts (name it by AS)")
    tables = _table_names(node["from_table"])
    origins, expressions = list[str](), list[Any]()
    for name, expression in outputs:
        if name not in amounts:
            expressions.append(expression)
            continue
        origin = _amount(expression, columns, tables)
        if origin is None:
            raise Dependent("an expression on a column of counts")
        origins.append(origin)
    if not amounts.issubset(names):
        raise Dependent("a count that is not named in the query")
    if len(set(origins)) < len(origins) or (len(origins) > 1 and "" in origins):
        raise Dependent("the same count in several columns")
    return frozenset(origins) - {""}, expressions


def _outputs(node: Tree, columns: Columns) -> list[tuple[str, Tree]]:
    """Return the columns that a SELECT over counts yields, with * expanded."""
    outputs = list[tuple[str, Tree]]()
    tables = _table_names(node["from_table"])
    for item in node["select_list"]:
        if item["class"] != "STAR":
            outputs.append((_output(item), item))
            continue
        relation = fold(item.get("relation_name") or "")
        if item.get("rename_list") not in _EMPTY:
            raise Dependent("RENAME in a table of counts")
        if relation and (relation not in tables or len(tables) > 1):
            raise Dependent(f"{relation}.* in a table of counts (list its columns)")
        left_out = {fold(name) for name in item.get("exclude_list") or []}
        replaced = {fold(entry["key"]): entry["value"] for entry in item.get("replace_list") or []}
        outputs += [(name, replaced.get(name, column(name))) for name in sorted(columns - left_out)]
    return outputs


def _grouping(node: Tree, amounts: Columns, columns: Columns) -> tuple[Columns, list[Any]]:
    """Return the same for a GROUP BY, which must be the plain one that makes the column of counts."""
    if not amounts:
        plain = _aggregates(node) and not node["group_expressions"]
        raise Dependent("an aggregate" if plain else "GROUP BY")
    if len(node["group_sets"]) > 1:
        raise Dependent("GROUPING SETS")
    tables = _table_names(node["from_table"])
    origins, expressions = list[str](), list[Any]()
    for item in node["select_list"]:
        if item["class"] == "STAR":
            raise Dependent("* with GROUP BY")
        if not _has_aggregate(item):
            if _output(item) in amounts:
                raise Dependent("a count that GROUP BY does not add up")
            expressions.append(item)
            continue
        origin = _added_up(item, expressions, columns, tables)
        if origin is None or _output(item) not in amounts:
            raise Dependent("an aggregate other than count(*) or sum(n) for records.counts")
        origins.append(origin)
    if len(origins) != 1 or len(amounts) != 1:
        raise Dependent("GROUP BY without exactly one count")
    return frozenset(origins) - {""}, expressions


def _added_up(
    item: Tree, expressions: list[Any], columns: Columns, tables: frozenset[str]
) -> str | None:
    """Return the column that a count sums, "" if it counts rows, None for other aggregates."""
    item = _unwrapped(item)
    name = fold(item.get("function_name", ""))
    orders = (item.get("order_bys") or {}).get("orders")
    if item["class"] != "FUNCTION" or item.get("distinct") or orders or item.get("export_state"):
        return None
    expressions.append(item.get("filter"))
    if name in ("count", "count_star"):
        expressions.extend(arguments(item))
        return ""
    if name == "sum" and len(arguments(item)) == 1:
        return _amount(arguments(item)[0], columns, tables)
    return None


def _amount(expression: Tree, columns: Columns, tables: frozenset[str]) -> str | None:
    """Return the column that a count is passed on from, "" for 0 or 1, None if it is changed."""
    expression = _unwrapped(expression)
    if expression["class"] == "COLUMN_REF":
        *table, name = (fold(name) for name in expression["column_names"])
        known = name in columns and (not table or (len(table) == 1 and table[0] in tables))
        return name if known else None
    return "" if constant(expression) in ("0", "1") else None


def _unwrapped(expression: Tree) -> Tree:
    """Return an expression without conversions to a number and replacements of NULL by 0.

    A conversion that fails must stop the query: if it gave NULL, it would drop a large count.
    """
    while True:
        if expression["class"] == "CAST":
            kind = str(expression["type_expr"].get("type_name")).upper()
            if expression.get("try_cast") or kind not in _NUMBERS:
                return expression
            expression = expression["child"]
        elif expression["type"] == "OPERATOR_COALESCE":
            first, *others = expression["children"]
            if [constant(other) for other in others] != ["0"]:
                return expression
            expression = first
        else:
            return expression


def _output(item: Tree) -> str:
    """Return the name of a column that a SELECT yields, "" if DuckDB invents it."""
    name = fold(item.get("alias") or "")
    return name or (name_of(item) if item["class"] == "COLUMN_REF" else "")


def _same_place(children: list[Tree], child: Tree, amounts: Columns) -> Columns:
    """Return the names of the amounts of the first query of a UNION in another, by position."""
    first = children[0]
    if child is first:
        return amounts
    for node in (first, child):
        stars = [item["class"] == "STAR" for item in node.get("select_list", [{"class": "STAR"}])]
        if any(stars):
            raise Dependent("UNION ALL over counts by position (list the columns, or add BY NAME)")
    names = [_output(item) for item in child["select_list"]]
    pairs = zip(first["select_list"], names, strict=False)
    counts = [name for item, name in pairs if _output(item) in amounts]
    if not all(counts) or len(set(counts)) < len(amounts):
        raise Dependent("UNION ALL over counts without a name for each count")
    return frozenset(counts)


def _has_aggregate(tree: Any) -> bool:
    return any(
        part.get("class") == "FUNCTION" and fold(part["function_name"]) in AGGREGATES
        for part in nodes(tree)
    )


def _aggregates(node: Tree) -> bool:
    """Whether a SELECT combines rows, whether or not it says GROUP BY: also ORDER BY count(*) does.

    FROM yields rows before that, and what WHERE may contain is judged row by row.
    """
    own = [
        part for key, part in node.items() if key not in ("cte_map", "from_table", "where_clause")
    ]
    return _has_aggregate(own)


def _table_names(table: Tree) -> frozenset[str]:
    """Return the names of the tables of a FROM."""
    if table["type"] == "JOIN":
        return _table_names(table["left"]) | _table_names(table["right"])
    name = table.get("alias") or table.get("table_name")
    if not name and table["type"] == "TABLE_FUNCTION":
        name = table["function"]["function_name"]
    return frozenset({fold(name)} if name else ())


def _equalities(condition: Tree | None) -> list[tuple[Tree, Tree]]:
    """Return both sides of each equality that a condition requires."""
    if condition is None:
        return []
    if condition["type"] == "CONJUNCTION_AND":
        return [pair for part in condition["children"] for pair in _equalities(part)]
    if condition["type"] == "COMPARE_EQUAL":
        return [(condition["left"], condition["right"])]
    return []


def _references(expression: Tree) -> list[list[str]] | None:
    """Return the columns of an expression; None if it has more than columns and functions."""
    references = []
    for part in nodes(expression):
        if part.get("class") in ("COLLATE", "LAMBDA", "STAR", "SUBQUERY"):
            return None
        if part.get("class") == "COLUMN_REF":
            references.append([fold(name) for name in part["column_names"]])
    return references


def _only_of(expression: Tree, tables: frozenset[str], columns: list[str]) -> bool:
    """Whether an expression uses columns of the public table only."""
    references = _references(expression)
    return bool(references) and all(
        (len(parts) == 1 and parts[0] in columns) or (len(parts) == 2 and parts[0] in tables)
        for parts in references or []
    )


def _none_of(expression: Tree, tables: frozenset[str], columns: list[str]) -> bool:
    """Whether an expression uses no column of the public table."""
    references = _references(expression)
    return references is not None and not any(
        parts[0] in tables or parts[0] in columns for parts in references
    )


def _is_stated(options: dict[str, Tree], kind: str) -> bool:
    """Return whether the layout and the types of a text file are all stated."""
    stated = all(option in options for option in _STATED[kind])
    return stated and _is_false(options["auto_detect"])


def _guessed(file: str, kind: str) -> str:
    state = "read_json('…', auto_detect = false, format = 'newline_delimited', columns = {…})"
    if kind == "csv":
        state = "read_csv('…', all_varchar = true) reads one file as text"
    return f"the layout of {file!r}, guessed from its rows ({state}),"


def _is_true(option: Tree | None) -> bool:
    return option is not None and str(constant(option)).lower() in ("true", "t", "1")


def _is_false(option: Tree | None) -> bool:
    return option is not None and str(constant(option)).lower() in ("false", "f", "0")
