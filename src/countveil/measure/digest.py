"""The SHA-256 of all measurements of a release: of what was drawn, however files cut and pack it."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

_FORMAT = b"countveil measurements 1\n"


def digest(levels: Iterable[tuple[str, Iterable[pa.Table]]], columns: Sequence[str]) -> str:
    """Return the SHA-256 of the rows of each level, in their order, as hexadecimal digits.

    Each column is hashed as one stream, so the same rows give the same digest in one table or in many.
    """
    whole = hashlib.sha256(_FORMAT)
    for level, tables in levels:
        hashes: dict[tuple[str, int], Any] = defaultdict(hashlib.sha256)
        for table in tables:
            for name in columns:
                for chunk in filter(len, table[name].chunks):
                    for number, stream in enumerate(_streams(chunk)):
                        hashes[name, number].update(np.ascontiguousarray(stream))
        for (name, number), found in sorted(hashes.items()):
            whole.update(f"{level} {name} {number} {found.hexdigest()}\n".encode())
    return whole.hexdigest()


def _streams(column: pa.Array) -> Iterator[Any]:
    """Yield a column as plain numbers, lowest byte first: lengths, then what they cut."""
    if pa.types.is_string(column.type) or pa.types.is_list(column.type):
        offsets = np.frombuffer(column.buffers()[1], np.int32)
        offsets = offsets[column.offset : column.offset + len(column) + 1]
        yield np.diff(offsets).astype("<i8")
        if pa.types.is_list(column.type):
            yield from _streams(column.flatten())
        else:
            text = column.buffers()[2]
            text = np.empty(0, np.uint8) if text is None else np.frombuffer(text, np.uint8)
            yield text[offsets[0] : offsets[-1]]
    else:
        values = column.to_numpy()
        yield values.astype(values.dtype.newbyteorder("<"), copy=False)
