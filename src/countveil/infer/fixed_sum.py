"""Independent counts given their sum, exactly: the chance of the sum, each count's law, and draws.

Messages are passed along the places. They are sums of products of positive numbers, tilted so that the
sum is likely, so nothing cancels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from countveil.congenial.normalizer import levelling_tilt
from countveil.errors import InfeasibleError, InputError
from countveil.numerics import FloatArray, IntArray

_MOST_PRODUCTS = 20_000_000_000


@dataclass(frozen=True, eq=False, slots=True)
class FixedSum:
    """Counts with log-weights of their own, 0 to len - 1, given that they sum to `total`."""

    laws: tuple[FloatArray, ...]  # tilted, of sum 1
    total: int
    log_scale: float
    before: tuple[FloatArray, ...]  # of place j: P(sum of the places before it), scaled
    log_before: tuple[float, ...]

    @property
    def log_chance(self) -> float:
        """The log of the sum of all products of weights."""
        return math.log(float(self.before[-1][self.total])) + self.log_before[-1] + self.log_scale

    def marginals(self) -> list[FloatArray]:
        """Return the law of each count given the sum."""
        after = np.zeros(self.total + 1)
        after[0] = 1.0
        found: list[FloatArray] = [np.zeros(0)] * len(self.laws)
        for place in range(len(self.laws) - 1, -1, -1):
            law = self.laws[place]
            others = _convolve(self.before[place], after, self.total)
            weights = law * others[self.total - np.arange(len(law))]
            found[place] = weights / weights.sum()
            after = _convolve(after, law, self.total)
            after /= after.max()
        return found

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


def fixed_sum(log_weights: Sequence[FloatArray], total: int) -> FixedSum:
    """Prepare counts with these log-weights for their sum; refuse sums that cannot be."""
    tables = [np.asarray(row[: total + 1], dtype=np.float64) for row in log_weights]
    products = 3 * sum(len(table) for table in tables) * (total + 1)
    if products > _MOST_PRODUCTS:
        raise InputError(
            f"public: exact sums over {len(tables)} places with total {total:,} take {products:.0e} "
            f'products, more than {_MOST_PRODUCTS:.0e}; use method="augmented"'
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
            f"public: no table of {len(tables)} counts that the model allows has the total {total:,}"
        )
    return FixedSum(
        tuple(laws), total, math.fsum(logs) - tilt * total, tuple(before), tuple(log_before)
    )


def _convolve(first: FloatArray, second: FloatArray, total: int) -> FloatArray:
    return np.convolve(first, second)[: total + 1]
