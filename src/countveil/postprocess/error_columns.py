"""The error of published estimates: a standard error and an interval for each count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from countveil.count_interval import count_interval
from countveil.numerics import FloatArray, IntArray

COLUMNS = (
    pa.field("standard_error", pa.float64()),
    pa.field("lower", pa.int32()),
    pa.field("upper", pa.int32()),
)
_MOST = 2**31 - 1
_CLEAR = 2  # standard errors above 0

Unbiased = tuple[int, int, FloatArray, FloatArray]  # start, stop, values, standard errors


@dataclass(frozen=True, eq=False, slots=True)
class Errors:
    """Unbiased estimates of all cells of a level's units, some units after others, or none of a level.

    Intervals are of the count itself: of whole numbers, at least 0, and with this confidence. Cells
    whose estimate is 0 are not published, so one that is may have been lifted by noise: where it is not
    clear of 0, 0 is inside.
    """

    confidence: float
    batches: Callable[[str], Iterator[Unbiased] | None]

    def columns(self, estimate: IntArray, value: FloatArray, error: FloatArray) -> list[pa.Array]:
        """Return standard errors and the ends of intervals; none where nothing is determined."""
        known = np.isfinite(error)
        ends = count_interval(
            np.where(known, value, 0.0), np.where(known, error, 0.0), self.confidence
        )
        ends = (np.where(estimate <= _CLEAR * error, 0.0, ends[0]), ends[1])
        lower, upper = (
            pa.array(np.minimum(end, _MOST).astype(np.int32), mask=~known) for end in ends
        )
        return [pa.array(np.where(known, error, 0.0), mask=~known), lower, upper]


def without_errors(rows: int) -> list[pa.Array]:
    """Return the columns of counts of which nothing is determined."""
    return [pa.nulls(rows, column.type) for column in COLUMNS]
