"""The K-norm gradient mechanism (003, Theorem 10) for means and small regressions, on a public grid.

P(y) ∝ exp(-epsilon ‖∇L_x(y)‖_K/(2 delta_z·sigma_y)), with y in a grid of a box. The noise is small
where the loss is steep, so that the error falls as 1/n (Theorem 11).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from countveil.base.numerics import Array, Exact, FloatArray, IntArray, exact, positive
from countveil.base.randomness import BitSource
from countveil.congenial.guarantee.partial_privacy import PartialPrivacy, Theta
from countveil.congenial.mechanism.exact_probability import (
    ScaledExponential,
    events_that_happen,
    uniform_below,
)
from countveil.errors import InputError

Estimate: TypeAlias = Literal["mean", "linear", "logistic"]
GradientNorm: TypeAlias = Literal["L1", "maximum"]

_MOST_DIMENSIONS = 3
_MOST_PRODUCTS = 400_000_000
_MOST_POINTS = 200_000  # times 2**30 is below 2**50, as uniform whole numbers must be


class Interval(NamedTuple):
    """The lower and the upper end of a range of values."""

    low: Fraction
    high: Fraction


@dataclass(frozen=True, slots=True, init=False)
class KNormGradient:
    """A mean, or the coefficients of a regression, of 1 to 3 numbers, drawn from a grid of `box`.

    Parameters
    ----------
    model
        "mean", "linear" or "logistic".
    epsilon
        The epsilon-TP of the release.
    bounds
        The range of the data: of each column for a mean; of each feature of a regression, followed by
        the response of a linear one. The response of a logistic regression is 0 or 1.
    box
        The range of each released number.
    points
        The number of grid points along each side of the box.
    step
        Data are rounded to multiples of it.
    delta_z
        Delta_z: the largest number of records that change together; 1 if public information makes
        no one's record depend on another's.
    norm
        The norm of the gradient, "maximum" or "L1".

    Examples
    --------
    >>> from countveil import Seeded
    >>> mean = KNormGradient("mean", epsilon=1, bounds=[(0, 1)], box=[(0, 1)])
    >>> mean.sample([0.2, 0.4, 0.9] * 100, rng=Seeded(7)).shape
    (1,)
    """

    model: Estimate
    epsilon: Fraction
    bounds: tuple[Interval, ...]
    box: tuple[Interval, ...]
    points: tuple[int, ...]
    step: Fraction
    delta_z: int
    norm: GradientNorm

    def __init__(
        self,
        model: Estimate,
        *,
        epsilon: Exact,
        bounds: Sequence[tuple[Exact, Exact]],
        box: Sequence[tuple[Exact, Exact]],
        points: int | Sequence[int] = 101,
        step: Exact = "1/1000",
        delta_z: int = 1,
        norm: GradientNorm = "maximum",
    ) -> None:
        d = len(box)
        if not 1 <= d <= _MOST_DIMENSIONS:
            raise InputError(
                f"box: {d} dimensions are not supported; give 1 to {_MOST_DIMENSIONS}, as the grid of "
                f"more would be too large to draw from exactly"
            )
        counts = (points,) * d if isinstance(points, int) else tuple(points)
        object.__setattr__(self, "model", _choice(model, get_args(Estimate), "model"))
        object.__setattr__(self, "norm", _choice(norm, get_args(GradientNorm), "norm"))
        object.__setattr__(self, "epsilon", positive(epsilon, "epsilon"))
        object.__setattr__(self, "step", positive(step, "step"))
        object.__setattr__(self, "delta_z", delta_z)
        object.__setattr__(self, "points", counts)
        object.__setattr__(self, "box", tuple(_interval(side, "box") for side in box))
        object.__setattr__(self, "bounds", tuple(_interval(side, "bounds") for side in bounds))
        self._check()

    def _check(self) -> None:
        d = len(self.box)
        required = d + 1 if self.model == "linear" else d
        if len(self.bounds) != required:
            raise InputError(
                f"bounds: got {len(self.bounds)}; a {self.model} model of {d} coefficients needs "
                f"{required}, one for each column of the data that is not 0 or 1 by definition"
            )
        if isinstance(self.delta_z, bool) or not isinstance(self.delta_z, int) or self.delta_z < 1:
            raise InputError(
                f"delta_z: {self.delta_z!r} is not allowed; it must be a number of records, 1 or more"
            )
        if len(self.points) != d or any(count < 2 for count in self.points):
            raise InputError(
                f"points: {self.points} is not allowed; give 2 or more for each of {d} sides"
            )
        if int(np.prod(self.points, dtype=object)) > _MOST_POINTS:
            raise InputError(
                f"points: {self.points} make a grid of more than {_MOST_POINTS:,} points, too many to "
                f"draw from exactly; choose fewer"
            )
        for side in self.bounds:
            if any((end / self.step).denominator != 1 for end in side):
                raise InputError(
                    f"bounds: {side.low} and {side.high} must be multiples of the step, {self.step}, "
                    f"to which data are rounded"
                )
        if all(side.low == side.high for side in self.bounds) and self.model != "logistic":
            raise InputError("bounds: they fix every value; nothing is left to release")

    @property
    def grid(self) -> FloatArray:
        """All points that can be released, one per row."""
        grid = self._grid
        return grid.coordinates / grid.denominator

    @property
    def _grid(self) -> Grid:
        return _grid(self.box, self.points)

    def sample(
        self, data: Array | Sequence[object], *, rng: BitSource, size: int | None = None
    ) -> FloatArray:
        """Draw one point, or `size` of them, for a simulation; data have one row per person."""
        if not rng.reproducible:
            raise InputError(
                "rng: a release is charged to a ledger and drawn once, by measure.draw_estimate; "
                "sample(…, rng=Seeded(7)) is for simulations"
            )
        points = draw_points(self, data, size=1 if size is None else size, rng=rng)
        return points[0] if size is None else points

    def log_probabilities(self, data: Array | Sequence[object]) -> FloatArray:
        """Return the log-probability of every point of the grid."""
        return self._finite_law(data).log_probabilities

    def log_density(
        self, y: Array | Sequence[object], data: Array | Sequence[object]
    ) -> FloatArray:
        """Return the log-probability of points; minus infinity off the grid."""
        at = np.asarray(y, np.float64)
        rows = at.reshape(-1, len(self.box))
        low = np.array([float(side.low) for side in self.box])
        width = np.array([float(side.high - side.low) for side in self.box])
        position = (rows - low) / width * (np.array(self.points) - 1)
        index = np.rint(position)
        off = (np.abs(position - index) > 1e-6) | (index < 0) | (index >= np.array(self.points))
        inside = np.clip(index, 0, np.array(self.points) - 1).astype(np.int64)
        flat = np.ravel_multi_index(tuple(inside.T), self.points)
        logs = np.where(off.any(axis=1), -np.inf, self.log_probabilities(data)[flat])
        return logs.reshape(at.shape[:-1]) if at.ndim else logs.reshape(())

    def guarantee(self, theta: Theta, coupling: str) -> PartialPrivacy:
        """Return epsilon-TP for a theta whose databases have at most this Delta_z."""
        return PartialPrivacy(self.epsilon, theta, coupling)

    def _finite_law(self, data: Array | Sequence[object]) -> FiniteLaw:
        records, grid = self._records(data), self._grid
        bounds = self._whole_bounds
        if self.model == "mean":
            gradients = mean_gradients(records, bounds, self.step, grid, self.norm)
        elif self.model == "linear":
            gradients = linear_gradients(records, bounds, grid, self.norm)
        else:
            gradients = logistic_gradients(records, bounds, self.step, grid, self.norm)
        if not (gradients.sensitivities > 0).all():
            raise InputError(
                "bounds: at some point of the box no record moves the gradient; nothing is left "
                "to release"
            )
        rate = self.epsilon / (2 * self.delta_z)
        return FiniteLaw.of(rate, gradients.norms, gradients.sensitivities)

    @property
    def _whole_bounds(self) -> IntArray:
        sides = [[int(end / self.step) for end in side] for side in self.bounds]
        if self.model == "logistic":
            sides.append([0, 1])
        return np.array(sides, np.int64)

    def _records(self, data: Array | Sequence[object]) -> IntArray:
        values = np.asarray(data, np.float64)
        bounds = self._whole_bounds
        if values.ndim == 1 and len(bounds) == 1:
            values = values[:, None]
        if values.ndim != 2 or values.shape[1] != len(bounds) or len(values) == 0:
            raise InputError(
                f"data: the shape is {values.shape}; give one row per person and {len(bounds)} columns"
            )
        if not np.isfinite(values).all():
            raise InputError(
                "data: some values are missing or infinite; all values must be within the bounds"
            )
        if self.model == "logistic" and len(values) * len(self.grid) > _MOST_PRODUCTS:
            raise InputError(
                f"data: {len(values):,} people times {len(self.grid):,} points are more than "
                f"{_MOST_PRODUCTS:,} products; choose fewer points"
            )
        steps = np.full(len(bounds), float(self.step))
        if self.model == "logistic":
            steps[-1] = 1.0
            if not np.isin(values[:, -1], (0, 1)).all():
                raise InputError(
                    "data: the last column is the response of a logistic model, 0 or 1"
                )
        whole: IntArray = np.rint(values / steps).astype(np.int64)
        outside = (whole < bounds[:, 0]) | (whole > bounds[:, 1])
        if outside.any():
            raise InputError(
                f"data: {int(outside.any(axis=1).sum())} of {len(values)} people have a value outside "
                f"the bounds on which the guarantee relies; clip such values, or widen the bounds"
            )
        return whole


def draw_points(
    mechanism: KNormGradient, data: Array | Sequence[object], *, size: int = 1, rng: BitSource
) -> FloatArray:
    """Draw points exactly with any bits: the door calls this after it has charged the ledger."""
    chosen = mechanism._finite_law(data).sample(size, rng=rng)
    return mechanism.grid[chosen]


def _choice(value: str, allowed: tuple[str, ...], name: str) -> str:
    if value not in allowed:
        raise InputError(f"{name}: unknown {name} {value!r}; choose from {', '.join(allowed)}")
    return value


def _interval(side: tuple[Exact, Exact], name: str) -> Interval:
    low, high = (exact(end, name) for end in side)
    if low > high or (name == "box" and low == high):
        raise InputError(f"{name}: {low} to {high} is not allowed; give the lower end first")
    return Interval(low, high)


# Gradients of a loss on a grid of coefficients, in whole numbers, and how far one record moves them.
#
# Records are whole multiples of a public step and grid points are fractions, so the gradients of a mean
# and of a linear regression are exact. Those of a logistic regression use probabilities rounded to
# 2**-24, each within public bounds. A gradient is then a sum over people of a function of their record,
# and its sensitivity is that of this function.

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
    """The norm of the gradient at each grid point, and how far one record moves it, in one unit."""

    norms: IntArray
    sensitivities: IntArray


@lru_cache(maxsize=16)
def _grid(box: tuple[Interval, ...], points: tuple[int, ...]) -> Grid:
    return grid_of(box, points)


def grid_of(box: tuple[Interval, ...], points: tuple[int, ...]) -> Grid:
    """Return equally spaced points of a box, including both ends of each side."""
    axes = [
        [low + (high - low) * Fraction(i, count - 1) for i in range(count)]
        for (low, high), count in zip(box, points, strict=True)
    ]
    denominator = math.lcm(*(value.denominator for axis in axes for value in axis))
    whole = [[int(value * denominator) for value in axis] for axis in axes]
    _check_size(max(abs(value) for axis in whole for value in axis))
    return Grid(np.array(list(product(*whole)), np.int64), denominator)


def mean_gradients(
    records: IntArray, bounds: IntArray, step: Fraction, grid: Grid, norm: GradientNorm
) -> Gradients:
    """Return the gradients of the sum of squares |y - x|²/2: n·y minus the sum of the records."""
    n, width = records.shape
    # In units of 1/(denominator of y · denominator of the step).
    by_point, by_record = step.denominator, grid.denominator * step.numerator
    _check_size(width * n * (_largest(grid.coordinates) * by_point + _largest(bounds) * by_record))
    gradients = n * by_point * grid.coordinates - by_record * records.sum(axis=0)
    ranges = by_record * (bounds[:, 1] - bounds[:, 0])
    return Gradients(_length(gradients, norm), _length(np.tile(ranges, (len(gradients), 1)), norm))


def linear_gradients(
    records: IntArray, bounds: IntArray, grid: Grid, norm: GradientNorm
) -> Gradients:
    """Return the gradients of the sum of (a·y - b)²/2, which are sums of a(a·y - b).

    The last column of the records is b.
    """
    features, responses = records[:, :-1], records[:, -1]
    n, width = features.shape
    most, far = _largest(bounds), _largest(grid.coordinates)
    residual = width * most * far + grid.denominator * most
    _check_size(n * width * most * residual)
    _check_size(residual**2)
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

    Let R be a·y - b without a_j y_j. The value is a_j² y_j + a_j R: linear in R and quadratic in a_j.
    So it is largest at an end of R, and there at an end of a_j or where the derivative vanishes, at
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
    ranges: IntArray = np.max(candidates, axis=0) - np.min(candidates, axis=0)
    return ranges


def logistic_gradients(
    records: IntArray, bounds: IntArray, step: Fraction, grid: Grid, norm: GradientNorm
) -> Gradients:
    """Return the gradients of the sum of log(1 + e^(a·y)) - b a·y, which are sums of a(p - b).

    The last column of the records is b, and p is the logistic function of a·y.
    """
    features, responses = records[:, :-1], records[:, -1]
    n, width = features.shape
    _check_size(width * n * _largest(bounds) * 2 * _ONE)
    _check_size(width * _largest(bounds) * _largest(grid.coordinates))
    scale = float(step) / grid.denominator
    low, high = (_product_ends(grid.coordinates, bounds[:-1])[i].sum(axis=1) for i in (0, 1))
    # However floats round, each p is clipped between these two, which depend on public values only.
    lowest = np.maximum(np.floor(_logistic(low * scale) * _ONE) - 1, 0).astype(np.int64)
    highest = np.minimum(np.ceil(_logistic(high * scale) * _ONE) + 1, _ONE).astype(np.int64)
    gradients = np.empty((len(grid.coordinates), width), np.int64)
    rows = max(1, _CHUNK // n)
    for start in range(0, len(gradients), rows):
        part = slice(start, start + rows)
        probabilities = _logistic((grid.coordinates[part] @ features.T) * scale)
        rounded = np.rint(probabilities * _ONE).astype(np.int64)
        rounded = np.clip(rounded, lowest[part, None], highest[part, None])
        gradients[part] = (rounded - _ONE * responses) @ features
    residuals = np.stack((lowest - _ONE, highest))
    corners = np.stack([residuals[i][:, None] * bounds[:-1, k] for i in (0, 1) for k in (0, 1)])
    ranges = corners.max(axis=0) - corners.min(axis=0)
    return Gradients(_length(gradients, norm), _length(ranges, norm))


def _product_ends(y: IntArray, bounds: IntArray) -> IntArray:
    ends: IntArray = np.sort(np.stack((bounds[:, 0] * y, bounds[:, 1] * y)), axis=0)
    return ends


def _logistic(t: Array) -> FloatArray:
    values: FloatArray = 0.5 * (1 + np.tanh(t / 2))
    return values


def _length(vectors: IntArray, norm: GradientNorm) -> IntArray:
    sizes = np.abs(vectors)
    lengths: IntArray = sizes.sum(axis=1) if norm == "L1" else sizes.max(axis=1)
    return lengths


def _largest(values: IntArray) -> int:
    return int(np.abs(values).max())


def _check_size(size: int) -> None:
    """Refuse whole numbers that do not fit 64 bits; only public sizes decide this."""
    if size >= _ROOM:
        raise InputError(
            "step, points: gradients on so fine a grid do not fit 64-bit whole numbers; choose a "
            "coarser step, or a box whose points are simpler fractions"
        )


# Exact draws from finitely many points with weights exp(-q), where q are fractions.
#
# Point k is proposed with the whole weight 2**(30 - m), m being at most (q - reference)/log 2, and
# accepted with probability 2**m exp(reference - q), decided by integers that enclose it. All arithmetic
# that matters is on whole numbers. About two proposals in three are accepted.

_DEEPEST = 30  # beyond 2**-30 all points are proposed alike, and hardly ever
_LOG2_E_BELOW = Fraction(14426950408889634073, 10**19)
_LOG2_E_ABOVE = Fraction(14426950408889634074, 10**19)
_MARGIN = 2.0**-40  # far above the rounding error of exp
_WORDS = 64  # words reserved for one attempt: the first decides, except once in 2**50


@dataclass(frozen=True, eq=False, slots=True)
class FiniteLaw:
    """Points with weights exp(-rate·numerators[k]/denominators[k])."""

    rate: Fraction
    numerators: IntArray
    denominators: IntArray
    reference: Fraction
    halvings: IntArray
    ends: IntArray

    @classmethod
    def of(cls, rate: Fraction, numerators: IntArray, denominators: IntArray) -> FiniteLaw:
        """Build the proposals; numerators are 0 or more, denominators above 0."""
        if len(numerators) > _MOST_POINTS:
            raise InputError(
                f"points: {len(numerators):,} are too many; at most {_MOST_POINTS:,} are drawn exactly"
            )
        nearest = int(np.argmin(numerators / denominators))
        top, bottom = int(numerators[nearest]), int(denominators[nearest])
        # Any reference is right; this one is the smallest exponent, or within rounding of it.
        scale_below, scale_above = rate * _LOG2_E_BELOW / bottom, rate * _LOG2_E_ABOVE / bottom
        halvings = np.empty(len(numerators), np.int64)
        for k, (n, d) in enumerate(zip(numerators.tolist(), denominators.tolist(), strict=True)):
            beyond = n * bottom - top * d  # (n/d - top/bottom)·d·bottom
            scale = scale_below if beyond >= 0 else scale_above
            halvings[k] = min(beyond * scale.numerator // (scale.denominator * d), _DEEPEST)
        ends = np.cumsum(np.int64(1) << (_DEEPEST - halvings))
        return cls(rate, numerators, denominators, rate * Fraction(top, bottom), halvings, ends)

    def sample(self, size: int, *, rng: BitSource) -> IntArray:
        """Draw `size` independent points, exactly."""
        rng.begin(size)
        points = np.empty(size, np.int64)
        pending = np.arange(size)
        depth = 0
        while len(pending):
            limits = np.full(len(pending), self.ends[-1])
            values, depth = uniform_below(limits, rng, pending, depth)
            proposals = np.searchsorted(self.ends, values, side="right")
            acceptances = [self._acceptance(point) for point in proposals.tolist()]
            accepted = events_that_happen(
                np.array([acceptance.log for acceptance in acceptances]),
                _MARGIN,
                lambda event, acceptances=acceptances: acceptances[event].enclose,  # type: ignore[misc]
                rng,
                pending,
                depth,
            )
            is_final = np.zeros(len(pending), bool)
            is_final[list(accepted)] = True
            points[pending[is_final]] = proposals[is_final]
            pending = pending[~is_final]
            depth += _WORDS
        return points

    def _acceptance(self, point: int) -> ScaledExponential:
        """Return the probability of accepting a proposed point: its weight over the proposal's."""
        beyond = self._exponent(point) - self.reference
        return ScaledExponential(-beyond, Fraction(2) ** int(self.halvings[point]))

    def _exponent(self, point: int) -> Fraction:
        return self.rate * Fraction(int(self.numerators[point]), int(self.denominators[point]))

    @property
    def log_probabilities(self) -> FloatArray:
        """The log-probability of each point."""
        log_weights = -float(self.rate) * (self.numerators / self.denominators)
        log_weights -= log_weights.max()
        logs: FloatArray = log_weights - math.log(float(np.exp(log_weights).sum()))
        return logs
