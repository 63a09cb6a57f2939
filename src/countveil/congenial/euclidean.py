"""The Euclidean loss, drawn exactly: a mixture of Gaussian weights above it, cut down to it.

exp(-rate·r) is an integral of exp(-r²/(2v)) over v. A few dozen v are taken from it, so weighted that
their sum is nowhere below exp(-rate·r) by more than a constant, up to a distance that is never seen;
beyond, an absolute loss of a smaller rate is added, which is. A table is drawn from one part of the
mixture, and taken with the chance exp(-rate·r) over the sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

import numpy as np

from countveil.congenial.exact_chance import (
    Enclosure,
    Scaled,
    below,
    enclose_exp,
    those_that_happen,
)
from countveil.congenial.product import Shape
from countveil.numerics import FloatArray, IntArray
from countveil.randomness import BitSource

_SHORTEST = 1 / 64  # the smallest v: all its weight is on the target itself
_WIDEST_STEP = 2.0  # in log v
_LOOSE = 0.15  # by how much, in log, the mixture may lie below
_MOST_RAISES = 60
_CHUNK = 1 << 14
_BITS = 44
_KEPT = 40_000_000  # table entries that are kept for the next draw


class Part(Protocol):
    """Tables with weights of one shape around the targets: a product law, constrained or not."""

    @property
    def margin(self) -> float:
        """By how much, relatively, float chances may be off."""
        ...

    @property
    def entries(self) -> int:
        """How many numbers it holds."""
        ...

    @property
    def log_constant(self) -> float:
        """The logarithm of the constant in weight = proposal·chance·constant."""
        ...

    def propose(self, size: int, rng: BitSource) -> tuple[IntArray, FloatArray, int]:
        """Return tables, the logarithms of their chances, and the next free depth of the batch."""
        ...

    def enclose_worth(self, table: IntArray, times: Scaled, bits: int) -> tuple[int, int]:
        """Return whole numbers with low <= 2**bits · chance · constant · times <= high."""
        ...


@dataclass(frozen=True, slots=True)
class Envelope:
    """Weights and shapes whose sum, times `above`, is at least exp(-rate·distance) everywhere."""

    rate: Fraction
    log_weights: tuple[float, ...]  # floats, taken as the exact numbers they are
    shapes: tuple[Shape, ...]
    above: Fraction

    def log_sum(self, squares: FloatArray, distances: FloatArray) -> FloatArray:
        """Return the logarithm of the sum, given r² and the absolute distance of tables."""
        parts = [
            log - float(shape.rate) * (squares if shape.power == 2 else distances)
            for log, shape in zip(self.log_weights, self.shapes, strict=True)
        ]
        total: FloatArray = np.logaddexp.reduce(parts, axis=0)
        return total

    def enclose(self, square: int, distance: int, bits: int) -> tuple[Fraction, Fraction]:
        """Enclose exp(-rate·r)/(above·sum) for one table."""
        # Both sides may be as small as exp(-rate·r) is.
        deep = bits + 64 + math.ceil(2 * float(self.rate) * math.sqrt(square))
        # The root of a whole number, to as many bits.
        root = math.isqrt(square << (2 * deep))
        top_low, _ = enclose_exp(-self.rate * Fraction(root + 1, 1 << deep), deep)
        _, top_high = enclose_exp(-self.rate * Fraction(root, 1 << deep), deep)
        low = high = 0
        for log, shape in zip(self.log_weights, self.shapes, strict=True):
            at = square if shape.power == 2 else distance
            part_low, part_high = enclose_exp(Fraction(log) - shape.rate * at, deep)
            low, high = low + part_low, high + part_high
        return top_low / (self.above * high), top_high / (self.above * low)


def envelope(
    rate: Fraction, dimension: int, farthest: float, log_constant: Callable[[Shape], float]
) -> Envelope:
    """Return the mixture for tables of so many counts, at most `farthest` from their targets.

    `log_constant` is the log of all weights of a shape, up to what its proposals waste: where the
    mixture has nearly all its weight parts lie close to each other, elsewhere far apart.
    """
    step = float(rate)
    shapes: list[Shape] = []
    parts: list[float] = []
    reach = farthest
    if math.isinf(farthest):
        log_far = _log_weight_of_far(dimension)
        reach = -2 * log_far / step
        shapes.append(Shape(Fraction(step / (2 * math.sqrt(dimension)) * (1 - 1e-9)), 1))
        parts.append(log_far)
    first, last = math.log(_SHORTEST), max(math.log(reach / step), 0.0)
    nodes = np.linspace(first, last, 2 + math.ceil((last - first) / _WIDEST_STEP))
    known: dict[float, float] = {}
    while True:
        for node in nodes.tolist():
            if node not in known:
                known[node] = log_constant(_shape(node))
        natural = _natural_weights(step, nodes)
        logs, lowest = _raised(step, natural, nodes, reach)
        together = float(np.logaddexp.reduce(natural + [known[node] for node in nodes.tolist()]))
        shares = logs + [known[node] for node in nodes.tolist()] - together
        # A gap is split if closing it by larger weights would cost more than a little of all draws.
        raised = (logs > natural + 0.3) & (shares > -5)
        wide = np.diff(nodes) > 1.5 / (step * np.exp(nodes[1:] / 2))
        split = np.flatnonzero((raised[1:] | raised[:-1]) & wide)
        if len(split) == 0:
            break
        nodes = np.sort(np.append(nodes, (nodes[split] + nodes[split + 1]) / 2))
    shapes += [_shape(node) for node in nodes.tolist()]
    parts += logs.tolist()
    return Envelope(rate, tuple(parts), tuple(shapes), Fraction(math.exp(-min(lowest, 0.0) + 1e-6)))


def _shape(log_v: float) -> Shape:
    return Shape(Fraction(1 / (2 * math.exp(log_v))), 2)


def _log_weight_of_far(dimension: int) -> float:
    """Return log of a weight at which the far part is a small share of all: volumes compared."""
    far = dimension * math.log(4 * math.sqrt(dimension))
    near = (
        math.log(2)
        + dimension / 2 * math.log(math.pi)
        - math.lgamma(dimension / 2)
        + math.lgamma(dimension)
    )
    return -(max(far - near, 0.0) + 8)


def _natural_weights(rate: float, nodes: FloatArray) -> FloatArray:
    """Return logs of the integrand over log v times the room around each node."""
    room = np.gradient(nodes)
    found: FloatArray = (
        np.log(rate * room / math.sqrt(2 * math.pi)) + nodes / 2 - rate**2 * np.exp(nodes) / 2
    )
    return found


def _raised(
    rate: float, natural: FloatArray, nodes: FloatArray, reach: float
) -> tuple[FloatArray, float]:
    """Raise weights until the sum is nearly nowhere below exp(-rate·r); return how far below it is.

    In t = r² the logarithm of the sum is convex, so above its tangents, and rate·r is concave, so above
    its chords: between two points both are above lines, which are lowest at an end.
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
        lack = np.where(lowest < -_LOOSE / 2, -lowest, 0.0)
        more = np.zeros(len(nodes))
        np.maximum.at(more, above, lack)
        np.maximum.at(more, above - 1, lack)
        more[0] = max(more[0], -at_zero)
        logs += more
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


@dataclass(eq=False, slots=True, repr=False)
class Euclidean:
    """Draws from exp(-rate·r) times a base measure, through an envelope."""

    rate: Fraction
    targets: IntArray
    farthest: float
    make: Callable[[Shape], Part]
    envelope: Envelope = field(init=False)
    logs: FloatArray = field(init=False)
    picks: IntArray = field(init=False)
    _parts: dict[Shape, Part] = field(init=False, default_factory=dict)

    def __repr__(self) -> str:
        return f"<a Euclidean law around {len(self.targets)} confidential counts>"

    def __post_init__(self) -> None:
        """Weigh the parts: each by the sum of its weights, as its proposals have it."""
        known: dict[Shape, float] = {}

        def log_constant(shape: Shape) -> float:
            known[shape] = self._part(shape).log_constant
            return known[shape]

        found = envelope(self.rate, self.targets.size, self.farthest, log_constant)
        self.envelope = found
        logs = [
            log + (known[shape] if shape in known else log_constant(shape))
            for log, shape in zip(found.log_weights, found.shapes, strict=True)
        ]
        self.logs = np.array(logs)
        self.picks = np.floor(np.exp(self.logs - self.logs.max()) * 2.0**_BITS).astype(np.int64) + 1

    def _part(self, shape: Shape) -> Part:
        """Return a part, made anew if it was not kept: the last ones used are."""
        part = self._parts.pop(shape, None) or self.make(shape)
        while self._parts and sum(kept.entries for kept in self._parts.values()) > _KEPT:
            del self._parts[next(iter(self._parts))]
        self._parts[shape] = part
        return part

    def taken(self, size: int, rng: BitSource) -> IntArray:
        """Propose so many tables; return those that are taken, independent draws of the law."""
        ends = np.cumsum(self.picks)
        rng.begin(size)
        picked, _ = below(np.full(size, ends[-1]), rng, np.arange(size), 0)
        parts = np.searchsorted(ends, picked, side="right")
        tables = np.empty((size, *self.targets.shape), np.int64)
        logs, margin = np.empty(size), 1e-9
        for number in np.unique(parts).tolist():
            rows = np.flatnonzero(parts == number)
            part = self._part(self.envelope.shapes[number])
            tables[rows], chances, _ = part.propose(len(rows), rng)
            logs[rows] = chances + self.logs[number] - math.log(int(self.picks[number]))
            margin = max(margin, part.margin)
        apart = tables - self.targets
        squares = (apart.astype(np.float64) ** 2).sum(axis=(1, 2))
        distances = np.abs(apart).sum(axis=(1, 2)).astype(np.float64)
        logs -= self._log_limit() + math.log(self.envelope.above)
        logs -= float(self.envelope.rate) * np.sqrt(squares)
        logs -= self.envelope.log_sum(squares, distances)
        rng.begin(size)
        happened = those_that_happen(
            logs,
            4 * margin + 1e-9,
            lambda event: self._enclosure(tables[event], int(parts[event])),
            rng,
            np.arange(size),
            0,
        )
        kept: IntArray = tables[list(happened)]
        return kept

    def _log_limit(self) -> float:
        """Return log of what a part's weight over its pick is at most."""
        return float(self.logs.max()) - _BITS * math.log(2) + 1e-6

    def _enclosure(self, table: IntArray, number: int) -> Enclosure:
        """Enclose the chance of a proposed table: of its part, of its pick, of the envelope."""
        apart = [int(value) for value in (table - self.targets).reshape(-1)]
        square, distance = sum(value * value for value in apart), sum(map(abs, apart))
        # The limit is only some number above all others, but always the same one.
        log = Fraction(self.envelope.log_weights[number]) - Fraction(self._log_limit())
        times = Scaled(log, Fraction(1, int(self.picks[number])))

        def enclose(bits: int) -> tuple[int, int]:
            low, high = self._part(self.envelope.shapes[number]).enclose_worth(
                table, times, bits + 8
            )
            cut_low, cut_high = self.envelope.enclose(square, distance, bits + 8)
            return math.floor(low * cut_low / 256), math.ceil(high * cut_high / 256)

        return enclose


def log_mixture(
    rate: float,
    dimension: int,
    farthest: float,
    log_sum: Callable[[float], float],
    log_here: float,
) -> float:
    """Return log of the sum of exp(-rate·r) times a base measure over all tables.

    `log_sum(k)` is the same with weights exp(-k·r²), `log_here` the base measure at r = 0. The integral
    over log v is summed in even steps, which is as exact as floats are while steps are narrower than
    the integrand where it matters.
    """
    far = min((4 * dimension + 80) / rate, farthest)
    step = min(0.3, 0.7 / math.sqrt(max(rate * far, 1.0)))
    top = math.log(max(far / rate, 1.0)) + 8 / math.sqrt(max(rate * far, 1.0)) + 1
    logs = np.arange(math.log(1e-28) - 2 * abs(math.log(rate)), top, step)
    found = []
    for log_v in logs.tolist():
        v = math.exp(log_v)
        weight = math.log(step * rate / math.sqrt(2 * math.pi)) + log_v / 2 - rate**2 * v / 2
        # So narrow a Gaussian weight is on the target alone: exp(-1/(2v)) is below the smallest float.
        found.append(weight + (log_here if v < 1e-3 else log_sum(1 / (2 * v))))
    return float(np.logaddexp.reduce(found))
