"""Proposals with whole weights: one table a coordinate, each weight at least its target's.

Only counts whose weight matters are listed; every other count of the range has the weight 1, which is
more than it needs, so that nothing possible is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from countveil.numerics import FloatArray, IntArray

_BITS = 44
NEGLIGIBLE = (_BITS + 1) * math.log(2)  # how far below the largest a log-weight is not listed


@dataclass(frozen=True, eq=False, slots=True)
class IntegerTables:
    """Whole weights n_j(k) of counts k = 0 … sizes[j] - 1 with n_j(k) >= scales[j]·w_j(k)."""

    sizes: IntArray
    lowest: IntArray
    widths: IntArray
    starts: IntArray
    ends: IntArray  # running sums of all listed weights, through all tables
    before: IntArray  # the running sum before each table
    listed: IntArray
    totals: IntArray
    scales: tuple[Fraction, ...]

    def find(self, table: IntArray, value: IntArray) -> IntArray:
        """Return the count that a uniform whole number below `totals[table]` picks."""
        low = self.lowest[table]
        inner = value - low
        last = self.listed[table]
        at = np.clip(inner, 0, last - 1) + self.before[table]
        listed = np.searchsorted(self.ends, at, side="right") - self.starts[table] + low
        after = self.widths[table] + low + (inner - last)
        return np.where(inner < 0, value, np.where(inner < last, listed, after))

    def weight(self, table: IntArray, count: IntArray) -> IntArray:
        """Return n of counts."""
        inner = count - self.lowest[table]
        inside = (inner >= 0) & (inner < self.widths[table])
        at = self.starts[table] + np.clip(inner, 0, self.widths[table] - 1)
        listed = self.ends[at] - np.where(inner > 0, self.ends[at - 1], self.before[table])
        return np.where(inside, listed, 1)

    def up_to(self, table: IntArray, count: IntArray) -> IntArray:
        """Return the sum of n over counts from 0 to `count`."""
        inner = count - self.lowest[table]
        width = self.widths[table]
        at = self.starts[table] + np.clip(inner, 0, width - 1)
        within = self.ends[at] - self.before[table] + self.lowest[table]
        beyond = self.listed[table] + count + 1 - width
        return np.where(inner < 0, count + 1, np.where(inner < width, within, beyond))


def build(
    sizes: Sequence[int],
    lowest: Sequence[int],
    log_weights: Sequence[FloatArray],
    error: float,
) -> IntegerTables:
    """Make tables from log-weights whose largest is 0, each within `error` of what it stands for."""
    weights, scales = [], []
    for part in log_weights:
        size = np.exp(part)
        scale = 2.0**_BITS / float(size.sum())
        weights.append(np.floor(size * scale).astype(np.int64) + 1)
        # Rounding of exp and of the product, and what the log-weights are off by.
        scales.append(Fraction(scale) * (1 - Fraction(2 * error + 2.0**-48)))
    listed = np.array([int(part.sum()) for part in weights], np.int64)
    widths = np.array([len(part) for part in weights], np.int64)
    return IntegerTables(
        sizes=np.array(sizes, np.int64),
        lowest=np.array(lowest, np.int64),
        widths=widths,
        starts=np.concatenate(([0], np.cumsum(widths)[:-1])),
        ends=np.cumsum(np.concatenate(weights)),
        before=np.concatenate(([0], np.cumsum(listed)[:-1])),
        listed=listed,
        totals=listed + np.array(sizes, np.int64) - widths,
        scales=tuple(scales),
    )
