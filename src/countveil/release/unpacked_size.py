"""How much a published file may unpack to: no more than its plan can fill."""

from __future__ import annotations

import pyarrow.parquet as pq

from countveil.errors import InputError

# Room for dictionaries and pages, and bytes for each value.
_ROOM, _BYTES = 1 << 26, 64


def refuse_swollen(name: str, facts: pq.FileMetaData, values: int) -> None:
    """Refuse a file that unpacks to more than its plan can fill, before it does."""
    groups = [facts.row_group(number) for number in range(facts.num_row_groups)]
    for number in range(facts.num_columns):
        parts = [group.column(number) for group in groups]
        size = sum(part.total_uncompressed_size for part in parts)
        if sum(part.num_values for part in parts) > values or size > _ROOM + _BYTES * values:
            raise InputError(f"{name} unpacks to more than its plan can fill")
