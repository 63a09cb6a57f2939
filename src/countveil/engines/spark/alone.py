"""Whether a person's rows depend on that person's records alone, decided on Spark's analyzed plan.

The rule is that of `engines.query.alone`. Spark has resolved names here: views are looked into, and
columns are known by their number, so `amounts` are the numbers of columns that hold a count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from countveil.engines import rules
from countveil.engines.query.alone import Rows, Together
from countveil.engines.spark.query import class_of, nodes_of
from countveil.schema.plan_file import RecordsSection

_WRITTEN_OUT = ("LocalRelation", "OneRowRelation", "Range", "EmptyRelation")
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
_NUMBERS = ("bigint", "int", "smallint", "tinyint", "double", "string", "decimal(20,0)")


def refuse_dependent(frame: DataFrame, records: RecordsSection, label: str) -> None:
    """Refuse a query whose rows depend on several people, unless the plan attests that they do not."""
    if records.each_person_alone:
        return
    plan = frame._jdf.queryExecution().analyzed()
    judge = _Judge(frame.sparkSession, frozenset(name.lower() for name in records.public_tables))
    amounts = frozenset(
        column.exprId().id()
        for column in _each(plan.output())
        if records.counts is not None and column.name() == records.counts
    )
    try:
        rows = judge.judge(plan, amounts, None)
    except Together as error:
        raise rules.depends_on_others(label, str(error)) from None
    if not rows.sources and judge.uses_public:
        raise rules.all_public(label)
    if rows.several is not None and records.person_id is None:
        raise rules.several_rows(label, rows.several)


@dataclass(slots=True)
class _Judge:
    """`view` is the view that a part of the plan lies in: all in it that is written out is records."""

    session: SparkSession
    public: frozenset[str]
    uses_public: bool = False
    _common: dict[int, JavaObject] = field(default_factory=dict)

    def judge(self, plan: JavaObject, amounts: frozenset[int], view: str | None) -> Rows:
        """Return what a plan yields; raise `Together` where people's rows depend on each other."""
        kind = _kind(plan)
        if kind == "WithCTE":
            self._keep(plan)
            return self.judge(plan.plan(), amounts, view)
        sources = self.sources(plan, view)
        if not sources:
            return Rows(sources)
        if kind == "View":
            return self.judge(plan.child(), amounts, self._name(plan))
        if kind == "CTERelationRef":
            below = self._common[plan.cteId()].child()
            return self.judge(below, _by_place(plan, below, amounts), view)
        if not plan.children().size():
            self._refuse_guesses(plan, view)
            return Rows(sources)
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
            raise Together(_WORDS.get(kind, kind.upper()))
        return steps[kind](plan, amounts, view)

    def sources(self, plan: JavaObject, view: str | None) -> frozenset[str]:
        """Return the confidential tables that a plan reads."""
        kind = _kind(plan)
        if kind == "WithCTE":
            self._keep(plan)
            return self.sources(plan.plan(), view)
        if kind == "CTERelationRef":
            if plan.cteId() not in self._common:
                return frozenset({"a recursive query"})
            return self.sources(self._common[plan.cteId()].child(), view)
        if kind == "View":
            return frozenset() if self._declared(plan) else frozenset({f"view {self._name(plan)}"})
        children = list(_each(plan.children()))
        if (
            not children
            and not (kind in _WRITTEN_OUT and view is None)
            and not self._declared(plan)
        ):
            return frozenset({view or _identity(plan)})
        below = [self.sources(child, view) for child in children]
        below += [
            self.sources(part.plan(), view)
            for part in self._expressions(plan)
            if _kind(part) in _SUBQUERIES
        ]
        return frozenset[str]().union(*below)

    def _keep(self, plan: JavaObject) -> None:
        for definition in _each(plan.cteDefs()):
            self._common[definition.id()] = definition

    def _name(self, view: JavaObject) -> str:
        return str(view.desc().identifier().unquotedString()).lower()

    def _declared(self, plan: JavaObject) -> bool:
        """Whether a table or view is one that the plan of the release declares public."""
        current = str(self.session.catalog.currentDatabase()).lower()
        found = False
        for name in _names(plan):
            parts = name.split(".")
            short = [parts[-1]] if len(parts) == 1 or parts[-2] == current else []
            found |= bool({name, ".".join(parts[-2:]), *short} & self.public)
        self.uses_public |= found
        return found

    def _expressions(self, plan: JavaObject) -> Iterator[JavaObject]:
        for expression in _each(plan.expressions()):
            yield from self._parts(expression)

    def _parts(self, expression: JavaObject) -> Iterator[JavaObject]:
        """Yield the parts of an expression, and those of its sub-queries' plans."""
        yield from nodes_of(self.session.sparkContext._gateway, expression)

    def _row_wise(self, expression: JavaObject, amounts: frozenset[int], view: str | None) -> None:
        """Refuse an expression that looks beyond its row, or at the count of a row."""
        if not expression.deterministic():
            raise Together("a function that returns something else each time")
        parts = list(self._parts(expression))
        kinds = [_kind(part) for part in parts]
        queries = [part for part, kind in zip(parts, kinds, strict=True) if kind in _SUBQUERIES]
        if any(self.sources(query.plan(), view) for query in queries):
            raise Together("a sub-query over records")
        if "WindowExpression" in kinds:
            raise Together("a window function")
        if "AggregateExpression" in kinds:
            raise Together("an aggregate in a sub-query" if queries else "an aggregate")
        if any("UDF" in kind or kind == "CallMethodViaReflection" for kind in kinds):
            raise Together("a function that is not Spark's own")
        for part, kind in zip(parts, kinds, strict=True):
            if kind != "AttributeReference":
                continue
            if part.name() == "_metadata":
                raise Together("the column _metadata, the place of a row among others,")
            if part.exprId().id() in amounts:
                raise Together("an expression or a condition on a column of counts")

    def _project(self, plan: JavaObject, amounts: frozenset[int], view: str | None) -> Rows:
        inner, others = set[int](), []
        for item in _each(plan.projectList()):
            if item.exprId().id() not in amounts:
                others.append(item)
                continue
            origin = _amount(item)
            if origin is None:
                raise Together("an expression on a column of counts")
            inner |= {origin} - {-1}
        for item in others:
            self._row_wise(item, amounts | inner, view)
        return self.judge(plan.child(), frozenset(inner), view)

    def _filter(self, plan: JavaObject, amounts: frozenset[int], view: str | None) -> Rows:
        for condition in _conjuncts(plan.condition()):
            if not _asks_for_a_value(condition):  # as UNPIVOT does
                self._row_wise(condition, amounts, view)
        return self.judge(plan.child(), amounts, view)

    def _union(self, plan: JavaObject, amounts: frozenset[int], view: str | None) -> Rows:
        rows = Rows(frozenset())
        for child in _each(plan.children()):
            below = self.judge(child, _by_place(plan, child, amounts), view)
            several = rows.several or below.several
            if below.sources & rows.sources:
                several = several or "UNION ALL of the same records"
            rows = Rows(rows.sources | below.sources, several)
        return rows

    def _expand(self, plan: JavaObject, amounts: frozenset[int], view: str | None) -> Rows:
        """Judge UNPIVOT, which Spark makes copies of each row for."""
        places = [
            place
            for place, column in enumerate(_each(plan.output()))
            if column.exprId().id() in amounts
        ]
        inner, several = list[int](), None
        for projection in _each(plan.projections()):
            for place, item in enumerate(_each(projection)):
                origin = _amount(item) if place in places else None
                if place in places and (origin is None or origin < 0):
                    raise Together("an expression on a column of counts")
                if origin is not None:
                    inner.append(origin)
        held = frozenset(inner)
        for projection in _each(plan.projections()):
            for place, item in enumerate(_each(projection)):
                if place not in places:
                    self._row_wise(item, held, view)
        if not places or len(held) < len(inner):
            several = "UNPIVOT"
        return _more(self.judge(plan.child(), held, view), several)

    def _generate(self, plan: JavaObject, amounts: frozenset[int], view: str | None) -> Rows:
        self._row_wise(plan.generator(), amounts, view)
        return _more(self.judge(plan.child(), amounts, view), "explode and the like")

    def _lateral(self, plan: JavaObject, amounts: frozenset[int], view: str | None) -> Rows:
        self._row_wise(plan.right(), amounts, view)
        if _kind(plan.joinType()) not in ("Inner$", "Cross$", "LeftOuter$"):
            raise Together("a lateral join")
        return _more(self.judge(plan.left(), amounts, view), "LATERAL")

    def _aggregate(self, plan: JavaObject, amounts: frozenset[int], view: str | None) -> Rows:
        inner, others, counts = set[int](), list(_each(plan.groupingExpressions())), 0
        for item in _each(plan.aggregateExpressions()):
            kinds = [_kind(part) for part in self._parts(item)]
            if "AggregateExpression" not in kinds and item.exprId().id() not in amounts:
                others.append(item)
                continue
            origin = self._added_up(item, others)
            if item.exprId().id() not in amounts or origin is None:
                raise Together("an aggregate other than count(*) or sum(n) for records.counts")
            inner |= {origin} - {-1}
            counts += 1
        if counts != 1:
            raise Together("GROUP BY without exactly one count")
        for item in others:
            self._row_wise(item, amounts | inner, view)
        return self.judge(plan.child(), frozenset(inner), view)

    def _added_up(self, item: JavaObject, others: list[JavaObject]) -> int | None:
        """Return the column that a count adds up, -1 where it counts rows; None for the rest."""
        item = _unwrapped(item)
        if _kind(item) != "AggregateExpression" or item.isDistinct():
            return None
        if item.filter().isDefined():
            others.append(item.filter().get())
        function = item.aggregateFunction()
        if _kind(function) == "Count":
            others += _each(function.children())
            return -1
        return _amount(function.child()) if _kind(function) == "Sum" else None

    def _join(self, plan: JavaObject, amounts: frozenset[int], view: str | None) -> Rows:
        left, right = (self.sources(side, view) for side in (plan.left(), plan.right()))
        if left and right:
            raise Together("a join of records with records")
        kind = _kind(plan.joinType())
        kinds = ["Inner$", "Cross$", "RightOuter$"]
        if left:
            kinds = ["Inner$", "Cross$", "LeftOuter$", "LeftSemi$", "LeftAnti$"]
        if kind not in kinds:
            raise Together(f"{kind.rstrip('$')} join, which keeps rows of the public table,")
        own, other = (plan.left(), plan.right()) if left else (plan.right(), plan.left())
        numbers = [column.exprId().id() for column in _each(other.output())]
        if amounts & set(numbers):
            raise Together("a count that is not from the records")
        conditions = [] if plan.condition().isEmpty() else _conjuncts(plan.condition().get())
        for condition in conditions:
            self._row_wise(condition, amounts, view)
        rows = self.judge(own, amounts, view)
        if kind in ("LeftSemi$", "LeftAnti$") or self._matches_once(other, numbers, conditions):
            return rows
        return _more(rows, "a join to a public table that may match several of its rows")

    def _matches_once(
        self, table: JavaObject, numbers: list[int], conditions: list[JavaObject]
    ) -> bool:
        """Whether the keys of a public table differ, so that a record meets one of its rows at most."""
        keys: list[tuple[int, str | None]] = []
        for condition in conditions:
            if _kind(condition) != "EqualTo":
                continue
            sides = (condition.left(), condition.right())
            for mine, theirs in (sides, sides[::-1]):
                own = {
                    part.exprId().id()
                    for part in self._parts(mine)
                    if _kind(part) == "AttributeReference"
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
        """Refuse types that Spark guesses from the rows or folders of files that a query names."""
        if view is not None or _kind(plan) != "LogicalRelation" or plan.catalogTable().isDefined():
            return
        relation = plan.relation()
        if _kind(relation) != "HadoopFsRelation":
            return
        if _kind(relation.fileFormat()) in ("JsonFileFormat", "XmlFileFormat"):
            raise Together("the type of a column, guessed from the rows of a file,")
        key = "spark.sql.sources.partitionColumnTypeInference.enabled"
        if relation.partitionSchema().size() and self.session.conf.get(key, "true") == "true":
            raise Together(f"the type of a column, guessed from the names of folders (set {key}),")


def _kind(node: JavaObject) -> str:
    return class_of(node).rpartition(".")[2]


def _each(sequence: Any) -> Iterator[JavaObject]:
    parts = sequence.iterator()
    while parts.hasNext():
        yield parts.next()


def _more(rows: Rows, several: str | None) -> Rows:
    return Rows(rows.sources, rows.several or several)


def _by_place(plan: JavaObject, child: JavaObject, amounts: frozenset[int]) -> frozenset[int]:
    """Return the columns of a child that stand where a plan has its amounts."""
    pairs = zip(_each(plan.output()), _each(child.output()), strict=True)
    return frozenset(below.exprId().id() for own, below in pairs if own.exprId().id() in amounts)


def _conjuncts(condition: JavaObject) -> list[JavaObject]:
    if _kind(condition) != "And":
        return [condition]
    return _conjuncts(condition.left()) + _conjuncts(condition.right())


def _asks_for_a_value(condition: JavaObject) -> bool:
    """Whether a condition is that columns are not all NULL."""
    if _kind(condition) != "IsNotNull":
        return False
    inside = condition.child()
    parts = _each(inside.children()) if _kind(inside) == "Coalesce" else [inside]
    return all(_kind(part) == "AttributeReference" for part in parts)


def _amount(expression: JavaObject) -> int | None:
    """Return the column that a count is passed on from, -1 for 0 or 1, None where it is changed."""
    expression = _unwrapped(expression)
    if _kind(expression) == "AttributeReference":
        return int(expression.exprId().id())
    if _kind(expression) == "Literal" and str(expression.value()) in ("0", "1"):
        return -1
    return None


def _unwrapped(expression: JavaObject) -> JavaObject:
    """Return what is inside a name, conversions to a number, and replacements of NULL by 0."""
    while True:
        kind = _kind(expression)
        if kind == "Cast" and expression.dataType().simpleString() not in _NUMBERS:
            return expression
        if kind in ("Alias", "Cast"):
            expression = expression.child()
        elif kind == "Coalesce":
            first, *others = _each(expression.children())
            if [str(other) for other in others] != ["0"]:
                return expression
            expression = first
        else:
            return expression


def _key(expression: JavaObject) -> tuple[int, str | None] | None:
    """Return a column, and the type that it is compared as; None for other expressions."""
    if _kind(expression) == "AttributeReference":
        return int(expression.exprId().id()), None
    if _kind(expression) == "Cast" and _kind(expression.child()) == "AttributeReference":
        return int(expression.child().exprId().id()), str(expression.dataType().sql())
    return None


def _names(plan: JavaObject) -> list[str]:
    """Return the names by which a plan could declare a table: its own, or its files."""
    kind = _kind(plan)
    if kind == "View":
        return [str(plan.desc().identifier().unquotedString()).lower()]
    if kind == "HiveTableRelation":
        return [str(plan.tableMeta().identifier().unquotedString()).lower()]
    if kind == "LogicalRelation":
        if plan.catalogTable().isDefined():
            return [str(plan.catalogTable().get().identifier().unquotedString()).lower()]
        return [path.lower() for path in _paths(plan)]
    if kind == "DataSourceV2Relation":
        return [str(plan.name()).replace("`", "").lower()]
    return []


def _paths(relation: JavaObject) -> list[str]:
    if _kind(relation.relation()) != "HadoopFsRelation":
        return []
    return [str(path.toString()) for path in _each(relation.relation().location().rootPaths())]


def _identity(plan: JavaObject) -> str:
    """Return a text that is the same for two readings of one table."""
    names = _names(plan) or [str(plan.canonicalized().toString())]
    return f"{_kind(plan)} {', '.join(sorted(names))}"
