"""Certificates: how far a solution is from optimal, and from the sums it must have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from countveil.base.numerics import FloatArray
from countveil.postprocess.facts.rows import Row

LARGEST_RESIDUAL = 1e-9  # unless a plan accepts more
LARGEST_GAP = 1e-6  # people


@dataclass(frozen=True, slots=True)
class Certificate:
    """How good the solution of one family is.

    Attributes
    ----------
    kkt_residual : float
        The largest violation of the optimality conditions, relative to the largest cell of the parent
        and to the largest term of the gradient.
    consistency_gap : float
        The largest difference, in people, between a sum of children and what it must be.
    objective : float
        ½ hᵀA h − bᵀh.
    iterations : int
        Steps of the solver.
    fallbacks : int
        How often the fast method had to give way to a slower one.
    moved_parents : int
        1 if public facts left no table that adds up to the parent, so that the parent follows its
        children instead.
    largest_departure : mapping of str to float
        For each query that rounding was to keep, how far its farthest sum of a child is from the
        solution, in people; at most 1 where a table was found that keeps all of them.

    """

    kkt_residual: float
    consistency_gap: float
    objective: float
    iterations: int
    fallbacks: int
    moved_parents: int = 0
    largest_departure: Mapping[str, float] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether the solution is optimal and consistent as far as double precision goes."""
        return self.within(LARGEST_RESIDUAL)

    def within(self, residual: float) -> bool:
        """Whether the residual is at most `residual`, and the sums are right."""
        return _within_limits(self.kkt_residual, self.consistency_gap, residual)


@dataclass(frozen=True, slots=True)
class LevelCertificate:
    """The worst certificate of a level's families, and the work of all of them.

    Attributes
    ----------
    level : str
        The level of the children.
    families : int
        How many families it has.
    kkt_residual, consistency_gap : float
        The largest of its families.
    objective : float
        The sum over its families.
    iterations, most_iterations : int
        Steps of the solver, in all and in one family at most.
    fallbacks, moved_parents : int
        Sums over its families.
    largest_departure : mapping of str to float
        For each query, the largest of its families.

    """

    level: str
    families: int
    kkt_residual: float
    consistency_gap: float
    objective: float
    iterations: int
    most_iterations: int
    fallbacks: int
    moved_parents: int = 0
    largest_departure: Mapping[str, float] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether every solution of the level is optimal and consistent."""
        return self.within(LARGEST_RESIDUAL)

    def within(self, residual: float) -> bool:
        """Whether every residual is at most `residual`, and all sums are right."""
        return _within_limits(self.kkt_residual, self.consistency_gap, residual)


def _within_limits(residual: float, gap: float, limit: float) -> bool:
    # The residual includes the gap relative to the largest sum. The gap in people is limited too,
    # unless a plan accepts less than full precision: rounded integers add up exactly in any case.
    people = LARGEST_GAP if limit <= LARGEST_RESIDUAL else np.inf
    return residual <= limit and gap <= people  # NaN fails


def combine(level: str, parts: Iterable[LevelCertificate]) -> LevelCertificate:
    """Return the certificate of a level from the certificates of its parts."""
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
        largest_departure=_farthest(items),
    )


def one_family(level: str, item: Certificate) -> LevelCertificate:
    """Return the certificate of a level with one family."""
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
        item.largest_departure,
    )


def combine_passes(passes: Iterable[Certificate]) -> Certificate:
    """Return the certificate of a family solved in passes, with the objective of the last one."""
    items = list(passes)
    return Certificate(
        _worst(item.kkt_residual for item in items),
        _worst(item.consistency_gap for item in items),
        items[-1].objective,
        sum(item.iterations for item in items),
        sum(item.fallbacks for item in items),
        max(item.moved_parents for item in items),
        items[-1].largest_departure,
    )


def _farthest(items: Iterable[LevelCertificate]) -> dict[str, float]:
    farthest: dict[str, float] = {}
    for item in items:
        for query, departure in item.largest_departure.items():
            farthest[query] = max(farthest.get(query, 0.0), departure)
    return farthest


def _worst(residuals: Iterable[float]) -> float:
    return float(np.max([0.0, *residuals]))  # NaN is the worst


def natural_residual(
    h: FloatArray,
    reduced: FloatArray,
    allowed: NDArray[np.bool_] | bool,
    scale: float,
    steep: float,
) -> float:
    """Return max |x − max(0, x − r)|, 0 at the optimum, for entries x and reduced gradients r.

    Entries are relative to the largest sum (`scale`), gradients to their largest term (`steep`).
    """
    x = h / scale
    apart = np.abs(x - np.maximum(x - reduced / steep, 0.0))
    return float(np.where(allowed, apart, np.abs(x)).max(initial=0.0))


def row_residual(
    rows: Sequence[Row], h: FloatArray, along: FloatArray, scale: float, steep: float
) -> float:
    """Return the same for rows: max |s − clip(s − m, lower, upper)|, for sums s and multipliers m.

    A row at its lower bound may push up, one at its upper bound down, any other row not at all.
    """
    worst = [0.0]
    for row, multiplier in zip(rows, along, strict=True):
        s = row.sum_of(h) / scale
        moved = np.clip(s - multiplier / steep, row.lower / scale, row.upper / scale)
        worst.append(abs(s - float(moved)))
    return float(np.max(worst))
