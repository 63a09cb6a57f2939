"""WHAT EXACT TABLES GIVE AWAY: how many databases agree with them."""

from countveil.assess.reconstruction.published_lines import Lines
from countveil.assess.reconstruction.solutions import Solutions, solution_count

__all__ = ["Lines", "Solutions", "solution_count"]
