"""WHAT EXACT TABLES GIVE AWAY: how many databases agree with them."""

from countveil.assess.reconstruction.level_reconstruction import (
    Reconstruction,
    SolutionClass,
    reconstruct,
    record_risks,
)
from countveil.assess.reconstruction.published_lines import PublishedLines
from countveil.assess.reconstruction.solutions import Solutions, solution_count

__all__ = [
    "PublishedLines",
    "Reconstruction",
    "SolutionClass",
    "Solutions",
    "reconstruct",
    "record_risks",
    "solution_count",
]
