"""Exact counts at every level: confidential, sparse, and with a repr that shows no cell."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from countveil.base.histograms import Entries, Histograms, roll_up, store
from countveil.base.numerics import IntArray
from countveil.base.spill_folder import private_folder
from countveil.errors import InputError, RecordsError
from countveil.plan.geography import Geography
from countveil.plan.workload import Query

LARGEST_COUNT = 2**30  # so that a count and its noise fit in 32 bits
_CHUNK = 1 << 20


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Counts:
    """The exact counts of every level. Confidential: they leave through `measure.take` only."""

    geography: Geography
    cells: int
    levels: dict[str, Histograms]
    counted_as: str
    rows_read: IntArray | None = None  # of each lowest unit, if rows per person are limited

    def __repr__(self) -> str:
        return f"<confidential counts of {len(self.levels)} levels, {self.cells:,} cells per unit>"

    def __reduce__(self) -> Any:
        raise InputError(
            "confidential counts cannot be pickled; tabulate them where they are needed"
        )

    def entries(self, level: str, start: int, stop: int) -> Entries:
        """Return (unit - start, cell, count) of the non-zero cells of units start … stop - 1."""
        return self.levels[level].entries(start, stop)

    def rows_dropped(self, level: str) -> IntArray | None:
        """Return the rows of each unit beyond a person's limit, or None without a limit."""
        if self.rows_read is None:
            return None
        lowest = self.levels[self.geography.levels[-1]]
        running = np.concatenate(([0], np.cumsum(lowest.counts, dtype=np.int64)))
        dropped = self.rows_read - (running[lowest.offsets[1:]] - running[lowest.offsets[:-1]])
        for number in range(len(self.geography.levels) - 1, self.geography.index(level), -1):
            units = self.geography.units(self.geography.levels[number - 1])
            dropped = np.bincount(self.geography.parents[number], dropped, units)
        return np.asarray(dropped, np.int64)

    def keyed_hash(self, key: bytes) -> str:
        """Return an HMAC of the lowest level: it shows the owner of the key whether records changed."""
        lowest = self.levels[self.geography.levels[-1]]
        digest = hmac.new(key, b"countveil counts 1", hashlib.sha256)
        digest.update(str(self.cells).encode())
        for array in (lowest.offsets, lowest.cells, lowest.counts):
            for start in range(0, len(array), _CHUNK):
                digest.update(np.ascontiguousarray(array[start : start + _CHUNK]).data)
        return digest.hexdigest()


def build(
    geography: Geography,
    cells: int,
    entries: Iterable[Entries],
    counted_as: str,
    rows_read: IntArray | None = None,
) -> Counts:
    """Return the counts of all levels from sorted (unit, cell, count) of the lowest.

    `counted_as` is the plan's `counting_digest`, which identifies what is counted. `rows_read` has the
    rows of each lowest unit before those beyond a person's limit are dropped.
    """
    levels: dict[str, Histograms] = {}
    with private_folder() as folder:
        stream: Iterator[Entries] = iter(entries)
        for index in range(len(geography.levels) - 1, -1, -1):
            level = geography.levels[index]
            levels[level] = store(_not_large(stream), geography.units(level), folder)
            stream = roll_up(levels[level], geography.parents[index], cells)
    _refuse_large(levels[geography.levels[0]])
    ordered = {level: levels[level] for level in geography.levels}
    return Counts(geography, cells, ordered, counted_as, rows_read)


def _not_large(entries: Iterator[Entries]) -> Iterator[Entries]:
    for unit, cell, count in entries:
        if len(count) and int(count.max()) > LARGEST_COUNT:
            raise _too_large()
        yield unit, cell, count


def _refuse_large(top: Histograms) -> None:
    """Refuse a top unit whose total, the largest count that any query can have, is too large."""
    running = np.concatenate(([0], np.cumsum(top.counts, dtype=np.int64)))
    if int((running[top.offsets[1:]] - running[top.offsets[:-1]]).max()) > LARGEST_COUNT:
        raise _too_large()


def _too_large() -> RecordsError:
    return RecordsError(
        f"a unit has more than {LARGEST_COUNT:,} people, the largest count supported; split the data"
    )


def exact_answers(counts: Counts, level: str, start: int, stop: int, query: Query) -> IntArray:
    """Return the exact counts of a query for units start … stop - 1, as units × cells.

    Internal: only what compares a release with its records may use it.
    """
    unit, cell, count = counts.entries(level, start, stop)
    place = query.cells_at(cell)
    kept = place >= 0
    key = unit[kept] * query.cells + place[kept]
    exact: IntArray = np.bincount(key, count[kept], (stop - start) * query.cells).astype(np.int64)
    return exact.reshape(stop - start, query.cells)
