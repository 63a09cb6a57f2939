"""The engines a plan can run on; each loads when it is opened."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from countveil.errors import InputError, MissingExtra
from countveil.tabulate.engine import Engine


def _local(show_values: bool) -> Engine:
    from countveil.engines.local import LocalEngine

    return LocalEngine(show_values=show_values)


def _spark(show_values: bool) -> Engine:
    if find_spec("pyspark") is None:
        raise MissingExtra("the spark engine needs pyspark: pip install 'countveil[spark]'")
    from countveil.engines.spark import SparkEngine

    return SparkEngine(show_values=show_values)


OPENERS: dict[str, Callable[[bool], Engine]] = {"local": _local, "spark": _spark}
ENGINES = tuple(OPENERS)


def open_engine(name: str = "local", *, show_values: bool = False) -> Engine:
    """Return an engine; `show_values` lets messages quote values taken from records."""
    if name not in OPENERS:
        raise InputError(f"no engine {name!r}; choose from {', '.join(OPENERS)}")
    return OPENERS[name](show_values)
