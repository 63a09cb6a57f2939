"""Exact counts at every level: confidential, sparse, and silent about themselves."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from countveil.errors import InputError, RecordsError
from countveil.numerics import IntArray
from countveil.schema.geography import Geography
from countveil.tabulate.private_folder import private_folder

LARGEST_COUNT = 2**30  # so that a count and its noise fit 32 bits
_CHUNK = 1 << 20


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class SparseLevel:
    """The cells of a level that are not zero: unit u owns entries offsets[u] … offsets[u+1] - 1."""

    offsets: IntArray
    cells: NDArray[np.int32]
    counts: NDArray[np.int32]


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Counts:
    """Confidential. They leave through `measure.take` only."""

    geography: Geography
    cells: int
    levels: dict[str, SparseLevel]
    counted_as: str

    def __repr__(self) -> str:
        return f"<confidential counts of {len(self.levels)} levels, {self.cells:,} cells a unit>"

    def __reduce__(self) -> Any:
        raise InputError("confidential counts are not pickled; tabulate them where they are needed")

    def entries(self, level: str, start: int, stop: int) -> tuple[IntArray, IntArray, IntArray]:
        """Return (unit - start, cell, count) of the non-zero cells of units start … stop - 1."""
        sparse = self.levels[level]
        offsets = sparse.offsets[start : stop + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        unit = np.repeat(np.arange(stop - start), np.diff(offsets))
        cells = sparse.cells[first:last].astype(np.int64)
        return unit, cells, sparse.counts[first:last].astype(np.int64)

    def keyed_hash(self, key: bytes) -> str:
        """Return an HMAC of the lowest level: tells whether records changed, and only to its owner."""
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
    entries: Iterable[tuple[IntArray, IntArray, IntArray]],
    counted_as: str,
) -> Counts:
    """Build counts of all levels from (unit, cell, count) of the lowest, sorted by unit and cell.

    `counted_as` is the plan's `counting_digest`: what the counts mean.
    """
    levels: dict[str, SparseLevel] = {}
    with private_folder() as folder:
        stream: Iterator[tuple[IntArray, IntArray, IntArray]] = iter(entries)
        for index in range(len(geography.levels) - 1, -1, -1):
            level = geography.levels[index]
            levels[level] = _store(stream, geography.units(level), folder)
            stream = _roll_up(levels[level], geography.parents[index], cells)
    _refuse_large(levels[geography.levels[0]])
    ordered = {level: levels[level] for level in geography.levels}
    return Counts(geography, cells, ordered, counted_as)


def _store(
    entries: Iterator[tuple[IntArray, IntArray, IntArray]], units: int, folder: Path
) -> SparseLevel:
    """Write a level to two unnamed files and map them: the pages are the system's to reclaim."""
    per_unit = np.zeros(units + 1, np.int64)
    with _unnamed(folder / "cells") as cell_file, _unnamed(folder / "counts") as count_file:
        for unit, cell, count in entries:
            if len(count) and int(count.max()) > LARGEST_COUNT:
                raise _too_large()
            if len(unit):
                seen = np.bincount(unit - unit[0])
                per_unit[unit[0] + 1 :][: len(seen)] += seen
            cell_file.write(cell.astype(np.int32).tobytes())
            count_file.write(count.astype(np.int32).tobytes())
        offsets = np.cumsum(per_unit)
        offsets.setflags(write=False)
        return SparseLevel(offsets, _mapped(cell_file), _mapped(count_file))


def _refuse_large(top: SparseLevel) -> None:
    """Refuse a top unit whose total, the largest count any query can hold, is too large."""
    running = np.concatenate(([0], np.cumsum(top.counts, dtype=np.int64)))
    if int((running[top.offsets[1:]] - running[top.offsets[:-1]]).max()) > LARGEST_COUNT:
        raise _too_large()


def _too_large() -> RecordsError:
    return RecordsError(
        f"a unit counts more than {LARGEST_COUNT:,}, the largest count supported; split the data set"
    )


def _unnamed(path: Path) -> BinaryIO:
    """Open a file that has no name any more: nobody else finds it, a killed run leaves none."""
    file = path.open("w+b")
    path.unlink()
    return file


def _mapped(file: BinaryIO) -> NDArray[np.int32]:
    """Map a file read-only; it lives as long as the map."""
    file.flush()
    if file.tell() == 0:
        return np.empty(0, np.int32)
    return np.memmap(file, np.int32, mode="r")


def _roll_up(
    below: SparseLevel, parents: IntArray, cells: int
) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    """Add up a level into the one above, some whole families at a time."""
    start = 0
    while start < len(parents):
        reach = np.searchsorted(below.offsets, below.offsets[start] + _CHUNK, side="right") - 1
        last = parents[min(max(int(reach), start + 1), len(parents)) - 1]
        stop = int(np.searchsorted(parents, last, side="right"))
        first, end = int(below.offsets[start]), int(below.offsets[stop])
        parent = np.repeat(parents[start:stop], np.diff(below.offsets[start : stop + 1]))
        key = parent * cells + below.cells[first:end]
        order = np.argsort(key, kind="stable")
        key = key[order]
        count = below.counts[first:end][order].astype(np.int64)
        new = np.flatnonzero(np.concatenate(([True], key[1:] != key[:-1]))) if len(key) else key
        if len(new):
            yield key[new] // cells, key[new] % cells, np.add.reduceat(count, new)
        start = stop
