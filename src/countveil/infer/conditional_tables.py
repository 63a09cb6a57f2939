"""Tables of counts given the public facts: their joint law, kept place by place."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from countveil.infer.evidence import Evidence
from countveil.infer.fixed_sum import FixedSum, fixed_sum
from countveil.numerics import FloatArray, IntArray


@dataclass(frozen=True, eq=False, slots=True)
class ConditionalTables:
    """The law of tables at one point of the shared parameters, given the public sums."""

    log_chance: float  # of the facts, and of the noise where it is counted in
    tables: tuple[FloatArray, ...]  # log-weights of each place: (cases[, deaths])
    rows: tuple[FloatArray, ...]  # the same of cases alone
    groups: tuple[tuple[tuple[int, ...], FixedSum], ...]
    free: tuple[int, ...]

    def marginals(self) -> list[FloatArray]:
        """Return the law of each place's count: (cases[, deaths])."""
        found: list[FloatArray] = [np.zeros(0)] * len(self.tables)
        for place in self.free:
            found[place] = np.exp(self.rows[place] - _log_total(self.rows[place]))
        for members, joint in self.groups:
            for place, law in zip(members, joint.marginals(), strict=True):
                found[place] = law
        return [
            law if table.ndim == 1 else law[:, None] * self._deaths(place, len(law))
            for place, (law, table) in enumerate(zip(found, self.tables, strict=True))
        ]

    def draw(self, draws: int, rng: np.random.Generator) -> IntArray:
        """Draw tables (draws, places, 1 or 2)."""
        deaths = self.tables[0].ndim == 2
        found = np.zeros((draws, len(self.tables), 2 if deaths else 1), dtype=np.int64)
        for place in self.free:
            found[:, place, 0] = _draw_from(self.rows[place], draws, rng)
        for members, joint in self.groups:
            found[:, list(members), 0] = joint.draw(draws, rng)
        if deaths:
            for place in range(len(self.tables)):
                for cases in np.unique(found[:, place, 0]):
                    which = np.flatnonzero(found[:, place, 0] == cases)
                    row = self.tables[place][cases]
                    found[which, place, 1] = _draw_from(row, len(which), rng)
        return found

    def _deaths(self, place: int, cases: int) -> FloatArray:
        """Return the law of deaths given each number of cases."""
        rows = self.rows[place][:cases, None]
        table = self.tables[place][:cases]
        return np.where(
            np.isfinite(rows), np.exp(table - np.where(np.isfinite(rows), rows, 0.0)), 0.0
        )


def conditional_tables(evidence: Evidence, point: int, *, noisy: bool) -> ConditionalTables:
    """Prepare the law of tables at one point, with the noise's weights or without."""
    tables = tuple(
        evidence.log_table(place, point, noisy=noisy) for place in range(evidence.places)
    )
    rows = tuple(
        table if table.ndim == 1 else np.logaddexp.reduce(table, axis=1) for table in tables
    )
    groups = tuple(
        (group.members, fixed_sum([rows[place] for place in group.members], group.total))
        for group in evidence.facts.groups
    )
    free = evidence.facts.free
    log_chance = math.fsum(joint.log_chance for _, joint in groups)
    log_chance += math.fsum(_log_total(rows[place]) for place in free)
    return ConditionalTables(log_chance, tables, rows, groups, free)


def normalized(logs: FloatArray) -> FloatArray:
    """Return weights of sum 1."""
    weights = np.exp(logs - logs.max())
    found: FloatArray = weights / weights.sum()
    return found


def _log_total(logs: FloatArray) -> float:
    return float(np.logaddexp.reduce(logs))


def _draw_from(logs: FloatArray, draws: int, rng: np.random.Generator) -> IntArray:
    sums = np.cumsum(np.exp(logs - logs.max()))
    found: IntArray = np.searchsorted(sums, rng.random(draws) * sums[-1], side="right")
    return found
