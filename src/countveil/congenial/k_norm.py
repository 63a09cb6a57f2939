"""The K-norm gradient mechanism (003, Theorem 10) for means and small regressions, on a public grid.

P(y) ∝ exp(-epsilon ‖∇L_x(y)‖_K/(2 sigma_y)), y in a grid of a box: noise that is small where the
loss is steep, so that the error falls as 1/n (Theorem 11).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal, TypeAlias, get_args

import numpy as np

from countveil.congenial.finite_draw import MOST_POINTS, FiniteDraw
from countveil.congenial.gradients import Grid, Norm, grid_of, of_linear, of_logistic, of_mean
from countveil.congenial.guarantee import PartialPrivacy, Theta
from countveil.errors import InputError
from countveil.numerics import Array, Exact, FloatArray, IntArray, exact, positive
from countveil.randomness import BitSource

Model: TypeAlias = Literal["mean", "linear", "logistic"]
Interval: TypeAlias = tuple[Fraction, Fraction]

_MOST_DIMENSIONS = 3
_MOST_PRODUCTS = 400_000_000


@dataclass(frozen=True, slots=True, init=False)
class KNormGradient:
    """A mean, or coefficients of a regression, of d = 1 to 3 numbers, drawn from a grid of `box`.

    `bounds` says where values of the data lie: for each column of a mean; for each feature of a
    regression, and then for the response of a linear one (of a logistic one it is 0 or 1). Data are
    rounded to multiples of `step`. `people` is Delta_z: 1 if public information makes nobody depend
    on another.
    """

    model: Model
    epsilon: Fraction
    bounds: tuple[Interval, ...]
    box: tuple[Interval, ...]
    points: tuple[int, ...]
    step: Fraction
    people: int
    norm: Norm

    def __init__(
        self,
        model: Model,
        *,
        epsilon: Exact,
        bounds: Sequence[tuple[Exact, Exact]],
        box: Sequence[tuple[Exact, Exact]],
        points: int | Sequence[int] = 101,
        step: Exact = "1/1000",
        people: int = 1,
        norm: Norm = "maximum",
    ) -> None:
        d = len(box)
        if not 1 <= d <= _MOST_DIMENSIONS:
            raise InputError(
                f"box: {d} dimensions came; 1 to {_MOST_DIMENSIONS} are drawn exactly, as a grid "
                f"of more is too large"
            )
        counts = (points,) * d if isinstance(points, int) else tuple(points)
        object.__setattr__(self, "model", _choice(model, get_args(Model), "model"))
        object.__setattr__(self, "norm", _choice(norm, get_args(Norm), "norm"))
        object.__setattr__(self, "epsilon", positive(epsilon, "epsilon"))
        object.__setattr__(self, "step", positive(step, "step"))
        object.__setattr__(self, "people", people)
        object.__setattr__(self, "points", counts)
        object.__setattr__(self, "box", tuple(_interval(side, "box") for side in box))
        object.__setattr__(self, "bounds", tuple(_interval(side, "bounds") for side in bounds))
        self._check()

    def _check(self) -> None:
        d = len(self.box)
        needed = d + 1 if self.model == "linear" else d
        if len(self.bounds) != needed:
            raise InputError(
                f"bounds: {len(self.bounds)} came; a {self.model} model of {d} coefficients needs "
                f"{needed}, one for each column of the data that is not 0 or 1 by definition"
            )
        if isinstance(self.people, bool) or not isinstance(self.people, int) or self.people < 1:
            raise InputError(f"people: {self.people!r} is not allowed; it is Delta_z, 1 or more")
        if len(self.points) != d or any(count < 2 for count in self.points):
            raise InputError(f"points: {self.points} came; give 2 or more for each of {d} sides")
        if int(np.prod(self.points, dtype=object)) > MOST_POINTS:
            raise InputError(
                f"points: {self.points} are more than {MOST_POINTS:,} in all, which are drawn "
                f"exactly; choose fewer"
            )
        for side in self.bounds:
            if any((end / self.step).denominator != 1 for end in side):
                raise InputError(
                    f"bounds: {side[0]} and {side[1]} must be multiples of the step, {self.step}, "
                    f"to which data are rounded"
                )
        if all(low == high for low, high in self.bounds) and self.model != "logistic":
            raise InputError("bounds: every value is fixed by them; nothing is left to release")

    @property
    def grid(self) -> FloatArray:
        """All points that can be released, a row for each."""
        found = self._grid
        return found.coordinates / found.denominator

    @property
    def _grid(self) -> Grid:
        return _grid(self.box, self.points)

    def sample(
        self, data: Array | Sequence[object], *, rng: BitSource, size: int | None = None
    ) -> FloatArray:
        """Draw one point, or `size` of them, for a simulation; data have a row for each person."""
        if not rng.reproducible:
            raise InputError(
                "rng: Secure() came, and releases go through the door measure.draw_estimate, which "
                "charges for them; use Seeded(7) for a simulation"
            )
        drawn = draw(self, data, size=1 if size is None else size, rng=rng)
        return drawn[0] if size is None else drawn

    def log_probabilities(self, data: Array | Sequence[object]) -> FloatArray:
        """Return the logarithm of the probability of every point of the grid."""
        return self._exponents(data).log_probabilities

    def log_density(
        self, y: Array | Sequence[object], data: Array | Sequence[object]
    ) -> FloatArray:
        """Return the logarithm of the probability of points; minus infinity off the grid."""
        at = np.asarray(y, np.float64)
        rows = at.reshape(-1, len(self.box))
        low = np.array([float(side[0]) for side in self.box])
        width = np.array([float(side[1] - side[0]) for side in self.box])
        place = (rows - low) / width * (np.array(self.points) - 1)
        index = np.rint(place)
        off = (np.abs(place - index) > 1e-6) | (index < 0) | (index >= np.array(self.points))
        inside = np.clip(index, 0, np.array(self.points) - 1).astype(np.int64)
        flat = np.ravel_multi_index(tuple(inside.T), self.points)
        found = np.where(off.any(axis=1), -np.inf, self.log_probabilities(data)[flat])
        return found.reshape(at.shape[:-1]) if at.ndim else found.reshape(())

    def guarantee(self, theta: Theta, coupling: str) -> PartialPrivacy:
        """Return epsilon-TP for theta, of whose databases Delta_z is `people` or less."""
        return PartialPrivacy(self.epsilon, theta, coupling)

    def _exponents(self, data: Array | Sequence[object]) -> FiniteDraw:
        records, grid = self._records(data), self._grid
        bounds = self._whole_bounds
        if self.model == "mean":
            found = of_mean(records, bounds, self.step, grid, self.norm)
        elif self.model == "linear":
            found = of_linear(records, bounds, grid, self.norm)
        else:
            found = of_logistic(records, bounds, self.step, grid, self.norm)
        if not (found.sensitivities > 0).all():
            raise InputError(
                "bounds: at some point of the box no record moves the gradient; nothing is left "
                "to release"
            )
        return FiniteDraw.of(self.epsilon / (2 * self.people), found.norms, found.sensitivities)

    @property
    def _whole_bounds(self) -> IntArray:
        sides = [[int(end / self.step) for end in side] for side in self.bounds]
        if self.model == "logistic":
            sides.append([0, 1])
        return np.array(sides, np.int64)

    def _records(self, data: Array | Sequence[object]) -> IntArray:
        given = np.asarray(data, np.float64)
        bounds = self._whole_bounds
        if given.ndim == 1 and len(bounds) == 1:
            given = given[:, None]
        if given.ndim != 2 or given.shape[1] != len(bounds) or len(given) == 0:
            raise InputError(
                f"data: shape {given.shape} came; a row for each person and {len(bounds)} columns "
                f"are needed"
            )
        if not np.isfinite(given).all():
            raise InputError(
                "data: some values are missing or infinite; they must lie within bounds"
            )
        if self.model == "logistic" and len(given) * len(self.grid) > _MOST_PRODUCTS:
            raise InputError(
                f"data: {len(given):,} people and {len(self.grid):,} points are more than "
                f"{_MOST_PRODUCTS:,} products; choose fewer points"
            )
        steps = np.full(len(bounds), float(self.step))
        if self.model == "logistic":
            steps[-1] = 1.0
            if not np.isin(given[:, -1], (0, 1)).all():
                raise InputError(
                    "data: the last column is the response of a logistic model, 0 or 1"
                )
        whole: IntArray = np.rint(given / steps).astype(np.int64)
        outside = (whole < bounds[:, 0]) | (whole > bounds[:, 1])
        if outside.any():
            raise InputError(
                f"data: {int(outside.any(axis=1).sum())} of {len(given)} people have a value "
                f"outside the bounds, and the guarantee needs them; cut such values to the bounds, "
                f"or give wider ones"
            )
        return whole


def draw(
    mechanism: KNormGradient, data: Array | Sequence[object], *, size: int = 1, rng: BitSource
) -> FloatArray:
    """Draw points exactly with any bits: what the door calls, after it has charged."""
    chosen = mechanism._exponents(data).sample(size, rng=rng)
    return mechanism.grid[chosen]


@lru_cache(maxsize=16)
def _grid(box: tuple[Interval, ...], points: tuple[int, ...]) -> Grid:
    return grid_of(box, points)


def _choice(value: str, allowed: tuple[str, ...], name: str) -> str:
    if value not in allowed:
        raise InputError(f"{name}: {value!r} is not known; choose from {', '.join(allowed)}")
    return value


def _interval(side: tuple[Exact, Exact], name: str) -> Interval:
    low, high = (exact(end, name) for end in side)
    if low > high or (name == "box" and low == high):
        raise InputError(f"{name}: {low} to {high} is not allowed; the first is the lower end")
    return low, high
