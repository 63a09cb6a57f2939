"""What every risk measure returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from countveil.numerics import FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class Risk:
    """A number or an array of them, what it measures, and who may read it.

    Anything computed from confidential counts is internal; the public report will not print it.
    """

    measure: str
    value: float | FloatArray
    posterior: float | FloatArray | None = None
    audience: Literal["public", "internal"] = "public"
