"""Noisy measurements become coherent tables: non-negative integers that add up."""

from countveil.postprocess.nonnegative import solve_family
from countveil.postprocess.rounding import round_family

__all__ = ["round_family", "solve_family"]
