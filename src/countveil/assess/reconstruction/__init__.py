"""WHAT EXACT TABLES GIVE AWAY: how many databases agree with them."""

from countveil.assess.reconstruction.level_reconstruction import (
    Reconstruction,
    RecordRisk,
    SolutionClass,
    reconstruction,
    record_risks,
)
from countveil.assess.reconstruction.published_lines import Lines
from countveil.assess.reconstruction.solutions import Solutions, solution_count

__all__ = [
    "Lines",
    "Reconstruction",
    "RecordRisk",
    "SolutionClass",
    "Solutions",
    "reconstruction",
    "record_risks",
    "solution_count",
]
