"""The footer of a Parquet file: what each row group and column says of its size.

Arrow's reader refuses a damaged file with an exception. But asking it for the facts of a column chunk
ends the process where the footer contradicts itself. So the facts that a file is judged by before it is
read come from here. The footer is written in Thrift's compact protocol.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

_LARGEST = 256 << 20  # bytes of a footer
_DEEPEST = 16
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = (
    *(0, 1, 2, 3, 7, 8, 9, 10, 11, 12),
)
_WHOLE = (4, 5, 6)  # of 16, 32 and 64 bits, all written alike
DELTA_BYTE_ARRAY = 7
# What Arrow raises for a damaged file; names and texts in it may be no UTF-8.
UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError)


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """One column of a row group: its path, encodings, values and bytes once unpacked."""

    path: str
    encodings: tuple[int, ...]
    values: int
    unpacked: int


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows that were written together."""

    rows: int
    columns: tuple[ColumnChunk, ...]


def read_footer(path: Path) -> tuple[RowGroup, ...]:
    """Return the row groups of a file; raise ValueError where its footer is damaged."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size < 12:
            raise ValueError("too short for a Parquet file")
        file.seek(size - 8)
        length, mark = struct.unpack("<I4s", file.read(8))
        if mark != b"PAR1" or length > min(size - 12, _LARGEST):
            raise ValueError("no footer of a Parquet file")
        file.seek(size - 8 - length)
        footer = _Compact(file.read(length)).struct()
    return tuple(_row_group(group) for group in _list(footer, 4))


def _row_group(group: Any) -> RowGroup:
    chunks = []
    for chunk in _list(group, 1):
        facts = _field(chunk, 3, dict)
        parts = [_text(part) for part in _list(facts, 3)]
        encodings = tuple(code for code in _list(facts, 2) if isinstance(code, int))
        chunks.append(ColumnChunk(".".join(parts), encodings, _size(facts, 5), _size(facts, 6)))
    return RowGroup(_size(group, 3), tuple(chunks))


def _field(struct_: Any, number: int, kind: type) -> Any:
    value = struct_.get(number) if isinstance(struct_, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"field {number} of the footer is missing")
    return value


def _list(struct_: Any, number: int) -> list[Any]:
    found: list[Any] = _field(struct_, number, list)
    return found


def _size(struct_: Any, number: int) -> int:
    size: int = _field(struct_, number, int)
    if size < 0:
        raise ValueError(f"field {number} of the footer is below 0")
    return size


def _text(value: Any) -> str:
    if not isinstance(value, bytes):
        raise ValueError("a path of the footer is no text")
    return value.decode()


class _Compact:
    """A reader of the compact protocol: structs as dictionaries by field number."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Read the fields of a struct."""
        if depth > _DEEPEST:
            raise ValueError("the footer nests too deep")
        fields: dict[int, Any] = {}
        number = 0
        while True:
            header = self._byte()
            kind = header & 0x0F
            if kind == _STOP:
                return fields
            number = number + (header >> 4) if header >> 4 else self._whole()
            fields[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth)

    def _value(self, kind: int, depth: int) -> Any:
        if kind in _WHOLE:
            return self._whole()
        if kind in (_TRUE, _FALSE, _BYTE):  # of a list
            return self._byte()
        if kind == _BINARY:
            return self._take(self._unsigned())
        if kind == _DOUBLE:
            return self._take(8)
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in (_LIST, _SET):
            header = self._byte()
            size = header >> 4 if header >> 4 < 15 else self._unsigned()
            return [self._value(header & 0x0F, depth + 1) for _ in range(self._bounded(size))]
        if kind == _MAP:
            size = self._bounded(self._unsigned())
            kinds = self._byte() if size else 0
            for _ in range(size):
                self._value(kinds >> 4, depth + 1)
                self._value(kinds & 0x0F, depth + 1)
            return None
        raise ValueError(f"no type {kind} in a footer")

    def _bounded(self, size: int) -> int:
        """Refuse more items than bytes are left: each takes one at the least."""
        if size > len(self._data) - self._at:
            raise ValueError("the footer ends early")
        return size

    def _take(self, size: int) -> bytes:
        self._at += self._bounded(size)
        return self._data[self._at - size : self._at]

    def _byte(self) -> int:
        return self._take(1)[0]

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 63:
                raise ValueError("a number of the footer has too many digits")

    def _whole(self) -> int:
        zigzag = self._unsigned()
        return (zigzag >> 1) ^ -(zigzag & 1)
