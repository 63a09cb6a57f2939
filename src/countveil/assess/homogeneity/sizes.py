"""How many people a cell has: distributions of sizes, fitted to the occupied cells of a table."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import brentq

from countveil.assess.homogeneity.label_splits import log_poisson
from countveil.base.numerics import FloatArray, IntArray
from countveil.errors import InputError

_LOG_TAIL = math.log(1e-14)
_LOG_R = (math.log(1e-9), math.log(1e7))  # beyond, the negative binomial is one of its limits
_MOST = 100_000
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False, slots=True)
class Sizes:
    """The probability of each size 0, 1, 2, …, up to where less than 1e-14 remains.

    Parameters
    ----------
    name : str
        The family of distributions.
    pmf : array
        The probabilities.
    parameters : dict
        The parameters of the distribution.
    poisson_mean : float, optional
        Set where sizes are Poisson, so that the counts of labels are independent.
    """

    name: str
    pmf: FloatArray
    parameters: dict[str, float] = field(default_factory=dict)
    poisson_mean: float | None = None

    def __post_init__(self) -> None:
        pmf = np.array(self.pmf, np.float64)
        if pmf.ndim != 1 or len(pmf) < 2 or not (pmf >= 0).all() or not pmf.sum() <= 1 + _ROUNDING:
            raise InputError(
                "sizes: give probabilities of 0, 1, 2, … people, 0 or more with sum at most 1, or "
                "a name"
            )
        pmf.setflags(write=False)
        object.__setattr__(self, "pmf", pmf)

    @property
    def most(self) -> int:
        """The largest size in a sum."""
        return len(self.pmf) - 1


def sizes_of(sizes: IntArray, law: str | Sizes) -> Sizes:
    """Return the named distribution fitted to the sizes of cells, or the one that is passed.

    "poisson" and "negative-binomial" are zero-truncated, as only occupied cells are seen, and fitted by
    maximum likelihood; "plain-poisson" has the mean size and is not truncated, as 004 prints it.
    """
    if isinstance(law, Sizes):
        return law
    fits: dict[str, Callable[[IntArray], Sizes]] = {
        "poisson": fit_poisson,
        "negative-binomial": fit_negative_binomial,
        "plain-poisson": lambda seen: plain_poisson(float(seen.mean())),
    }
    if not isinstance(law, str) or law not in fits:
        raise InputError(f"sizes: {law!r} is not allowed; choose from {', '.join(fits)}")
    return fits[law](sizes)


def plain_poisson(mean: float) -> Sizes:
    """Return Poisson sizes, including those of empty cells.

    Parameters
    ----------
    mean : float
        The mean size, above 0.

    Returns
    -------
    Sizes
        The probability of each size.
    """
    _refuse_not_positive("mean", mean)
    n = np.arange(_enough(mean) + 1)
    return Sizes("plain-poisson", np.exp(log_poisson(n, mean)), {"mean": mean}, mean)


def truncated_poisson(mean: float) -> Sizes:
    """Return Poisson sizes of occupied cells.

    Parameters
    ----------
    mean : float
        The mean of the Poisson distribution before truncation, above 0.

    Returns
    -------
    Sizes
        The probability of each size; 0 people are impossible.
    """
    _refuse_not_positive("mean", mean)
    n = np.arange(_enough(mean) + 1)
    pmf = np.exp(log_poisson(n, mean)) / -math.expm1(-mean)
    pmf[0] = 0.0
    return Sizes("poisson", pmf, {"mean": mean}, mean)


def negative_binomial(r: float, q: float) -> Sizes:
    """Return negative binomial sizes of occupied cells: P(n) ∝ Γ(r + n)/n! q^n, n from 1 on.

    Parameters
    ----------
    r, q : float
        The parameters: r above 0, and q between 0 and 1.

    Returns
    -------
    Sizes
        The probability of each size; 0 people are impossible.
    """
    _refuse_not_positive("r", r)
    if not 0 < q < 1:
        raise InputError(f"q: {q} is not allowed; it must be between 0 and 1")
    most = min(_MOST, math.ceil(-40 / math.log(q)) + 8)
    while True:
        log_pmf = _log_negative_binomial(r, q, most)
        # From the end on, probabilities fall by a factor of at most `ratio` each.
        ratio = q * max(1.0, (r + most) / (most + 1))
        if ratio < 1 and log_pmf[-1] - math.log1p(-ratio) < _LOG_TAIL:
            break
        if most >= _MOST:
            raise InputError(
                f"sizes: the negative binomial with r = {r:g}, q = {q:g} exceeds {_MOST:,} people per "
                f'cell; use sizes="poisson", or split the largest cells'
            )
        most = min(_MOST, 2 * most)
    pmf = np.exp(log_pmf)
    beyond = np.cumsum(pmf[::-1])[::-1]
    mass = (
        int(np.argmax(beyond < math.exp(_LOG_TAIL))) if beyond[-1] < math.exp(_LOG_TAIL) else most
    )
    return Sizes("negative-binomial", pmf[: mass + 1], {"r": r, "q": q})


def fit_poisson(sizes: IntArray) -> Sizes:
    """Return the zero-truncated Poisson distribution that fits best.

    At the largest likelihood the mean λ/(1 - e^-λ) of an occupied cell is the mean size.

    Parameters
    ----------
    sizes : array of int
        The sizes of the occupied cells.

    Returns
    -------
    Sizes
        The fitted distribution.
    """
    mean = float(sizes.mean())
    if sizes.max() == 1:
        return Sizes("poisson", np.array([0.0, 1.0]), {"mean": 0.0})

    def excess(rate: float) -> float:
        return rate / -math.expm1(-rate) - mean

    # λ/(1 - e^-λ) lies between 1 + λ/2 and 1 + λ.
    low, high = mean - 1, 2 * (mean - 1)
    return truncated_poisson(float(brentq(excess, low, high, xtol=1e-300, rtol=8.9e-16)))


def fit_negative_binomial(sizes: IntArray) -> Sizes:
    """Return the zero-truncated negative binomial distribution that fits best.

    The likelihood is maximised over r, with q such that the mean of an occupied cell is the mean size.
    Where it rises towards r = infinity, sizes are Poisson; towards 0, logarithmic.

    Parameters
    ----------
    sizes : array of int
        The sizes of the occupied cells.

    Returns
    -------
    Sizes
        The fitted distribution.
    """
    if sizes.max() == 1:
        return fit_poisson(sizes)
    mean = float(sizes.mean())
    distinct, times = np.unique(sizes, return_counts=True)

    def minus_log_likelihood(log_r: float) -> float:
        r = math.exp(log_r)
        q = _matching(r, mean)
        return -float(times @ _log_negative_binomial(r, q, int(distinct[-1]))[distinct])

    def slope(log_r: float) -> float:
        """Return the derivative by r; q is already optimal, so it contributes nothing."""
        r = math.exp(log_r)
        log_free = math.log1p(-_matching(r, mean))
        added = np.cumsum(1 / (r + np.arange(distinct[-1])))[distinct - 1]
        return float(times @ added - len(sizes) * log_free / math.expm1(r * log_free))

    grid = np.linspace(*_LOG_R, 81)
    values = [minus_log_likelihood(at) for at in grid]
    best = int(np.argmin(values))
    limit = fit_poisson(sizes)
    if best == len(grid) - 1 or _minus_log_likelihood(limit, sizes) <= values[best] + _ROUNDING:
        return limit
    low, high = grid[max(best - 1, 0)], grid[best + 1]
    log_r = low if slope(low) <= 0 else float(brentq(slope, low, high, xtol=1e-13))
    r = math.exp(log_r)
    return negative_binomial(r, _matching(r, mean))


def _minus_log_likelihood(fitted: Sizes, sizes: IntArray) -> float:
    mean = fitted.parameters["mean"]
    log_occupied = math.log(-math.expm1(-mean))
    return -float(log_poisson(sizes, mean).sum() - len(sizes) * log_occupied)


def _matching(r: float, mean: float) -> float:
    """Return q with r q/((1 - q)(1 - (1 - q)^r)) = mean; it rises with q."""

    def excess(log_odds: float) -> float:
        odds = math.exp(log_odds)
        return r * odds / -math.expm1(-r * math.log1p(odds)) - mean

    log_odds = brentq(excess, -60.0, 60.0, xtol=1e-14, rtol=8.9e-16)
    return 1 / (1 + math.exp(-log_odds))


def _log_negative_binomial(r: float, q: float, most: int) -> FloatArray:
    """Return log of Γ(r + n)/(Γ(r) n!) q^n (1 - q)^r/(1 - (1 - q)^r), n = 0 … most."""
    log_empty = r * math.log1p(-q)
    j = np.arange(most)
    rising = np.cumsum(np.log((r + j) * q / (j + 1)))
    return np.concatenate(([-np.inf], rising + log_empty - math.log(-math.expm1(log_empty))))


def _enough(mean: float) -> int:
    """Return a size beyond which less than 1e-14 of a Poisson distribution lies (Bernstein)."""
    drop = -_LOG_TAIL + 2
    return math.ceil(mean + drop / 3 + math.sqrt(drop * drop / 9 + 2 * mean * drop))


def _refuse_not_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{name}: {value} is not allowed; it must be a number above 0")
