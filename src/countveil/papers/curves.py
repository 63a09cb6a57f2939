"""Curves as tables: a row for each x and series."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pyarrow as pa

from countveil.numerics import FloatArray


def evaluated(
    x: str, y: str, series: str, at: Iterable[float], of: Mapping[str, Callable[[float], float]]
) -> pa.Table:
    """Return y at each x for each series, in a long table."""
    points = [float(point) for point in at]
    rows = [(point, of[name](point), name) for name in of for point in points]
    return long(x, y, series, rows)


def long(x: str, y: str, series: str, rows: Iterable[tuple[float, float, str]]) -> pa.Table:
    """Return a table of rows (x, y, series)."""
    first, second, third = zip(*rows, strict=True)
    return pa.table({x: list(first), y: list(second), series: list(third)})


def spaced(low: float, high: float, points: int) -> FloatArray:
    """Return points that are evenly spaced on a logarithmic axis."""
    return np.geomspace(low, high, points)
