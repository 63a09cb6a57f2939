"""Seals: the SHA-256 of the rows of a release, independent of how files pack them.

A seal has two words: the digest of what was drawn, and the digest of the public facts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from countveil.plan.geography import Geography

_ROWS = b"countveil rows 1\n"
_PARTS = b"countveil measurements 1\n"
_PUBLIC = b"countveil public facts 1\n"


def rows_digest(table: pa.Table, columns: Sequence[str]) -> str:
    """Return the SHA-256 of some columns of a table, as hexadecimal digits."""
    whole = hashlib.sha256(_ROWS)
    for name in columns:
        for stream in _streams(table[name].combine_chunks()):
            digest = hashlib.sha256(memoryview(stream)).hexdigest()
            whole.update(f"{name} {digest}\n".encode())
    return whole.hexdigest()


def parts_digest(parts: Iterable[tuple[str, str]]) -> str:
    """Return the SHA-256 of the parts of a release, in order, from the level and digest of each."""
    whole = hashlib.sha256(_PARTS)
    for level, digest in parts:
        whole.update(f"{level} {digest}\n".encode())
    return whole.hexdigest()


def public_digest(geography: Geography, crosswalk: str, facts: Iterable[tuple[str, str]]) -> str:
    """Return the SHA-256 of the public facts of a release.

    These are the hash of the crosswalk file, its places, and `facts`: names with their digests.
    """
    whole = hashlib.sha256(_PUBLIC)
    whole.update(f"crosswalk {crosswalk}\n".encode())
    for level, codes, parents in zip(
        geography.levels, geography.codes, geography.parents, strict=True
    ):
        places = pa.table({"geocode": codes, "parent": parents})
        whole.update(f"{level} {rows_digest(places, places.column_names)}\n".encode())
    for name, digest in facts:
        whole.update(f"{name} {digest}\n".encode())
    return whole.hexdigest()


def seal_of(drawn: str, public: str) -> str:
    """Return the seal of a release, from the digests of what was drawn and of the public facts."""
    return f"{drawn} {public}"


def _streams(column: pa.Array) -> Iterator[Any]:
    """Yield a column as little-endian numbers: for text and lists, lengths and then the content."""
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
