"""From replicates to intervals: corrected for a pooled bias, or by plain quantiles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from countveil.base.intervals import count_interval
from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.errors import InputError

IntervalMethod = Literal["bias-corrected", "basic", "percentile"]
_COLUMNS = ("bias", "standard_error", "lower", "upper")
METHODS: tuple[IntervalMethod, ...] = ("bias-corrected", "basic", "percentile")

ALIKE = 5  # a group needs this many similar units to estimate their biases together
_SIZES = np.array([1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000])
_LEAST = 1e-9
_FAR = 12.0
_UNBOUNDED = 1e18
# Biases vary more than those of replicates, which start from a table with fewer small counts: as
# variances, 1.2 to 3.9 times as much in simulations.
_MORE = 3.0
_DOUBT = 0.02  # of the error of a variance: the smallest likely variance for any replicates
_STEPS = np.geomspace(1e-5, 5.0, 500)  # standard deviations, up to twice _FAR as a variance


class UnbiasedCounts(NamedTuple):
    """Unbiased estimates and their standard errors, units × cells; infinite if undetermined."""

    value: FloatArray
    error: FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class IntervalColumns:
    """Released counts, units × cells, with columns for bias, standard_error, lower and upper."""

    released: IntArray
    columns: dict[str, pa.Array]


@dataclass(frozen=True, eq=False, slots=True)
class ReplicateSummary:
    """What an interval needs of replicates, gathered some units at a time."""

    confidence: float
    method: IntervalMethod
    replicates: int
    _released: list[IntArray] = field(default_factory=list, repr=False)
    _numbers: list[dict[str, Array]] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise InputError(f"unknown method {self.method!r}; choose from {', '.join(METHODS)}")

    @property
    def corrects(self) -> bool:
        """Whether the method uses unbiased estimates."""
        return self.method == "bias-corrected"

    def add(self, released: IntArray, replicates: IntArray) -> None:
        """Add units: units × cells as released, and replicates × units × cells."""
        numbers: dict[str, Array] = {
            "bias": replicates.mean(axis=0) - released,
            "standard_error": replicates.std(axis=0, ddof=1),
        }
        if not self.corrects:
            ends = _quantiles(released, replicates, self.confidence, self.method)
            numbers |= {"lower": ends.lower, "upper": ends.upper}
        self._released.append(released)
        self._numbers.append(numbers)

    def columns(self, unbiased: UnbiasedCounts | None, *, alone: bool = False) -> IntervalColumns:
        """Return all units; `unbiased` are unbiased estimates, if there are any.

        If measurements do not determine a cell, its bias cannot be estimated: it has neither bias nor
        interval. `alone` says that units must not be pooled.
        """
        released = np.concatenate(self._released)
        columns = {
            name: np.concatenate([part[name] for part in self._numbers])
            for name in self._numbers[0]
        }
        if not self.corrects:
            return IntervalColumns(
                released, {name: pa.array(c.ravel()) for name, c in columns.items()}
            )
        if unbiased is None:
            nothing = np.zeros(released.shape)
            unbiased = UnbiasedCounts(nothing, np.full(released.shape, np.inf))
        value, error = unbiased
        known = np.isfinite(error)
        correction = bias_correction(
            released,
            columns["bias"],
            columns["standard_error"],
            np.where(known, value, released),
            np.where(known, error, 0.0),
            self.replicates,
            alone=alone,
        )
        debiased = released - correction.bias
        ends = count_interval(debiased, correction.standard_error, self.confidence)
        lower, upper = (end.astype(np.int64) for end in ends)
        numbers = (correction.bias, correction.standard_error, lower, upper)
        missing = ~known.ravel()
        return IntervalColumns(
            released,
            {
                name: pa.array(column.ravel(), mask=missing)
                for name, column in zip(_COLUMNS, numbers, strict=True)
            },
        )


class _Ends(NamedTuple):
    """The ends of intervals, units × cells."""

    lower: IntArray
    upper: IntArray


def _quantiles(
    released: IntArray, replicates: IntArray, confidence: float, method: IntervalMethod
) -> _Ends:
    """Return central quantiles of replicates, or the release minus those of their errors.

    Ends are integers, rounded outwards, and never negative.
    """
    tail = (1 - confidence) / 2
    low = np.quantile(replicates, tail, axis=0, method="lower")
    high = np.quantile(replicates, 1 - tail, axis=0, method="higher")
    if method == "basic":
        low, high = 2 * released - high, 2 * released - low
    return _Ends(np.maximum(low, 0).astype(np.int64), np.maximum(high, 0).astype(np.int64))


# The bias of released counts: their difference from unbiased estimates, pooled over similar units.
#
# One difference says little, because it has the noise of the unbiased estimate. Many of them show how
# biased units are on average and how much biases vary. Each unit's own bias is then estimated from what
# it has in common with others and, the more precise its own difference is, from that difference.


@dataclass(frozen=True, eq=False, slots=True)
class BiasCorrection:
    """The bias of released counts, and their standard error once it is subtracted: units × cells."""

    bias: FloatArray
    standard_error: FloatArray


def bias_correction(
    released: IntArray,
    drift: FloatArray,
    deviation: FloatArray,
    value: FloatArray,
    error: FloatArray,
    replicates: int,
    *,
    alone: bool = False,
) -> BiasCorrection:
    """Return the bias and error of released counts; all arrays are units × cells.

    `drift` is how far replicates are from the released counts on average, and `deviation` their
    standard deviation; `value` and `error` are the unbiased estimates. Units are similar if they have
    about the same released count in a cell. If fewer than five are, all units are pooled by cell; if
    those are fewer than five too, or if `alone`, units are not pooled: the bias is then the difference
    from the unbiased estimate, and the error that of the unbiased estimate.
    """
    noisy = (error > 0).ravel().astype(float)
    group = _similar(released, noisy)
    likely = _MORE * _excess(drift.ravel(), deviation.ravel() ** 2 / replicates, group, noisy)
    # Replicates of a 0 start with no one, and cannot show a loss: then any bias is as likely.
    likely[group[(released == 0).ravel()]] = np.inf
    variance = _shrunk(deviation.ravel() ** 2, group, noisy, replicates).reshape(released.shape)
    deviation = np.minimum(np.sqrt(variance), error)
    difference = (released - value).ravel()
    # The more precise estimate is uncorrelated with the difference of both (Hausman, 1978).
    noise = np.maximum(error**2 - deviation**2, _LEAST).ravel()
    between = _between(difference, noise, np.maximum(likely, 0.0), group, noisy)[group]
    if alone:
        between = np.full_like(between, _UNBOUNDED)
    weight = noisy / (between + noise)
    together = np.maximum(np.bincount(group, weight), _LEAST)
    mean = np.bincount(group, weight * difference) / together
    # The fraction of a unit's difference from its group that is its own bias.
    own = between / (between + noise)
    bias = (1 - own) * mean[group] + own * difference
    left = own * noise + (1 - own) ** 2 / together[group]
    shape = released.shape
    total = np.sqrt(deviation**2 + left.reshape(shape))
    return BiasCorrection(
        np.where(error > 0, bias.reshape(shape), released - value),
        np.where(error > 0, np.minimum(total, error), 0.0),
    )


def _similar(released: IntArray, noisy: FloatArray) -> IntArray:
    """Return the group of each count: by cell and size, or only by cell if too few have its size."""
    units, cells = released.shape
    cell = np.tile(np.arange(cells), units)
    size = 1 + np.searchsorted(_SIZES, released.ravel(), side="right")
    sizes = len(_SIZES) + 2
    group = cell * sizes + size
    few = np.bincount(group, noisy, cells * sizes)[group] < ALIKE
    return np.asarray(np.where(few, cell * sizes, group))


def _shrunk(
    variance: FloatArray, group: IntArray, noisy: FloatArray, replicates: int
) -> FloatArray:
    """Return variances shrunk towards their group's mean, the more the fewer replicates there are."""
    units = np.maximum(np.bincount(group, noisy), 1)
    mean = np.bincount(group, noisy * variance) / units
    square = np.bincount(group, noisy * (variance - mean[group]) ** 2) / np.maximum(units - 1, 1)
    doubt = 2 / (replicates + 1) * np.bincount(group, noisy * variance**2) / units
    own = np.clip(1 - doubt / np.maximum(square, _LEAST), 0.0, 1.0)
    own = np.where(units < ALIKE, 1.0, own)[group]
    return np.asarray((1 - own) * mean[group] + own * variance)


def _excess(
    difference: FloatArray, noise: FloatArray, group: IntArray, noisy: FloatArray
) -> FloatArray:
    """Return the variance of the differences in each group beyond that of their noise."""
    units = np.maximum(np.bincount(group, noisy), 1)
    mean = np.bincount(group, noisy * difference) / units
    square = np.bincount(group, noisy * (difference - mean[group]) ** 2) / np.maximum(units - 1, 1)
    return np.asarray(square - np.bincount(group, noisy * noise) / units)


def _between(
    difference: FloatArray,
    noise: FloatArray,
    likely: FloatArray,
    group: IntArray,
    noisy: FloatArray,
) -> FloatArray:
    """Return the variance of biases in each group; unbounded if it has too few units.

    The variance of differences beyond their noise estimates it, often with a larger error of its own.
    So the posterior mean is used, under a half-Cauchy prior of the standard deviation with the likely
    scale (Gelman, 2006).
    """
    units = np.maximum(np.bincount(group, noisy), 1)
    excess = _excess(difference, noise, group, noisy)
    expected = np.bincount(group, noisy * noise) / units
    error = np.sqrt(2 / np.maximum(units - 1, 1)) * (expected + np.maximum(excess, 0.0))
    error = np.maximum(error, _LEAST)
    variance = error * _mean_variance(excess / error, np.maximum(likely / error, _DOUBT))
    return np.asarray(np.where(units < ALIKE, _UNBOUNDED, variance))


def _mean_variance(excess: FloatArray, likely: FloatArray) -> FloatArray:
    """Return the mean of t² for t with density exp(-(t² - excess)² / 2) / (1 + t² / likely)."""
    near = np.minimum(excess, _FAR)[:, None]
    squares = _STEPS**2
    log_weight = -0.5 * (squares - near) ** 2
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True)) * _STEPS
    weight /= 1 + squares / likely[:, None]
    mean = (weight * squares).sum(axis=1) / weight.sum(axis=1)
    return np.asarray(np.where(excess < _FAR, mean, excess))
