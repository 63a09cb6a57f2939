"""Laws of tables whose weight is a product over places, drawn exactly.

The weight of a table is the base measure times exp(-cost of |count - target|) of every place. With
public sums, tilting all counts of a group by exp(tilt·count) changes nothing, since their sum is
fixed, but it lets independent draws hit the sum: all counts of a group but one are drawn from integer
tables, and the last one is the remainder. A table is then accepted with exactly the probability that
makes its law right. Deaths are drawn given cases, from 0 to that number. Without public sums the law is
independent noise, and every proposal is accepted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from countveil.base.numerics import Array, FloatArray, IntArray, enclose_exp_minus, log_theta
from countveil.base.randomness import BitSource
from countveil.congenial.mechanism.base_measure import BaseMeasure
from countveil.congenial.mechanism.exact_probability import (
    Enclosure,
    ScaledExponential,
    events_that_happen,
    uniform_below,
)
from countveil.errors import InputError
from countveil.noise.discrete_gaussian import DiscreteGaussian
from countveil.noise.discrete_laplace import DiscreteLaplace

_MOST_STEPS = 60
_SPACED = 4096
_LARGEST_ERROR = 2.0**-12
_WEIGHT_BITS = 44
_NEGLIGIBLE = (_WEIGHT_BITS + 1) * math.log(
    2
)  # log-weights this far below the largest are not listed


@dataclass(frozen=True, slots=True)
class Decay:
    """How the weight of a count falls with its distance: by exp(-rate·distance**power)."""

    rate: Fraction
    power: int

    def cost(self, distance: Array) -> FloatArray:
        """Return rate·|distance|**power."""
        costs: FloatArray = (
            float(self.rate) * np.abs(np.asarray(distance, np.float64)) ** self.power
        )
        return costs

    def exact_cost(self, distance: int) -> Fraction:
        """Return the cost of one distance as a fraction."""
        return self.rate * Fraction(abs(distance) ** self.power)

    def reach(self, far: float, tilt: float) -> float:
        """Return a distance beyond which cost - |tilt|·distance exceeds `far`; possibly infinite."""
        rate, tilt = float(self.rate), abs(tilt)
        if self.power == 2:
            return (tilt + math.sqrt(tilt**2 + 4 * rate * far)) / (2 * rate) + 1
        return far / (rate - tilt) + 1 if tilt < 0.999 * rate else math.inf


@dataclass(frozen=True, slots=True)
class Group:
    """Places whose counts have a public sum."""

    members: tuple[int, ...]
    total: int


class ProposedTables(NamedTuple):
    """Proposed tables, the log-probability of accepting each, and the batch's next unused depth."""

    tables: IntArray
    log_probabilities: FloatArray
    depth: int


# With public sums.


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class ProductLaw:
    """A law of tables with public sums, prepared once for its targets and then drawn from."""

    base: BaseMeasure
    decay: Decay
    targets: IntArray  # (places, 1 or 2): cases, or cases and deaths
    groups: tuple[Group, ...]
    tilts: FloatArray  # of each place
    shifts: FloatArray  # of each place: log-weights are relative to it
    last: IntArray  # the place of each group whose count is the remainder
    cases: IntegerTables
    deaths: IntegerTables | None
    margin: float  # the relative error of float probabilities, at most
    largest: Fraction  # bounds the weight of a last count, relative to its shift

    def __repr__(self) -> str:
        return f"<a product law around {len(self.targets)} confidential counts>"

    @classmethod
    def prepare(
        cls,
        base: BaseMeasure,
        decay: Decay,
        targets: IntArray,
        groups: tuple[Group, ...],
        near: FloatArray | None = None,
    ) -> ProductLaw:
        """Prepare the law with weights base·exp(-cost) around targets of shape (places, 1 or 2).

        `near` are the tilts of a similar law, to start from.
        """
        places = len(targets)
        most = np.empty(places, np.int64)
        for group in groups:
            most[list(group.members)] = group.total
        deaths = None
        if targets.shape[1] == 2:
            error = _float_error(np.full(1, 2 * _NEGLIGIBLE))
            deaths = _death_tables(decay, targets[:, 1], most, error)
        tilts = np.empty(places)
        lowest: list[int] = [0] * places
        logs: list[FloatArray] = [np.zeros(0)] * places
        shifts = np.zeros(places)
        last = []
        for group in groups:
            members = np.array(group.members)
            slope = base.slope(members, group.total)
            weights = _GroupWeights(base, decay, targets, deaths, members, group.total, slope, {})
            tilt = weights.levelling_tilt(None if near is None else float(near[members[0]]))
            variances = []
            for place in group.members:
                window = weights.window(place, tilt)
                lowest[place], shifts[place] = window.lowest, float(window.logs.max())
                logs[place] = window.logs - shifts[place]
                variances.append(_variance(logs[place]))
            tilts[members] = tilt
            last.append(int(members[int(np.argmax(variances))]))
        farthest = [
            max(abs(low - int(x)), abs(low + len(part) - 1 - int(x)))
            for low, part, x in zip(lowest, logs, targets[:, 0], strict=True)
        ]
        error = _float_error(
            base.log_weights(np.arange(places), most),
            base.log_weights(np.arange(places), most // 2),
            decay.cost(np.array(farthest)),
            tilts * most,
        )
        return cls(
            base,
            decay,
            targets,
            groups,
            tilts,
            shifts,
            np.array(last),
            IntegerTables.build((most + 1).tolist(), lowest, logs, error),
            deaths,
            margin=8 * places * targets.shape[1] * (error + 1e-14),
            largest=1 + Fraction(4 * error + 1e-12),
        )

    @property
    def constant(self) -> ScaledExponential:
        """The constant in weight = proposal·acceptance·constant."""
        exponent = sum(map(Fraction, self.shifts.tolist()), Fraction(0))
        for group in self.groups:
            exponent -= Fraction(float(self.tilts[group.members[0]])) * group.total
        factor = self.largest ** len(self.groups)
        for place in range(len(self.targets)):
            if place not in self.last:
                factor *= int(self.cases.totals[place]) / self.cases.scales[place]
            if self.deaths is not None:
                factor /= self.deaths.scales[place]
        return ScaledExponential(exponent, factor)

    @property
    def log_constant(self) -> float:
        """The logarithm of `constant`."""
        return self.constant.log

    @property
    def words(self) -> int:
        """The number of draws of a batch that one table uses."""
        return len(self.targets)

    @property
    def entries(self) -> int:
        """The number of entries in its integer tables."""
        deaths = 0 if self.deaths is None else len(self.deaths.ends)
        return len(self.cases.ends) + deaths

    def accepted_draws(self, size: int, rng: BitSource) -> IntArray:
        """Propose `size` tables; return the accepted ones, independent draws of the law."""
        tables, logs, depth = self.propose(size, rng)
        accepted = events_that_happen(
            logs,
            self.margin,
            lambda event: self.acceptance(tables[event]).enclose,
            rng,
            np.arange(size) * self.words,
            depth,
        )
        draws: IntArray = tables[list(accepted)]
        return draws

    def propose(self, size: int, rng: BitSource) -> ProposedTables:
        """Propose tables.

        Draw number i·words of the batch is for the decision about table i, from the returned depth on.
        """
        rng.begin(size * self.words)
        places, depth = np.arange(len(self.targets)), 0
        rows = np.repeat(np.arange(size), len(places))
        columns = np.tile(places, size)
        draws = rows * self.words + columns
        values, depth = uniform_below(self.cases.totals[columns], rng, draws, depth)
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
            values, depth = uniform_below(limits, rng, draws, depth)
            deaths = self.deaths.find(columns, values).reshape(size, -1)
            tables = np.stack((cases, deaths), axis=2)
        logs = np.where(possible, self._log_acceptances(tables), -np.inf)
        return ProposedTables(tables, logs, depth)

    def acceptance(self, table: IntArray) -> ScaledExponential:
        """Return the exact probability of accepting a proposed table; it is at most 1."""
        places = np.arange(len(table))
        cases = table[:, 0]
        weights = self.base.log_weights(places, cases)
        exponent, factor = Fraction(0), Fraction(1)
        proposal = self.cases.weight(places, cases)
        for place in range(len(table)):
            count, target = int(cases[place]), int(self.targets[place, 0])
            exponent += Fraction(float(weights[place])) - self.decay.exact_cost(count - target)
            exponent += Fraction(float(self.tilts[place])) * count
            exponent -= Fraction(float(self.shifts[place]))
            if place in self.last:
                factor /= self.largest
            else:
                factor *= self.cases.scales[place] / int(proposal[place])
        if self.deaths is not None:
            limits = self.deaths.up_to(places, cases)
            proposal = self.deaths.weight(places, table[:, 1])
            for place in range(len(table)):
                distance = int(table[place, 1]) - int(self.targets[place, 1])
                exponent -= self.decay.exact_cost(distance)
                factor *= self.deaths.scales[place] * int(limits[place]) / int(proposal[place])
        return ScaledExponential(exponent, factor)

    def enclose_weight(self, table: IntArray, times: ScaledExponential, bits: int) -> Enclosure:
        """Enclose acceptance·constant·times of a table, scaled by 2**bits."""
        return (self.acceptance(table) * self.constant * times).enclose(bits)

    def _log_acceptances(self, tables: IntArray) -> FloatArray:
        """Return `acceptance` of many tables in floats."""
        places = np.broadcast_to(np.arange(len(self.targets)), tables.shape[:2])
        cases = tables[:, :, 0]
        parts = self.base.log_weights(places, cases) + self.tilts[places] * cases
        parts = parts - self.decay.cost(cases - self.targets[:, 0][places])
        parts = parts - self.shifts
        proposed = np.ones(len(self.targets), bool)
        proposed[self.last] = False
        scales = np.array([float(scale) for scale in self.cases.scales])
        proposals = np.log(scales) - np.log(self.cases.weight(places, cases))
        parts = parts + np.where(proposed, proposals, -math.log(self.largest))
        if self.deaths is not None:
            deaths = tables[:, :, 1]
            scales = np.array([float(scale) for scale in self.deaths.scales])
            parts = parts + np.log(self.deaths.up_to(places, cases))
            parts = parts - self.decay.cost(deaths - self.targets[:, 1]) + np.log(scales)
            parts = parts - np.log(self.deaths.weight(places, deaths))
        total: FloatArray = parts.sum(axis=1)
        return total


def _float_error(*terms: FloatArray) -> float:
    """Bound the error of a sum of floats by the size of its largest terms.

    Listed counts cost no more than their base measure can rise. All others have the weight 1, and a
    probability so small that a part in 2**30 of its logarithm covers the error in their cost.
    """
    error = float(2.0**-48 * (64 + 4 * sum(np.abs(part).max() for part in terms)))
    if not error < _LARGEST_ERROR:
        raise InputError(
            "counts: with this total, prior and epsilon the weights span more than floats can "
            "distinguish; choose a smaller alpha or total"
        )
    return error


def _variance(log_weights: FloatArray) -> float:
    weights = np.exp(log_weights)
    at = np.arange(len(weights))
    mean = float(weights @ at / weights.sum())
    return float(weights @ (at - mean) ** 2 / weights.sum())


def _death_tables(decay: Decay, targets: IntArray, most: IntArray, error: float) -> IntegerTables:
    lowest, logs = [], []
    for target, top in zip(targets.tolist(), most.tolist(), strict=True):
        reach = min(decay.reach(_NEGLIGIBLE + 1, 0.0), float(top))
        start, stop = max(0, math.floor(target - reach)), min(top, math.ceil(target + reach))
        lowest.append(start)
        logs.append(-decay.cost(np.arange(start, stop + 1) - target))
    return IntegerTables.build((most + 1).tolist(), lowest, logs, error)


class _Window(NamedTuple):
    """The log-weights of consecutive counts, from the lowest on."""

    lowest: int
    logs: FloatArray


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class _GroupWeights:
    """The log-weights of one group's places, where they matter."""

    base: BaseMeasure
    decay: Decay
    targets: IntArray
    deaths: IntegerTables | None
    members: IntArray
    total: int
    slope: float
    cache: dict[int, _Window]  # log-weights before tilting, as far as they were needed

    def window(self, place: int, tilt: float) -> _Window:
        """Return the tilted log-weights of all counts that are not negligible."""
        start, logs = self._tilted(place, tilt)
        matter = np.flatnonzero(logs > logs.max() - _NEGLIGIBLE - 1)
        first, final = int(matter[0]), int(matter[-1])
        return _Window(start + first, logs[first : final + 1])

    def _tilted(self, place: int, tilt: float) -> _Window:
        """Return the tilted log-weights of at least all counts that matter."""
        target, most = int(self.targets[place, 0]), self.total
        reach = self.decay.reach(_NEGLIGIBLE + 2 + self._rise(place), tilt - self.slope)
        start = max(0, math.floor(target - reach)) if reach < target else 0
        stop = min(most, math.ceil(target + reach)) if reach < most else most
        low, level = self.cache.get(place, _Window(0, np.zeros(0)))
        if start < low or stop >= low + len(level):
            # Compute a few more than necessary: the next tilt may need them.
            low, high = max(0, 2 * start - target), min(most, 2 * stop - target)
            counts = np.arange(low, high + 1)
            level = self.base.log_weights(place, counts) - self.decay.cost(counts - target)
            if self.deaths is not None:
                level += np.log(self.deaths.up_to(np.full(len(counts), place), counts))
            self.cache[place] = _Window(low, level)
        counts = np.arange(start, stop + 1)
        return _Window(start, level[start - low : stop - low + 1] + tilt * counts)

    def _rise(self, place: int) -> float:
        """Return how much larger than at the target a weight can be, apart from its cost."""
        target = int(self.targets[place, 0])
        here = float(self.base.log_weights(place, np.array([target]))[0]) + self.slope * target
        rise = max(self.base.peak(place, self.slope, self.total) - here, 0.0)
        if self.deaths is not None:
            few, every = self.deaths.up_to(np.full(2, place), np.array([target, self.total]))
            rise += math.log(every / few)
        return rise

    def levelling_tilt(self, near: float | None) -> float:
        """Return a tilt at which the means sum to about the total."""
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
            limit = 4 * (abs(tilt - self.slope) + float(self.decay.rate))
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
            centre = float(weights @ at)
            mean += start + centre
            variance += float(weights @ (at - centre) ** 2)
        return mean, variance


def _spaced(length: int) -> tuple[IntArray, FloatArray]:
    """Return positions that represent a long table, and how many positions each of them stands for.

    The first positions stand for themselves only.
    """
    step = max(1, length // _SPACED)
    at = np.concatenate((np.arange(min(_SPACED, length)), np.arange(_SPACED, length, step)))
    return at, np.where(at < _SPACED, 1.0, float(step))


@dataclass(frozen=True, eq=False, slots=True)
class IntegerTables:
    """Whole weights n_j(k) of counts k = 0 … sizes[j] - 1 with n_j(k) >= scales[j]·w_j(k).

    Only counts whose weight matters are listed. Every other count of the range has the weight 1, more
    than it needs, so that no possible count is left out.
    """

    sizes: IntArray
    lowest: IntArray
    widths: IntArray
    starts: IntArray
    ends: IntArray  # running sums of all listed weights, through all tables
    before: IntArray  # the running sum before each table
    listed: IntArray
    totals: IntArray
    scales: tuple[Fraction, ...]

    @classmethod
    def build(
        cls,
        sizes: Sequence[int],
        lowest: Sequence[int],
        log_weights: Sequence[FloatArray],
        error: float,
    ) -> IntegerTables:
        """Build tables from log-weights whose largest is 0, each accurate to within `error`."""
        weights, scales = [], []
        for part in log_weights:
            size = np.exp(part)
            scale = 2.0**_WEIGHT_BITS / float(size.sum())
            weights.append(np.floor(size * scale).astype(np.int64) + 1)
            # Covers the rounding of exp and of the product, and the error of the log-weights.
            scales.append(Fraction(scale) * (1 - Fraction(2 * error + 2.0**-48)))
        listed = np.array([int(part.sum()) for part in weights], np.int64)
        widths = np.array([len(part) for part in weights], np.int64)
        return cls(
            sizes=np.array(sizes, np.int64),
            lowest=np.array(lowest, np.int64),
            widths=widths,
            starts=np.concatenate(([0], np.cumsum(widths)[:-1])),
            ends=np.cumsum(np.concatenate(weights)),
            before=np.concatenate(([0], np.cumsum(listed)[:-1])),
            listed=listed,
            totals=listed + np.array(sizes, np.int64) - widths,
            scales=tuple(scales),
        )

    def find(self, table: IntArray, value: IntArray) -> IntArray:
        """Return the count that a uniform whole number below `totals[table]` selects."""
        low = self.lowest[table]
        inner = value - low
        last = self.listed[table]
        at = np.clip(inner, 0, last - 1) + self.before[table]
        listed = np.searchsorted(self.ends, at, side="right") - self.starts[table] + low
        after = self.widths[table] + low + (inner - last)
        return np.where(inner < 0, value, np.where(inner < last, listed, after))

    def weight(self, table: IntArray, count: IntArray) -> IntArray:
        """Return the whole weights of counts."""
        inner = count - self.lowest[table]
        inside = (inner >= 0) & (inner < self.widths[table])
        at = self.starts[table] + np.clip(inner, 0, self.widths[table] - 1)
        listed = self.ends[at] - np.where(inner > 0, self.ends[at - 1], self.before[table])
        return np.where(inside, listed, 1)

    def up_to(self, table: IntArray, count: IntArray) -> IntArray:
        """Return the sum of the whole weights of counts from 0 to `count`."""
        inner = count - self.lowest[table]
        width = self.widths[table]
        at = self.starts[table] + np.clip(inner, 0, width - 1)
        within = self.ends[at] - self.before[table] + self.lowest[table]
        beyond = self.listed[table] + count + 1 - width
        return np.where(inner < 0, count + 1, np.where(inner < width, within, beyond))


# Without public sums.


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class IndependentNoise:
    """Targets plus discrete Laplace or Gaussian noise: a flat base measure on all whole numbers."""

    decay: Decay
    targets: IntArray
    margin: float = 1e-12

    def __repr__(self) -> str:
        return f"<noise around {len(self.targets)} confidential counts>"

    @property
    def entries(self) -> int:
        """Return 0: it has no tables."""
        return 0

    @property
    def log_constant(self) -> float:
        """The logarithm of the sum of all weights."""
        return self.targets.size * log_noise_sum(self.decay)

    def accepted_draws(self, size: int, rng: BitSource) -> IntArray:
        """Return `size` tables: every proposal is accepted."""
        return self.propose(size, rng).tables

    def propose(self, size: int, rng: BitSource) -> ProposedTables:
        """Draw tables, each accepted with probability 1."""
        rate, power = self.decay.rate, self.decay.power
        law = DiscreteLaplace(1 / rate) if power == 1 else DiscreteGaussian(1 / (2 * rate))
        noise = law.sample(size * self.targets.size, rng=rng)
        tables = self.targets + noise.reshape(size, *self.targets.shape)
        return ProposedTables(tables, np.zeros(size), 0)

    def enclose_weight(self, table: IntArray, times: ScaledExponential, bits: int) -> Enclosure:
        """Enclose (sum of all weights)·times, scaled by 2**bits."""
        size = self.targets.size
        deep = bits + 64 + 2 * math.ceil(self.log_constant)
        low, high = _enclose_sum(self.decay, deep)
        times_low, times_high = times.enclose(deep)
        down = deep * (size + 1) - bits
        return Enclosure(low**size * times_low >> down, -(-(high**size) * times_high >> down))


def log_noise_sum(decay: Decay) -> float:
    """Return log of the sum of exp(-cost) over all whole numbers."""
    if decay.power == 1:
        return -math.log(math.tanh(float(decay.rate) / 2))
    return log_theta(float(decay.rate))


def _enclose_sum(decay: Decay, bits: int) -> Enclosure:
    """Enclose the sum of exp(-cost) over all whole numbers, scaled by 2**bits."""
    one = 1 << bits
    if decay.power == 1:
        low, high = enclose_exp_minus(decay.rate, bits)
        return Enclosure(one * (one + low) // (one - low), -(-one * (one + high) // (one - high)))
    if decay.rate < Fraction(1, 200):
        return _enclose_wide_sum(decay.rate, bits)
    total_low = total_high = one
    k = 0
    while True:
        k += 1
        low, high = enclose_exp_minus(decay.rate * k * k, bits)
        total_low, total_high = total_low + 2 * low, total_high + 2 * high
        if high <= 1:
            # The terms that follow shrink by at least exp(-rate·(2k + 1)) each.
            _, ratio = enclose_exp_minus(decay.rate * (2 * k + 1), 64)
            tail = 2 * ((1 << 64) // max((1 << 64) - ratio, 1) + 1)
            return Enclosure(total_low, total_high + tail)


def _enclose_wide_sum(rate: Fraction, bits: int) -> Enclosure:
    """Enclose the sum of exp(-rate k²) by Poisson's: √(π/rate)·(1 + 2 Σ exp(-π² k²/rate))."""
    deep = bits + 64
    low_pi, high_pi = _enclose_pi(2 * deep)
    n, d = rate.numerator, rate.denominator
    low, high = math.isqrt(low_pi * d // n), math.isqrt(-(-high_pi * d // n)) + 1
    # The other terms sum to less than 3 exp(-9.8/rate), as 9.8 is below π².
    _, rest = enclose_exp_minus(Fraction(98, 10) / rate, deep)
    return Enclosure(low >> 64, -(-high * ((1 << deep) + 3 * rest) >> (deep + 64)) + 1)


def _enclose_pi(bits: int) -> Enclosure:
    """Enclose 2**bits π by Machin's formula, 16 arctan(1/5) - 4 arctan(1/239)."""
    one = 1 << (bits + 32)

    def arctan_of_one_over(x: int) -> tuple[int, int]:
        total, power, k = 0, one // x, 0
        while power:
            total += -(power // (2 * k + 1)) if k % 2 else power // (2 * k + 1)
            power //= x * x
            k += 1
        return total, 2 * k + 2  # each division is off by less than one, twice

    (fifth, fifth_error), (far, far_error) = arctan_of_one_over(5), arctan_of_one_over(239)
    middle, error = 16 * fifth - 4 * far, 16 * fifth_error + 4 * far_error
    return Enclosure((middle - error) >> 32, -(-(middle + error) >> 32))
