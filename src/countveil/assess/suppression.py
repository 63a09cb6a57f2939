"""What a table with small cells suppressed reveals: the usual practice before noise."""

from __future__ import annotations

SMALL = 5
"""Counts from 1 to one less than this are suppressed, as health departments do; zeros are shown."""


def posterior_under_suppression(
    others: int, prior: float, *, below: int = SMALL, total: bool = False, rows: int = 1
) -> float:
    """Return the intruder's posterior for a person who is counted, if small cells are suppressed.

    They know everyone else in the cell. They see its count, unless that is from 1 to `below` - 1.

    Parameters
    ----------
    others : int
        How many other people are in the cell.
    prior : float
        The probability they give to the person being counted there.
    below : int
        Counts from 1 to one less than this are suppressed.
    total : bool
        Whether they also see a sum of this cell and others that they know.
    rows : int
        How many rows the person adds to the count.

    Returns
    -------
    float
        The prior where the table reveals nothing, otherwise 1.

    Examples
    --------
    >>> posterior_under_suppression(2, 0.1), posterior_under_suppression(4, 0.1)
    (0.1, 1.0)
    """
    alike = _shown(others + rows, below) == _shown(others, below)
    return prior if alike and not total else 1.0


def kept_secret(below: int = SMALL, rows: int = 1) -> list[int]:
    """Return the numbers of others at which suppression reveals nothing, if no sum is shown.

    Parameters
    ----------
    below : int
        Counts from 1 to one less than this are suppressed.
    rows : int
        How many rows a person adds to the count.

    Returns
    -------
    list of int
        How many other people a cell may have.

    Examples
    --------
    >>> kept_secret()
    [1, 2, 3]
    """
    return [k for k in range(below + 1) if _shown(k + rows, below) == _shown(k, below)]


def _shown(count: int, below: int) -> int | None:
    return None if 0 < count < below else count
