"""What a query may not hold: whatever runs a program is refused before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.java_gateway import JavaObject, is_instance_of
from pyspark.sql import SparkSession

from countveil.errors import RecordsError

# They call any method of any class of Java.
_CALLERS = ("reflect", "java_method", "try_reflect")
_LITERAL = "org.apache.spark.sql.catalyst.expressions.Literal"


def bracketed(query: str) -> str:
    """Return a query within brackets: there Spark's grammar takes a query, and no other statement."""
    return f"SELECT * FROM ({query.strip().rstrip(';')}\n)"


def refuse_programs(session: SparkSession, query: str, label: str) -> None:
    """Refuse a query that would run a command of the shell, or Java; it is parsed, and not run."""
    plan = session._jsparkSession.sessionState().sqlParser().parsePlan(query)
    for node in _nodes(session.sparkContext._gateway, plan):
        what = _program(session.sparkContext._gateway, node)
        if what is not None:
            raise RecordsError(
                f"{label}: {what}; a query selects records and runs no program: take it out, or make "
                f"a table of the result beforehand and name that"
            )


def _program(gateway: Any, node: JavaObject) -> str | None:
    """Return what a node of a parsed query would run, if anything."""
    kind = _class(node).rpartition(".")[2]
    if "ScriptTransformation" in kind:
        return "TRANSFORM … USING runs a command of the shell"
    if is_instance_of(gateway, node, "org.apache.spark.sql.catalyst.plans.logical.Command"):
        return "holds a statement that is no SELECT"
    if kind.endswith("WithUnresolvedIdentifier"):
        return "IDENTIFIER(…) names what is only known when it runs"
    if kind.startswith("Unresolved") and ("Function" in kind or "Generator" in kind):
        names = {name.lower() for name in _texts(gateway, node.productElement(0))}
        for caller in _CALLERS:
            if caller in names:
                return f"the function {caller} runs Java"
    return None


def _nodes(gateway: Any, root: Any) -> Iterator[JavaObject]:
    """Yield all that a parsed query is built of, however it is nested: each node lists its parts."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, JavaObject) and _class(node) != _LITERAL:
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


def _class(node: JavaObject) -> str:
    return str(node.getClass().getName())
