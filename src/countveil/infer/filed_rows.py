"""Rows of numbers in memory or in a temporary file: written and read some at a time."""

from __future__ import annotations

import mmap
import os
import tempfile

import numpy as np

from countveil.numerics import FloatArray


class FiledRows:
    """An array in a file without a name, which goes with it; only rows at work take memory."""

    def __init__(self, *shape: int) -> None:
        size = np.dtype(np.float64).itemsize * int(np.prod(shape, dtype=np.int64))
        with tempfile.TemporaryFile(prefix="countveil-") as file:
            # Reserved, since a map of a file for which there is no disk ends the process.
            os.posix_fallocate(file.fileno(), 0, size)
            self._map = mmap.mmap(file.fileno(), size)
        self._rows: FloatArray = np.frombuffer(self._map).reshape(shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, and what each of them holds."""
        return self._rows.shape

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, run: slice) -> FloatArray:
        found = np.array(self._rows[run])
        self._map.madvise(mmap.MADV_DONTNEED)  # the file keeps what the map lets go
        return found

    def __setitem__(self, run: slice, values: FloatArray) -> None:
        self._rows[run] = values
        self._map.madvise(mmap.MADV_DONTNEED)


Rows = FloatArray | FiledRows


def room(*shape: int, in_memory: bool) -> Rows:
    """Return rows to be filled; an array without a number needs no file."""
    return np.empty(shape) if in_memory or not np.prod(shape) else FiledRows(*shape)
