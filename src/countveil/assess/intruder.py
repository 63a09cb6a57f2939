"""The Bayesian intruder: what he believes and knows before he sees the release."""

from __future__ import annotations

import math
from dataclasses import dataclass

from countveil.errors import InputError


@dataclass(frozen=True, slots=True)
class Intruder:
    """He knows everyone in a cell but his target, who is there with probability `prior`.

    `known` is the count without the target; the target would add `rows` to it.
    """

    prior: float
    known: int = 0
    rows: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.prior, bool) or not 0 < self.prior < 1:
            raise InputError(f"prior: {self.prior} is not allowed; it must be between 0 and 1")
        if isinstance(self.known, bool) or not isinstance(self.known, int) or self.known < 0:
            raise InputError(f"known: {self.known} is not allowed; it is a whole number, 0 or more")
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 1:
            raise InputError(f"rows: {self.rows} is not allowed; it is a whole number, 1 or more")

    @property
    def log_odds(self) -> float:
        """Log prior/(1 - prior)."""
        return math.log(self.prior) - math.log1p(-self.prior)
