"""Sparse histograms of a level: the non-zero cells of each unit, memory-mapped from files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from countveil.base.numerics import IntArray

Entries = tuple[IntArray, IntArray, IntArray]
_CHUNK = 1 << 20


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Histograms:
    """The non-zero cells of every unit: entries offsets[u] … offsets[u+1] - 1 belong to unit u."""

    offsets: IntArray
    cells: NDArray[np.int32]
    counts: NDArray[np.int32]

    @property
    def units(self) -> int:
        """The number of units of the level."""
        return len(self.offsets) - 1

    def entries(self, start: int, stop: int) -> Entries:
        """Return (unit - start, cell, count) of the non-zero cells of units start … stop - 1."""
        offsets = self.offsets[start : stop + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        unit = np.repeat(np.arange(stop - start), np.diff(offsets))
        cells = self.cells[first:last].astype(np.int64)
        return unit, cells, self.counts[first:last].astype(np.int64)

    def batches(self, most: int = _CHUNK) -> Iterator[tuple[int, int]]:
        """Yield (start, stop) of runs of units with about `most` entries each."""
        start = 0
        while start < self.units:
            reach = np.searchsorted(self.offsets, self.offsets[start] + most, side="right") - 1
            stop = min(max(int(reach), start + 1), self.units)
            yield start, stop
            start = stop


def store(entries: Iterable[Entries], units: int, folder: Path) -> Histograms:
    """Write sorted (unit, cell, count) to two unnamed files and map them.

    The operating system can then evict their pages when memory is short.
    """
    per_unit = np.zeros(units + 1, np.int64)
    with _unnamed(folder / "cells") as cell_file, _unnamed(folder / "counts") as count_file:
        for unit, cell, count in entries:
            if len(unit):
                seen = np.bincount(unit - unit[0])
                per_unit[unit[0] + 1 :][: len(seen)] += seen
            cell_file.write(cell.astype(np.int32).tobytes())
            count_file.write(as_int32(count).tobytes())
        offsets = np.cumsum(per_unit)
        offsets.setflags(write=False)
        return Histograms(offsets, memory_map(cell_file), memory_map(count_file))


def as_int32(counts: IntArray) -> NDArray[np.int32]:
    """Return counts as 32-bit integers; raise OverflowError if one does not fit."""
    if len(counts) and int(counts.max()) >= 2**31:
        raise OverflowError(
            f"a cell would have {int(counts.max()):,} people; the limit is {2**31:,}: the noise is "
            f"probably far too large for the counts, so raise the budget of the measured levels"
        )
    return counts.astype(np.int32)


def roll_up(below: Histograms, parents: IntArray, cells: int) -> Iterator[Entries]:
    """Yield the sorted entries of the level above, some families at a time."""
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


def memory_map(file: BinaryIO) -> NDArray[np.int32]:
    """Map a file of 32-bit integers, read-only; the map keeps the file open."""
    file.flush()
    file.seek(0, 2)
    if file.tell() == 0:
        return np.empty(0, np.int32)
    return np.memmap(file, np.int32, mode="r")


def _unnamed(path: Path) -> BinaryIO:
    """Open a file and unlink its name: no other process can open it, and a crash leaves nothing."""
    file = path.open("w+b")
    path.unlink()
    return file
