"""NOISY → COHERENT: measurements become non-negative integers that add up."""

from countveil.postprocess.certificate import Certificate, LevelCertificate
from countveil.postprocess.estimates import Estimates
from countveil.postprocess.facts.rows import Row
from countveil.postprocess.rehearsal import rehearse
from countveil.postprocess.rounding.controlled_rounding import round_family
from countveil.postprocess.solver.nonnegative import solve_family
from countveil.postprocess.topdown import top_down
from countveil.postprocess.unmeasured import refuse_unmeasured

__all__ = [
    "Certificate",
    "Estimates",
    "LevelCertificate",
    "Row",
    "refuse_unmeasured",
    "rehearse",
    "round_family",
    "solve_family",
    "top_down",
]
