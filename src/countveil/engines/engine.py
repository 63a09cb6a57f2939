"""What an engine is, and the registry of engines; each is imported when it is opened."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import Protocol

from countveil.engines.counts import Counts
from countveil.engines.workers import Workers
from countveil.errors import InputError, MissingExtra
from countveil.plan.plan_basis import PlanBasis


class Engine(Protocol):
    """Counts records where they are, and has workers for what follows."""

    name: str

    def tabulate(self, plan: PlanBasis) -> Counts:
        """Return the counts of every level, once the records are checked against the plan."""
        ...

    def workers(self, number: int | None = None) -> AbstractContextManager[Workers]:
        """Return workers to measure and post-process; `number` of them, if that can be chosen."""
        ...


def _local(show_values: bool) -> Engine:
    from countveil.engines.local.local_engine import LocalEngine

    return LocalEngine(show_values=show_values)


def _spark(show_values: bool) -> Engine:
    if find_spec("pyspark") is None:
        raise MissingExtra("the spark engine needs pyspark: pip install 'countveil[spark]'")
    from countveil.engines.spark.spark_engine import SparkEngine

    return SparkEngine(show_values=show_values)


OPENERS: dict[str, Callable[[bool], Engine]] = {"local": _local, "spark": _spark}


def open_engine(name: str = "local", *, show_values: bool = False) -> Engine:
    """Open an engine, which counts records where they are.

    Parameters
    ----------
    name
        "local" (DuckDB, on this machine) or "spark".
    show_values
        Whether messages may quote values taken from records.

    Returns
    -------
    Engine
        Its `tabulate(plan)` returns confidential counts.

    Raises
    ------
    InputError
        If there is no engine of that name, or its package is not installed.

    Examples
    --------
    >>> open_engine("local").name
    'local'

    """
    if name not in OPENERS:
        raise InputError(f"unknown engine {name!r}; choose from {', '.join(OPENERS)}")
    return OPENERS[name](show_values)
