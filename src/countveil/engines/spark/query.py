"""A query only reads: what runs a program, or is not listed as harmless, is refused before it runs.

The text of a query is parsed, and so is that of each SQL view that it reads. A view that a program made
of a DataFrame has no text, so operators and expressions of the analyzed plan are held to lists too.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from py4j.java_gateway import JavaObject, is_instance_of
from pyspark.sql import DataFrame, SparkSession

from countveil.engines.spark.functions import (
    AGGREGATES,
    BARE_FUNCTIONS,
    EXPRESSIONS,
    GENERATORS,
    OPERATORS,
    ROW_FUNCTIONS,
    TIMED,
    WINDOWS,
)
from countveil.errors import RecordsError

# They call any method of any class of Java.
_CALLERS = ("reflect", "java_method", "try_reflect")
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
_LITERAL = f"{_EXPRESSIONS}Literal"
_SUBQUERIES = ("Exists", "ListQuery", "ScalarSubquery", "LateralSubquery")
# Otherwise the parser makes rows of VALUES, and a date among them no longer shows how it was written.
_EAGER = "spark.sql.parser.eagerEvalOfUnresolvedInlineTable"
# A date or time that is written out in full; not 'today', and not '12:30', which is today's.
_WRITTEN_DATE = re.compile(r"""\w+\s*r?['"]\s*(epoch\b|[+-]?\d{4,7}(?![\d:]))""", re.IGNORECASE)
_DATES = ("date", "timestamp", "timestamp_ntz")
_CLOCK = "asks for the time"
_SAMPLE = "TABLESAMPLE returns other rows each time"
_PADDING = "org.apache.spark.sql.catalyst.util.CharVarcharCodegenUtils"  # of CHAR(n)


def bracketed(query: str) -> str:
    """Return a query within brackets: there Spark's grammar takes a query, and no other statement."""
    return f"SELECT * FROM ({query.strip().rstrip(';')}\n)"


def refuse_programs(session: SparkSession, query: str, label: str) -> None:
    """Refuse a query that runs a program, or calls a function not listed; it is parsed, and not run."""
    with _literal_rows(session):
        plan = session._jsparkSession.sessionState().sqlParser().parsePlan(query)
    for node in nodes_of(session.sparkContext._gateway, plan):
        what = _program(session.sparkContext._gateway, node)
        if what is not None:
            raise _no_reading(label, what)


def refuse_programs_in_views(frame: DataFrame, label: str) -> None:
    """Refuse the same where it is in a view, and whatever else the analyzed plan would not repeat."""
    texts = set[str]()
    for operator in operators_of(frame._jdf.queryExecution().analyzed()):
        kind = kind_of(operator)
        if kind == "View" and operator.desc().viewText().isDefined():
            texts.add(str(operator.desc().viewText().get()))
        what = _unlisted_operator(operator, kind)
        for part in own_parts_of(operator) if what is None else ():
            what = what or _unlisted_expression(part)
        if what is not None:
            raise _no_reading(label, what)
    for text in sorted(texts):
        refuse_programs(frame.sparkSession, text, label)


def _no_reading(label: str, what: str) -> RecordsError:
    return RecordsError(
        f"{label}: {what}; a query in [records] only reads records: take it out, or make a "
        f"table of the result beforehand and name that"
    )


@contextlib.contextmanager
def _literal_rows(session: SparkSession) -> Iterator[None]:
    """Have the parser leave VALUES as they are written."""
    before = session.conf.get(_EAGER, "true")
    session.conf.set(_EAGER, "false")
    try:
        yield
    finally:
        session.conf.set(_EAGER, str(before))


def _program(gateway: Any, node: JavaObject) -> str | None:
    """Return what a node of a parsed query would run, if anything."""
    kind = kind_of(node)
    if "ScriptTransformation" in kind:
        return "TRANSFORM … USING runs a command of the shell"
    if kind == "Sample":
        return _SAMPLE
    if kind == "Literal":
        return _clock(node)
    if is_instance_of(gateway, node, "org.apache.spark.sql.catalyst.plans.logical.Command"):
        return "holds a statement that is no SELECT"
    if kind.endswith("WithUnresolvedIdentifier"):
        return "IDENTIFIER(…) names what is only known when it runs"
    if kind.startswith("Unresolved") and ("Function" in kind or "Generator" in kind):
        names = [name.lower() for name in _texts(gateway, node.productElement(0))]
        for caller in _CALLERS:
            if caller in names:
                return f"the function {caller} runs Java"
        # An identifier of a generator begins with its name, others end with it.
        return _unlisted(node, kind, names[::-1] if "Generator" in kind else names)
    if kind == "UnresolvedAttribute":
        names = [name.lower() for name in _texts(gateway, node.productElement(0))]
        if len(names) == 1 and names[0] in BARE_FUNCTIONS:
            return f"{names[0]} is not in the records, and changes from run to run"
    return None


def _unlisted(node: JavaObject, kind: str, names: list[str]) -> str | None:
    """Return why a function is refused, if it is."""
    table = "TableValued" in kind
    known = GENERATORS if table else ROW_FUNCTIONS | AGGREGATES | WINDOWS | GENERATORS
    # system.builtin.upper is Spark's own; a schema's function is somebody's program.
    own = names[:-1] in ([], ["builtin"], ["system", "builtin"], ["", ""])
    name = names[-1] if names else ""
    if name in TIMED and kind == "UnresolvedFunction" and not node.arguments().size():
        return f"the function {name} without arguments asks for the time"
    if own and name in known:
        return None
    what = "table function" if table else "function"
    return (
        f"the {what} {'.'.join(filter(None, names))} is not allowed: it is unknown, has an effect, or "
        f"returns something else each time"
    )


def _clock(literal: JavaObject) -> str | None:
    """Return that a literal is the time of the run, such as DATE 'today'; None if it is written out."""
    if str(literal.dataType().simpleString()) not in _DATES:
        return None
    origin = literal.origin()
    if origin.sqlText().isEmpty() or origin.startIndex().isEmpty():
        return None  # a program made it, of a date
    first, last = origin.startIndex().get(), origin.stopIndex().get()
    text = str(origin.sqlText().get())[first : last + 1]
    if not literal.value() or _WRITTEN_DATE.match(text):
        return None
    return f"{text} {_CLOCK}; write the date out"


def _unlisted_operator(operator: JavaObject, kind: str) -> str | None:
    if kind == "Sample":
        return _SAMPLE
    if kind in OPERATORS or not operator.children().size():
        return None
    return f"the operator {kind} in a view is not allowed: it runs a program, or is unknown"


def _unlisted_expression(part: JavaObject) -> str | None:
    """Return why an expression of an analyzed plan is refused, if it is."""
    name, kind = class_of(part), kind_of(part)
    if kind == "StaticInvoke" and str(part.staticObject().getName()) == _PADDING:
        return None
    if not name.startswith(_EXPRESSIONS) or kind not in EXPRESSIONS:
        return (
            f"the function {part.prettyName()} in a view is not allowed: it is unknown, has an effect, "
            f"or returns something else each time"
        )
    if kind in ("Cast", "ParseToTimestamp"):
        return _undated(part, kind)
    return None


def _undated(part: JavaObject, kind: str) -> str | None:
    """Return that a conversion to a time takes the date from the clock, as that of '12:30' does."""
    target = str(part.dataType().simpleString())
    if kind == "Cast":
        origin = str(part.child().dataType().simpleString())
    else:
        origin = str(part.left().dataType().simpleString())
        if part.format().isDefined():
            return None
    text = target == "timestamp" and origin.startswith(("string", "char", "varchar"))
    if not text and not (target in _DATES and origin.startswith("time(")):
        return None
    return (
        f"a conversion of {origin} to {target} takes today's date where there is none (use "
        f"to_timestamp with a format, or convert to DATE or TIMESTAMP_NTZ)"
    )


def operators_of(plan: JavaObject) -> Iterator[JavaObject]:
    """Yield all operators of an analyzed plan, those within views and sub-queries too."""
    yield plan
    for child in each(plan.children()):
        yield from operators_of(child)
    for part in own_parts_of(plan):
        if kind_of(part) in _SUBQUERIES:
            yield from operators_of(part.plan())


def own_parts_of(operator: JavaObject) -> Iterator[JavaObject]:
    """Yield the expressions of one operator, and all they are made of but sub-queries' plans."""
    if not operator.children().size():
        return
    waiting = list(each(operator.expressions()))
    while waiting:
        part = waiting.pop()
        yield part
        waiting += each(part.children())


def nodes_of(gateway: Any, root: Any) -> Iterator[JavaObject]:
    """Yield all that a parsed query is built of, however it is nested: each node lists its parts."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, JavaObject):
            yield node
            waiting += _parts(gateway, node) if class_of(node) != _LITERAL else ()


def _parts(gateway: Any, node: JavaObject) -> Iterator[Any]:
    # Lists are products too, of a head and a tail, and would be walked as deep as they are long.
    if is_instance_of(gateway, node, "scala.collection.Iterable"):
        parts = node.iterator()
    elif is_instance_of(gateway, node, "scala.Product"):
        parts = node.productIterator()
    else:
        return
    while parts.hasNext():
        yield parts.next()


def _texts(gateway: Any, part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, JavaObject):
        for inner in _parts(gateway, part):
            yield from _texts(gateway, inner)


def class_of(node: JavaObject) -> str:
    """Return the name of a node's class."""
    return str(node.getClass().getName())


def kind_of(node: JavaObject) -> str:
    """Return the name of a node's class without its package."""
    return class_of(node).rpartition(".")[2]


def each(sequence: Any) -> Iterator[JavaObject]:
    """Yield the elements of a collection of Scala."""
    parts = sequence.iterator()
    while parts.hasNext():
        yield parts.next()
