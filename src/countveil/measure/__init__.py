"""THE DOOR: the only place where confidential counts become safe measurements."""

from countveil.measure.door import (
    declared_counts,
    draw,
    refuse_draw,
    take,
    totals_of,
)
from countveil.measure.measurements import Measurement, Measurements
from countveil.measure.once import Restart
from countveil.measure.one_estimate import draw_estimate, read_estimate
from countveil.measure.one_table import cost_of, guarantee_of, mechanism_of

__all__ = [
    "Measurement",
    "Measurements",
    "Restart",
    "cost_of",
    "declared_counts",
    "draw",
    "draw_estimate",
    "guarantee_of",
    "mechanism_of",
    "read_estimate",
    "refuse_draw",
    "take",
    "totals_of",
]
