"""THE DOOR: the only place where confidential counts become safe measurements."""

from countveil.measure.boundary import take
from countveil.measure.declared_counts import declared_counts
from countveil.measure.measurement import Measurement, Measurements
from countveil.measure.one_estimate import draw_estimate, read_estimate
from countveil.measure.one_table import (
    cost_of,
    draw,
    guarantee_of,
    mechanism_of,
    refuse_draw,
    totals_of,
)
from countveil.measure.restart import Restart
from countveil.measure.strategy import lossy_queries, mechanism_for

__all__ = [
    "Measurement",
    "Measurements",
    "Restart",
    "cost_of",
    "declared_counts",
    "draw",
    "draw_estimate",
    "guarantee_of",
    "lossy_queries",
    "mechanism_for",
    "mechanism_of",
    "read_estimate",
    "refuse_draw",
    "take",
    "totals_of",
]
