"""The joint law of tables of counts given the public facts, kept place by place.

Independent counts given their sum are handled exactly by messages along the places: the probability of
the sum, the law of each count, and draws. Messages are sums of products of positive numbers, tilted so
that the sum is likely, so nothing cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from countveil.base.numerics import FloatArray, IntArray
from countveil.congenial.inference.posterior_problem import PosteriorProblem
from countveil.congenial.mechanism.normalizer import levelling_tilt
from countveil.errors import InfeasibleError, InputError

_MOST_PRODUCTS = 20_000_000_000


@dataclass(frozen=True, eq=False, slots=True)
class ConditionalTables:
    """The law of tables at one point of the shared parameters, given the public sums."""

    log_probability: float  # of the facts, with the weights of the noise if it is included
    tables: tuple[FloatArray, ...]  # log-weights of each place: (cases[, deaths])
    rows: tuple[FloatArray, ...]  # log-weights of cases alone
    groups: tuple[tuple[tuple[int, ...], FixedSum], ...]
    free: tuple[int, ...]

    @classmethod
    def of(cls, problem: PosteriorProblem, point: int, *, noisy: bool) -> ConditionalTables:
        """Prepare the law of tables at one point, with the noise's weights or without."""
        tables = tuple(
            problem.log_table(place, point, noisy=noisy) for place in range(problem.places)
        )
        rows = tuple(
            table if table.ndim == 1 else np.logaddexp.reduce(table, axis=1) for table in tables
        )
        groups = tuple(
            (group.members, FixedSum.of([rows[place] for place in group.members], group.total))
            for group in problem.facts.groups
        )
        free = problem.facts.free
        log_probability = math.fsum(joint.log_probability for _, joint in groups)
        log_probability += math.fsum(_log_total(rows[place]) for place in free)
        return cls(log_probability, tables, rows, groups, free)

    def marginals(self) -> list[FloatArray]:
        """Return the law of each place's count: (cases[, deaths])."""
        laws: list[FloatArray] = [np.zeros(0)] * len(self.tables)
        for place in self.free:
            laws[place] = np.exp(self.rows[place] - _log_total(self.rows[place]))
        for members, joint in self.groups:
            for place, law in zip(members, joint.marginals(), strict=True):
                laws[place] = law
        return [
            law if table.ndim == 1 else law[:, None] * self._deaths(place, len(law))
            for place, (law, table) in enumerate(zip(laws, self.tables, strict=True))
        ]

    def draw(self, draws: int, rng: np.random.Generator) -> IntArray:
        """Draw tables (draws, places, 1 or 2)."""
        deaths = self.tables[0].ndim == 2
        tables = np.zeros((draws, len(self.tables), 2 if deaths else 1), dtype=np.int64)
        for place in self.free:
            tables[:, place, 0] = _draw_from(self.rows[place], draws, rng)
        for members, joint in self.groups:
            tables[:, list(members), 0] = joint.draw(draws, rng)
        if deaths:
            for place in range(len(self.tables)):
                for cases in np.unique(tables[:, place, 0]):
                    which = np.flatnonzero(tables[:, place, 0] == cases)
                    row = self.tables[place][cases]
                    tables[which, place, 1] = _draw_from(row, len(which), rng)
        return tables

    def _deaths(self, place: int, cases: int) -> FloatArray:
        """Return the law of deaths given each number of cases."""
        rows = self.rows[place][:cases, None]
        table = self.tables[place][:cases]
        return np.where(
            np.isfinite(rows), np.exp(table - np.where(np.isfinite(rows), rows, 0.0)), 0.0
        )


@dataclass(frozen=True, eq=False, slots=True)
class FixedSum:
    """Independent counts, each with its own weights of 0 to len - 1, given that they sum to `total`."""

    laws: tuple[FloatArray, ...]  # tilted, of sum 1
    total: int
    log_scale: float
    before: tuple[FloatArray, ...]  # of place j: P(sum of the places before it), scaled
    log_before: tuple[float, ...]

    @classmethod
    def of(cls, log_weights: Sequence[FloatArray], total: int) -> FixedSum:
        """Prepare counts with these log-weights for their sum; refuse impossible sums."""
        tables = [np.asarray(row[: total + 1], dtype=np.float64) for row in log_weights]
        products = 3 * sum(len(table) for table in tables) * (total + 1)
        if products > _MOST_PRODUCTS:
            raise InputError(
                f"public: exact sums over {len(tables)} places with total {total:,} take "
                f'{products:.0e} products, more than {_MOST_PRODUCTS:.0e}; use method="augmented"'
            )
        tilt = levelling_tilt(tables, total)
        laws, logs = [], []
        for table in tables:
            exponents = table + tilt * np.arange(len(table))
            top = float(exponents.max())
            weights = np.exp(exponents - top)
            mass = float(weights.sum())
            laws.append(weights / mass)
            logs.append(top + math.log(mass))
        message = np.zeros(total + 1)
        message[0] = 1.0
        before, log_before = [message], [0.0]
        for law in laws:
            message = _convolve(message, law, total)
            top = float(message.max())
            before.append(message / top)
            log_before.append(log_before[-1] + math.log(top))
            message = before[-1]
        if not before[-1][total] > 0:
            raise InfeasibleError(
                f"public: no table of {len(tables)} counts that the model allows has the total "
                f"{total:,}"
            )
        return cls(
            tuple(laws), total, math.fsum(logs) - tilt * total, tuple(before), tuple(log_before)
        )

    @property
    def log_probability(self) -> float:
        """The log of the sum of all products of weights."""
        return math.log(float(self.before[-1][self.total])) + self.log_before[-1] + self.log_scale

    def marginals(self) -> list[FloatArray]:
        """Return the law of each count given the sum."""
        after = np.zeros(self.total + 1)
        after[0] = 1.0
        laws: list[FloatArray] = [np.zeros(0)] * len(self.laws)
        for place in range(len(self.laws) - 1, -1, -1):
            law = self.laws[place]
            others = _convolve(self.before[place], after, self.total)
            weights = law * others[self.total - np.arange(len(law))]
            laws[place] = weights / weights.sum()
            after = _convolve(after, law, self.total)
            after /= after.max()
        return laws

    def draw(self, draws: int, rng: np.random.Generator) -> IntArray:
        """Draw tables (draws, places), the last place first."""
        tables = np.zeros((draws, len(self.laws)), dtype=np.int64)
        left = np.full(draws, self.total)
        for place in range(len(self.laws) - 1, -1, -1):
            law, before = self.laws[place], self.before[place]
            levels = rng.random(draws)
            for rest in np.unique(left):
                top = min(len(law) - 1, int(rest))
                sums = np.cumsum(law[: top + 1] * before[rest - np.arange(top + 1)])
                rows = np.flatnonzero(left == rest)
                tables[rows, place] = np.searchsorted(sums, levels[rows] * sums[-1], side="right")
            left = left - tables[:, place]
        return tables


def weights_from_logs(logs: FloatArray) -> FloatArray:
    """Return the weights with these logarithms, scaled to sum to 1."""
    weights = np.exp(logs - logs.max())
    scaled: FloatArray = weights / weights.sum()
    return scaled


def _convolve(first: FloatArray, second: FloatArray, total: int) -> FloatArray:
    return np.convolve(first, second)[: total + 1]


def _log_total(logs: FloatArray) -> float:
    return float(np.logaddexp.reduce(logs))


def _draw_from(logs: FloatArray, draws: int, rng: np.random.Generator) -> IntArray:
    sums = np.cumsum(np.exp(logs - logs.max()))
    values: IntArray = np.searchsorted(sums, rng.random(draws) * sums[-1], side="right")
    return values
