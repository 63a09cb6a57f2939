"""The appendix's demonstrations of empirical privacy loss, on any counts (paper 001).

Noise alone; totals and strata made to agree; an invariant total. They show that the loss may lie below
what composition proves, and above the epsilon of the noise.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from countveil.errors import InputError
from countveil.mechanisms.discrete_laplace import DiscreteLaplace
from countveil.numerics import Array, Exact, FloatArray, IntArray, positive
from countveil.randomness import BitSource

Objective = Literal["squares", "absolute"]


def parallel(counts: Array, *, epsilon: Exact, rng: BitSource) -> IntArray:
    """Return residuals of counts released with two-sided geometric noise, one epsilon for all."""
    exact = _counts(counts, 1)
    return DiscreteLaplace(epsilon=epsilon).sample(len(exact), rng=rng)


def totals_and_strata(
    counts: Array,
    *,
    epsilon_totals: Exact = "1/4",
    epsilon_strata: Exact = "3/4",
    objective: Objective = "squares",
    rng: BitSource,
) -> FloatArray:
    """Return residuals of strata, areas × strata, after they are made to agree with noisy totals.

    Each area minimises w_t (Σx - T)² + w_s Σ(x - y)² over x >= 0, the weights being the epsilons, as
    the authors' code does; "absolute" takes absolute differences, as their text says.
    """
    exact = _counts(counts, 2)
    totals = exact.sum(axis=1) + DiscreteLaplace(epsilon=epsilon_totals).sample(len(exact), rng=rng)
    strata = exact + _noise(epsilon_strata, exact.shape, rng)
    weight = float(positive(epsilon_totals, "epsilon_totals"))
    own = float(positive(epsilon_strata, "epsilon_strata"))
    if objective == "squares":
        estimates = _shifted(strata, totals, weight / own)
    elif objective == "absolute":
        estimates = _least_absolute(strata, totals, weight, own)
    else:
        raise InputError(f'objective: {objective!r} is not known; choose "squares" or "absolute"')
    return np.asarray((estimates - exact).ravel())


def invariant_total(
    counts: Array,
    groups: Array,
    *,
    epsilon: Exact = "1/4",
    weight: float | None = 100.0,
    rng: BitSource,
) -> FloatArray:
    """Return residuals of strata, areas × strata, after the exact total of each group of areas is met.

    Each group minimises Σ(x - y)² + weight (Σx - T)² over x >= 0, T its exact total; the authors'
    "invariant" is such a penalty with weight 100. With `weight` None the total is met exactly.
    """
    exact = _counts(counts, 2)
    labels = np.asarray(groups)
    if labels.shape != (len(exact),):
        raise InputError(
            f"groups: {labels.size} came for {len(exact)} areas; give one group for each"
        )
    if weight is not None and not 0 < weight < np.inf:
        raise InputError(
            f"weight: {weight} is not allowed; it is above 0, or none for a hard total"
        )
    noisy = exact + _noise(epsilon, exact.shape, rng)
    estimates = np.empty(exact.shape)
    for group in np.unique(labels):
        here = labels == group
        total = np.array([exact[here].sum()])
        flat = noisy[here].reshape(1, -1)
        estimates[here] = _shifted(flat, total, weight).reshape(-1, exact.shape[1])
    return np.asarray((estimates - exact).ravel())


def _noise(epsilon: Exact, shape: tuple[int, ...], rng: BitSource) -> IntArray:
    drawn = DiscreteLaplace(epsilon=epsilon).sample(int(np.prod(shape)), rng=rng)
    return drawn.reshape(shape)


def _shifted(y: IntArray, totals: IntArray, weight: float | None) -> FloatArray:
    """Minimise Σ(x - y)² + weight (Σx - T)² over x >= 0, a row each; weight None is Σx = T.

    Then x = max(y - s, 0) with one s a row, s = weight (Σx - T): found among the breaks of Σx.
    """
    if weight is None and (totals < 0).any():
        raise InputError("counts: a total is below 0")
    ordered = -np.sort(-y, axis=1).astype(float)
    number = np.arange(1, y.shape[1] + 1)
    sums = np.cumsum(ordered, axis=1)
    if weight is None:
        shift = (sums - totals[:, None]) / number
    else:
        shift = weight * (sums - totals[:, None]) / (1 + weight * number)
    # The first k values stay above 0 as long as the k-th is above its shift.
    kept = np.maximum((ordered > shift).sum(axis=1), 1)
    chosen = shift[np.arange(len(y)), kept - 1]
    none = ordered[:, 0] <= shift[:, 0]
    x = np.maximum(y - chosen[:, None], 0.0)
    x[none] = 0.0
    return np.asarray(x)


def _least_absolute(y: IntArray, totals: IntArray, weight: float, own: float) -> FloatArray:
    """Minimise weight |Σx - T| + own Σ|x - y| over x >= 0.

    Moving one person in a stratum costs `own` and gains at most `weight`: with own > weight all stay
    where they are, cut off at 0; otherwise the total is met, as far as people can be taken away, by the
    first strata.
    """
    x = np.maximum(y, 0).astype(float)
    if own >= weight:
        return x
    short = totals - x.sum(axis=1)
    x[:, 0] += np.maximum(short, 0)
    over = np.maximum(-short, 0)
    before = np.cumsum(x, axis=1) - x
    return np.asarray(x - np.clip(over[:, None] - before, 0.0, x))


def _counts(counts: Array, dimensions: int) -> IntArray:
    given = np.asarray(counts)
    if given.ndim != dimensions or not given.size or given.dtype.kind not in "iu":
        shape = "a list" if dimensions == 1 else "areas × strata"
        raise InputError(
            f"counts: give {shape} of whole numbers, not {given.dtype} of {given.shape}"
        )
    if (given < 0).any():
        raise InputError("counts: some are below 0; exact counts are 0 or more")
    return given.astype(np.int64)
