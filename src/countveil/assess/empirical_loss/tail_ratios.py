"""Privacy loss of whole residuals: tail ratios with exact intervals and a bound, and a geometric fit.

Of n_t residuals at t or beyond, n_{t+1} are beyond t: a binomial count with probability r_t, and
-log r_t is the loss of the event "at least t" between counts that differ by one person.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
from scipy.special import betainccinv, betaincinv, ndtri

from countveil.assess.empirical_loss.residual_values import Residuals, whole_residuals
from countveil.assess.risk import ConfidenceInterval
from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.errors import InputError

TailSide = Literal["both", "upper", "lower"]
Selection = Literal["bonferroni", "split"]

_THRESHOLDS = 20
_LARGEST_MEAN = 1e9  # mean distance from 0 of residuals that geometric noise is fitted to
_CURVE = pa.schema(
    [
        ("side", pa.string()),
        *((name, pa.int64()) for name in ("threshold", "residuals", "beyond")),
        *((name, pa.float64()) for name in ("loss", "lower", "upper")),
    ]
)


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class TailRatio:
    """The loss at one threshold with its interval, and a lower bound from all thresholds together.

    Attributes
    ----------
    value : float
        The loss at the threshold. It is infinite if no residual is beyond the threshold; the bounds
        are still valid.
    interval : ConfidenceInterval
        The Clopper-Pearson interval of the loss.
    lower_bound : float
        A lower bound on the loss that holds with this confidence, whichever threshold gives it.
    confidence : float
        The confidence of the interval and of the bound.
    threshold : int
        The distance from 0 at which the loss was estimated.
    curve : pyarrow.Table
        The loss at every threshold and side.
    residuals : int
        How many residuals there were.
    """

    value: float
    interval: ConfidenceInterval
    lower_bound: float
    confidence: float
    threshold: int
    curve: pa.Table
    residuals: int


def tail_ratio(
    residuals: Array | Residuals,
    *,
    confidence: float = 0.95,
    threshold: int = 1,
    side: TailSide = "both",
    thresholds: int = _THRESHOLDS,
    selection: Selection = "bonferroni",
    seed: int = 1,
) -> TailRatio:
    """Return the loss from tail ratios, with a Clopper-Pearson interval and an audit lower bound.

    Residuals are treated as draws from one law, the same for all counts; `exchangeability` tests that.

    Parameters
    ----------
    residuals : array or Residuals
        Whole residuals, released minus exact.
    confidence : float
        The confidence of the interval and of the bound.
    threshold : int
        The distance from 0 at which the loss is estimated.
    side : {"both", "upper", "lower"}
        "both" takes the tails above and below together, as for symmetric noise.
    thresholds : int
        How many thresholds, from 0 on and on both sides, the audit bound may choose from.
    selection : {"bonferroni", "split"}
        The bound is the largest over all thresholds, each with its part of 1 - confidence; or half of
        the residuals choose a threshold and the other half bound its loss.
    seed : int
        How residuals are split.

    Returns
    -------
    TailRatio
        The loss, its interval, and a lower bound that is never below 0.

    Examples
    --------
    >>> import numpy as np
    >>> residuals = np.repeat(np.arange(-3, 4), [1, 3, 8, 20, 8, 3, 1])
    >>> ratio = tail_ratio(residuals)
    >>> round(ratio.value, 3), [round(end, 3) for end in ratio.interval]
    (1.099, [0.592, 1.856])
    """
    observed = whole_residuals(residuals)
    alpha = 1 - checked_confidence(confidence)
    for name, value in (("threshold", threshold), ("thresholds", thresholds)):
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise InputError(
                f"{name}: {value!r} is not allowed; it must be a whole number, 1 or more"
            )
    if side not in ("both", "upper", "lower"):
        raise InputError(f'side: unknown side {side!r}; choose "both", "upper" or "lower"')
    if selection not in ("bonferroni", "split"):
        raise InputError(
            f'selection: unknown selection {selection!r}; choose "bonferroni" or "split"'
        )
    at = np.arange(0, max(thresholds, threshold) + 2)
    tails = dict(zip(("upper", "lower"), _tails(observed, at), strict=True))
    tails["both"] = np.where(at > 0, tails["upper"] + tails["lower"], observed.total)
    tail = tails[side]
    if tail[threshold] == 0:
        raise InputError(
            f"threshold: no residual is {threshold} or more from 0, side {side!r}; use a smaller one"
        )
    low, high = _interval(tail[threshold + 1], tail[threshold], alpha / 2)
    if selection == "bonferroni":
        bound = float(_bounds(_tails(observed, at), thresholds, alpha / (2 * thresholds)).max())
    else:
        bound = _split_bound(observed, at, thresholds, alpha, seed)
    return TailRatio(
        value=_loss(int(tail[threshold + 1]), int(tail[threshold])),
        interval=ConfidenceInterval(float(low), float(high)),
        lower_bound=max(0.0, bound),
        confidence=confidence,
        threshold=threshold,
        curve=_curve(at, tails, alpha),
        residuals=observed.total,
    )


@dataclass(frozen=True, slots=True)
class GeometricFit:
    """The epsilon of the two-sided geometric noise that fits best, P(k) ∝ exp(-epsilon |k|).

    Attributes
    ----------
    value, standard_error : float
        The estimate of epsilon and its standard error.
    interval : ConfidenceInterval
        A normal interval, clipped at 0.
    """

    value: float
    standard_error: float
    interval: ConfidenceInterval


def geometric(residuals: Array | Residuals, *, confidence: float = 0.95) -> GeometricFit:
    """Return the epsilon of the two-sided geometric noise that fits residuals best.

    The maximum-likelihood estimate is epsilon = -log a, a = (√(1 + m²) - 1)/m with m the mean distance
    from 0, with a standard error of 1/√(n Var|k|). It is valid if the noise is two-sided geometric;
    compare with `tail_ratio`, which does not assume that.

    Parameters
    ----------
    residuals : array or Residuals
        Whole residuals, released minus exact.
    confidence : float
        The confidence of the interval.

    Returns
    -------
    GeometricFit
        The estimate, its standard error and a normal interval.
    """
    observed = whole_residuals(residuals)
    z = float(ndtri((1 + checked_confidence(confidence)) / 2))
    mean = float(abs(observed.values) @ observed.counts) / observed.total
    if not 0 < mean < _LARGEST_MEAN:
        raise InputError(
            f"residuals: their mean distance from 0 is {mean:g}, and geometric noise is fitted to "
            f"means above 0 and below {_LARGEST_MEAN:g}; check the columns of exact and released counts"
        )
    a = mean / (math.sqrt(1 + mean * mean) + 1)
    epsilon = -math.log(a)
    variance = 2 * a / (1 - a) ** 2 - (2 * a / (1 - a * a)) ** 2
    error = 1 / math.sqrt(observed.total * variance)
    interval = ConfidenceInterval(max(0.0, epsilon - z * error), epsilon + z * error)
    return GeometricFit(epsilon, error, interval)


def checked_confidence(confidence: float) -> float:
    """Return the confidence; refuse one that is not between 0 and 1."""
    if not 0 < confidence < 1:
        raise InputError(f"confidence: {confidence} is not allowed; it must be between 0 and 1")
    return confidence


class TwoSidedBounds(NamedTuple):
    """A lower and an upper bound on each of several numbers."""

    lower: FloatArray
    upper: FloatArray


def clopper_pearson(hits: Array, draws: Array, tail: float) -> TwoSidedBounds:
    """Return bounds on a probability from `hits` in `draws`, each wrong with probability `tail`."""
    hits, draws = np.asarray(hits, float), np.asarray(draws, float)
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), draws - hits + 1, tail), 0.0)
    missed = np.maximum(draws - hits, 1)
    high = np.where(hits < draws, betainccinv(hits + 1, missed, tail), 1.0)
    return TwoSidedBounds(low, high)


def _interval(beyond: Array, tail: Array, alpha: float) -> TwoSidedBounds:
    """Return bounds on the loss -log r, each wrong with probability `alpha`."""
    ratio = clopper_pearson(beyond, tail, alpha)
    with np.errstate(divide="ignore"):
        return TwoSidedBounds(0.0 - np.log(ratio.upper), 0.0 - np.log(ratio.lower))


def _tails(observed: Residuals, at: IntArray) -> IntArray:
    """Return how many residuals are at each threshold or above, and how many at minus it or below."""
    beyond = np.append(np.cumsum(observed.counts[::-1])[::-1], 0)
    up_to = np.append(0, np.cumsum(observed.counts))
    return np.array(
        [
            beyond[np.searchsorted(observed.values, at, side="left")],
            up_to[np.searchsorted(observed.values, -at, side="right")],
        ]
    )


def _bounds(tails: IntArray, thresholds: int, alpha: float) -> FloatArray:
    """Return a lower bound on the loss of each side and threshold."""
    return _interval(tails[:, 1 : thresholds + 1], tails[:, :thresholds], alpha).lower


def _split_bound(
    observed: Residuals, at: IntArray, thresholds: int, alpha: float, seed: int
) -> float:
    """Return the bound of one half of the residuals at the threshold that the other half chooses."""
    rng = np.random.default_rng(seed)
    half = rng.multivariate_hypergeometric(observed.counts, observed.total // 2)
    tails = [
        _tails(Residuals(observed.values, counts, whole=True), at)
        for counts in (half, observed.counts - half)
    ]
    # The correction for all thresholds makes the first half prefer those with many residuals.
    first = _bounds(tails[0], thresholds, alpha / (2 * thresholds))
    second = _bounds(tails[1], thresholds, alpha)
    return float(second.ravel()[int(np.argmax(first))])


def _loss(beyond: int, tail: int) -> float:
    return math.log(tail / beyond) if beyond else math.inf


def _curve(at: IntArray, tails: dict[str, IntArray], alpha: float) -> pa.Table:
    rows: list[dict[str, object]] = []
    for side, n in tails.items():
        # At 0 both tails together contain everything, so their ratio means nothing there.
        places = np.flatnonzero((n[:-1] > 0) & ((at[:-1] > 0) | (side != "both")))
        low, high = _interval(n[places + 1], n[places], alpha / 2)
        for k, lower, upper in zip(places.tolist(), low.tolist(), high.tolist(), strict=True):
            beyond, tail = int(n[k + 1]), int(n[k])
            row: dict[str, object] = {"side": side, "threshold": int(at[k]), "residuals": tail}
            rows.append(
                row
                | {"beyond": beyond, "loss": _loss(beyond, tail), "lower": lower, "upper": upper}
            )
    return pa.Table.from_pylist(rows, _CURVE)
