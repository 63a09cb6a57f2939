"""The least-squares problem of one family, over the cells its parent has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from countveil.numerics import FloatArray
from countveil.postprocess.gram import Gram, dense
from countveil.postprocess.rows import Row


@dataclass(frozen=True, eq=False, slots=True)
class Problem:
    """min Σ_c ½ h_cᵀA h_c − b_cᵀh_c,  h ≥ 0,  Σ_c h_c = parent,  1ᵀh_c = totals_c.

    h is 0 where not allowed. An empty parent or empty totals ask for nothing. `rows` bound other sums.
    """

    gram: Gram
    b: FloatArray
    parent: FloatArray
    totals: FloatArray
    allowed: NDArray[np.bool_]
    rows: Sequence[Row] = ()

    def matrix(self) -> FloatArray:
        """Return A multiplied out."""
        return dense(self.gram)

    @property
    def scale(self) -> float:
        """The largest of the sums, 1 at the least: what entries are measured against."""
        bounds = [bound for row in self.rows for bound in (row.lower, row.upper)]
        sums = [self.parent.max(initial=0.0), self.totals.max(initial=0.0), *bounds]
        return float(max(1.0, *(value for value in sums if np.isfinite(value))))
