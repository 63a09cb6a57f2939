"""What a table with small cells suppressed tells: the usual practice before noise."""

from __future__ import annotations

SMALL = 5  # counts from 1 to this less 1 are suppressed, as health departments do; zeros are shown


def posterior_beside_suppression(
    others: int, prior: float, *, below: int = SMALL, total: bool = False, rows: int = 1
) -> float:
    """Return what he believes of a person who is counted, in a cell with so many others.

    He knows all others, and that his target would add `rows`; he sees the cell, unless its count is
    from 1 to `below` - 1, and with `total` also a sum of it and of cells that he knows; the number is
    his posterior.
    """
    alike = _shown(others + rows, below) == _shown(others, below)
    return prior if alike and not total else 1.0


def kept_secret(below: int = SMALL, rows: int = 1) -> list[int]:
    """Return how many others a cell may have for suppression to tell nothing, no sum being shown."""
    return [k for k in range(below + 1) if _shown(k + rows, below) == _shown(k, below)]


def _shown(count: int, below: int) -> int | None:
    return None if 0 < count < below else count
