"""Empirical privacy loss as paper 001 estimates it: the largest log-ratio of a smoothed density.

EPL(x) = log f(x)/f(x + step), f a Gaussian kernel density of the residuals; the estimate is its largest
absolute value over a range of percentiles. It bounds the loss in neither direction and depends on every
choice, so all choices are arguments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from numba import njit
from scipy.signal import fftconvolve

from countveil.assess.empirical_loss.residual_values import Residuals, gathered
from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.errors import InputError

Rule = Literal["relative", "absolute", "scott", "silverman"]
Method = Literal["auto", "exact", "binned"]

_UNDERFLOW = 38.6  # bandwidths after which a kernel is 0 in a double
_SHORT = 4_000  # points of a kernel up to which it is summed rather than transformed
_PRECISE = 1e-9  # relative to the largest density: below it a transform has too few digits
_BINS = 200  # per bandwidth, where residuals are binned
_MOST_POINTS = 1 << 23
_AT_ONCE = 4_000_000


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class EmpiricalLoss:
    """An empirical privacy loss, where it is reached, and the choices behind it.

    Attributes
    ----------
    value : float
        The loss. It is infinite if the density vanishes within the range; the bandwidth is then too
        small for the number of residuals.
    at : float
        Where the loss is reached.
    x, density : array
        The smoothed density of the residuals.
    bandwidth, step : float
        The bandwidth of the density, and the distance at which densities were compared.
    span : tuple of float
        The range of x.
    residuals : int
        How many residuals there were.
    method : str
        How the density was computed.
    """

    value: float
    at: float
    x: FloatArray
    density: FloatArray
    bandwidth: float
    span: tuple[float, float]
    step: float
    residuals: int
    method: str

    @property
    def curve(self) -> pa.Table:
        """A table of EPL(x) at each x, with the density there."""
        return pa.table(
            {"x": self.x[:-1], "density": self.density[:-1], "loss": _log_ratios(self.density)}
        )


def kde(
    residuals: Array | Residuals,
    *,
    bandwidth: float = 0.1,
    rule: Rule = "relative",
    percentile: float = 95,
    span: tuple[float, float] | None = None,
    step: float = 1.0,
    method: Method = "auto",
) -> EmpiricalLoss:
    """Return the empirical privacy loss of residuals by the paper's recipe, a kernel density estimate.

    Parameters
    ----------
    residuals : array or Residuals
        Released minus exact counts.
    bandwidth : float
        A factor of their standard deviation (rule "relative", as in the paper) or a number of people
        ("absolute").
    rule : {"relative", "absolute", "scott", "silverman"}
        How the bandwidth is chosen; the rules of Scott and Silverman ignore `bandwidth`.
    percentile : float
        x runs over the centres of bins of width `step` from -b to b, b the larger of this percentile
        on either side.
    span : pair of float, optional
        The range of x, instead of one by `percentile`.
    step : float
        The distance at which densities are compared: one person.
    method : {"auto", "exact", "binned"}
        "exact" sums over all residuals; "binned" first moves them to a grid of 1/200 of the bandwidth,
        which "auto" does for more than a million distinct ones.

    Returns
    -------
    EmpiricalLoss
        The largest |EPL(x)|, and the choices behind it.

    Examples
    --------
    >>> import numpy as np
    >>> residuals = np.repeat(np.arange(-3, 4), [1, 3, 8, 20, 8, 3, 1])
    >>> round(kde(residuals, bandwidth=1).value, 3)
    0.43
    """
    check_choices(bandwidth, rule, percentile)
    by_value = gathered(residuals)
    width = _bandwidth(by_value, bandwidth, rule)
    low, high = _span(by_value, percentile, span)
    if not 0 < step < math.inf:
        raise InputError(f"step: {step} is not allowed; it must be a number above 0")
    if (high - low) / step > _MOST_POINTS:
        raise InputError(
            f"step: a range from {low:g} to {high:g} has too many steps of {step:g}; use a larger one"
        )
    x = np.arange(low, high, step)[:-1] + step / 2
    if len(x) < 2:
        raise InputError(
            f"span: there are fewer than two bins of width {step:g} from {low:g} to {high:g}; use "
            f"a higher percentile or a smaller step"
        )
    if method not in ("auto", "exact", "binned"):
        raise InputError(f'method: unknown method {method!r}; choose "auto", "exact" or "binned"')
    density, used = _density(by_value, x, step, width, method)
    size = np.abs(_log_ratios(density))
    best = int(np.argmax(size))
    return EmpiricalLoss(
        value=float(size[best]),
        at=float(x[best]),
        x=x,
        density=density,
        bandwidth=width,
        span=(low, high),
        step=step,
        residuals=by_value.total,
        method=used,
    )


def _log_ratios(density: FloatArray) -> FloatArray:
    """Return log f(x)/f(x + step); infinite where either is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratios = np.log(density[:-1]) - np.log(density[1:])
    return np.where(np.isnan(log_ratios), np.inf, log_ratios)


def check_choices(bandwidth: float, rule: str, percentile: float) -> None:
    """Refuse choices that are impossible for any residuals."""
    if rule not in ("relative", "absolute", "scott", "silverman"):
        raise InputError(
            f'rule: unknown rule {rule!r}; choose "relative", "absolute", "scott" or "silverman"'
        )
    if not 0 < bandwidth < math.inf:
        raise InputError(f"bandwidth: {bandwidth} is not allowed; it must be a number above 0")
    if not 50 < percentile <= 100:
        raise InputError(
            f"percentile: {percentile} is not allowed; it must be above 50 and at most 100"
        )


def _bandwidth(residuals: Residuals, bandwidth: float, rule: Rule) -> float:
    if rule == "scott":
        return float(residuals.total ** (-1 / 5) * residuals.deviation)
    if rule == "silverman":
        return float((residuals.total * 3 / 4) ** (-1 / 5) * residuals.deviation)
    return bandwidth * (residuals.deviation if rule == "relative" else 1.0)


def _span(
    residuals: Residuals, percentile: float, span: tuple[float, float] | None
) -> tuple[float, float]:
    if span is not None:
        if not span[0] < span[1] or not np.isfinite(span).all():
            raise InputError(f"span: {span} is not allowed; give two numbers, the smaller first")
        return float(span[0]), float(span[1])
    reach = max(abs(residuals.percentile(percentile)), abs(residuals.percentile(100 - percentile)))
    return -reach, reach


def _density(
    residuals: Residuals, x: FloatArray, step: float, width: float, method: Method
) -> tuple[FloatArray, str]:
    if method != "binned" and residuals.whole and step == 1.0:
        return _of_whole_numbers(residuals, x, width), "exact"
    if method == "binned" or (method == "auto" and len(residuals.values) > 1_000_000):
        return _binned(residuals, x, width), "binned"
    return _summed(residuals.values, residuals.counts, x, width), "exact"


def _summed(values: FloatArray, counts: Array, x: FloatArray, width: float) -> FloatArray:
    """Return the density at each x, summed over all residuals."""
    total = np.zeros(len(x))
    for part in np.array_split(np.arange(len(x)), max(1, len(x) * len(values) // _AT_ONCE)):
        z = (x[part, None] - values) / width
        total[part] = np.exp(-0.5 * z * z) @ counts
    return _scaled(total, float(counts.sum()), width)


def _of_whole_numbers(residuals: Residuals, x: FloatArray, width: float) -> FloatArray:
    """Return the density at x, one apart: counts convolved with the kernel at their distances."""
    first, last = math.floor(residuals.values[0]), math.floor(residuals.values[-1])
    kernel = math.ceil(_UNDERFLOW * width) + 1
    if (last - first) + len(x) + 2 * kernel > _MOST_POINTS:
        return _summed(residuals.values, residuals.counts, x, width)
    # x[i] - v = (i - (v - first)) + offset.
    offset = x[0] - first
    near = _place(residuals.values - first, residuals.counts, last - first + 1)
    distances = np.arange(-kernel, kernel + 1) + (offset - math.floor(offset))
    weights = np.exp(-0.5 * (distances / width) ** 2)
    both = np.convolve(near, weights) if len(weights) <= _SHORT else fftconvolve(near, weights)
    index = np.arange(len(x)) + math.floor(offset) + kernel
    inside = (index >= 0) & (index < len(both))
    total = np.where(inside, both[np.where(inside, index, 0)], 0.0)
    if len(weights) > _SHORT:
        few = total < _PRECISE * total.max()
        if few.any():
            total[few] = _unscaled(residuals, x[few], width)
    return _scaled(total, float(residuals.total), width)


def _unscaled(residuals: Residuals, x: FloatArray, width: float) -> FloatArray:
    summed = _summed(residuals.values, residuals.counts, x, width)
    return np.asarray(summed * residuals.total * width * math.sqrt(2 * math.pi))


def _place(index: FloatArray, counts: Array, size: int) -> FloatArray:
    near = np.zeros(size)
    near[index.astype(np.int64)] = counts
    return near


def _binned(residuals: Residuals, x: FloatArray, width: float) -> FloatArray:
    """Return the density of residuals that are shared between the two nearest grid points."""
    grid = width / _BINS
    first = residuals.values[0]
    if (residuals.values[-1] - first) / grid + 2 > _MOST_POINTS:
        raise InputError(
            f"bandwidth: {width:g} is too small to bin residuals from {first:g} to "
            f"{residuals.values[-1]:g}; use a larger one"
        )
    mass = np.zeros(math.floor((residuals.values[-1] - first) / grid) + 2)
    _share_out(residuals.values, residuals.counts, first, grid, mass)
    kernel = math.ceil(9 * _BINS)
    weights = np.exp(-0.5 * (np.arange(-kernel, kernel + 1) / _BINS) ** 2)
    both = np.maximum(fftconvolve(mass, weights), 0.0)
    at = first + grid * (np.arange(len(both)) - kernel)
    total = np.interp(x, at, both, left=0.0, right=0.0)
    few = total < _PRECISE * total.max()
    if few.any():  # a transform has too few digits there, and the kernel is cut off
        total[few] = _unscaled(residuals, x[few], width)
    return _scaled(total, float(residuals.total), width)


@njit(cache=True, nogil=True)
def _share_out(
    values: FloatArray, counts: IntArray, first: float, grid: float, mass: FloatArray
) -> None:
    """Share each value between the two grid points next to it."""
    for i in range(len(values)):
        place = (values[i] - first) / grid
        left = min(int(place), len(mass) - 2)
        mass[left] += counts[i] * (1 - (place - left))
        mass[left + 1] += counts[i] * (place - left)


def _scaled(total: FloatArray, count: float, width: float) -> FloatArray:
    return np.asarray(total / (count * width * math.sqrt(2 * math.pi)))
