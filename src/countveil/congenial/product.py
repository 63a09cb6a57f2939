"""Tables whose weight is a product over places, under fixed sums: drawn exactly.

The weight of a table is the base measure times exp(-rate·|count - target|), or of the square. Tilting
all counts of a group by exp(tilt·count) changes nothing, as their sum is fixed, but lets independent
draws hit it: all counts of a group but one are drawn from integer tables, the last is what is left. A
table is then taken with exactly the chance that makes its law right. Deaths are drawn given cases, from
all that are not more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from countveil.congenial import integer_tables
from countveil.congenial.base_measure import BaseMeasure
from countveil.congenial.exact_chance import Scaled, below, those_that_happen
from countveil.congenial.integer_tables import NEGLIGIBLE, IntegerTables
from countveil.errors import InputError
from countveil.numerics import Array, FloatArray, IntArray
from countveil.randomness import BitSource

_MOST_STEPS = 60
_SPACED = 4096
_LARGEST_ERROR = 2.0**-12


@dataclass(frozen=True, slots=True)
class Shape:
    """How the weight of a count falls with its distance: by exp(-rate·distance**power)."""

    rate: Fraction
    power: int

    def cost(self, distance: Array) -> FloatArray:
        """Return rate·|distance|**power."""
        costs: FloatArray = (
            float(self.rate) * np.abs(np.asarray(distance, np.float64)) ** self.power
        )
        return costs

    def exact(self, distance: int) -> Fraction:
        """Return the same exactly."""
        return self.rate * Fraction(abs(distance) ** self.power)

    def reach(self, far: float, tilt: float) -> float:
        """Return a distance beyond which cost - |tilt|·distance is above `far`; it may be infinite."""
        rate, tilt = float(self.rate), abs(tilt)
        if self.power == 2:
            return (tilt + math.sqrt(tilt**2 + 4 * rate * far)) / (2 * rate) + 1
        return far / (rate - tilt) + 1 if tilt < 0.999 * rate else math.inf


@dataclass(frozen=True, slots=True)
class Group:
    """Places whose counts have a public sum."""

    members: tuple[int, ...]
    total: int


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Product:
    """One law of tables: prepared once for its targets, then drawn from as often as needed."""

    base: BaseMeasure
    shape: Shape
    targets: IntArray  # (places, 1 or 2): cases, or cases and deaths
    groups: tuple[Group, ...]
    tilts: FloatArray  # of each place
    shifts: FloatArray  # of each place: log-weights are taken relative to it
    last: IntArray  # the place of each group that takes what is left
    cases: IntegerTables
    deaths: IntegerTables | None
    margin: float
    largest: Fraction  # bounds the weight of a last count, relative to its shift

    def __repr__(self) -> str:
        return f"<a product law around {len(self.targets)} confidential counts>"

    @property
    def constant(self) -> Scaled:
        """The sum that a proposal's chances are relative to: weight = proposal·chance·constant."""
        exponent = sum(map(Fraction, self.shifts.tolist()), Fraction(0))
        for group in self.groups:
            exponent -= Fraction(float(self.tilts[group.members[0]])) * group.total
        factor = self.largest ** len(self.groups)
        for place in range(len(self.targets)):
            if place not in self.last:
                factor *= int(self.cases.totals[place]) / self.cases.scales[place]
            if self.deaths is not None:
                factor /= self.deaths.scales[place]
        return Scaled(exponent, factor)

    def propose(self, size: int, rng: BitSource) -> tuple[IntArray, FloatArray, int]:
        """Return tables, the logarithms of their chances, and the next free depth of the batch.

        Draw number i·words of the batch is for the decision about table i, from that depth on.
        """
        rng.begin(size * self.words)
        places, depth = np.arange(len(self.targets)), 0
        rows = np.repeat(np.arange(size), len(places))
        columns = np.tile(places, size)
        draws = rows * self.words + columns
        values, depth = below(self.cases.totals[columns], rng, draws, depth)
        cases = self.cases.find(columns, values).reshape(size, -1)
        possible = np.ones(size, bool)
        for group, last in zip(self.groups, self.last, strict=True):
            members = np.array(group.members)
            rest = group.total - cases[:, members].sum(axis=1) + cases[:, last]
            possible &= (rest >= 0) & (rest <= group.total)
            cases[:, last] = np.clip(rest, 0, group.total)
        if self.deaths is None:
            tables = cases[:, :, None]
        else:
            limits = self.deaths.up_to(columns, cases.reshape(-1))
            values, depth = below(limits, rng, draws, depth)
            deaths = self.deaths.find(columns, values).reshape(size, -1)
            tables = np.stack((cases, deaths), axis=2)
        return tables, np.where(possible, self._log_chances(tables), -np.inf), depth

    @property
    def words(self) -> int:
        """How many draws of a batch one table takes."""
        return len(self.targets)

    @property
    def entries(self) -> int:
        """How many numbers its tables hold."""
        deaths = 0 if self.deaths is None else len(self.deaths.ends)
        return len(self.cases.ends) + deaths

    @property
    def log_constant(self) -> float:
        """The logarithm of `constant`."""
        return self.constant.log

    def enclose_worth(self, table: IntArray, times: Scaled, bits: int) -> tuple[int, int]:
        """Return whole numbers with low <= 2**bits · chance · constant · times <= high."""
        return (self.chance(table) * self.constant * times).enclose(bits)

    def taken(self, size: int, rng: BitSource) -> IntArray:
        """Propose so many tables; return those that are taken, independent draws of the law."""
        tables, logs, depth = self.propose(size, rng)
        happened = those_that_happen(
            logs,
            self.margin,
            lambda event: self.chance(tables[event]).enclose,
            rng,
            np.arange(size) * self.words,
            depth,
        )
        kept: IntArray = tables[list(happened)]
        return kept

    def _log_chances(self, tables: IntArray) -> FloatArray:
        """Return the float counterpart of `chance` for many tables."""
        places = np.broadcast_to(np.arange(len(self.targets)), tables.shape[:2])
        cases = tables[:, :, 0]
        parts = _log_weights(self.base, self.shape, self.targets[:, 0], self.tilts, places, cases)
        parts = parts - self.shifts
        counted = np.ones(len(self.targets), bool)
        counted[self.last] = False
        scales = np.array([float(scale) for scale in self.cases.scales])
        drawn = np.log(scales) - np.log(self.cases.weight(places, cases))
        parts = parts + np.where(counted, drawn, -math.log(self.largest))
        if self.deaths is not None:
            deaths = tables[:, :, 1]
            scales = np.array([float(scale) for scale in self.deaths.scales])
            parts = parts + np.log(self.deaths.up_to(places, cases))
            parts = parts - self.shape.cost(deaths - self.targets[:, 1]) + np.log(scales)
            parts = parts - np.log(self.deaths.weight(places, deaths))
        total: FloatArray = parts.sum(axis=1)
        return total

    def chance(self, table: IntArray) -> Scaled:
        """Return the chance that a proposed table is taken with, exactly; it is at most 1."""
        places = np.arange(len(table))
        cases = table[:, 0]
        weights = self.base.log_weights(places, cases)
        exponent, factor = Fraction(0), Fraction(1)
        drawn = self.cases.weight(places, cases)
        for place in range(len(table)):
            count, target = int(cases[place]), int(self.targets[place, 0])
            exponent += Fraction(float(weights[place])) - self.shape.exact(count - target)
            exponent += Fraction(float(self.tilts[place])) * count
            exponent -= Fraction(float(self.shifts[place]))
            if place in self.last:
                factor /= self.largest
            else:
                factor *= self.cases.scales[place] / int(drawn[place])
        if self.deaths is not None:
            limits = self.deaths.up_to(places, cases)
            drawn = self.deaths.weight(places, table[:, 1])
            for place in range(len(table)):
                exponent -= self.shape.exact(int(table[place, 1]) - int(self.targets[place, 1]))
                factor *= self.deaths.scales[place] * int(limits[place]) / int(drawn[place])
        return Scaled(exponent, factor)


def prepare(
    base: BaseMeasure,
    shape: Shape,
    targets: IntArray,
    groups: tuple[Group, ...],
    near: FloatArray | None = None,
) -> Product:
    """Prepare the law with weights base·exp(-cost) around the targets, shape (places, 1 or 2).

    `near` are tilts of a similar law, to begin from.
    """
    places = len(targets)
    most = np.empty(places, np.int64)
    for group in groups:
        most[list(group.members)] = group.total
    deaths = None
    if targets.shape[1] == 2:
        deaths = _death_tables(shape, targets[:, 1], most, _float_error(np.full(1, 2 * NEGLIGIBLE)))
    tilts = np.empty(places)
    lowest: list[int] = [0] * places
    logs: list[FloatArray] = [np.zeros(0)] * places
    shifts = np.zeros(places)
    last = []
    for group in groups:
        members = np.array(group.members)
        slope = base.slope(members, group.total)
        weigh = _Weigher(base, shape, targets, deaths, members, group.total, slope, {})
        tilt = weigh.levelling_tilt(None if near is None else float(near[members[0]]))
        spreads = []
        for place in group.members:
            start, part = weigh.window(place, tilt)
            lowest[place], shifts[place] = start, float(part.max())
            logs[place] = part - shifts[place]
            spreads.append(_variance(logs[place]))
        tilts[members] = tilt
        last.append(int(members[int(np.argmax(spreads))]))
    farthest = [
        max(abs(low - int(x)), abs(low + len(part) - 1 - int(x)))
        for low, part, x in zip(lowest, logs, targets[:, 0], strict=True)
    ]
    error = _float_error(
        base.log_weights(np.arange(places), most),
        base.log_weights(np.arange(places), most // 2),
        shape.cost(np.array(farthest)),
        tilts * most,
    )
    return Product(
        base,
        shape,
        targets,
        groups,
        tilts,
        shifts,
        np.array(last),
        integer_tables.build((most + 1).tolist(), lowest, logs, error),
        deaths,
        margin=8 * places * targets.shape[1] * (error + 1e-14),
        largest=1 + Fraction(4 * error + 1e-12),
    )


def _log_weights(
    base: BaseMeasure,
    shape: Shape,
    targets: IntArray,
    tilts: FloatArray,
    places: IntArray,
    counts: IntArray,
) -> FloatArray:
    """Return log-weights of counts of cases, tilted, deaths apart."""
    costs = shape.cost(counts - targets[places])
    return base.log_weights(places, counts) + tilts[places] * counts - costs


def _float_error(*terms: FloatArray) -> float:
    """Bound how far a sum of floats is from what it stands for, by the size of its largest terms.

    Listed counts cost no more than their base measure can rise. Others have the weight 1, and a chance
    so small that a part in 2**30 of its logarithm covers what the float of their cost is off by.
    """
    found = float(2.0**-48 * (64 + 4 * sum(np.abs(part).max() for part in terms)))
    if not found < _LARGEST_ERROR:
        raise InputError(
            "counts: with this total, prior and epsilon the weights span more than floats can tell "
            "apart; choose a smaller alpha or total"
        )
    return found


def _variance(log_weights: FloatArray) -> float:
    weights = np.exp(log_weights)
    at = np.arange(len(weights))
    mean = float(weights @ at / weights.sum())
    return float(weights @ (at - mean) ** 2 / weights.sum())


def _death_tables(shape: Shape, targets: IntArray, most: IntArray, error: float) -> IntegerTables:
    lowest, logs = [], []
    for target, top in zip(targets.tolist(), most.tolist(), strict=True):
        reach = min(shape.reach(NEGLIGIBLE + 1, 0.0), float(top))
        start, stop = max(0, math.floor(target - reach)), min(top, math.ceil(target + reach))
        lowest.append(start)
        logs.append(-shape.cost(np.arange(start, stop + 1) - target))
    return integer_tables.build((most + 1).tolist(), lowest, logs, error)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class _Weigher:
    """The log-weights of one group's places, where they matter."""

    base: BaseMeasure
    shape: Shape
    targets: IntArray
    deaths: IntegerTables | None
    members: IntArray
    total: int
    slope: float
    known: dict[
        int, tuple[int, FloatArray]
    ]  # log-weights before tilting, where they were asked for

    def window(self, place: int, tilt: float) -> tuple[int, FloatArray]:
        """Return the lowest count and log-weights, all counts left out being negligible."""
        start, logs = self._tilted(place, tilt)
        matter = np.flatnonzero(logs > logs.max() - NEGLIGIBLE - 1)
        first, final = int(matter[0]), int(matter[-1])
        return start + first, logs[first : final + 1]

    def _tilted(self, place: int, tilt: float) -> tuple[int, FloatArray]:
        """Return the lowest count and log-weights, of at least all counts that matter."""
        target, most = int(self.targets[place, 0]), self.total
        reach = self.shape.reach(NEGLIGIBLE + 2 + self._rise(place), tilt - self.slope)
        start = max(0, math.floor(target - reach)) if reach < target else 0
        stop = min(most, math.ceil(target + reach)) if reach < most else most
        low, level = self.known.get(place, (0, np.zeros(0)))
        if start < low or stop >= low + len(level):
            # Some more than are asked for: the next tilt may need them.
            low, high = max(0, 2 * start - target), min(most, 2 * stop - target)
            counts = np.arange(low, high + 1)
            level = self.base.log_weights(place, counts) - self.shape.cost(counts - target)
            if self.deaths is not None:
                level += np.log(self.deaths.up_to(np.full(len(counts), place), counts))
            self.known[place] = (low, level)
        counts = np.arange(start, stop + 1)
        return start, level[start - low : stop - low + 1] + tilt * counts

    def _rise(self, place: int) -> float:
        """Return by how much weights, but for the cost, can be larger than at the target."""
        target = int(self.targets[place, 0])
        here = float(self.base.log_weights(place, np.array([target]))[0]) + self.slope * target
        rise = max(self.base.peak(place, self.slope, self.total) - here, 0.0)
        if self.deaths is not None:
            few, every = self.deaths.up_to(np.full(2, place), np.array([target, self.total]))
            rise += math.log(every / few)
        return rise

    def levelling_tilt(self, near: float | None) -> float:
        """Return a tilt at which the counts' means sum to the total, within a part of their spread."""
        if self.total == 0 or len(self.members) == 1:
            return self.slope
        tilt, low, high = self.slope if near is None else near, -math.inf, math.inf
        for _ in range(_MOST_STEPS):
            mean, variance = self._moments(tilt)
            if abs(mean - self.total) <= 0.1 * math.sqrt(variance):
                break
            low, high = (tilt, high) if mean < self.total else (low, tilt)
            step = (self.total - mean) / max(variance, 1e-9)
            # The variance changes with the tilt, so a step must not be too long.
            limit = 4 * (abs(tilt - self.slope) + float(self.shape.rate))
            before = tilt
            tilt += min(max(step, -limit), limit)
            if not low < tilt < high and math.isfinite(low + high):
                tilt = (low + high) / 2
            if tilt == before:
                break
        return tilt

    def _moments(self, tilt: float) -> tuple[float, float]:
        """Return mean and variance of the sum of independent counts."""
        mean = variance = 0.0
        for place in self.members.tolist():
            start, logs = self._tilted(place, tilt)
            at, times = _spaced(len(logs))
            weights = times * np.exp(logs[at] - logs.max())
            weights /= weights.sum()
            middle = float(weights @ at)
            mean += start + middle
            variance += float(weights @ (at - middle) ** 2)
        return mean, variance


def _spaced(length: int) -> tuple[IntArray, FloatArray]:
    """Return positions that stand for all of a long table, and for how many each: the first singly."""
    step = max(1, length // _SPACED)
    at = np.concatenate((np.arange(min(_SPACED, length)), np.arange(_SPACED, length, step)))
    return at, np.where(at < _SPACED, 1.0, float(step))
