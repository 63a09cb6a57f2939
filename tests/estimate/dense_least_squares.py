"""Generalised least squares written out: every unit, cell and measurement in one dense problem.

Unknown are the cells of all lowest units. Exact observations are solved for by a null space, noisy ones
by the normal equations of what is left.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from countveil.measure.measurements import Measurements
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan


@dataclass(frozen=True)
class Dense:
    """The estimate of all cells of all lowest units, its covariance, and what is determined."""

    plan: Plan
    geography: Geography
    value: np.ndarray
    covariance: np.ndarray
    undetermined: np.ndarray  # a projector on the directions that nothing observed touches

    def rows(self, level: str, query: str, units: list[int]) -> np.ndarray:
        """Return a query of the sum of units as functions of all cells: cells of the query × all."""
        lowest = self.geography.levels[-1]
        inside = np.isin(self.geography.ancestors(lowest, level), units).astype(float)
        return np.kron(inside, matrix(self.plan, query))


def matrix(plan: Plan, query: str) -> np.ndarray:
    """Return the query as a 0-1 matrix over the full histogram."""
    asked = plan.schema.query(query)
    result = np.zeros((asked.cells, plan.schema.cells))
    counted = asked.cell_of >= 0
    result[asked.cell_of[counted], np.flatnonzero(counted)] = 1.0
    return result


def _svd(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the singular value decomposition with all right vectors, and no more left ones."""
    return np.linalg.svd(rows, full_matrices=rows.shape[0] < rows.shape[1])


def solve(measurements: Measurements, plan: Plan, geography: Geography) -> Dense:
    """Solve everything at once."""
    lowest = geography.levels[-1]
    units, cells = geography.units(lowest), plan.schema.cells
    noisy, targets, weights, exact, fixed = [], [], [], [], []
    for level in plan.levels:
        above = geography.ancestors(lowest, level)
        for unit in range(geography.units(level)):
            inside = (above == unit).astype(float)
            for item in plan.at(level):
                found = measurements.read(level, item.query.name)
                noisy.append(np.kron(inside, matrix(plan, item.query.name)))
                targets.append(found.values[unit])
                weights.append(np.full(item.query.cells, 1 / found.mechanism.variance))
            for item in plan.invariants:
                if item.level == level:
                    exact.append(np.kron(inside, matrix(plan, item.query.name)))
                    fixed.append(measurements.invariant(level, item.query.name)[unit])
    zero = np.tile(~plan.possible, units)
    exact.append(np.eye(units * cells)[zero])
    fixed.append(np.zeros(int(zero.sum())))
    A, m, w = np.concatenate(noisy), np.concatenate(targets), np.concatenate(weights)
    C, c = np.concatenate(exact), np.concatenate(fixed)
    start, free = np.zeros(units * cells), np.eye(units * cells)
    if len(C):
        left, singular, right = _svd(C)
        rank = int((singular > 1e-9).sum())
        start = right[:rank].T @ ((left[:, :rank].T @ c) / singular[:rank])
        free = right[rank:].T
    scaled = np.sqrt(w)[:, None] * (A @ free)
    _, singular, right = _svd(A @ free)
    rank = int((singular > 1e-9).sum())
    kept, lost = right[:rank].T, right[rank:].T
    # A QR of the weighted rows, instead of normal equations, keeps all digits.
    q, r = np.linalg.qr(scaled @ kept)
    inverse = np.linalg.inv(r)
    step = kept @ (inverse @ (q.T @ (np.sqrt(w) * (m - A @ start))))
    root = free @ kept @ inverse
    outside = free @ lost
    return Dense(plan, geography, start + free @ step, root @ root.T, outside @ outside.T)
