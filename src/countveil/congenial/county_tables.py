"""Tables of counties beside public totals: cases alone, or cases and deaths, checked once.

A table is an array of cases, one for each county, or of two columns, cases and deaths. Many tables are
stacked in front: (tables, counties, 2), or (tables, counties, 1) for cases alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from countveil.errors import InfeasibleError, InputError
from countveil.numerics import FloatArray, IntArray

_MOST = 2**40  # beyond it floats no longer hold a count and some decimals


@dataclass(frozen=True, slots=True)
class PublicTotals:
    """The public sum of cases of every group of counties; a state without groups is one group."""

    rows: tuple[tuple[int, ...], ...]
    sums: tuple[int, ...]

    def __iter__(self) -> Iterator[tuple[list[int], int]]:
        """Yield the rows of each group, and its total."""
        return zip(map(list, self.rows), self.sums, strict=True)

    def name(self, group: int) -> str:
        """Return how a message calls the total of a group."""
        return _named(group, len(self.sums))


def public_totals(
    counties: int,
    total: int | None,
    groups: Sequence[int] | None,
    totals: Sequence[int] | None,
) -> PublicTotals:
    """Return one total of all counties, or one for each group; `groups` numbers that of each county."""
    if (total is None) == (totals is None) or (groups is None) != (totals is None):
        raise InputError("give either total=, or groups= and totals=, not both and not neither")
    members = np.zeros(counties, np.int64) if groups is None else np.asarray(groups)
    if members.shape != (counties,) or members.dtype.kind not in "iu":
        raise InputError(
            f"groups: its shape is {members.shape}; give the number of its group, from 0, for each of "
            f"{counties} counties"
        )
    numbers = sorted(set(members.tolist()))
    if numbers != list(range(len(numbers))):
        raise InputError(f"groups: {numbers} came; number them 0, 1, 2 …")
    sums = [total] if totals is None else list(totals)
    if len(sums) != len(numbers):
        raise InputError(f"totals: {len(sums)} came for {len(numbers)} groups; give one for each")
    rows = tuple(tuple(np.flatnonzero(members == group).tolist()) for group in numbers)
    checked = tuple(_whole(s, _named(group, len(sums))) for group, s in enumerate(sums))
    return PublicTotals(rows, checked)


def stacked(table: ArrayLike, name: str) -> tuple[FloatArray, tuple[int, ...]]:
    """Return a table, or many, as (tables, counties, columns), and the shape that came."""
    try:
        values = np.asarray(table, np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"{name}: not an array of numbers; give cases, or cases and deaths"
        ) from None
    shape = values.shape
    if values.ndim == 1:
        values = values[None, :, None]
    elif values.ndim == 2:
        values = values[None]
    if values.ndim != 3 or values.shape[2] not in (1, 2) or 0 in values.shape:
        raise InputError(
            f"{name}: its shape is {shape}; give (counties,) for cases, (counties, 2) for cases and "
            f"deaths, or many of them as (tables, counties, 2)"
        )
    if not np.isfinite(values).all() or np.abs(values).max() > _MOST:
        raise InputError(f"{name}: all must be finite numbers of size at most {_MOST:,}")
    return values, shape


def true_counts(counts: ArrayLike) -> IntArray:
    """Return counts as (counties, columns); refuse what no count of cases and deaths is."""
    values, _ = stacked(counts, "counts")
    if len(values) != 1:
        raise InputError(f"counts: {len(values):,} tables came; give one")
    table: FloatArray = values[0]
    if (table != np.floor(table)).any():
        raise InputError("counts: some are no whole numbers; counts are of people")
    if (table < 0).any():
        county, column = np.argwhere(table < 0)[0]
        raise InputError(
            f"counts: {table[county, column]:.0f} {('cases', 'deaths')[column]} in row {county}; "
            f"negative counts are corrections of earlier months: set them to 0, or correct those months"
        )
    if table.shape[1] == 2 and (table[:, 1] > table[:, 0]).any():
        county = int(np.argmax(table[:, 1] > table[:, 0]))
        raise InputError(
            f"counts: {table[county, 1]:.0f} deaths and {table[county, 0]:.0f} cases in row {county}; "
            f"deaths are at most the cases: count both in the same month, or lower the deaths"
        )
    whole: IntArray = table.astype(np.int64)
    return whole


def _whole(value: int | None, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputError(f"{name}: {value!r} is no whole number; a total is one of people")
    if value < 0:
        raise InfeasibleError(
            f"{name}: {value:,} came, and counts that are not negative sum to no such number"
        )
    if value > _MOST:
        raise InputError(f"{name}: {value:,} came; it is at most {_MOST:,}")
    return int(value)


def _named(group: int, groups: int) -> str:
    return "total" if groups == 1 else f"total of group {group}"
