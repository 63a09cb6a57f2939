"""The unpacked size of Parquet files, and refusals of files that unpack to too much.

A few kilobytes can unpack to gigabytes: rows that repeat one long text of a dictionary, lists and
structs whose parts are counted under other names, values encoded by what they share with the previous
one. Everything here is refused before memory is allocated for it.

`read_footer` reads the sizes that a file states. `refuse_bomb` judges a file that a user brings, by its
schema, its footer and its values. `refuse_swollen` judges a published file by what its plan can fill,
and `refuse_hidden` refuses one with texts in addition to its columns.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from countveil.errors import InputError

# The footer. Arrow's reader raises an exception for a damaged file, but asking it for the metadata of a
# column chunk crashes the process if the footer contradicts itself. So we parse the footer, which is in
# Thrift's compact protocol, ourselves.

_LARGEST = 256 << 20  # bytes of a footer
_DEEPEST = 16
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = (
    *(0, 1, 2, 3, 7, 8, 9, 10, 11, 12),
)
_WHOLE = (4, 5, 6)  # integers of 16, 32 and 64 bits, encoded alike
DELTA_BYTE_ARRAY = 7
# What Arrow raises for a damaged file; names and texts in it may not be UTF-8.
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
    """Return the row groups of a file; raise ValueError if its footer is damaged."""
    return tuple(_row_group(group) for group in _list(_footer(path), 4))


def _footer(path: Path) -> dict[int, Any]:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size < 12:
            raise ValueError("it is too short for a Parquet file")
        file.seek(size - 8)
        length, mark = struct.unpack("<I4s", file.read(8))
        if mark != b"PAR1" or length > min(size - 12, _LARGEST):
            raise ValueError("it has no Parquet footer")
        file.seek(size - 8 - length)
        return _Compact(file.read(length)).struct()


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
    items: list[Any] = _field(struct_, number, list)
    return items


def _size(struct_: Any, number: int) -> int:
    size: int = _field(struct_, number, int)
    if size < 0:
        raise ValueError(f"field {number} of the footer is negative")
    return size


def _text(value: Any) -> str:
    if not isinstance(value, bytes):
        raise ValueError("a path in the footer is not text")
    return value.decode()


class _Compact:
    """A reader of the compact protocol: structs as dictionaries by field number."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Read the fields of a struct."""
        if depth > _DEEPEST:
            raise ValueError("the footer is nested too deeply")
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
        if kind in (_TRUE, _FALSE, _BYTE):  # elements of a list
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
        raise ValueError(f"the footer has an unknown type {kind}")

    def _bounded(self, size: int) -> int:
        """Refuse more items than there are bytes left: each takes at least one."""
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
                raise ValueError("a number in the footer is too long")

    def _whole(self) -> int:
        zigzag = self._unsigned()
        return (zigzag >> 1) ^ -(zigzag & 1)


Footer = tuple[RowGroup, ...]

MOST_ROWS = 20_000_000  # a crosswalk of the nation has 8.2 million
MOST_BYTES = 1 << 30  # of one column
_MOST_TOGETHER = 256 << 20  # bytes of one column in one row group, which are unpacked at once
_LONGEST = 4096  # bytes of one text
_SLACK = 1 << 20  # bytes of a row group in addition to its texts
_LOOKED_AT = 4 << 20  # bytes of text unpacked and measured at a time
_SHORT = 64
_TEXTS = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
)


class _TooMuch(Exception):
    """A column unpacks to too much; the text says to what."""


def refuse_bomb(
    path: Path, columns: Collection[str], what: str, error: type[InputError] = InputError
) -> None:
    """Refuse a file that unpacks to more than any file of its kind; `what` describes that kind."""
    layout, facts, footer = pq.read_schema(path), pq.read_metadata(path), read_footer(path)
    for column in columns:
        unfit = _unfit(layout, facts, footer, column)
        if unfit is not None:
            raise error(f"{path}: column {column!r} {unfit}")
        try:
            _refuse_metadata(facts.num_rows, footer, column)
            if _is_text(layout.field(column).type):
                _refuse_values(path, facts, column)
        except _TooMuch as size:
            raise error(
                f"{path}: column {column!r} unpacks to {size}; {what}, at most {MOST_ROWS:,}, and a "
                f"column has at most {MOST_BYTES:,} bytes and texts of {_LONGEST:,}"
            ) from None


def _is_text(kind: pa.DataType) -> bool:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(of(plain) for of in _TEXTS)


def _unfit(layout: pa.Schema, facts: pq.FileMetaData, footer: Footer, column: str) -> str | None:
    """Return what is wrong with a column unless every row holds a single text or number."""
    if layout.names.count(column) != 1:
        return "occurs more than once; keep one"
    kind = layout.field(column).type
    leaves = [facts.schema.column(number) for number in range(facts.num_columns)]
    single = [leaf for leaf in leaves if leaf.path == column and leaf.max_repetition_level == 0]
    number = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    if len(single) != 1 or not (number or _is_text(kind)):
        return f"has type {kind}; store a single text or number in each row"
    if any(DELTA_BYTE_ARRAY in part.encodings for part in _parts(footer, column)):
        # Each value may repeat the whole previous value, however long.
        return (
            "is encoded as DELTA_BYTE_ARRAY, which does not state how much it unpacks to; write it "
            "again in dictionary or plain encoding, as most programs do"
        )
    return None


def _refuse_metadata(rows: int, footer: Footer, column: str) -> None:
    """Refuse a column by the sizes that the footer states, without reading a value."""
    parts = _parts(footer, column)
    rows = max(rows, sum(part.values for part in parts))
    size = sum(part.unpacked for part in parts)
    if rows > MOST_ROWS or size > MOST_BYTES:
        raise _TooMuch(f"{rows:,} rows and {size:,} bytes")
    for part in parts:
        together = part.unpacked
        if together > min(_MOST_TOGETHER, _SLACK + part.values * _LONGEST):
            raise _TooMuch(f"{together:,} bytes in {part.values:,} rows at once")


def _refuse_values(path: Path, facts: pq.FileMetaData, column: str) -> None:
    """Refuse texts that are too long, each or together, by reading their lengths."""
    total = 0
    with (
        pq.ParquetFile(path, read_dictionary=[column]) as coded,
        pq.ParquetFile(path) as plain,
    ):
        for group in range(facts.num_row_groups):
            options = {"row_groups": [group], "columns": [column], "use_threads": False}
            # Reading one row brings the dictionary of its row group, with each text once.
            first = next(coded.iter_batches(1, **options), None)
            longest = 0 if first is None else _longest(pc.binary_length(first[0].dictionary))
            rows = _LOOKED_AT // max(longest, _SHORT)
            for batch in plain.iter_batches(rows, **options):
                lengths = _lengths(batch[0])
                _longest(lengths)
                total += pc.sum(lengths).as_py() or 0
                if total > MOST_BYTES:
                    raise _TooMuch(f"over {total:,} bytes of text")
    pa.default_memory_pool().release_unused()


def _lengths(texts: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(texts.type):
        return pc.binary_length(texts.dictionary).take(texts.indices)
    return pc.binary_length(texts)


def _longest(lengths: pa.Array) -> int:
    """Return the length of the longest text; refuse it if it is too long."""
    longest = int(pc.max(lengths).as_py() or 0)
    if longest > _LONGEST:
        raise _TooMuch(f"a text of {longest:,} bytes")
    return longest


def _parts(footer: Footer, column: str) -> list[ColumnChunk]:
    return [part for group in footer for part in group.columns if part.path == column]


# For a published file: room for dictionaries and pages, and bytes per value.
_ROOM, _BYTES = 1 << 26, 64


def refuse_swollen(folder: Path, name: str, values: int) -> None:
    """Refuse a published file that would unpack to more values than its plan has."""
    try:
        groups = read_footer(folder / name)
    except ValueError as error:
        raise InputError(f"{name} cannot be read ({error}); restore the release") from error
    together: dict[str, tuple[int, int]] = {}
    for group in groups:
        for part in group.columns:
            count, size = together.get(part.path, (0, 0))
            together[part.path] = (count + part.values, size + part.unpacked)
    for count, size in together.values():
        if count > values or size > _ROOM + _BYTES * values:
            raise InputError(
                f"{name} unpacks to more values than its plan has; restore the release"
            )


# Where a published file could have more than its columns: texts that no reader shows.
_ARROW = b"ARROW:schema"  # Arrow's own description of the columns
_PROGRAM = re.compile(
    rb"[A-Za-z][A-Za-z-]{0,40}(?: version [0-9][0-9A-Za-z.+-]{0,30})?(?: \(build [0-9a-f]{1,40}\))?"
)


def refuse_hidden(folder: Path, name: str) -> None:
    """Refuse a published file with texts of its own apart from its columns: key-value metadata."""
    try:
        footer, kinds = _footer(folder / name), pq.read_schema(folder / name)
        keys = [_field(item, 1, bytes) for item in (_list(footer, 5) if 5 in footer else [])]
        program = footer.get(6, b"")
        parts = [_field(chunk, 3, dict) for group in _list(footer, 4) for chunk in _list(group, 1)]
    except (ValueError, *UNREADABLE) as error:
        raise InputError(f"{name} cannot be read ({error}); restore the release") from error
    hidden = keys not in ([], [_ARROW]) or any(8 in part for part in parts)
    hidden |= bool(kinds.metadata) or any(_noted(field) for field in kinds)
    if hidden or not isinstance(program, bytes) or not (not program or _PROGRAM.fullmatch(program)):
        raise InputError(
            f"{name} has metadata in addition to its columns, which ours never have; restore the "
            f"release"
        )


def _noted(field: pa.Field) -> bool:
    """Whether a column or a part of it has metadata other than the number that Parquet gives it."""
    kind = field.type
    parts = [kind.field(number) for number in range(kind.num_fields)]
    return bool(set(field.metadata or {}) - {b"PARQUET:field_id"}) or any(map(_noted, parts))
