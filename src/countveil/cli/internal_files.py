"""Write internal results to files that only their owner can read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def write_internal(folder: Path, name: str, document: dict[str, Any], table: pa.Table) -> None:
    """Write an internal result as JSON and Parquet, readable by its owner only."""
    import pyarrow.parquet as pq

    from countveil.base import storage
    from countveil.estimate.release_error import WATERMARK

    storage.make_folder(folder, 0o700)
    with storage.replacing_private(folder / f"{name}.parquet") as path:
        pq.write_table(table, path)
    with storage.replacing_private(folder / f"{name}.json") as path:
        path.write_text(json.dumps({"notice": WATERMARK, **document}, indent=2) + "\n")
