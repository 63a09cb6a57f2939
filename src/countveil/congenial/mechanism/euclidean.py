"""The Euclidean loss, drawn exactly: a mixture of Gaussian weights that lies above it, cut down to it.

exp(-rate·r) is an integral of exp(-r²/(2v)) over v. A few dozen v are chosen and weighted so that their
sum is below exp(-rate·r) by no more than a constant factor, up to a distance that is never reached in
practice; beyond it, an absolute loss with a smaller rate is added, which is never below. A table is
drawn from one part of the mixture and accepted with probability exp(-rate·r) over the sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple, Protocol

import numpy as np

from countveil.base.numerics import FloatArray, IntArray
from countveil.base.randomness import BitSource
from countveil.congenial.mechanism.exact_probability import (
    Encloser,
    Enclosure,
    ScaledExponential,
    enclose_exp,
    events_that_happen,
    uniform_below,
)
from countveil.congenial.mechanism.product_law import Decay, ProposedTables

_SHORTEST = 1 / 64  # the smallest v: all its weight is on the target itself
_WIDEST_STEP = 2.0  # in log v
_LOOSE = 0.15  # how far, in log, the mixture may be below the loss
_MOST_RAISES = 60
_CHUNK = 1 << 14
_BITS = 44
_MOST_CACHED = 40_000_000  # table entries that are kept for the next draw


class MixturePart(Protocol):
    """Tables with weights of one decay around the targets, with public sums or without."""

    @property
    def margin(self) -> float:
        """The relative error of float probabilities, at most."""
        ...

    @property
    def entries(self) -> int:
        """The number of entries in its tables."""
        ...

    @property
    def log_constant(self) -> float:
        """The logarithm of the constant in weight = proposal·acceptance·constant."""
        ...

    def propose(self, size: int, rng: BitSource) -> ProposedTables:
        """Propose tables."""
        ...

    def enclose_weight(self, table: IntArray, times: ScaledExponential, bits: int) -> Enclosure:
        """Enclose acceptance·constant·times of a table, scaled by 2**bits."""
        ...


@dataclass(eq=False, slots=True, repr=False)
class EuclideanLaw:
    """Draws from exp(-rate·r) times a base measure, through an envelope."""

    rate: Fraction
    targets: IntArray
    farthest: float
    make: Callable[[Decay], MixturePart]
    envelope: Envelope = field(init=False)
    logs: FloatArray = field(init=False)
    picks: IntArray = field(init=False)
    _parts: dict[Decay, MixturePart] = field(init=False, default_factory=dict)

    def __repr__(self) -> str:
        return f"<a Euclidean law around {len(self.targets)} confidential counts>"

    def __post_init__(self) -> None:
        """Weigh each part by the sum of its weights, including what its proposals waste."""
        constants: dict[Decay, float] = {}

        def log_constant(decay: Decay) -> float:
            constants[decay] = self._part(decay).log_constant
            return constants[decay]

        self.envelope = Envelope.build(self.rate, self.targets.size, self.farthest, log_constant)
        logs = [
            log + (constants[decay] if decay in constants else log_constant(decay))
            for log, decay in zip(self.envelope.log_weights, self.envelope.decays, strict=True)
        ]
        self.logs = np.array(logs)
        self.picks = np.floor(np.exp(self.logs - self.logs.max()) * 2.0**_BITS).astype(np.int64) + 1

    def _part(self, decay: Decay) -> MixturePart:
        """Return a part from the cache, or make it again; the least recently used ones are dropped."""
        part = self._parts.pop(decay, None) or self.make(decay)
        while self._parts and sum(other.entries for other in self._parts.values()) > _MOST_CACHED:
            del self._parts[next(iter(self._parts))]
        self._parts[decay] = part
        return part

    def accepted_draws(self, size: int, rng: BitSource) -> IntArray:
        """Propose `size` tables; return the accepted ones, independent draws of the law."""
        ends = np.cumsum(self.picks)
        rng.begin(size)
        values, _ = uniform_below(np.full(size, ends[-1]), rng, np.arange(size), 0)
        parts = np.searchsorted(ends, values, side="right")
        tables = np.empty((size, *self.targets.shape), np.int64)
        logs, margin = np.empty(size), 1e-9
        for number in np.unique(parts).tolist():
            rows = np.flatnonzero(parts == number)
            part = self._part(self.envelope.decays[number])
            tables[rows], log_probabilities, _ = part.propose(len(rows), rng)
            logs[rows] = log_probabilities + self.logs[number] - math.log(int(self.picks[number]))
            margin = max(margin, part.margin)
        difference = tables - self.targets
        squares = (difference.astype(np.float64) ** 2).sum(axis=(1, 2))
        distances = np.abs(difference).sum(axis=(1, 2)).astype(np.float64)
        logs -= self._log_limit() + math.log(self.envelope.above)
        logs -= float(self.envelope.rate) * np.sqrt(squares)
        logs -= self.envelope.log_sum(squares, distances)
        rng.begin(size)
        accepted = events_that_happen(
            logs,
            4 * margin + 1e-9,
            lambda event: self._encloser(tables[event], int(parts[event])),
            rng,
            np.arange(size),
            0,
        )
        draws: IntArray = tables[list(accepted)]
        return draws

    def _log_limit(self) -> float:
        """Return log of an upper bound on a part's weight over its pick."""
        return float(self.logs.max()) - _BITS * math.log(2) + 1e-6

    def _encloser(self, table: IntArray, number: int) -> Encloser:
        """Return how to enclose the acceptance of a table: of its part, its pick and the envelope."""
        differences = [int(value) for value in (table - self.targets).reshape(-1)]
        square, distance = sum(value * value for value in differences), sum(map(abs, differences))
        # The limit may be any number above all others, but must be the same one every time.
        log = Fraction(self.envelope.log_weights[number]) - Fraction(self._log_limit())
        times = ScaledExponential(log, Fraction(1, int(self.picks[number])))

        def enclose(bits: int) -> Enclosure:
            low, high = self._part(self.envelope.decays[number]).enclose_weight(
                table, times, bits + 8
            )
            share = self.envelope.enclose_share(square, distance, bits + 8)
            return Enclosure(math.floor(low * share.low / 256), math.ceil(high * share.high / 256))

        return enclose


class ShareBounds(NamedTuple):
    """Fractions between which a share lies."""

    low: Fraction
    high: Fraction


@dataclass(frozen=True, slots=True)
class Envelope:
    """Weights and decays whose sum, times `above`, is at least exp(-rate·distance) everywhere."""

    rate: Fraction
    log_weights: tuple[float, ...]  # floats, used as the exact numbers they are
    decays: tuple[Decay, ...]
    above: Fraction

    @classmethod
    def build(
        cls,
        rate: Fraction,
        dimension: int,
        farthest: float,
        log_constant: Callable[[Decay], float],
    ) -> Envelope:
        """Build the mixture for tables of `dimension` counts, at most `farthest` from their targets.

        `log_constant` is the log of the sum of all weights of a decay, including what its proposals
        waste. Parts are close together where the mixture has nearly all its weight, and far apart
        elsewhere.
        """
        step = float(rate)
        decays: list[Decay] = []
        parts: list[float] = []
        reach = farthest
        if math.isinf(farthest):
            log_far = _log_weight_of_far(dimension)
            reach = -2 * log_far / step
            decays.append(Decay(Fraction(step / (2 * math.sqrt(dimension)) * (1 - 1e-9)), 1))
            parts.append(log_far)
        first, last = math.log(_SHORTEST), max(math.log(reach / step), 0.0)
        nodes = np.linspace(first, last, 2 + math.ceil((last - first) / _WIDEST_STEP))
        constants: dict[float, float] = {}
        while True:
            for node in nodes.tolist():
                if node not in constants:
                    constants[node] = log_constant(_gaussian_decay(node))
            natural = _natural_weights(step, nodes)
            logs, lowest = _raise_weights(step, natural, nodes, reach)
            log_constants = [constants[node] for node in nodes.tolist()]
            together = float(np.logaddexp.reduce(natural + log_constants))
            shares = logs + log_constants - together
            # Split a gap if closing it by larger weights would cost a noticeable share of all draws.
            raised = (logs > natural + 0.3) & (shares > -5)
            wide = np.diff(nodes) > 1.5 / (step * np.exp(nodes[1:] / 2))
            split = np.flatnonzero((raised[1:] | raised[:-1]) & wide)
            if len(split) == 0:
                break
            nodes = np.sort(np.append(nodes, (nodes[split] + nodes[split + 1]) / 2))
        decays += [_gaussian_decay(node) for node in nodes.tolist()]
        parts += logs.tolist()
        above = Fraction(math.exp(-min(lowest, 0.0) + 1e-6))
        return cls(rate, tuple(parts), tuple(decays), above)

    def log_sum(self, squares: FloatArray, distances: FloatArray) -> FloatArray:
        """Return the logarithm of the sum, given r² and the absolute distance of tables."""
        parts = [
            log - float(decay.rate) * (squares if decay.power == 2 else distances)
            for log, decay in zip(self.log_weights, self.decays, strict=True)
        ]
        total: FloatArray = np.logaddexp.reduce(parts, axis=0)
        return total

    def enclose_share(self, square: int, distance: int, bits: int) -> ShareBounds:
        """Enclose exp(-rate·r)/(above·sum) for one table."""
        # Both sides may be as small as exp(-rate·r).
        deep = bits + 64 + math.ceil(2 * float(self.rate) * math.sqrt(square))
        # The root of a whole number, to the same number of bits.
        root = math.isqrt(square << (2 * deep))
        top_low = enclose_exp(-self.rate * Fraction(root + 1, 1 << deep), deep).low
        top_high = enclose_exp(-self.rate * Fraction(root, 1 << deep), deep).high
        low = high = 0
        for log, decay in zip(self.log_weights, self.decays, strict=True):
            at = square if decay.power == 2 else distance
            part = enclose_exp(Fraction(log) - decay.rate * at, deep)
            low, high = low + part.low, high + part.high
        return ShareBounds(top_low / (self.above * high), top_high / (self.above * low))


def _gaussian_decay(log_v: float) -> Decay:
    return Decay(Fraction(1 / (2 * math.exp(log_v))), 2)


def _log_weight_of_far(dimension: int) -> float:
    """Return log of a weight that makes the far part a small share of the whole, by their volumes."""
    far = dimension * math.log(4 * math.sqrt(dimension))
    near = (
        math.log(2)
        + dimension / 2 * math.log(math.pi)
        - math.lgamma(dimension / 2)
        + math.lgamma(dimension)
    )
    return -(max(far - near, 0.0) + 8)


def _natural_weights(rate: float, nodes: FloatArray) -> FloatArray:
    """Return logs of the integrand over log v, times the spacing around each node."""
    spacing = np.gradient(nodes)
    logs: FloatArray = (
        np.log(rate * spacing / math.sqrt(2 * math.pi)) + nodes / 2 - rate**2 * np.exp(nodes) / 2
    )
    return logs


def _raise_weights(
    rate: float, natural: FloatArray, nodes: FloatArray, reach: float
) -> tuple[FloatArray, float]:
    """Raise weights until the sum is hardly anywhere below exp(-rate·r); return how far below it is.

    In t = r² the logarithm of the sum is convex, so it lies above its tangents, and rate·r is concave,
    so it lies above its chords. Between two points both are above lines, which are lowest at an end.
    """
    points = [1.0]
    while points[-1] < reach:
        points.append(points[-1] + min(0.05 * math.sqrt(points[-1] / rate), 0.05 * points[-1]))
    r = np.array(points)
    t, rates = r**2, 1 / (2 * np.exp(nodes))
    above = np.clip(np.searchsorted(nodes, np.log(r / rate)), 1, len(nodes) - 1)
    logs = natural.copy()
    for _ in range(_MOST_RAISES):
        value, slope = _log_sum_and_slope(logs, rates, t)
        lowest = value + rate * r
        ahead = value[:-1] + slope[:-1] * np.diff(t) + rate * r[1:]
        lowest[:-1] = np.minimum(lowest[:-1], ahead)
        at_zero = float(np.logaddexp.reduce(logs))
        least = min(float(lowest.min()), at_zero)
        if least > -_LOOSE:
            break
        deficit = np.where(lowest < -_LOOSE / 2, -lowest, 0.0)
        increase = np.zeros(len(nodes))
        np.maximum.at(increase, above, deficit)
        np.maximum.at(increase, above - 1, deficit)
        increase[0] = max(increase[0], -at_zero)
        logs += increase
    return logs, least


def _log_sum_and_slope(
    logs: FloatArray, rates: FloatArray, t: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return log of the sum of exp(logs - rates·t), and its derivative in t."""
    value, slope = np.empty(len(t)), np.empty(len(t))
    for start in range(0, len(t), _CHUNK):
        part = slice(start, start + _CHUNK)
        terms = logs - np.outer(t[part], rates)
        value[part] = np.logaddexp.reduce(terms, axis=1)
        slope[part] = -(np.exp(terms - value[part, None]) @ rates)
    return value, slope


def log_mixture(
    rate: float,
    dimension: int,
    farthest: float,
    log_sum: Callable[[float], float],
    log_here: float,
) -> float:
    """Return log of the sum of exp(-rate·r) times a base measure, over all tables.

    `log_sum(k)` is the same with weights exp(-k·r²), and `log_here` the base measure at r = 0. The
    integral over log v is summed in even steps. That is accurate to rounding while the steps are
    narrower than the integrand where it matters.
    """
    far = min((4 * dimension + 80) / rate, farthest)
    step = min(0.3, 0.7 / math.sqrt(max(rate * far, 1.0)))
    top = math.log(max(far / rate, 1.0)) + 8 / math.sqrt(max(rate * far, 1.0)) + 1
    logs = np.arange(math.log(1e-28) - 2 * abs(math.log(rate)), top, step)
    terms = []
    for log_v in logs.tolist():
        v = math.exp(log_v)
        weight = math.log(step * rate / math.sqrt(2 * math.pi)) + log_v / 2 - rate**2 * v / 2
        # So narrow a Gaussian weight is on the target alone: exp(-1/(2v)) is below the smallest float.
        terms.append(weight + (log_here if v < 1e-3 else log_sum(1 / (2 * v))))
    return float(np.logaddexp.reduce(terms))
