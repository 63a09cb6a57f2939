"""How much a Parquet file unpacks to: asked before it does."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pyarrow.parquet as pq

from countveil.errors import InputError

MOST_ROWS = 50_000_000
MOST_BYTES = 4 << 30  # of one column


def refuse_bomb(
    path: Path, columns: Collection[str], what: str, error: type[InputError] = InputError
) -> None:
    """Refuse a small file that unpacks to more than any file of its kind has; `what` says that."""
    facts = pq.read_metadata(path)
    for column in columns:
        size = sum(
            part.total_uncompressed_size
            for group in range(facts.num_row_groups)
            for part in map(facts.row_group(group).column, range(facts.num_columns))
            if part.path_in_schema == column
        )
        if facts.num_rows > MOST_ROWS or size > MOST_BYTES:
            raise error(
                f"{path}: unpacks to {facts.num_rows:,} rows and {size:,} bytes in column {column!r}; "
                f"{what}, {MOST_ROWS:,} at most"
            )
