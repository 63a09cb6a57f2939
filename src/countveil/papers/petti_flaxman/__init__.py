"""Petti and Flaxman (paper 001): empirical privacy loss of the 2020 census."""

from countveil.papers.petti_flaxman.demonstrations import (
    invariant_total,
    parallel,
    totals_and_strata,
)
from countveil.papers.petti_flaxman.sa1_replicates import LossRange, table_sa1

__all__ = ["LossRange", "invariant_total", "parallel", "table_sa1", "totals_and_strata"]
