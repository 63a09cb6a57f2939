"""Rounding to a base: to the nearest multiple, or up and down at random without bias.

Every count of every table is rounded separately, so that tables no longer add up exactly. What the
plan publishes exactly stays exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.random import Generator
from scipy.special import expit, logit

from countveil.assess.protections.exact_tables import ExactTables, TableKey
from countveil.assess.protections.known_others import Targets, separations
from countveil.assess.protections.protection import (
    Disclosure,
    ProtectedTable,
    certain_or_nothing,
)
from countveil.base.numerics import FloatArray, IntArray
from countveil.errors import InputError
from countveil.plan.plans import Plan

LARGEST_BASE = 1000
MOST_OUTCOMES = 1_000
"""Combinations of rounded counts that are summed exactly. In larger numbers, close ones are merged."""

MOST_ALTERNATIVES = 8_000
"""Alternatives, over all kinds of people, that are examined under random rounding."""

_MERGED = 1e-3  # width of a merged step of the log likelihood ratio: changes a posterior below 1e-6

_BRACKET = (
    "Rounding: two ends of the risk. Lower end: someone who uses the tables of the unit they know and "
    "of the units inside it. Upper end: someone who also knows everyone elsewhere."
)


def nearest(counts: IntArray, base: int) -> IntArray:
    """Return counts rounded to the nearest multiple of a base, halves up.

    Examples
    --------
    >>> nearest(np.array([1, 2, 3, 5, 7]), 5).tolist()
    [0, 0, 5, 5, 5]
    """
    return np.asarray((2 * counts + base) // (2 * base) * base)


def at_random(counts: IntArray, base: int, rng: Generator) -> IntArray:
    """Return counts rounded to a multiple of a base at random, without bias.

    A count that is r above a multiple goes up with probability r/base.

    Examples
    --------
    >>> at_random(np.array([0, 3, 6]), 3, np.random.default_rng(1)).tolist()
    [0, 3, 6]
    """
    up = rng.random(counts.shape) * base < counts % base
    return np.asarray(counts - counts % base + base * up)


def _rounded(
    tables: ExactTables, rounding: Callable[[IntArray], IntArray]
) -> dict[TableKey, ProtectedTable]:
    """Return all tables rounded, except those that are published exactly."""
    return {
        key: ProtectedTable((counts if tables.exact(key) else rounding(counts)).astype(float))
        for key, counts in tables.counts.items()
    }


@dataclass(frozen=True, slots=True)
class ConventionalRounding:
    """Every count rounded to the nearest multiple of `base`."""

    base: int

    @property
    def label(self) -> str:
        """The protection and its settings."""
        return f"rounding to base {self.base}"

    @property
    def limits(self) -> tuple[str, ...]:
        """What the figures leave out."""
        return (_BRACKET,)

    def protect(self, tables: ExactTables, rng: Generator) -> dict[TableKey, ProtectedTable]:
        """Return the rounded tables."""
        return _rounded(tables, lambda counts: nearest(counts, self.base))

    def disclosure(
        self,
        tables: ExactTables,
        published: Mapping[TableKey, ProtectedTable],
        targets: Targets,
        priors: Sequence[float],
        rng: Generator,
    ) -> Disclosure:
        """Return who is certain: wherever a rounded count would be another one."""
        least = np.zeros(len(targets.entry), bool)
        most = least.copy()
        for item in separations(tables, targets):
            base = 1 if tables.exact(item.key) else self.base
            counts = tables.counts[item.key]
            own, other = item.at_own(counts), item.at_other(counts)
            differs = (item.own >= 0) & (nearest(own, base) != nearest(own - 1, base))
            differs |= (item.other >= 0) & (nearest(other, base) != nearest(other + 1, base))
            least |= differs & item.known
            most |= differs
        return certain_or_nothing(targets, least, most, priors)


@dataclass(frozen=True, slots=True)
class RandomRounding:
    """Every count rounded up or down to a multiple of `base`, at random and without bias."""

    base: int

    @property
    def label(self) -> str:
        """The protection and its settings."""
        return f"random rounding to base {self.base}"

    @property
    def limits(self) -> tuple[str, ...]:
        """What the figures leave out."""
        return (_BRACKET,)

    def protect(self, tables: ExactTables, rng: Generator) -> dict[TableKey, ProtectedTable]:
        """Return the rounded tables."""
        return _rounded(tables, lambda counts: at_random(counts, self.base, rng))

    def disclosure(
        self,
        tables: ExactTables,
        published: Mapping[TableKey, ProtectedTable],
        targets: Targets,
        priors: Sequence[float],
        rng: Generator,
    ) -> Disclosure:
        """Return the exact expected posteriors, by the law of rounding."""
        targets = targets.sample(MOST_ALTERNATIVES, rng)
        near = np.zeros((len(targets.entry), self.base + 1), np.int64)
        far = near.copy()
        for item in separations(tables, targets):
            counts, rows = tables.counts[item.key], np.arange(len(near))
            # A count that the alternative raises from r above a multiple separates as well as one
            # that the truth raises from base - 1 - r: up and down change sides.
            for cells, kind in (
                (item.own, (item.at_own(counts) - 1) % self.base),
                (item.other, self.base - 1 - item.at_other(counts) % self.base),
            ):
                which = np.full(len(near), self.base) if tables.exact(item.key) else kind
                np.add.at(far, (rows, which), cells >= 0)
                np.add.at(near, (rows, which), (cells >= 0) & item.known)
        ends = [self._expected(targets, kinds, tuple(priors)) for kinds in (near, far)]
        return Disclosure(
            targets.attack,
            targets.people.astype(float),
            ends[0][1:],
            ends[1][1:],
            ends[0][0],
            ends[1][0],
            targets.sampled,
        )

    def _expected(self, targets: Targets, kinds: IntArray, priors: tuple[float, ...]) -> FloatArray:
        """Return how probable certainty is, and the expected posteriors, for the worst alternative."""
        patterns, which = np.unique(kinds, axis=0, return_inverse=True)
        posteriors = [
            expected_posteriors(self.base, tuple(map(int, row)), priors) for row in patterns
        ]
        return targets.worst(np.array(posteriors).T[:, which.ravel()])


@lru_cache(maxsize=1 << 16)
def expected_posteriors(
    base: int, kinds: tuple[int, ...], priors: tuple[float, ...]
) -> tuple[float, ...]:
    """Return the probability of certainty, then the expected posterior of the truth for each prior.

    Parameters
    ----------
    base : int
        The base of random rounding.
    kinds : tuple of int
        How many counts are of each kind: for r < base, those that are r above a multiple without the
        target and count them if the truth holds; last, those that are published exactly.
    priors : tuple of float
        The probability of the truth beforehand.

    Returns
    -------
    tuple of float
        One number more than there are priors.

    Examples
    --------
    >>> certain, posterior = expected_posteriors(3, (1, 0, 0, 0), (0.5,))
    >>> round(certain, 4), round(posterior, 4)  # 1 in 3 single people become a 3
    (0.3333, 0.6)
    """
    if kinds[-1]:
        return (1.0, *(1.0 for _ in priors))
    certain, weight, loss = 0.0, np.ones(1), np.zeros(1)
    for kind, number in enumerate(kinds[:-1]):
        if number:
            law, ratio = _ups(number, (kind + 1) / base, kind / base)
            weight = (weight[:, None] * law).ravel()
            loss = (loss[:, None] + ratio).ravel()
            certain += float(weight[np.isposinf(loss)].sum())
            possible = (weight > 0) & np.isfinite(loss)
            weight, loss = _merged(weight[possible], loss[possible])
    return (
        certain,
        *(certain + float(weight @ expit(logit(prior) + loss)) for prior in priors),
    )


def _ups(number: int, true: float, alternative: float) -> tuple[FloatArray, FloatArray]:
    """Return how probable each number of counts rounded up is, and its log likelihood ratio."""
    up = np.arange(number + 1)
    ways = np.array([math.comb(number, k) for k in up], float)
    with np.errstate(divide="ignore", invalid="ignore"):
        one, other = (np.power(p, up) * np.power(1 - p, number - up) for p in (true, alternative))
        return np.asarray(ways * one), np.log(one) - np.log(other)


def _merged(weight: FloatArray, loss: FloatArray) -> tuple[FloatArray, FloatArray]:
    if len(loss) <= MOST_OUTCOMES:
        return weight, loss
    _, where = np.unique(np.round(loss / _MERGED), return_inverse=True)
    total = np.asarray(np.bincount(where, weight), float)
    return total, np.bincount(where, weight * loss) / total


def read_conventional(value: str, options: Mapping[str, str], plan: Plan) -> ConventionalRounding:
    """Return the protection that the text `rounding:BASE` describes."""
    return ConventionalRounding(_base("rounding", value, options))


def read_random(value: str, options: Mapping[str, str], plan: Plan) -> RandomRounding:
    """Return the protection that the text `random-rounding:BASE` describes."""
    return RandomRounding(_base("random-rounding", value, options))


def _base(name: str, value: str, options: Mapping[str, str]) -> int:
    for option in options:
        raise InputError(f"{name}: unknown option {option!r}; write {name}:BASE alone")
    if not value.isascii() or not value.isdigit() or not 2 <= int(value) <= LARGEST_BASE:
        raise InputError(
            f"{name}: the base is {value!r}; give a whole number from 2 to {LARGEST_BASE:,}, such as "
            f"{name}:5"
        )
    return int(value)
