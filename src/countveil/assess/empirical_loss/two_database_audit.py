"""A two-database audit: run a mechanism or a pipeline on neighbours, and bound epsilon from below.

For any event E, epsilon >= log((P(E | D) - delta)/P(E | D')). Half of the runs choose the event, the
other half bound its two probabilities, so that the bound holds with the stated confidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from countveil.assess.empirical_loss.tail_ratios import checked_confidence, clopper_pearson
from countveil.base.numerics import Array, FloatArray
from countveil.base.randomness import BitSource
from countveil.errors import InputError
from countveil.noise.law import Mechanism

Database = TypeVar("Database")
Run = Callable[[Database, int, BitSource], Array]
"""Runs an algorithm on a database this many times, and returns one number from each output."""

_FEWEST = 100


@dataclass(frozen=True, slots=True)
class Event:
    """Outputs from `low` to `high`, and on which database they are likelier."""

    low: float
    high: float
    likelier: Literal["database", "neighbour"]

    def __str__(self) -> str:
        if math.isinf(self.low):
            return f"output at most {self.high:g}"
        if math.isinf(self.high):
            return f"output at least {self.low:g}"
        return (
            f"output of {self.low:g}" if self.low == self.high else f"{self.low:g} to {self.high:g}"
        )


@dataclass(frozen=True, slots=True)
class Audit:
    """A lower bound on epsilon at a delta, and the event that shows it.

    Attributes
    ----------
    lower_bound, delta : float
        The bound on epsilon, and the delta at which it was computed.
    confidence : float
        The probability that the bound holds.
    event : Event
        The outputs that show it.
    likelier, rarer : float
        The shares of runs with the event, on the database where it is likelier and on the other.
    runs : int
        How often the algorithm ran on each database: half of the runs chose the event, the others
        estimated these shares.
    """

    lower_bound: float
    delta: float
    confidence: float
    event: Event
    likelier: float
    rarer: float
    runs: int

    def refutes(self, epsilon: float) -> bool:
        """Return whether the bound contradicts a claimed epsilon."""
        return self.lower_bound > epsilon


def audit(
    run: Run[Database],
    database: Database,
    neighbour: Database,
    *,
    runs: int,
    delta: float = 0.0,
    confidence: float = 0.95,
    rng: BitSource,
) -> Audit:
    """Return a lower bound on the epsilon of an algorithm, from its outputs on two neighbours.

    Parameters
    ----------
    run : callable
        `run(database, size, rng)` returns one number for each of `size` runs: a released count, or any
        function of the output that is likely to differ.
    database, neighbour
        Two neighbouring databases, in any form that `run` understands.
    runs : int
        How often the algorithm runs on each database.
    delta : float
        The delta at which epsilon is bounded.
    confidence : float
        The confidence of the bound.
    rng : BitSource
        The randomness that `run` gets.

    Returns
    -------
    Audit
        The bound, and the event that shows it: outputs of at least, at most, or exactly some value.
    """
    checked_confidence(confidence)
    if not 0 <= delta < 1:
        raise InputError(f"delta: {delta} is not allowed; it must be from 0 to below 1")
    if runs < _FEWEST:
        raise InputError(f"runs: {runs} is not allowed; use at least {_FEWEST}")
    outputs = [_outputs(run, item, runs, rng) for item in (database, neighbour)]
    half = runs // 2
    event = _chosen([item[:half] for item in outputs], delta, confidence)
    first, second = (item[half:] for item in outputs)
    if event.likelier == "neighbour":
        first, second = second, first
    hits = [int(np.count_nonzero((x >= event.low) & (x <= event.high))) for x in (first, second)]
    left = runs - half
    bound = float(_bound(np.array(hits[0]), np.array(hits[1]), left, delta, confidence))
    shares = (hits[0] / left, hits[1] / left)
    return Audit(max(0.0, bound), delta, confidence, event, *shares, runs)


def audit_noise(
    noise: Mechanism,
    *,
    runs: int,
    shift: int = 1,
    delta: float = 0.0,
    confidence: float = 0.95,
    rng: BitSource,
) -> Audit:
    """Return a lower bound on the epsilon of integer noise for counts that differ by `shift`.

    Parameters
    ----------
    noise : Mechanism
        The noise.
    shift : int
        How much one person changes the count.
    runs, delta, confidence, rng
        As for `audit`.

    Returns
    -------
    Audit
        The bound, and the event that shows it.

    Examples
    --------
    >>> from countveil import DiscreteLaplace, Seeded
    >>> bound = audit_noise(DiscreteLaplace(epsilon=1), runs=20_000, rng=Seeded(1))
    >>> 0.8 < bound.lower_bound <= 1, bound.refutes(0.5)
    (True, True)
    """

    def released(count: int, size: int, bits: BitSource) -> Array:
        return count + noise.sample(size, rng=bits)

    return audit(
        released,
        *(shift, 0),
        runs=runs,
        delta=delta,
        confidence=confidence,
        rng=rng,
    )


def _outputs(run: Run[Database], database: Database, runs: int, rng: BitSource) -> FloatArray:
    outputs = np.asarray(run(database, runs, rng), np.float64)
    if outputs.shape != (runs,) or not np.isfinite(outputs).all():
        raise InputError(
            f"run: it returned an array of shape {outputs.shape}; return {runs:,} finite numbers, "
            f"one for each run"
        )
    return outputs


def _bound(likelier: Array, rarer: Array, runs: int, delta: float, confidence: float) -> FloatArray:
    """Return log((low(P) - delta)/high(P')), each bound wrong with probability (1 - confidence)/2."""
    tail = (1 - confidence) / 2
    low = clopper_pearson(likelier, np.array(runs), tail).lower - delta
    high = clopper_pearson(rarer, np.array(runs), tail).upper
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(low > 0, np.log(np.maximum(low, 1e-300)) - np.log(high), -np.inf)


def _chosen(outputs: list[FloatArray], delta: float, confidence: float) -> Event:
    """Return the event that bounds epsilon best in these runs."""
    runs = len(outputs[0])
    values = np.unique(np.concatenate(outputs))
    if len(values) > 2_000:
        values = np.quantile(values, np.linspace(0, 1, 2_000), method="nearest")
    ordered = [np.sort(item) for item in outputs]
    below = [np.searchsorted(item, values, side="left") for item in ordered]
    up_to = [np.searchsorted(item, values, side="right") for item in ordered]
    kinds = (
        (values, np.full(len(values), np.inf), [runs - item for item in below]),
        (np.full(len(values), -np.inf), values, up_to),
        (values, values, [b - a for a, b in zip(below, up_to, strict=True)]),
    )
    orders: tuple[tuple[tuple[int, int], Literal["database", "neighbour"]], ...] = (
        ((0, 1), "database"),
        ((1, 0), "neighbour"),
    )
    best, event = -math.inf, Event(-math.inf, math.inf, "database")
    for low, high, hits in kinds:
        for order, name in orders:
            bounds = _bound(hits[order[0]], hits[order[1]], runs, delta, confidence)
            place = int(np.argmax(bounds))
            if bounds[place] > best:
                best = float(bounds[place])
                event = Event(float(low[place]), float(high[place]), name)
    return event
