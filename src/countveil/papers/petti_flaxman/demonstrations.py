"""The appendix's demonstrations of empirical privacy loss, on any counts (paper 001).

Noise alone; totals and strata made consistent; an invariant total. They show that the loss may be below
what composition proves, and above the epsilon of the noise.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from countveil.base.numerics import Array, Exact, FloatArray, IntArray, positive
from countveil.base.randomness import BitSource
from countveil.errors import InputError
from countveil.noise.discrete_laplace import DiscreteLaplace

Objective = Literal["squares", "absolute"]


def parallel(counts: Array, *, epsilon: Exact, rng: BitSource) -> IntArray:
    """Return the residuals of counts released with two-sided geometric noise.

    Parameters
    ----------
    counts
        The exact counts, a list of whole numbers.
    epsilon
        The epsilon of each count.
    rng
        The source of random bits.

    Returns
    -------
    array of int
        Released minus exact, one per count.
    """
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
    """Return the residuals of strata after they are made consistent with noisy totals.

    Each area minimises w_t (Σx - T)² + w_s Σ(x - y)² over x >= 0, where the weights are the epsilons.

    Parameters
    ----------
    counts
        The exact counts: areas × strata.
    epsilon_totals, epsilon_strata
        The epsilons of the totals and of the strata.
    objective
        "squares", as in the authors' code, or "absolute" differences, as in their text.
    rng
        The source of random bits.

    Returns
    -------
    array of float
        Estimated minus exact, one per area and stratum.
    """
    exact = _counts(counts, 2)
    totals = exact.sum(axis=1) + DiscreteLaplace(epsilon=epsilon_totals).sample(len(exact), rng=rng)
    strata = exact + _noise(epsilon_strata, exact.shape, rng)
    weight = float(positive(epsilon_totals, "epsilon_totals"))
    own = float(positive(epsilon_strata, "epsilon_strata"))
    if objective == "squares":
        estimates = _least_squares(strata, totals, weight / own)
    elif objective == "absolute":
        estimates = _least_absolute(strata, totals, weight, own)
    else:
        raise InputError(
            f'objective: unknown objective {objective!r}; choose "squares" or "absolute"'
        )
    return np.asarray((estimates - exact).ravel())


def invariant_total(
    counts: Array,
    groups: Array,
    *,
    epsilon: Exact = "1/4",
    weight: float | None = 100.0,
    rng: BitSource,
) -> FloatArray:
    """Return the residuals of strata after the exact total of each group of areas is met.

    Each group minimises Σ(x - y)² + weight (Σx - T)² over x >= 0, where T is its exact total.

    Parameters
    ----------
    counts
        The exact counts: areas × strata.
    groups
        The group of each area.
    epsilon
        The epsilon of each count.
    weight
        The penalty on missing the total. The authors' "invariant" is a penalty of 100; with None the
        total is met exactly.
    rng
        The source of random bits.

    Returns
    -------
    array of float
        Estimated minus exact, one per area and stratum.
    """
    exact = _counts(counts, 2)
    labels = np.asarray(groups)
    if labels.shape != (len(exact),):
        raise InputError(
            f"groups: got {labels.size} for {len(exact)} areas; give one group for each"
        )
    if weight is not None and not 0 < weight < np.inf:
        raise InputError(
            f"weight: {weight} is not allowed; give a number above 0, or None for an exact total"
        )
    noisy = exact + _noise(epsilon, exact.shape, rng)
    estimates = np.empty(exact.shape)
    for group in np.unique(labels):
        here = labels == group
        total = np.array([exact[here].sum()])
        flat = noisy[here].reshape(1, -1)
        estimates[here] = _least_squares(flat, total, weight).reshape(-1, exact.shape[1])
    return np.asarray((estimates - exact).ravel())


def _noise(epsilon: Exact, shape: tuple[int, ...], rng: BitSource) -> IntArray:
    noise = DiscreteLaplace(epsilon=epsilon).sample(int(np.prod(shape)), rng=rng)
    return noise.reshape(shape)


def _least_squares(y: IntArray, totals: IntArray, weight: float | None) -> FloatArray:
    """Minimise Σ(x - y)² + weight (Σx - T)² over x >= 0 in each row; weight None means Σx = T.

    The solution is x = max(y - s, 0) with one s = weight (Σx - T) per row, among the breaks of Σx.
    """
    if weight is None and (totals < 0).any():
        raise InputError("counts: a total is negative")
    ordered = -np.sort(-y, axis=1).astype(float)
    number = np.arange(1, y.shape[1] + 1)
    sums = np.cumsum(ordered, axis=1)
    if weight is None:
        shift = (sums - totals[:, None]) / number
    else:
        shift = weight * (sums - totals[:, None]) / (1 + weight * number)
    # The first k values stay positive as long as the k-th is above its shift.
    positive_values = np.maximum((ordered > shift).sum(axis=1), 1)
    row_shift = shift[np.arange(len(y)), positive_values - 1]
    all_zero = ordered[:, 0] <= shift[:, 0]
    x = np.maximum(y - row_shift[:, None], 0.0)
    x[all_zero] = 0.0
    return np.asarray(x)


def _least_absolute(y: IntArray, totals: IntArray, weight: float, own: float) -> FloatArray:
    """Minimise weight |Σx - T| + own Σ|x - y| over x >= 0.

    Moving one person in a stratum costs `own` and gains at most `weight`. If own >= weight, all values
    stay where they are, clipped at 0. Otherwise the first strata make up the total, as far as there are
    people to remove.
    """
    x = np.maximum(y, 0).astype(float)
    if own >= weight:
        return x
    missing = totals - x.sum(axis=1)
    x[:, 0] += np.maximum(missing, 0)
    surplus = np.maximum(-missing, 0)
    before = np.cumsum(x, axis=1) - x
    return np.asarray(x - np.clip(surplus[:, None] - before, 0.0, x))


def _counts(counts: Array, dimensions: int) -> IntArray:
    values = np.asarray(counts)
    if values.ndim != dimensions or not values.size or values.dtype.kind not in "iu":
        shape = "a list" if dimensions == 1 else "areas × strata"
        raise InputError(
            f"counts: give {shape} of whole numbers, not {values.dtype} of shape {values.shape}"
        )
    if (values < 0).any():
        raise InputError("counts: some are negative; exact counts are 0 or more")
    return values.astype(np.int64)
