"""How much of a release is worked on at a time: nothing that is published depends on it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchSizes:
    """What is in memory at a time, and when starting processes pays off.

    Attributes
    ----------
    values_to_draw : int
        Noisy values drawn together, unless one family has more. A run that is resumed must have the
        same number, because its parts are kept.
    parts_to_share : int
        From this many parts on, noise is drawn by several processes.
    values_to_solve : int
        Measurements of families solved together, unless one family has more.
    units_to_share : int
        From this many units of a level on, families are solved by several processes.

    """

    values_to_draw: int = 4_000_000
    parts_to_share: int = 16
    values_to_solve: int = 4_000_000
    units_to_share: int = 2_000


USUAL_SIZES = BatchSizes()
