"""Whether a person's rows depend on that person's records alone, decided on Spark's analyzed plan.

The rule is that of `engines.local.person_alone`. Here Spark has resolved names: views are expanded, and
columns have numbers, so `amounts` are the numbers of the columns that hold counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from countveil.engines import record_rules
from countveil.engines.local.person_alone import Dependent, Rows
from countveil.engines.spark.spark_query import each, kind_of, operators_of, own_parts_of
from countveil.errors import RecordsError
from countveil.plan.plan_file import RecordsSection

# One table can have many names: a folder, a file in it, a link, a pattern, a view. So a leaf of the
# plan that reads files is identified by those files (local ones by device and inode), and two leaves
# that share a file share records.

_LOCAL = ("", "file")
_FILE_TABLES = ("AvroTable", "CSVTable", "JsonTable", "OrcTable", "ParquetTable", "TextTable")
# Their columns and types are stated in the file, or are all text. Delta's is a Parquet format.
_TYPED = ("Avro", "CSV", "Orc", "Parquet", "Text")
_WRITTEN_OUT = ("OneRowRelation", "Range", "EmptyRelation")


@dataclass(frozen=True, slots=True)
class PublicTables:
    """What a plan declares public: table names in lower case, local paths, and remote addresses."""

    names: frozenset[str]
    paths: frozenset[Path]
    addresses: frozenset[str]

    @classmethod
    def of(cls, declared: Iterable[str], folder: Path) -> PublicTables:
        """Return the entries of `records.public_tables`; paths are relative to the plan's folder."""
        texts = list(declared)
        remote = frozenset(text for text in texts if urlsplit(text).scheme not in _LOCAL)
        local = (text for text in texts if text not in remote)
        return cls(
            frozenset(text.lower() for text in texts),
            frozenset((folder / text.removeprefix("file:")).resolve() for text in local),
            remote,
        )

    def include(self, leaf: JavaObject, database: str) -> bool:
        """Return whether a table or view is declared by its name, or by the paths of all its files."""
        for name in names_of(leaf):
            parts = name.split(".")
            short = [parts[-1]] if len(parts) == 1 or parts[-2] == database else []
            if {name, ".".join(parts[-2:]), *short} & self.names:
                return True
        files = files_of(leaf)
        return bool(files) and all(map(self._includes_file, files))

    def _includes_file(self, file: str) -> bool:
        if _is_local(file):
            path = _path(file).resolve()
            return bool({path, *path.parents} & self.paths)
        return any(
            file == address or file.startswith(address.rstrip("/") + "/")
            for address in self.addresses
        )


def files_of(leaf: JavaObject) -> list[str]:
    """Return the address of each file that a leaf reads, as often as it reads it; empty for tables."""
    if kind_of(leaf) == "LogicalRelation" and kind_of(leaf.relation()) == "HadoopFsRelation":
        return [str(file) for file in leaf.relation().location().inputFiles()]
    if kind_of(leaf) == "DataSourceV2Relation" and kind_of(leaf.table()) in _FILE_TABLES:
        return [str(file) for file in leaf.table().fileIndex().inputFiles()]
    return []


def identities_of(leaf: JavaObject, view: str | None) -> list[str]:
    """Return texts that identify the records of a leaf; two leaves that share a text share records.

    A text that occurs twice is read twice. `view` is the view whose text contains the leaf.
    """
    kind = kind_of(leaf)
    files = files_of(leaf)
    if files:
        return [_file_identity(file) for file in files]
    if kind == "LocalRelation":
        return [f"{kind} {leaf.data().hashCode()}"]
    if kind == "LogicalRDD":
        return [f"{kind} {leaf.rdd().id()}"]
    if kind in _WRITTEN_OUT:
        return [f"{kind} in {view}"]
    if kind == "LogicalRelation" and kind_of(leaf.relation()) != "HadoopFsRelation":
        return [kind_of(leaf.relation())]  # such as JDBC, where a table has many spellings
    names = names_of(leaf) or [str(leaf.canonicalized().toString())]
    return [f"{kind} {', '.join(sorted(names))}"]


def names_of(leaf: JavaObject) -> list[str]:
    """Return the name of a table or view in the catalog, in lower case; empty for others."""
    kind = kind_of(leaf)
    if kind == "View":
        return [str(leaf.desc().identifier().unquotedString()).lower()]
    if kind == "HiveTableRelation":
        return [str(leaf.tableMeta().identifier().unquotedString()).lower()]
    if kind == "LogicalRelation" and leaf.catalogTable().isDefined():
        return [str(leaf.catalogTable().get().identifier().unquotedString()).lower()]
    if kind == "DataSourceV2Relation" and leaf.identifier().isDefined():
        return [str(leaf.name()).replace("`", "").lower()]
    return []


def _file_identity(file: str) -> str:
    if not _is_local(file):
        # A remote store has several schemes and hosts: hdfs and webhdfs, s3 and s3a.
        return f"file {urlsplit(file).path}"
    try:
        status = _path(file).stat()
    except OSError:
        return f"file {_path(file).resolve()}"
    return f"file {status.st_dev}:{status.st_ino}"


def _is_local(file: str) -> bool:
    return urlsplit(file).scheme in _LOCAL


def _path(file: str) -> Path:
    return Path(unquote(urlsplit(file).path))


_WRITTEN_OUT_ALONE = ("LocalRelation", "OneRowRelation", "Range", "EmptyRelation")
_UNCONDITIONAL = "a join without a condition"
_PASSING = (
    "PipeOperator",
    "RebalancePartitions",
    "Repartition",
    "RepartitionByExpression",
    "ResolvedHint",
    "Sort",
    "SubqueryAlias",
)
_SUBQUERIES = ("Exists", "ListQuery", "ScalarSubquery", "LateralSubquery")
_WORDS = {"GlobalLimit": "LIMIT", "LocalLimit": "LIMIT", "Deduplicate": "DISTINCT"}
# They select rows by an order that may change from run to run.
_PICKING = ("GlobalLimit", "LocalLimit", "Offset", "Tail", "Deduplicate", "Window")
_INTEGERS = ("tinyint", "smallint", "int", "bigint")  # from the narrowest to the widest
_ROWS, _NOTHING = -1, -2  # a count that is 1 in each row, and one that is always 0
_GROUPING = "spark_grouping_id"  # the column with which Spark distinguishes GROUPING SETS
_METADATA = "__metadata_col"  # how Spark marks a column that is not in the data


def refuse_dependent(frame: DataFrame, records: RecordsSection, folder: Path, label: str) -> None:
    """Refuse a query with rows that depend on several people, unless the plan attests otherwise."""
    if records.each_person_alone:
        return
    plan = frame._jdf.queryExecution().analyzed()
    judge = _Judge(frame.sparkSession, PublicTables.of(records.public_tables, folder))
    amounts = frozenset(
        column.exprId().id()
        for column in each(plan.output())
        if records.counts is not None and column.name() == records.counts
    )
    try:
        rows = judge.judge(plan, amounts, None)
    except Dependent as error:
        raise record_rules.depends_on_others(label, str(error)) from None
    if not rows.sources and judge.uses_public:
        raise record_rules.all_public(label)
    _refuse_picking(plan, label)
    if rows.several is not None and records.person_id is None:
        raise record_rules.several_rows(label, rows.several)


def _refuse_picking(plan: JavaObject, label: str) -> None:
    """Refuse LIMIT and the like over public tables, where they may select other rows in each run."""
    for operator in operators_of(plan):
        kind = kind_of(operator)
        steady = all(part.deterministic() for part in each(operator.expressions()))
        if kind in _PICKING or not steady:
            what = _WORDS.get(kind, kind.upper()) if kind in _PICKING else "an aggregate by order"
            raise RecordsError(
                f"{label}: {what} over a public table may return other rows in the next run; store its "
                f"result as a table first, and name that under records.public_tables"
            )


@dataclass(slots=True)
class _Judge:
    """Decides on an analyzed plan.

    `view` is the view that contains a part of the plan: rows that its text spells out are records.
    """

    session: SparkSession
    public: PublicTables
    uses_public: bool = False
    _common: dict[int, JavaObject] = field(default_factory=dict)
    _with_text: set[str] = field(default_factory=set)

    def judge(self, plan: JavaObject, amounts: frozenset[int], view: str | None) -> Rows:
        """Return what a plan yields; raise `Dependent` where people's rows depend on each other."""
        kind = kind_of(plan)
        if kind == "WithCTE":
            self._keep(plan)
            return self.judge(plan.plan(), amounts, view)
        sources = self.sources(plan, view)
        if not sources:
            return Rows(sources)
        if not amounts <= {column.exprId().id() for column in each(plan.output())}:
            raise Dependent("a count that is not from the records")
        if kind == "View":
            name = names_of(plan)[0]
            if plan.desc().viewText().isDefined():
                self._with_text.add(name)
            return self.judge(plan.child(), amounts, name)
        if kind == "CTERelationRef":
            if plan.cteId() not in self._common:
                raise Dependent("a recursive query")
            below = self._common[plan.cteId()].child()
            return self.judge(below, _by_place(plan, below, amounts), view)
        if not plan.children().size():
            self._refuse_guesses(plan, view)
            twice = len(identities_of(plan, view)) > len(sources)
            return Rows(sources, "a file that is read twice" if twice else None)
        if kind in _PASSING:
            return self.judge(plan.child(), amounts, view)
        steps = {
            "Project": self._project,
            "Filter": self._filter,
            "Union": self._union,
            "Expand": self._expand,
            "Generate": self._generate,
            "Aggregate": self._aggregate,
            "Join": self._join,
            "LateralJoin": self._lateral,
        }
        if kind not in steps:
            raise Dependent(_WORDS.get(kind, kind.upper()))
        return steps[kind](plan, amounts, view)

    def sources(self, plan: JavaObject, view: str | None) -> frozenset[str]:
        """Return the confidential tables and files that a plan reads, directly or through views."""
        kind = kind_of(plan)
        if kind == "WithCTE":
            self._keep(plan)
            return self.sources(plan.plan(), view)
        if kind == "CTERelationRef":
            if plan.cteId() not in self._common:
                return frozenset({"a recursive query"})
            return self.sources(self._common[plan.cteId()].child(), view)
        if kind == "View":
            if self._declared(plan):
                return frozenset()
            return self.sources(plan.child(), names_of(plan)[0])
        children = list(each(plan.children()))
        if (
            not children
            and not (kind in _WRITTEN_OUT_ALONE and view is None)
            and not self._declared(plan)
        ):
            return frozenset(identities_of(plan, view))
        below = [self.sources(child, view) for child in children]
        below += [
            self.sources(part.plan(), view)
            for part in own_parts_of(plan)
            if kind_of(part) in _SUBQUERIES
        ]
        return frozenset[str]().union(*below)

    def _keep(self, plan: JavaObject) -> None:
        for definition in each(plan.cteDefs()):
            self._common[definition.id()] = definition

    def _declared(self, plan: JavaObject) -> bool:
        """Whether the plan of the release declares a table or view public."""
        current = str(self.session.catalog.currentDatabase()).lower()
        public = self.public.include(plan, current)
        self.uses_public |= public
        return public

    def _parts(self, expression: JavaObject) -> Iterator[JavaObject]:
        """Yield the parts of an expression and of the plans of its sub-queries."""
        yield expression
        for child in each(expression.children()):
            yield from self._parts(child)
        if kind_of(expression) in _SUBQUERIES:
            for operator in operators_of(expression.plan()):
                yield from own_parts_of(operator)

    def _row_wise(self, expression: JavaObject, amounts: frozenset[int], view: str | None) -> None:
        """Refuse an expression that depends on other rows, or on the count of its row."""
        if not expression.deterministic():
            raise Dependent("a function whose result changes from run to run")
        parts = list(self._parts(expression))
        kinds = [kind_of(part) for part in parts]
        queries = [part for part, kind in zip(parts, kinds, strict=True) if kind in _SUBQUERIES]
        if any(self.sources(query.plan(), view) for query in queries):
            raise Dependent("a sub-query over records")
        if "WindowExpression" in kinds:
            raise Dependent("a window function")
        if "AggregateExpression" in kinds:
            raise Dependent("an aggregate in a sub-query" if queries else "an aggregate")
        if any("UDF" in kind or kind == "CallMethodViaReflection" for kind in kinds):
            raise Dependent("a function that is not Spark's own")
        for part, kind in zip(parts, kinds, strict=True):
            if kind != "AttributeReference":
                continue
            if part.name() == "_metadata" or part.metadata().contains(_METADATA):
                raise Dependent(f"the column {part.name()}, the position of a row,")
            if part.exprId().id() in amounts:
                raise Dependent("an expression or a condition on a column of counts")

    def _project(self, plan: JavaObject, amounts: frozenset[int], view: str | None) -> Rows:
        origins, others = list[int](), []
        for item in each(plan.projectList()):
            if item.exprId().id() not in amounts:
                others.append(item)
                continue
            origin = _amount(item)
            if origin is None:
                raise Dependent("an expression on a column of counts")
            origins.append(origin)
        inner = _distinct(origins)
        for item in others:
            self._row_wise(item, amounts | inner, view)
        return self.judge(plan.child(), inner, view)

    def _filter(self, plan: JavaObject, amounts: frozenset[int], view: str | None) -> Rows:
        for condition in _conjuncts(plan.condition()):
            if not _asks_for_a_value(condition):  # as UNPIVOT does
                self._row_wise(condition, amounts, view)
        rows = self.judge(plan.child(), amounts, view)
        if rows.several == _UNCONDITIONAL and _joins_in_where(plan):
            return Rows(rows.sources, "a join whose condition is in WHERE (write JOIN ... ON)")
        return rows

    def _union(self, plan: JavaObject, amounts: frozenset[int], view: str | None) -> Rows:
        rows = Rows(frozenset())
        for child in each(plan.children()):
            below = self.judge(child, _by_place(plan, child, amounts), view)
            several = rows.several or below.several
            if below.sources & rows.sources:
                several = several or "UNION ALL of the same records"
            rows = Rows(rows.sources | below.sources, several)
        return rows

    def _expand(self, plan: JavaObject, amounts: frozenset[int], view: str | None) -> Rows:
        """Judge UNPIVOT, for which Spark copies each row."""
        if _GROUPING in [column.name() for column in each(plan.output())]:
            raise Dependent("GROUPING SETS")
        places = [
            place
            for place, column in enumerate(each(plan.output()))
            if column.exprId().id() in amounts
        ]
        origins = list[int]()
        for projection in each(plan.projections()):
            for place, item in enumerate(each(projection)):
                origin = _amount(item) if place in places else _NOTHING
                if origin is None or origin == _ROWS:
                    raise Dependent("an expression on a column of counts")
                origins.append(origin)
        inner = _distinct(origins)
        for projection in each(plan.projections()):
            for place, item in enumerate(each(projection)):
                if place not in places:
                    self._row_wise(item, inner, view)
        return _more(self.judge(plan.child(), inner, view), None if places else "UNPIVOT")

    def _generate(self, plan: JavaObject, amounts: frozenset[int], view: str | None) -> Rows:
        self._row_wise(plan.generator(), amounts, view)
        return _more(self.judge(plan.child(), amounts, view), "explode and the like")

    def _lateral(self, plan: JavaObject, amounts: frozenset[int], view: str | None) -> Rows:
        self._row_wise(plan.right(), amounts, view)
        if kind_of(plan.joinType()) not in ("Inner$", "Cross$", "LeftOuter$"):
            raise Dependent("a lateral join")
        return _more(self.judge(plan.left(), amounts, view), "LATERAL")

    def _aggregate(self, plan: JavaObject, amounts: frozenset[int], view: str | None) -> Rows:
        if _GROUPING in [column.name() for column in each(plan.child().output())]:
            raise Dependent("GROUPING SETS")
        origins, others = list[int](), list(each(plan.groupingExpressions()))
        for item in each(plan.aggregateExpressions()):
            kinds = [kind_of(part) for part in self._parts(item)]
            if "AggregateExpression" not in kinds and item.exprId().id() not in amounts:
                others.append(item)
                continue
            origin = self._added_up(item, others)
            if item.exprId().id() not in amounts or origin is None:
                raise Dependent("an aggregate other than count(*) or sum(n) for records.counts")
            origins.append(origin)
        if len(origins) != 1:
            raise Dependent("GROUP BY without exactly one count")
        inner = _distinct(origins)
        for item in others:
            self._row_wise(item, amounts | inner, view)
        return self.judge(plan.child(), inner, view)

    def _added_up(self, item: JavaObject, others: list[JavaObject]) -> int | None:
        """Return the column that a count sums, `_ROWS` if it counts rows, None for other aggregates."""
        item = _unwrapped(item)
        if kind_of(item) != "AggregateExpression" or item.isDistinct():
            return None
        if item.filter().isDefined():
            others.append(item.filter().get())
        function = item.aggregateFunction()
        if kind_of(function) == "Count":
            others += each(function.children())
            return _ROWS
        if kind_of(function) != "Sum" or _mode(function.evalContext()) == "TRY":
            return None
        return _amount(function.child())

    def _join(self, plan: JavaObject, amounts: frozenset[int], view: str | None) -> Rows:
        left, right = (self.sources(side, view) for side in (plan.left(), plan.right()))
        if left and right:
            raise Dependent("a join of records with records")
        kind = kind_of(plan.joinType())
        kinds = ["Inner$", "Cross$", "RightOuter$"]
        if left:
            kinds = ["Inner$", "Cross$", "LeftOuter$", "LeftSemi$", "LeftAnti$"]
        if kind not in kinds:
            raise Dependent(f"{kind.rstrip('$')} join, which keeps rows of the public table,")
        own, other = (plan.left(), plan.right()) if left else (plan.right(), plan.left())
        numbers = [column.exprId().id() for column in each(other.output())]
        if amounts & set(numbers):
            raise Dependent("a count that is not from the records")
        conditions = [] if plan.condition().isEmpty() else _conjuncts(plan.condition().get())
        for condition in conditions:
            self._row_wise(condition, amounts, view)
        rows = self.judge(own, amounts, view)
        if kind in ("LeftSemi$", "LeftAnti$") or self._matches_once(other, numbers, conditions):
            return rows
        if not conditions:
            return _more(rows, _UNCONDITIONAL)
        return _more(rows, "a join to a public table that may match several of its rows")

    def _matches_once(
        self, table: JavaObject, numbers: list[int], conditions: list[JavaObject]
    ) -> bool:
        """Whether a record matches at most one row of the public table, since its keys differ."""
        keys: list[tuple[int, str | None]] = []
        for condition in conditions:
            if kind_of(condition) != "EqualTo":
                continue
            sides = (condition.left(), condition.right())
            for mine, theirs in (sides, sides[::-1]):
                own = {
                    part.exprId().id()
                    for part in self._parts(mine)
                    if kind_of(part) == "AttributeReference"
                }
                key = _key(theirs)
                if key is not None and key[0] in numbers and not own & set(numbers):
                    keys.append((numbers.index(key[0]), key[1]))
        if not keys:
            return False
        assert self.session._jvm is not None
        classic = self.session._jvm.org.apache.spark.sql.classic.Dataset
        frame = DataFrame(classic.ofRows(self.session._jsparkSession, table), self.session)
        frame = frame.toDF(*(f"c{number}" for number in range(len(numbers))))
        columns = [
            (sql.col(f"c{place}") if kind is None else sql.col(f"c{place}").cast(kind)).alias(
                f"k{i}"
            )
            for i, (place, kind) in enumerate(keys)
        ]
        known = frame.select(*columns).dropna()
        return known.groupBy(*known.columns).count().filter("count > 1").isEmpty()

    def _refuse_guesses(self, plan: JavaObject, view: str | None) -> None:
        """Refuse column types that Spark guesses from the rows or folders of files.

        A view that a program made and a table of the catalog have their types already. A view with a
        text has it analyzed again each time.
        """
        if view is not None and view not in self._with_text:
            return
        if kind_of(plan) == "LogicalRelation" and not plan.catalogTable().isDefined():
            files, form = plan.relation(), "FileFormat"
            if kind_of(files) != "HadoopFsRelation":
                return
            kind = kind_of(files.fileFormat())
        elif kind_of(plan) == "DataSourceV2Relation" and kind_of(plan.table()) in _FILE_TABLES:
            files, form = plan.table().fileIndex(), "Table"
            kind = kind_of(plan.table())
        else:
            return
        if not kind.endswith(tuple(f"{name}{form}" for name in _TYPED)):
            raise Dependent(
                f"the type of a column, guessed from the rows of a file ({kind.removesuffix(form)}),"
            )
        key = "spark.sql.sources.partitionColumnTypeInference.enabled"
        if files.partitionSchema().size() and self.session.conf.get(key, "true") == "true":
            raise Dependent(f"the type of a column, guessed from the names of folders (set {key}),")


def _more(rows: Rows, several: str | None) -> Rows:
    return Rows(rows.sources, rows.several or several)


def _by_place(plan: JavaObject, child: JavaObject, amounts: frozenset[int]) -> frozenset[int]:
    """Return the columns of a child in the positions of a plan's amounts."""
    pairs = zip(each(plan.output()), each(child.output()), strict=True)
    return frozenset(below.exprId().id() for own, below in pairs if own.exprId().id() in amounts)


def _conjuncts(condition: JavaObject) -> list[JavaObject]:
    if kind_of(condition) != "And":
        return [condition]
    return _conjuncts(condition.left()) + _conjuncts(condition.right())


def _asks_for_a_value(condition: JavaObject) -> bool:
    """Whether a condition requires that columns are not all NULL."""
    if kind_of(condition) != "IsNotNull":
        return False
    inside = condition.child()
    parts = each(inside.children()) if kind_of(inside) == "Coalesce" else [inside]
    return all(kind_of(part) == "AttributeReference" for part in parts)


def _distinct(origins: list[int]) -> frozenset[int]:
    """Return the columns that counts come from; refuse several counts of the same people."""
    counted = [origin for origin in origins if origin != _NOTHING]
    if len(set(counted)) < len(counted) or (_ROWS in counted and len(counted) > 1):
        raise Dependent("several counts of the same people, from one column or a constant,")
    return frozenset(counted) - {_ROWS}


def _joins_in_where(plan: JavaObject) -> bool:
    """Whether a condition compares the two sides of the join below it, as after FROM a, b."""
    join = plan.child()
    if kind_of(join) != "Join":
        return False
    sides = [
        {column.exprId().id() for column in each(side.output())}
        for side in (join.left(), join.right())
    ]
    return any(
        all(side & {column.exprId().id() for column in each(part.references())} for side in sides)
        for part in _conjuncts(plan.condition())
    )


def _amount(expression: JavaObject) -> int | None:
    """Return the column that a count comes from, a mark for a constant, None if it is changed."""
    expression = _unwrapped(expression)
    if kind_of(expression) == "AttributeReference":
        return int(expression.exprId().id())
    if kind_of(expression) == "Literal":
        return {"0": _NOTHING, "1": _ROWS}.get(str(expression.value()))
    return None


def _unwrapped(expression: JavaObject) -> JavaObject:
    """Return an expression without aliases, conversions to integers, and replacements of NULL by 0."""
    while True:
        kind = kind_of(expression)
        if kind == "Cast" and not _keeps_counts(expression):
            raise Dependent("a conversion that can change or lose a count,")
        if kind in ("Alias", "Cast"):
            expression = expression.child()
        elif kind == "Coalesce":
            first, *others = each(expression.children())
            if [str(other) for other in others] != ["0"]:
                return expression
            expression = first
        else:
            return expression


def _keeps_counts(cast: JavaObject) -> bool:
    """Whether a cast fails if it cannot keep a count: one to integers, by the ANSI rules."""
    origin, target = (
        str(kind.simpleString()) for kind in (cast.child().dataType(), cast.dataType())
    )
    if origin == target:
        return True
    if target not in _INTEGERS or _mode(cast) == "TRY":
        return False
    wider = origin in _INTEGERS and _INTEGERS.index(origin) < _INTEGERS.index(target)
    return wider or _mode(cast) == "ANSI"


def _mode(expression: JavaObject) -> str:
    return str(expression.evalMode().toString())


def _key(expression: JavaObject) -> tuple[int, str | None] | None:
    """Return a column and the type in which it is compared; None for other expressions."""
    if kind_of(expression) == "AttributeReference":
        return int(expression.exprId().id()), None
    if (
        kind_of(expression) == "Cast"
        and kind_of(expression.child()) == "AttributeReference"
        and _mode(expression) != "TRY"
    ):
        return int(expression.child().exprId().id()), str(expression.dataType().sql())
    return None
