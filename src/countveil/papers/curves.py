"""Curves as tables: one row for each x and series."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pyarrow as pa

from countveil.base.numerics import FloatArray


def evaluate_curves(
    x: str, y: str, series: str, at: Iterable[float], of: Mapping[str, Callable[[float], float]]
) -> pa.Table:
    """Return y at each x for each series, in a long table."""
    points = [float(point) for point in at]
    rows = [(point, of[name](point), name) for name in of for point in points]
    return long_table(x, y, series, rows)


def long_table(x: str, y: str, series: str, rows: Iterable[tuple[float, float, str]]) -> pa.Table:
    """Return a table of rows (x, y, series)."""
    first, second, third = zip(*rows, strict=True)
    return pa.table({x: list(first), y: list(second), series: list(third)})


def log_spaced(low: float, high: float, points: int) -> FloatArray:
    """Return points that are evenly spaced on a logarithmic axis."""
    return np.geomspace(low, high, points)
