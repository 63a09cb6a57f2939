"""How much several independent noisy counts tell about one person: the law of their joint loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from countveil.assess.summed_noise import SummedNoise
from countveil.mechanisms.continuous import Gaussian
from countveil.mechanisms.discrete_gaussian import DiscreteGaussian
from countveil.mechanisms.law import Law, Mechanism
from countveil.numerics import FloatArray

_SMOOTH_FROM = 3  # sigma² from which the lattice is invisible: exp(-1.5 pi² sigma²) < 1e-19
_NEGLIGIBLE = 1e-20
_MOST_POINTS = 500_000
_BIN = 1e-4
_GRID = 10_000  # grid points a standard deviation
_MOST_EXACT = 20_000  # points of a loss that keeps every jump
_DEVIATIONS = 9.0  # beyond lies less than 1e-18 of a Gaussian
_MOST_LATTICE = 4_000  # points of a loss on one side; a wider law is thinned


def joint_loss(laws: Sequence[Law], rows: int = 1) -> tuple[FloatArray, FloatArray]:
    """Return points and weights of the summed loss of counts to which the target adds `rows`.

    Losses of wide Gaussians, discrete or not, add up to one normal loss with mean rho and variance
    2 rho, rho = rows² sum 1/(2 sigma²). All others are convolved point by point.
    """
    if len(laws) == 1:
        return laws[0].privacy_loss(rows)
    rate, losses, weights = 0.0, np.zeros(1), np.ones(1)
    for law in laws:
        if isinstance(law, Gaussian):
            rate += 1 / (2 * law.sigma**2)
        elif isinstance(law, DiscreteGaussian) and law.sigma2 >= _SMOOTH_FROM:
            rate += float(1 / (2 * law.sigma2))
        else:
            losses, weights = _convolved(losses, weights, *law.privacy_loss(rows))
    if rate > 0:
        pooled = Gaussian(math.sqrt(1 / (2 * rate)))
        losses, weights = _convolved(losses, weights, *pooled.privacy_loss(rows))
    return losses, weights


@dataclass(frozen=True, eq=False, slots=True)
class LatticeLoss:
    """The summed loss of integer noises: where it can be, and how likely."""

    points: FloatArray
    weights: FloatArray


@lru_cache(maxsize=256)
def lattice_loss(laws: tuple[tuple[Mechanism, int], ...], rows: int = 1) -> LatticeLoss:
    """Return the law of the loss of noisy counts, each noise with its number of cells, on the lattice.

    Unlike `joint_loss` it keeps every jump, which decisions depend on. Where points become too many
    they are put on a fine grid: by then the jumps are too small to be seen.
    """
    losses, weights = np.zeros(1), np.ones(1)
    rest = [
        _one_lattice(noise, cells, rows)
        for noise, cells in sorted(laws, key=lambda item: item[0].variance)
        for _ in range(1 if isinstance(noise, DiscreteGaussian) else cells)
    ]
    while rest and len(losses) * len(rest[0][0]) <= _MOST_EXACT:
        losses, weights = _convolved(losses, weights, *rest.pop(0))
    if rest:
        losses, weights = _convolved_on_grid([(losses, weights), *rest])
    weights = weights / weights.sum()
    for array in (losses, weights):
        array.setflags(write=False)
    return LatticeLoss(losses, weights)


def _convolved_on_grid(parts: Sequence[tuple[FloatArray, FloatArray]]) -> tuple[Any, Any]:
    """Put all on one grid and convolve them there, by Fourier transforms."""
    parts = [_pruned(*part) for part in parts]
    means = [float(weights @ losses) for losses, weights in parts]
    variance = sum(
        float(weights @ (losses - mean) ** 2)
        for (losses, weights), mean in zip(parts, means, strict=True)
    )
    step = math.sqrt(variance) / _GRID
    span = sum(float(np.ptp(losses)) for losses, _ in parts) / step
    size = 1 << math.ceil(math.log2(span + 2 * len(parts) + 2))
    transform, first = np.ones(size // 2 + 1, complex), 0.0
    for losses, weights in parts:
        lowest, mass = _on_grid(losses, weights, step)
        transform *= np.fft.rfft(mass, size)
        first += lowest
    both = np.maximum(np.fft.irfft(transform, size), 0.0)
    return _pruned(step * (first + np.arange(size, dtype=np.float64)), both)


def _one_lattice(noise: Mechanism, cells: int, rows: int) -> tuple[FloatArray, FloatArray]:
    """Return the loss of one count; of several discrete Gaussian ones at once, as it is linear."""
    if not isinstance(noise, DiscreteGaussian):
        return noise.privacy_loss(rows)
    law = SummedNoise(noise, cells)
    reach = math.ceil(_DEVIATIONS * math.sqrt(law.variance)) + 2
    step = max(1, reach // _MOST_LATTICE)
    e = step * np.arange(-(reach // step), reach // step + 1, dtype=np.float64)
    weights = np.exp(law.log_pmf(e))
    # loss = rate rows (2 e + rows) for one count; the shifts of all counts add up.
    losses = float(1 / (2 * noise.sigma2)) * rows * (2 * e + cells * rows)
    return losses, weights / weights.sum()


def _convolved(
    losses: FloatArray, weights: FloatArray, more_losses: FloatArray, more_weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    losses, weights = _pruned(losses, weights)
    more_losses, more_weights = _pruned(more_losses, more_weights)
    if len(losses) * len(more_losses) > _MOST_POINTS * 20:
        losses, weights = _binned(losses, weights)
    sums = (losses[:, None] + more_losses).ravel()
    products = (weights[:, None] * more_weights).ravel()
    sums, products = _pruned(sums, products)
    return (sums, products) if len(sums) <= _MOST_POINTS else _binned(sums, products)


def _pruned(losses: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    kept = weights > _NEGLIGIBLE
    return losses[kept], weights[kept]


def _binned(losses: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Move each point to the two grid points beside it, keeping its mean: an error of _BIN²/8."""
    lowest, mass = _on_grid(losses, weights, _BIN)
    return _pruned(_BIN * (lowest + np.arange(len(mass), dtype=np.float64)), mass)


def _on_grid(losses: FloatArray, weights: FloatArray, step: float) -> tuple[float, FloatArray]:
    """Return the mass at each grid point from the first one on, and the number of that one."""
    position = losses / step
    left = np.floor(position)
    lowest = float(left.min())
    index = (left - lowest).astype(np.int64)
    share = position - left
    size = int(index.max()) + 2
    mass = np.zeros(size)
    mass += np.bincount(index, weights * (1 - share), size)
    mass += np.bincount(index + 1, weights * share, size)
    return lowest, mass
