"""The bias of released counts: what they differ from unbiased estimates, pooled over units alike.

One difference says little: it has the noise of the unbiased estimate. Those of many units say how
biased units are on average and how much biases vary, and each unit's own bias is then estimated by what
it has in common with others and, as far as its difference is sharper than biases vary, by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from countveil.numerics import FloatArray, IntArray

ALIKE = 5  # units from which the biases of units like them are known
_SIZES = np.array([1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000])
_LEAST = 1e-9
_FAR = 12.0
_UNBOUNDED = 1e18
# Biases vary by more than those of replicates, which start from a table with fewer small counts: as
# variances, 1.2 to 3.9 times as much in simulations.
_MORE = 3.0
_DOUBT = 0.02  # of the error of a variance: the least that is likely, whatever replicates say
_STEPS = np.geomspace(1e-5, 5.0, 500)  # of a standard deviation, up to twice _FAR as a variance


@dataclass(frozen=True, eq=False, slots=True)
class Corrected:
    """Released counts with their bias and, that taken off, their standard error: units × cells."""

    bias: FloatArray
    standard_error: FloatArray


def corrected(
    released: IntArray,
    drift: FloatArray,
    spread: FloatArray,
    value: FloatArray,
    error: FloatArray,
    replicates: int,
    *,
    alone: bool = False,
) -> Corrected:
    """Return bias and error of released counts; all arrays are units × cells.

    `drift` is how far so many replicates are from the released counts on average, and `spread` their
    standard deviation; `value` and `error` are unbiased estimates. Units are alike by cell and size of
    the released count. Where fewer than five are, the whole cell is taken, and where that has fewer,
    each unit stands for itself: its bias is then its difference, and its error that of the unbiased
    estimate. So it does if `alone`.
    """
    noisy = (error > 0).ravel().astype(float)
    group = _alike(released, noisy)
    likely = _MORE * _excess(drift.ravel(), spread.ravel() ** 2 / replicates, group, noisy)
    # Replicates of a 0 start from nobody, and cannot show who was lost: then any is as likely.
    likely[group[(released == 0).ravel()]] = np.inf
    variance = _steadied(spread.ravel() ** 2, group, noisy, replicates).reshape(released.shape)
    spread = np.minimum(np.sqrt(variance), error)
    difference = (released - value).ravel()
    # The better estimate and what the other differs from it are uncorrelated (Hausman, 1978).
    noise = np.maximum(error**2 - spread**2, _LEAST).ravel()
    between = _between(difference, noise, np.maximum(likely, 0.0), group, noisy)[group]
    if alone:
        between = np.full_like(between, _UNBOUNDED)
    weight = noisy / (between + noise)
    together = np.maximum(np.bincount(group, weight), _LEAST)
    mean = np.bincount(group, weight * difference) / together
    # Of what a unit differs from its like, this part is its own bias.
    own = between / (between + noise)
    bias = (1 - own) * mean[group] + own * difference
    left = own * noise + (1 - own) ** 2 / together[group]
    shape = released.shape
    found = np.sqrt(spread**2 + left.reshape(shape))
    return Corrected(
        np.where(error > 0, bias.reshape(shape), released - value),
        np.where(error > 0, np.minimum(found, error), 0.0),
    )


def _alike(released: IntArray, noisy: FloatArray) -> IntArray:
    """Number groups of units: by cell and size, by cell where too few have the size."""
    units, cells = released.shape
    cell = np.tile(np.arange(cells), units)
    size = 1 + np.searchsorted(_SIZES, released.ravel(), side="right")
    sizes = len(_SIZES) + 2
    group = cell * sizes + size
    few = np.bincount(group, noisy, cells * sizes)[group] < ALIKE
    return np.asarray(np.where(few, cell * sizes, group))


def _steadied(
    variance: FloatArray, group: IntArray, noisy: FloatArray, replicates: int
) -> FloatArray:
    """Return variances drawn towards those of units alike, as far as replicates leave them in doubt."""
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
    """Return what differences vary more than their noise in each group, as a variance."""
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
    """Return how much biases vary in each group, as a variance; beyond all bounds where it has few.

    What differences vary more than their noise estimates it, with an error of its own, which is often
    larger; so its mean is taken, with a half-Cauchy density of the standard deviation beforehand whose
    scale is the likely one (Gelman, 2006).
    """
    units = np.maximum(np.bincount(group, noisy), 1)
    excess = _excess(difference, noise, group, noisy)
    expected = np.bincount(group, noisy * noise) / units
    error = np.sqrt(2 / np.maximum(units - 1, 1)) * (expected + np.maximum(excess, 0.0))
    error = np.maximum(error, _LEAST)
    found = error * _mean_variance(excess / error, np.maximum(likely / error, _DOUBT))
    return np.asarray(np.where(units < ALIKE, _UNBOUNDED, found))


def _mean_variance(found: FloatArray, likely: FloatArray) -> FloatArray:
    """Return the mean of t² for t with density exp(-(t² - found)² / 2) / (1 + t² / likely)."""
    near = np.minimum(found, _FAR)[:, None]
    squares = _STEPS**2
    log_weight = -0.5 * (squares - near) ** 2
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True)) * _STEPS
    weight /= 1 + squares / likely[:, None]
    mean = (weight * squares).sum(axis=1) / weight.sum(axis=1)
    return np.asarray(np.where(found < _FAR, mean, found))
