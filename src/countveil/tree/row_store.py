"""Rows of numbers in memory or in a temporary file, written and read some at a time."""

from __future__ import annotations

import mmap
import os
import tempfile

import numpy as np

from countveil.base.numerics import FloatArray


class DiskRows:
    """An array in an unnamed file, deleted with it; only rows being read or written take memory."""

    def __init__(self, *shape: int) -> None:
        size = np.dtype(np.float64).itemsize * int(np.prod(shape, dtype=np.int64))
        with tempfile.TemporaryFile(prefix="countveil-") as file:
            # Reserve the space now: writing to a mapped file on a full disk kills the process.
            os.posix_fallocate(file.fileno(), 0, size)
            self._map = mmap.mmap(file.fileno(), size)
        self._rows: FloatArray = np.frombuffer(self._map).reshape(shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of rows, and the shape of each."""
        return self._rows.shape

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, run: slice) -> FloatArray:
        copy = np.array(self._rows[run])
        self._map.madvise(mmap.MADV_DONTNEED)  # the file keeps what the map releases
        return copy

    def __setitem__(self, run: slice, values: FloatArray) -> None:
        self._rows[run] = values
        self._map.madvise(mmap.MADV_DONTNEED)


StoredRows = FloatArray | DiskRows


def allocate_rows(*shape: int, in_memory: bool) -> StoredRows:
    """Return uninitialised rows; an empty array needs no file."""
    return np.empty(shape) if in_memory or not np.prod(shape) else DiskRows(*shape)
