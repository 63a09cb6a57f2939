"""How much a published file may unpack to: no more than its plan can fill."""

from __future__ import annotations

from pathlib import Path

from countveil.errors import InputError
from countveil.schema.parquet_footer import read_footer

# Room for dictionaries and pages, and bytes for each value.
_ROOM, _BYTES = 1 << 26, 64


def refuse_swollen(folder: Path, name: str, values: int) -> None:
    """Refuse a file that unpacks to more than its plan can fill, before it does."""
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
            raise InputError(f"{name} unpacks to more than its plan can fill")
