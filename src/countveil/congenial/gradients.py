"""Gradients of a loss on a grid of coefficients, in whole numbers, and how far one person moves them.

Records are whole multiples of a public step, and grid points are fractions. So the gradients of a
mean and of a linear regression are exact. Those of a logistic one use probabilities rounded to
2**-24, each within public bounds: a sum over people of a function of each record, and its
sensitivity is that of this function.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Literal, TypeAlias

import numpy as np

from countveil.errors import InputError
from countveil.numerics import Array, FloatArray, IntArray

Norm: TypeAlias = Literal["L1", "maximum"]

_BITS = 24
_ONE = 1 << _BITS
_ROOM = 1 << 62
_CHUNK = 4_000_000


@dataclass(frozen=True, eq=False, slots=True)
class Grid:
    """Points of a box: coordinates/denominator."""

    coordinates: IntArray
    denominator: int


@dataclass(frozen=True, eq=False, slots=True)
class Gradients:
    """At each grid point the norm of the gradient, and the most one person moves it; in one unit."""

    norms: IntArray
    sensitivities: IntArray


def grid_of(box: tuple[tuple[Fraction, Fraction], ...], points: tuple[int, ...]) -> Grid:
    """Return equally spaced points of a box, both ends of each side among them."""
    axes = [
        [low + (high - low) * Fraction(i, count - 1) for i in range(count)]
        for (low, high), count in zip(box, points, strict=True)
    ]
    denominator = math.lcm(*(value.denominator for axis in axes for value in axis))
    whole = [[int(value * denominator) for value in axis] for axis in axes]
    _fits(max(abs(value) for axis in whole for value in axis))
    return Grid(np.array(list(product(*whole)), np.int64), denominator)


def of_mean(
    records: IntArray, bounds: IntArray, step: Fraction, grid: Grid, norm: Norm
) -> Gradients:
    """Return those of the sum of squares |y - x|²/2: n·y minus the sum of the records."""
    n, width = records.shape
    # In units of 1/(denominator of y · denominator of the step).
    by_point, by_record = step.denominator, grid.denominator * step.numerator
    _fits(width * n * (_most(grid.coordinates) * by_point + _most(bounds) * by_record))
    gradients = n * by_point * grid.coordinates - by_record * records.sum(axis=0)
    ranges = by_record * (bounds[:, 1] - bounds[:, 0])
    return Gradients(_length(gradients, norm), _length(np.tile(ranges, (len(gradients), 1)), norm))


def of_linear(records: IntArray, bounds: IntArray, grid: Grid, norm: Norm) -> Gradients:
    """Return those of the sum of (a·y - b)²/2: a(a·y - b), summed; the last column is b."""
    features, responses = records[:, :-1], records[:, -1]
    n, width = features.shape
    most, far = _most(bounds), _most(grid.coordinates)
    residual = width * most * far + grid.denominator * most
    _fits(n * width * most * residual)
    _fits(residual**2)
    # In units of step²/denominator.
    moments = features.T @ features
    gradients = grid.coordinates @ moments - grid.denominator * (features.T @ responses)
    ranges = np.stack(
        [_linear_range(j, bounds, grid) for j in range(width)],
        axis=1,
    )
    return Gradients(_length(gradients, norm), _length(ranges, norm))


def _linear_range(j: int, bounds: IntArray, grid: Grid) -> IntArray:
    """Return the largest minus the smallest value of a_j(a·y - b), rounded outwards.

    With R what a·y - b holds beside a_j y_j, it is a_j² y_j + a_j R: linear in R, and quadratic in
    a_j, so largest at an end of R, and there at an end of a_j or where the derivative vanishes, at
    -R²/(4 y_j).
    """
    y, (low, high) = grid.coordinates, bounds[:-1].T
    ends = np.sort(np.stack((low * y, high * y)), axis=0)
    least = ends[0].sum(axis=1) - ends[0][:, j] - grid.denominator * bounds[-1, 1]
    largest = ends[1].sum(axis=1) - ends[1][:, j] - grid.denominator * bounds[-1, 0]
    own = y[:, j]
    candidates = []
    for rest in (least, largest):
        candidates += [a * a * own + a * rest for a in (low[j], high[j])]
        size = 2 * np.abs(own)
        turn = np.where(own > 0, -rest, rest)  # the derivative vanishes at turn/size
        inside = (own != 0) & (low[j] * size <= turn) & (turn <= high[j] * size)
        summit = -(-(rest * rest) // np.maximum(2 * size, 1))
        candidates.append(np.where(inside, np.where(own > 0, -summit, summit), candidates[-1]))
    found: IntArray = np.max(candidates, axis=0) - np.min(candidates, axis=0)
    return found


def of_logistic(
    records: IntArray, bounds: IntArray, step: Fraction, grid: Grid, norm: Norm
) -> Gradients:
    """Return those of the sum of log(1 + e^(a·y)) - b a·y: a(p - b), summed; the last column is b."""
    features, responses = records[:, :-1], records[:, -1]
    n, width = features.shape
    _fits(width * n * _most(bounds) * 2 * _ONE)
    _fits(width * _most(bounds) * _most(grid.coordinates))
    scale = float(step) / grid.denominator
    low, high = (_product_ends(grid.coordinates, bounds[:-1])[i].sum(axis=1) for i in (0, 1))
    # Whatever floats do, each p is brought between these two, which only y and the bounds decide.
    lowest = np.maximum(np.floor(_logistic(low * scale) * _ONE) - 1, 0).astype(np.int64)
    highest = np.minimum(np.ceil(_logistic(high * scale) * _ONE) + 1, _ONE).astype(np.int64)
    gradients = np.empty((len(grid.coordinates), width), np.int64)
    rows = max(1, _CHUNK // n)
    for start in range(0, len(gradients), rows):
        part = slice(start, start + rows)
        chances = _logistic((grid.coordinates[part] @ features.T) * scale)
        rounded = np.rint(chances * _ONE).astype(np.int64)
        rounded = np.clip(rounded, lowest[part, None], highest[part, None])
        gradients[part] = (rounded - _ONE * responses) @ features
    residuals = np.stack((lowest - _ONE, highest))
    corners = np.stack([residuals[i][:, None] * bounds[:-1, k] for i in (0, 1) for k in (0, 1)])
    ranges = corners.max(axis=0) - corners.min(axis=0)
    return Gradients(_length(gradients, norm), _length(ranges, norm))


def _product_ends(y: IntArray, bounds: IntArray) -> IntArray:
    found: IntArray = np.sort(np.stack((bounds[:, 0] * y, bounds[:, 1] * y)), axis=0)
    return found


def _logistic(t: Array) -> FloatArray:
    found: FloatArray = 0.5 * (1 + np.tanh(t / 2))
    return found


def _length(vectors: IntArray, norm: Norm) -> IntArray:
    found: IntArray = np.abs(vectors).sum(axis=1) if norm == "L1" else np.abs(vectors).max(axis=1)
    return found


def _most(values: IntArray) -> int:
    return int(np.abs(values).max())


def _fits(size: int) -> None:
    """Refuse whole numbers that 64 bits do not hold; decided by public sizes only."""
    if size >= _ROOM:
        raise InputError(
            "step, points: gradients on so fine a grid do not fit whole numbers of 64 bits; "
            "choose a coarser step, or a box whose points are simpler fractions"
        )
