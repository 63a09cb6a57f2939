"""THE DOOR: the only place where confidential counts become safe measurements."""

from countveil.measure.boundary import take
from countveil.measure.measurement import Measurement, Measurements
from countveil.measure.strategy import lossy_queries, mechanism_for

__all__ = ["Measurement", "Measurements", "lossy_queries", "mechanism_for", "take"]
