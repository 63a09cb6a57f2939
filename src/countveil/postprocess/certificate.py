"""A solution certifies itself: how far it is from optimal, from its sums, from being whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from countveil.numerics import FloatArray

LARGEST_RESIDUAL = 1e-9


@dataclass(frozen=True, slots=True)
class Certificate:
    """How good the solution of one family is.

    `kkt_residual`: the largest violation of the optimality conditions, relative to the largest cell
    of the parent and to the largest term of the gradient. `consistency_gap`: the largest difference,
    in people, between sums of children and what they must be. `objective`: ½ hᵀA h − bᵀh.
    """

    kkt_residual: float
    consistency_gap: float
    objective: float
    iterations: int
    fallbacks: int

    @property
    def holds(self) -> bool:
        """Whether the solution is optimal and consistent as far as double precision goes."""
        # Written so that NaN fails.
        return (
            self.kkt_residual <= LARGEST_RESIDUAL and self.consistency_gap <= LARGEST_RESIDUAL * 1e3
        )


@dataclass(frozen=True, slots=True)
class LevelCertificate:
    """The worst of a level's families, and how much work they were.

    `rounding`: the mean change of a cell by rounding, in people.
    """

    level: str
    families: int
    kkt_residual: float
    consistency_gap: float
    objective: float
    iterations: int
    most_iterations: int
    fallbacks: int
    integral: bool

    @property
    def document(self) -> dict[str, Any]:
        """The certificate as the manifest holds it."""
        return asdict(self)


def combine(level: str, certificates: Iterable[Certificate], *, integral: bool) -> LevelCertificate:
    """Return the certificate of a level from those of its families."""
    items = list(certificates)
    return LevelCertificate(
        level,
        families=len(items),
        kkt_residual=max((item.kkt_residual for item in items), default=0.0),
        consistency_gap=max((item.consistency_gap for item in items), default=0.0),
        objective=sum(item.objective for item in items),
        iterations=sum(item.iterations for item in items),
        most_iterations=max((item.iterations for item in items), default=0),
        fallbacks=sum(item.fallbacks for item in items),
        integral=integral,
    )


def natural_residual(
    h: FloatArray, reduced: FloatArray, allowed: Any, scale: float, steep: float
) -> float:
    """Return max |x − max(0, x − r)|, 0 where optimal, for entries x and reduced gradients r.

    Entries are relative to the largest sum (`scale`), gradients to their largest term (`steep`).
    """
    x = h / scale
    apart = np.abs(x - np.maximum(x - reduced / steep, 0.0))
    return float(np.where(allowed, apart, np.abs(x)).max(initial=0.0))
