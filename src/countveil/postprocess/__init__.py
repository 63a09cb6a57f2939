"""Noisy measurements become coherent tables: non-negative integers that add up."""

from countveil.postprocess.certificate import Certificate, LevelCertificate
from countveil.postprocess.descent import top_down
from countveil.postprocess.estimates import Estimates
from countveil.postprocess.nonnegative import solve_family
from countveil.postprocess.rehearsal import rehearse
from countveil.postprocess.rounding import round_family
from countveil.postprocess.rows import Row

__all__ = [
    "Certificate",
    "Estimates",
    "LevelCertificate",
    "Row",
    "rehearse",
    "round_family",
    "solve_family",
    "top_down",
]
