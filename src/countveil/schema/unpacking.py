"""How much a Parquet file unpacks to: asked of its schema, its metadata and its values, in that order.

A few kilobytes can stand for gigabytes: rows that repeat one long text of a dictionary, lists and
structs whose parts are counted under other names, values that are told by what they share with the
last. Whatever is refused is refused before memory is taken for it.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from countveil.errors import InputError
from countveil.schema.parquet_footer import (
    DELTA_BYTE_ARRAY,
    ColumnChunk,
    RowGroup,
    read_footer,
)

Footer = tuple[RowGroup, ...]

MOST_ROWS = 20_000_000  # a crosswalk of the nation has 8.2 million
MOST_BYTES = 1 << 30  # of one column
_MOST_TOGETHER = 256 << 20  # bytes of one column in one row group, which are unpacked at once
_LONGEST = 4096  # bytes of one text
_SLACK = 1 << 20  # bytes of a row group beside its texts
_LOOKED_AT = 4 << 20  # bytes of text unpacked at a time, to look at them
_SHORT = 64
_TEXTS = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
)


class _TooMuch(Exception):
    """What a column unpacks to."""


def refuse_bomb(
    path: Path, columns: Collection[str], what: str, error: type[InputError] = InputError
) -> None:
    """Refuse a small file that unpacks to more than any file of its kind has; `what` says that."""
    layout, facts, footer = pq.read_schema(path), pq.read_metadata(path), read_footer(path)
    for column in columns:
        unfit = _unfit(layout, facts, footer, column)
        if unfit is not None:
            raise error(f"{path}: column {column!r} {unfit}")
        try:
            _refuse_metadata(facts.num_rows, footer, column)
            if _is_text(layout.field(column).type):
                _refuse_values(path, facts, column)
        except _TooMuch as found:
            raise error(
                f"{path}: unpacks to {found} in column {column!r}; {what}, {MOST_ROWS:,} at most, and "
                f"a column {MOST_BYTES:,} bytes, {_LONGEST:,} a text"
            ) from None


def _is_text(kind: pa.DataType) -> bool:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(of(plain) for of in _TEXTS)


def _unfit(layout: pa.Schema, facts: pq.FileMetaData, footer: Footer, column: str) -> str | None:
    """Say what is wrong with a column that holds anything but single texts or numbers."""
    if layout.names.count(column) != 1:
        return "is there more than once; keep one"
    kind = layout.field(column).type
    leaves = [facts.schema.column(number) for number in range(facts.num_columns)]
    single = [leaf for leaf in leaves if leaf.path == column and leaf.max_repetition_level == 0]
    number = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    if len(single) != 1 or not (number or _is_text(kind)):
        return f"holds {kind}, and each row needs a single text or number; store the column so"
    if any(DELTA_BYTE_ARRAY in part.encodings for part in _parts(footer, column)):
        # Each value may share all of the one before it, however long that is.
        return (
            "is in the encoding DELTA_BYTE_ARRAY, which does not say how much it unpacks to; write it "
            "again in dictionary or plain encoding, as most programs do"
        )
    return None


def _refuse_metadata(rows: int, footer: Footer, column: str) -> None:
    """Refuse what the file says of itself, without reading a value."""
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
    """Refuse texts that are too long, alone or together, as the values tell."""
    total = 0
    with (
        pq.ParquetFile(path, read_dictionary=[column]) as coded,
        pq.ParquetFile(path) as plain,
    ):
        for group in range(facts.num_row_groups):
            options = {"row_groups": [group], "columns": [column], "use_threads": False}
            # One row brings the whole dictionary of its row group, each text once.
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
