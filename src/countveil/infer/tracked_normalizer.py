"""The mechanism's normaliser along a chain of tables, renewed only for the places that change.

C(x) is the sum over all releases of the product of places' weights under a fixed sum: one coefficient
of a product of transforms (congenial.normalizer). The transform of each place is kept. What folding
adds is bounded by Chernoff at every table visited; where the bound does not do, C is computed anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from countveil.congenial.normalizer import levelling_tilt, log_sum
from countveil.congenial.product import Group
from countveil.congenial.wasserstein_mechanism import Wasserstein
from countveil.numerics import FloatArray, IntArray

_LOG_NEGLIGIBLE = 80.0
_LOG_FOLDED = math.log(1e-11)  # what folding may add, relative to the sum
_LEAST_CHANCE = 1e-8  # of the sum under the tilt, below which rounding would show
_DEVIATIONS = 16.0  # of the sum: the length of the transforms
_EXPONENT = 8.0  # of Chernoff's bound, over the standard deviation
_GUESSES = 129  # counts at which the sum of a place's weights is computed, under squared L2
_TOO_OFTEN = 0.05  # of moves computed anew: fit tilt and length again


@dataclass(frozen=True, eq=False, slots=True)
class Factor:
    """The weights of one place: their transform, log of their sum, log-moments on both sides."""

    count: IntArray
    transform: NDArray[np.complex128]
    log_mass: float
    log_above: float  # log E exp(u (k - count)): u > 0
    log_below: float


class TrackedNormalizer:
    """log C of the tables of one group of places, following a chain."""

    def __init__(self, mechanism: Wasserstein, group: Group, table: IntArray) -> None:
        self._mechanism, self._group = mechanism, group
        self._counts = np.arange(group.total + 1)
        self._bases = {
            place: np.asarray(mechanism.log_base(place, self._counts), dtype=np.float64)
            for place in group.members
        }
        self._longer, self._moves, self._anew, self._short = 1.0, 0, 0, 0
        self._guesses: dict[int, FloatArray] | None = None
        self._fit({place: table[place].copy() for place in group.members})

    def begin(self, moves: list[tuple[int, ...]]) -> None:
        """Prepare for a pass: moves of disjoint places, in this order."""
        if self._anew > _TOO_OFTEN * max(self._moves, 200):
            if self._short > self._anew / 2:
                self._longer *= 2
            self._fit({place: factor.count for place, factor in self._factors.items()})
        moved = {place for move in moves for place in move}
        product = np.ones(self._length // 2 + 1, dtype=np.complex128)
        for place, factor in self._factors.items():
            if place not in moved:
                product = product * factor.transform
        self._after = [product]
        for move in reversed(moves):
            for place in move:
                product = product * self._factors[place].transform
            self._after.append(product)
        self._after.pop()  # of the move that is next, its own factors are left out
        self._before = np.ones(self._length // 2 + 1, dtype=np.complex128)

    def propose(self, changes: dict[int, IntArray]) -> tuple[float, dict[int, Factor]]:
        """Return log C(x')/C(x) for the next move of the pass, and the factors that it would bring."""
        changed = {place: self._factor(place, count) for place, count in changes.items()}
        product = self._before * self._after[-1]
        for factor in changed.values():
            product = product * factor.transform
        self._moves += 1
        log_normalizer = self._read(product, {**self._factors, **changed})
        self._proposed = log_normalizer
        return log_normalizer - self._log_normalizer, changed

    def log_masses(self, place: int, counts: IntArray) -> FloatArray:
        """Return about how C depends on the count of a place: what proposals are divided by.

        C is the product of the places' sums of weights, times the chance of the public sum under the
        tilt, which hardly changes. Exact for L1 and cases alone; any guess leaves the chain right.
        """
        if self._guesses is None:
            return np.zeros(len(counts))
        return self._guesses[place][counts]

    def settle(self, move: tuple[int, ...], changed: dict[int, Factor] | None) -> None:
        """End the move: with these factors if it was taken, with the former if not."""
        if changed is not None:
            self._factors.update(changed)
            self._log_normalizer = self._proposed
        self._after.pop()
        for place in move:
            self._before = self._before * self._factors[place].transform

    def _fit(self, counts: dict[int, IntArray]) -> None:
        """Choose tilt and length for tables like this one."""
        rows = [self._log_weights(place, count, 0, None) for place, count in counts.items()]
        self._tilt = levelling_tilt(rows, self._group.total)
        grid, variance = self._counts.astype(np.float64), 0.0
        for row in rows:
            exponents = row + self._tilt * grid
            law = np.exp(exponents - exponents.max())
            law /= law.sum()
            variance += float((law * (grid - float((law * grid).sum())) ** 2).sum())
        deviation = max(math.sqrt(variance), 1.0)
        self._length = 1 << max(6, math.ceil(math.log2(self._longer * _DEVIATIONS * deviation)))
        self._exponent = _EXPONENT / deviation
        # The angle of total · i is reduced in whole numbers, so that it is exact to rounding.
        turns = (self._group.total % self._length) * np.arange(self._length // 2 + 1)
        weights = np.full(self._length // 2 + 1, 2.0 / self._length)
        weights[0] = weights[-1] = 1.0 / self._length
        self._reader = weights * np.exp(2j * math.pi / self._length * (turns % self._length))
        self._tops = {
            place: float((base + self._tilt * grid).max()) for place, base in self._bases.items()
        }
        self._guesses = None
        if self._mechanism.prior is not None:
            self._guesses = {place: self._guess(place) for place in counts}
        self._factors = {place: self._factor(place, count) for place, count in counts.items()}
        self._moves = self._anew = self._short = 0
        product = np.ones(self._length // 2 + 1, dtype=np.complex128)
        for factor in self._factors.values():
            product = product * factor.transform
        self._log_normalizer = self._read(product, self._factors)

    def _factor(self, place: int, count: IntArray) -> Factor:
        start, stop = self._window(place, int(count[0]))
        at = self._counts[start:stop]
        exponents = self._log_weights(place, count, start, stop) + self._tilt * at
        peak = int(exponents.argmax())
        top = float(exponents[peak])
        weights = np.exp(exponents - top)
        mass = float(weights.sum())
        law = weights / mass
        shift = self._exponent * (start + peak - int(count[0]))
        matters = law > 0
        with np.errstate(over="ignore"):  # an infinite moment bounds nothing, and is seen to
            moved = np.exp(self._exponent * (at[matters] - (start + peak)))
            above, below = (law[matters] * moved).sum(), (law[matters] / moved).sum()
        first = start // self._length * self._length
        folded = np.zeros(-(-(stop - first) // self._length) * self._length)
        folded[start - first : stop - first] = law
        return Factor(
            count,
            np.fft.rfft(folded.reshape(-1, self._length).sum(axis=0)),
            top + math.log(mass),
            math.log(float(above)) + shift,
            math.log(float(below)) - shift,
        )

    def _guess(self, place: int) -> FloatArray:
        """Return log of the sum of a place's tilted weights, by its count."""
        base = self._bases[place] + self._tilt * self._counts
        rate = float(self._mechanism.rate)
        if self._mechanism.loss == "L1":
            # Sums to the left and to the right of a count, each a running sum.
            left = np.logaddexp.accumulate(base + rate * self._counts) - rate * self._counts
            back = np.logaddexp.accumulate((base - rate * self._counts)[::-1])[::-1]
            right = np.full(len(base), -math.inf)
            right[:-1] = back[1:] + rate * self._counts[:-1]
            sums: FloatArray = np.logaddexp(left, right)
            return sums
        at = np.unique(np.linspace(0, self._group.total, _GUESSES).astype(np.int64))
        few = [float(np.logaddexp.reduce(base - self._cost(self._counts - count))) for count in at]
        return np.interp(self._counts, at, few)

    def _window(self, place: int, count: int) -> tuple[int, int]:
        """Return the counts outside of which weights are below exp(-80) of the place's own."""
        here = float(self._bases[place][count]) + self._tilt * count
        fall = _LOG_NEGLIGIBLE + self._tops[place] - here
        rate = float(self._mechanism.rate)
        if self._mechanism.deaths:
            fall += math.log(
                self._group.total + 1
            )  # deaths weigh 1 at least here, and at most this
        reach = math.ceil(fall / rate if self._mechanism.loss == "L1" else math.sqrt(fall / rate))
        return max(0, count - reach), min(self._group.total, count + reach) + 1

    def _read(self, product: NDArray[np.complex128], factors: dict[int, Factor]) -> float:
        """Return log C, up to a constant of the group, from the product of all transforms."""
        chance = float((product * self._reader).real.sum())
        if chance >= _LEAST_CHANCE:
            # The places' own counts sum to the total, so folded sums are a whole length away from them.
            limit = self._exponent * self._length + _LOG_FOLDED + math.log(chance / 2)
            above = math.fsum(factor.log_above for factor in factors.values())
            below = math.fsum(factor.log_below for factor in factors.values())
            if max(above, below) <= limit:
                log_masses = math.fsum(factor.log_mass for factor in factors.values())
                return math.log(chance) + log_masses - self._tilt * self._group.total
            self._short += 1
        self._anew += 1
        rows = [self._log_weights(place, item.count, 0, None) for place, item in factors.items()]
        return log_sum(rows, self._group.total)

    def _log_weights(self, place: int, count: IntArray, start: int, stop: int | None) -> FloatArray:
        """Return log of base measure times exp(-rate·loss), deaths summed over, for these counts."""
        row = self._bases[place][start:stop] - self._cost(self._counts[start:stop] - int(count[0]))
        if self._mechanism.deaths:
            sums = np.cumsum(np.exp(-self._cost(self._counts[:stop] - int(count[1]))))
            with np.errstate(divide="ignore"):
                row = row + np.log(sums[start:])
        return row

    def _cost(self, apart: IntArray) -> FloatArray:
        distance = np.abs(apart).astype(np.float64)
        rate = float(self._mechanism.rate)
        return rate * (distance if self._mechanism.loss == "L1" else distance**2)
