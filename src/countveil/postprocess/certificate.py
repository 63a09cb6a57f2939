"""A solution certifies itself: how far it is from optimal, from its sums, from being whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from countveil.numerics import FloatArray
from countveil.postprocess.rows import Row

LARGEST_RESIDUAL = 1e-9  # as long as a plan does not ask for less
LARGEST_GAP = 1e-6  # people


@dataclass(frozen=True, slots=True)
class Certificate:
    """How good the solution of one family is.

    `kkt_residual`: the largest violation of the optimality conditions, relative to the largest cell
    of the parent and to the largest term of the gradient. `consistency_gap`: the largest difference,
    in people, between sums of children and what they must be. `objective`: ½ hᵀA h − bᵀh.
    `moved_parents`: 1 where public facts left no table that adds up to the parent, and the parent
    follows its children instead.
    """

    kkt_residual: float
    consistency_gap: float
    objective: float
    iterations: int
    fallbacks: int
    moved_parents: int = 0

    @property
    def holds(self) -> bool:
        """Whether the solution is optimal and consistent as far as double precision goes."""
        return self.within(LARGEST_RESIDUAL)

    def within(self, residual: float) -> bool:
        """Whether the solution is as good as a plan asks for."""
        return _within_limits(self.kkt_residual, self.consistency_gap, residual)


@dataclass(frozen=True, slots=True)
class LevelCertificate:
    """The worst of a level's families, and how much work they were."""

    level: str
    families: int
    kkt_residual: float
    consistency_gap: float
    objective: float
    iterations: int
    most_iterations: int
    fallbacks: int
    moved_parents: int = 0

    @property
    def holds(self) -> bool:
        """Whether every solution of the level is optimal and consistent."""
        return self.within(LARGEST_RESIDUAL)

    def within(self, residual: float) -> bool:
        """Whether every solution of the level is as good as a plan asks for."""
        return _within_limits(self.kkt_residual, self.consistency_gap, residual)


def _within_limits(residual: float, gap: float, limit: float) -> bool:
    # The residual holds the gap relative to the largest sum. In people it is held too, unless a plan
    # asks for less than full precision: rounding makes the integers add up exactly in any case.
    people = LARGEST_GAP if limit <= LARGEST_RESIDUAL else np.inf
    return residual <= limit and gap <= people  # NaN fails


def combine(level: str, parts: Iterable[LevelCertificate]) -> LevelCertificate:
    """Return the certificate of a level from those of parts of it."""
    items = list(parts)
    return LevelCertificate(
        level,
        families=sum(item.families for item in items),
        kkt_residual=_worst(item.kkt_residual for item in items),
        consistency_gap=_worst(item.consistency_gap for item in items),
        objective=sum(item.objective for item in items),
        iterations=sum(item.iterations for item in items),
        most_iterations=max((item.most_iterations for item in items), default=0),
        fallbacks=sum(item.fallbacks for item in items),
        moved_parents=sum(item.moved_parents for item in items),
    )


def one_family(level: str, item: Certificate) -> LevelCertificate:
    """Return the certificate of a level that has but one family."""
    return LevelCertificate(
        level,
        1,
        item.kkt_residual,
        item.consistency_gap,
        item.objective,
        item.iterations,
        item.iterations,
        item.fallbacks,
        item.moved_parents,
    )


def chain(passes: Iterable[Certificate]) -> Certificate:
    """Return the certificate of a family solved in passes; the objective is the last one's."""
    items = list(passes)
    return Certificate(
        _worst(item.kkt_residual for item in items),
        _worst(item.consistency_gap for item in items),
        items[-1].objective,
        sum(item.iterations for item in items),
        sum(item.fallbacks for item in items),
        max(item.moved_parents for item in items),
    )


def _worst(residuals: Iterable[float]) -> float:
    return float(np.max([0.0, *residuals]))  # NaN is the worst


def natural_residual(
    h: FloatArray, reduced: FloatArray, allowed: Any, scale: float, steep: float
) -> float:
    """Return max |x − max(0, x − r)|, 0 where optimal, for entries x and reduced gradients r.

    Entries are relative to the largest sum (`scale`), gradients to their largest term (`steep`).
    """
    x = h / scale
    apart = np.abs(x - np.maximum(x - reduced / steep, 0.0))
    return float(np.where(allowed, apart, np.abs(x)).max(initial=0.0))


def row_residual(
    rows: Sequence[Row], h: FloatArray, along: FloatArray, scale: float, steep: float
) -> float:
    """Return the same for rows: max |s − clip(s − m, lower, upper)|, for sums s and multipliers m.

    A row at its lower bound may push up, one at its upper bound down, a slack one not at all.
    """
    worst = [0.0]
    for row, multiplier in zip(rows, along, strict=True):
        s = row.sum_of(h) / scale
        moved = np.clip(s - multiplier / steep, row.lower / scale, row.upper / scale)
        worst.append(abs(s - float(moved)))
    return float(np.max(worst))
