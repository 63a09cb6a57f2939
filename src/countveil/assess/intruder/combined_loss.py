"""How much several independent noisy counts reveal about one person: the law of their summed loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from countveil.base.numerics import FloatArray
from countveil.noise.continuous import Gaussian
from countveil.noise.law import Law, LossLaw, Mechanism
from countveil.noise.summed_noise import SummedNoise

_SMOOTH_FROM = 3  # sigma² from which the lattice is invisible: exp(-1.5 pi² sigma²) < 1e-19
_NEGLIGIBLE = 1e-20
_GRID = 10_000  # grid points per standard deviation
_SMOOTH_GRID = 2_000  # the same for averages of smooth functions: an error of a few 1e-7
_MOST_EXACT = 20_000  # points of a loss that keeps every jump
_MOST_POINTS = 100_000  # points of a loss of which averages are taken
_DEVIATIONS = 9.0  # beyond lies less than 1e-18 of a Gaussian
_MOST_LATTICE = 4_000  # points of a loss on one side; a wider law is thinned


class NoisyCells(NamedTuple):
    """How many cells with the same noise contain the target."""

    noise: Mechanism
    cells: int


def joint_loss(laws: Sequence[Law], rows: int = 1, others: Sequence[LossLaw] = ()) -> LossLaw:
    """Return the law of the summed loss of counts to which the target adds `rows`, and of other losses.

    Losses of wide Gaussians, discrete or not, add up to one normal loss with mean rho and variance
    2 rho, rho = rows² sum 1/(2 sigma²). All others are convolved point by point or, if there are many,
    on a grid.
    """
    if len(laws) == 1 and not others:
        return laws[0].privacy_loss(rows)
    rate, parts = 0.0, [_pruned(law) for law in others]
    for law in laws:
        variance = law.gaussian_variance
        if variance is not None and (not law.lattice or variance >= _SMOOTH_FROM):
            rate += 1 / (2 * variance)
        else:
            parts.append(_pruned(law.privacy_loss(rows)))
    if rate > 0:
        pooled = Gaussian(math.sqrt(1 / (2 * rate)))
        parts.append(_pruned(pooled.privacy_loss(rows)))
    return _sum_of(parts, _MOST_POINTS, _SMOOTH_GRID)


@lru_cache(maxsize=256)
def lattice_loss(laws: tuple[NoisyCells, ...], rows: int = 1) -> LossLaw:
    """Return the law of the summed loss of integer noises, with every jump kept.

    Decisions depend on the jumps, which `joint_loss` smooths over. Where points become too many they
    are put on a fine grid; by then the jumps are too small to be seen.
    """
    parts = [
        _one_lattice(noise, cells, rows)
        for noise, cells in sorted(laws, key=lambda item: item[0].variance)
        for _ in range(cells if noise.gaussian_variance is None else 1)
    ]
    total = _sum_of(parts, _MOST_EXACT, _GRID)
    losses, weights = total.points, total.weights / total.weights.sum()
    for array in (losses, weights):
        array.setflags(write=False)
    return LossLaw(losses, weights)


def _one_lattice(noise: Mechanism, cells: int, rows: int) -> LossLaw:
    """Return the loss of one count; of several discrete Gaussian ones at once, as it is linear."""
    variance = noise.gaussian_variance
    if variance is None:
        return noise.privacy_loss(rows)
    law = SummedNoise(noise, cells)
    reach = math.ceil(_DEVIATIONS * math.sqrt(law.variance)) + 2
    step = max(1, reach // _MOST_LATTICE)
    e = step * np.arange(-(reach // step), reach // step + 1, dtype=np.float64)
    weights = np.exp(law.log_pmf(e))
    # loss = rate rows (2 e + rows) for one count; the shifts of all counts add up.
    losses = 1 / (2 * variance) * rows * (2 * e + cells * rows)
    return LossLaw(losses, weights / weights.sum())


def _sum_of(parts: Sequence[LossLaw], most: int, fine: int) -> LossLaw:
    """Convolve losses, point by point up to `most` points, the rest on a grid."""
    total, rest = LossLaw(np.zeros(1), np.ones(1)), list(parts)
    while rest and len(total.points) * len(rest[0].points) <= most:
        total = _convolved(total, rest.pop(0))
    return _convolved_on_grid([total, *rest], fine) if rest else total


def _convolved_on_grid(parts: Sequence[LossLaw], fine: int) -> LossLaw:
    """Put all losses on one grid and convolve them there, by Fourier transforms.

    The grid has `fine` points per standard deviation of the sum.
    """
    parts = [_pruned(part) for part in parts]
    means = [float(weights @ losses) for losses, weights in parts]
    variance = sum(
        float(weights @ (losses - mean) ** 2)
        for (losses, weights), mean in zip(parts, means, strict=True)
    )
    step = math.sqrt(variance) / fine
    span = sum(float(np.ptp(losses)) for losses, _ in parts) / step
    size = 1 << math.ceil(math.log2(span + 2 * len(parts) + 2))
    transform, first = np.ones(size // 2 + 1, complex), 0.0
    for part in parts:
        lowest, mass = _on_grid(part, step)
        transform *= np.fft.rfft(mass, size)
        first += lowest
    both = np.maximum(np.fft.irfft(transform, size), 0.0)
    return _pruned(LossLaw(step * (first + np.arange(size, dtype=np.float64)), both))


def _convolved(one: LossLaw, other: LossLaw) -> LossLaw:
    one, other = _pruned(one), _pruned(other)
    sums = (one.points[:, None] + other.points).ravel()
    products = (one.weights[:, None] * other.weights).ravel()
    return _pruned(LossLaw(sums, products))


def _pruned(law: LossLaw) -> LossLaw:
    heavy = law.weights > _NEGLIGIBLE
    return LossLaw(law.points[heavy], law.weights[heavy])


def _on_grid(law: LossLaw, step: float) -> tuple[float, FloatArray]:
    """Return the number of the first grid point, and the mass at each from there on.

    Each point moves to the two grid points next to it, which keeps its mean.
    """
    position = law.points / step
    left = np.floor(position)
    lowest = float(left.min())
    index = (left - lowest).astype(np.int64)
    share = position - left
    size = int(index.max()) + 2
    mass = np.zeros(size)
    mass += np.bincount(index, law.weights * (1 - share), size)
    mass += np.bincount(index + 1, law.weights * share, size)
    return lowest, mass
