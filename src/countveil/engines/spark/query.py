"""A query only reads: what runs a program, or is not listed as harmless, is refused before it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.java_gateway import JavaObject, is_instance_of
from pyspark.sql import SparkSession

from countveil.engines.spark.functions import (
    AGGREGATES,
    BARE_FUNCTIONS,
    GENERATORS,
    ROW_FUNCTIONS,
    TIMED,
    WINDOWS,
)
from countveil.errors import RecordsError

# They call any method of any class of Java.
_CALLERS = ("reflect", "java_method", "try_reflect")
_LITERAL = "org.apache.spark.sql.catalyst.expressions.Literal"


def bracketed(query: str) -> str:
    """Return a query within brackets: there Spark's grammar takes a query, and no other statement."""
    return f"SELECT * FROM ({query.strip().rstrip(';')}\n)"


def refuse_programs(session: SparkSession, query: str, label: str) -> None:
    """Refuse a query that runs a program, or calls a function not listed; it is parsed, and not run."""
    plan = session._jsparkSession.sessionState().sqlParser().parsePlan(query)
    for node in nodes_of(session.sparkContext._gateway, plan):
        what = _program(session.sparkContext._gateway, node)
        if what is not None:
            raise RecordsError(
                f"{label}: {what}; a query in [records] only reads records: take it out, or make a "
                f"table of the result beforehand and name that"
            )


def _program(gateway: Any, node: JavaObject) -> str | None:
    """Return what a node of a parsed query would run, if anything."""
    kind = class_of(node).rpartition(".")[2]
    if "ScriptTransformation" in kind:
        return "TRANSFORM … USING runs a command of the shell"
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


def nodes_of(gateway: Any, root: Any) -> Iterator[JavaObject]:
    """Yield all that a parsed query is built of, however it is nested: each node lists its parts."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, JavaObject) and class_of(node) != _LITERAL:
            yield node
            waiting += _parts(gateway, node)


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
