"""Ways from replicates to an interval: corrected for a pooled bias, or by plain quantiles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from countveil.count_interval import count_interval
from countveil.errors import InputError
from countveil.infer.pooled_bias import corrected
from countveil.numerics import FloatArray, IntArray

Method = Literal["bias-corrected", "basic", "percentile"]
_COLUMNS = ("bias", "standard_error", "lower", "upper")
METHODS: tuple[Method, ...] = ("bias-corrected", "basic", "percentile")


@dataclass(frozen=True, eq=False, slots=True)
class Gathered:
    """Released counts, units × cells, and columns beside them: bias, standard_error, lower, upper."""

    released: IntArray
    columns: dict[str, pa.Array]


@dataclass(frozen=True, eq=False, slots=True)
class Parts:
    """What an interval needs of replicates, gathered some units after others."""

    confidence: float
    method: Method
    replicates: int
    _released: list[IntArray] = field(default_factory=list, repr=False)
    _numbers: list[dict[str, Any]] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise InputError(
                f"method: {self.method!r} is not known; choose from {', '.join(METHODS)}"
            )

    @property
    def corrects(self) -> bool:
        """Whether unbiased estimates are used."""
        return self.method == "bias-corrected"

    def add(self, released: IntArray, made: IntArray) -> None:
        """Take more units: units × cells as released, and replicates × units × cells."""
        numbers = {
            "bias": made.mean(axis=0) - released,
            "standard_error": made.std(axis=0, ddof=1),
        }
        if not self.corrects:
            numbers |= _quantiles(released, made, self.confidence, self.method)
        self._released.append(released)
        self._numbers.append(numbers)

    def gathered(
        self, unbiased: tuple[FloatArray, FloatArray] | None, *, alone: bool = False
    ) -> Gathered:
        """Return all units; `unbiased` are estimates and their errors, where there are any.

        Where measurements do not determine a cell there is nothing to find its bias by: then it has
        none, and no interval. `alone`: units tell nothing of each other.
        """
        released = np.concatenate(self._released)
        columns = {
            name: np.concatenate([part[name] for part in self._numbers])
            for name in self._numbers[0]
        }
        if not self.corrects:
            return Gathered(released, {name: pa.array(c.ravel()) for name, c in columns.items()})
        value, error = (
            (np.zeros(released.shape), np.full(released.shape, np.inf))
            if unbiased is None
            else unbiased
        )
        known = np.isfinite(error)
        found = corrected(
            released,
            columns["bias"],
            columns["standard_error"],
            np.where(known, value, released),
            np.where(known, error, 0.0),
            self.replicates,
            alone=alone,
        )
        ends = count_interval(released - found.bias, found.standard_error, self.confidence)
        lower, upper = (end.astype(np.int64) for end in ends)
        numbers = (found.bias, found.standard_error, lower, upper)
        missing = ~known.ravel()
        return Gathered(
            released,
            {
                name: pa.array(column.ravel(), mask=missing)
                for name, column in zip(_COLUMNS, numbers, strict=True)
            },
        )


def _quantiles(
    released: IntArray, made: IntArray, confidence: float, method: Method
) -> dict[str, IntArray]:
    """Return where the middle of replicates lies, or the release less where their errors lie.

    Ends are whole numbers, rounded outwards, and never negative.
    """
    tail = (1 - confidence) / 2
    low = np.quantile(made, tail, axis=0, method="lower")
    high = np.quantile(made, 1 - tail, axis=0, method="higher")
    if method == "basic":
        low, high = 2 * released - high, 2 * released - low
    return {
        "lower": np.maximum(low, 0).astype(np.int64),
        "upper": np.maximum(high, 0).astype(np.int64),
    }
