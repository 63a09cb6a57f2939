"""The SHA-256 of all measurements of a release: of the rows drawn, however files pack them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

_ROWS = b"countveil rows 1\n"
_PARTS = b"countveil measurements 1\n"


def rows_digest(table: pa.Table, columns: Sequence[str]) -> str:
    """Return the SHA-256 of some columns of a table, as hexadecimal digits."""
    whole = hashlib.sha256(_ROWS)
    for name in columns:
        for stream in _streams(table[name].combine_chunks()):
            found = hashlib.sha256(memoryview(stream)).hexdigest()
            whole.update(f"{name} {found}\n".encode())
    return whole.hexdigest()


def parts_digest(parts: Iterable[tuple[str, str]]) -> str:
    """Return the SHA-256 of a release's parts in their order, from the level and the digest of each."""
    whole = hashlib.sha256(_PARTS)
    for level, digest in parts:
        whole.update(f"{level} {digest}\n".encode())
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
