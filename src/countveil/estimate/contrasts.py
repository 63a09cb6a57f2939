"""Differences, ratios and shares of areas and cells, with intervals that account for covariance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from countveil.base.intervals import checked, normal_interval
from countveil.base.numerics import FloatArray
from countveil.errors import InputError
from countveil.estimate.areas import AreaEstimate
from countveil.estimate.joint_variance import Estimated, Pairs, Term, pairs, variance_difference
from countveil.estimate.result_tables import cell_name, cell_number, labelled_rows
from countveil.plan.attributes import choices
from countveil.plan.workload import Query

ContrastKind = Literal["difference", "ratio", "share"]
QuotientMethod = Literal["fieller", "delta", "simulation"]
METHODS: tuple[QuotientMethod, ...] = ("fieller", "delta", "simulation")
DRAWS = 10_000
LEAST_DRAWS = 1_000

_VALUES = 2_000_000  # numbers drawn at a time


@dataclass(frozen=True, eq=False, slots=True)
class Contrast:
    """`first` compared with `second`, cell by cell, with intervals.

    Attributes
    ----------
    kind : str
        "difference", "ratio" or "share".
    first, second : str
        What is compared.
    query : Query or None
        The query, if areas are compared in each of its cells; None if two cells are compared, which
        gives one number.
    value, standard_error : array of cells
        The contrast and its standard error: NaN and infinity where it is not determined.
    lower, upper : array of cells
        The ends of the interval; the whole line where it is not determined.
    gap_lower, gap_upper : array of cells
        The set that Fieller's method gives for a quotient may have a gap, which belongs to lower …
        upper but not to the set. NaN where there is none.
    confidence : float
        The confidence of the intervals.
    method : str
        How the intervals were made: "normal", "fieller", "delta" or "simulation".

    """

    kind: ContrastKind
    first: str
    second: str
    query: Query | None
    value: FloatArray
    standard_error: FloatArray
    lower: FloatArray
    upper: FloatArray
    gap_lower: FloatArray
    gap_upper: FloatArray
    confidence: float
    method: QuotientMethod | Literal["normal"]

    def table(self) -> pa.Table:
        """Return a row per cell: first, second, categories, value, standard_error and interval."""
        names = ["value", "standard_error", "lower", "upper"]
        if self.method == "fieller":
            names += ["gap_lower", "gap_upper"]
        columns = {name: getattr(self, name) for name in names}
        return labelled_rows({"first": [self.first], "second": [self.second]}, self.query, columns)


def difference(
    estimates: Estimated | AreaEstimate,
    first: str | Sequence[str],
    second: str | Sequence[str],
    *,
    confidence: float | None = None,
) -> Contrast:
    """Return `first` minus `second`: two areas in every cell, or two cells of one area.

    Parameters
    ----------
    estimates : AreaEstimates, Rates or AreaEstimate
        Estimates of several areas, to compare two of them; or one area, such as estimates["north"], to
        compare two of its cells.
    first, second : str or sequence of str
        Names of areas; or cells, each a category or one category per attribute.
    confidence : float, optional
        That of the estimates by default.

    Returns
    -------
    Contrast

    Examples
    --------
    >>> areas = estimates.areas({"north": north, "south": south}, "RACE")  # doctest: +SKIP
    >>> difference(areas, "north", "south").table()  # doctest: +SKIP
    >>> difference(areas["north"], "white", "black").value  # doctest: +SKIP

    """
    chosen = _two(estimates, first, second)
    value = chosen.pairs.first - chosen.pairs.second
    error = np.sqrt(chosen.pairs.variance_less(1.0))
    level = chosen.confidence if confidence is None else checked(confidence)
    inside = ConfidenceSets.plain(*normal_interval(value, error, level))
    return _contrast("difference", chosen, value, error, inside, level, "normal")


def ratio(
    estimates: Estimated | AreaEstimate,
    first: str | Sequence[str],
    second: str | Sequence[str],
    *,
    method: QuotientMethod = "fieller",
    confidence: float | None = None,
    possible: bool = False,
    draws: int = DRAWS,
    seed: int = 1,
) -> Contrast:
    """Return `first` divided by `second`: two areas in every cell, or two cells of one area.

    The standard error is that of the delta method. Fieller's intervals have their stated coverage
    however close to 0 the denominator may be, and agree with the delta method where it is far away.

    Parameters
    ----------
    estimates, first, second
        As for `difference`.
    method : {"fieller", "delta", "simulation"}
        How to make the intervals.
    confidence : float, optional
        That of the estimates by default.
    possible : bool
        Whether to clip the ends of intervals at 0. Unclipped intervals follow from unbiased estimates;
        averages of clipped ones mislead.
    draws, seed : int
        For "simulation": how many quotients to draw, and the seed.

    Returns
    -------
    Contrast

    """
    chosen = _two(estimates, first, second)
    level = chosen.confidence if confidence is None else checked(confidence)
    most = np.inf if possible else None
    return _quotient("ratio", chosen, level, method, most, draws, seed)


def share(
    estimates: Estimated,
    area: str,
    *,
    of: str | None = None,
    method: QuotientMethod = "fieller",
    confidence: float | None = None,
    possible: bool = False,
    draws: int = DRAWS,
    seed: int = 1,
) -> Contrast:
    """Return each cell's share of all cells of an area, or an area's share of a larger one.

    Parameters
    ----------
    estimates : AreaEstimates or Rates
        Estimates of areas.
    area : str
        The name of an area.
    of : str, optional
        The name of an area that contains it, which is not checked. By default, each cell is compared
        with the sum of all cells of the query; people who are in none of them are left out.
    method, confidence, draws, seed
        As for `ratio`.
    possible : bool
        Whether to clip the ends of intervals to 0 … 1, as for `ratio`.

    Returns
    -------
    Contrast

    """
    if of is None:
        if estimates.query.cells == 1:
            raise InputError(
                f"query {estimates.query.name!r}: has only one cell, so its share is 1; name an area "
                f"to compare with, of=…, or use a query of several cells"
            )
        number = _number(estimates, area)
        both = pairs(estimates, Term(number), Term(number, None))
        chosen = _Chosen(area, f"all of {area}", estimates.query, both, estimates.confidence)
    else:
        chosen = _two(estimates, area, of)
    level = estimates.confidence if confidence is None else checked(confidence)
    most = 1.0 if possible else None
    return _quotient("share", chosen, level, method, most, draws, seed)


@dataclass(frozen=True, eq=False, slots=True)
class _Chosen:
    """Two things to compare: their names and their estimates."""

    first: str
    second: str
    query: Query | None
    pairs: Pairs
    confidence: float


def _two(
    estimates: Estimated | AreaEstimate, first: str | Sequence[str], second: str | Sequence[str]
) -> _Chosen:
    """Return two areas in every cell, or two cells of an area."""
    if first == second:
        raise InputError(f"{first!r} is compared with itself; name two that differ")
    if isinstance(estimates, AreaEstimate):
        numbers = [cell_number(estimates.query, cell) for cell in (first, second)]
        one, other = (Term(estimates.number, slice(number, number + 1)) for number in numbers)
        here, there = (
            f"{estimates.name}: {cell_name(estimates.query, number)}" for number in numbers
        )
        both = pairs(estimates.areas, one, other)
        return _Chosen(here, there, None, both, estimates.areas.confidence)
    one, other = (Term(_number(estimates, name)) for name in (first, second))
    both = pairs(estimates, one, other)
    return _Chosen(str(first), str(second), estimates.query, both, estimates.confidence)


def _number(estimates: Estimated, name: str | Sequence[str]) -> int:
    if name not in estimates.names:
        raise InputError(
            f"unknown area {name!r}; choose from {choices(estimates.names)}; to compare cells, pass "
            f"one area, such as estimates[{estimates.names[0]!r}]"
        )
    return estimates.names.index(str(name))


def _quotient(
    kind: ContrastKind,
    chosen: _Chosen,
    confidence: float,
    method: QuotientMethod,
    most: float | None,
    draws: int,
    seed: int,
) -> Contrast:
    inside = confidence_sets(chosen.pairs, method, confidence, draws, seed)
    if most is not None:
        inside = inside.within(0.0, most)
    return _contrast(kind, chosen, *quotient(chosen.pairs), inside, confidence, method)


def _contrast(
    kind: ContrastKind,
    chosen: _Chosen,
    value: FloatArray,
    error: FloatArray,
    inside: ConfidenceSets,
    confidence: float,
    method: QuotientMethod | Literal["normal"],
) -> Contrast:
    return Contrast(
        kind=kind,
        first=chosen.first,
        second=chosen.second,
        query=chosen.query,
        value=value,
        standard_error=error,
        lower=inside.lower,
        upper=inside.upper,
        gap_lower=inside.gap_lower,
        gap_upper=inside.gap_upper,
        confidence=confidence,
        method=method,
    )


# Quotients of two noisy estimates: the delta method, Fieller's sets, and simulation.


@dataclass(frozen=True, eq=False, slots=True)
class ConfidenceSets:
    """Confidence sets: lower … upper, without the gap; NaN where there is no gap."""

    lower: FloatArray
    upper: FloatArray
    gap_lower: FloatArray
    gap_upper: FloatArray

    @classmethod
    def plain(cls, lower: FloatArray, upper: FloatArray) -> ConfidenceSets:
        """Return intervals without gaps."""
        return cls(lower, upper, np.full_like(lower, np.nan), np.full_like(lower, np.nan))

    def within(self, least: float, most: float) -> ConfidenceSets:
        """Return the sets clipped to least … most; the nearest possible value if nothing is left."""
        lower, upper = np.clip(self.lower, least, most), np.clip(self.upper, least, most)
        left = self.gap_lower >= least  # something possible is below the gap
        right = self.gap_upper <= most
        only_right, only_left = right & ~left, left & ~right
        lower = np.where(only_right, np.clip(self.gap_upper, least, most), lower)
        upper = np.where(only_left, np.clip(self.gap_lower, least, most), upper)
        kept = ~(only_right | only_left)
        gap_lower, gap_upper = (
            np.where(kept, np.clip(end, least, most), np.nan)
            for end in (self.gap_lower, self.gap_upper)
        )
        return ConfidenceSets(lower, upper, gap_lower, gap_upper)


class QuotientEstimate(NamedTuple):
    """Quotients and their standard errors."""

    value: FloatArray
    standard_error: FloatArray


def quotient(pairs: Pairs) -> QuotientEstimate:
    """Return first / second and its standard error by the delta method.

    Var(a/b) ≈ Var(a - r b) / b² at r = a/b, the covariance included. If the estimate of b is 0, there
    is no quotient: NaN, with an infinite error.
    """
    defined = pairs.determined & (pairs.second != 0)
    below = np.where(defined, pairs.second, 1.0)
    value = np.where(defined, pairs.first, 0.0) / below
    error = np.sqrt(pairs.variance_less(value)) / np.abs(below)
    return QuotientEstimate(np.where(defined, value, np.nan), np.where(defined, error, np.inf))


def confidence_sets(
    pairs: Pairs, method: QuotientMethod, confidence: float, draws: int, seed: int
) -> ConfidenceSets:
    """Return the confidence set of each quotient by the method of choice."""
    if method == "fieller":
        return fieller_sets(pairs, confidence)
    if method == "delta":
        return ConfidenceSets.plain(*normal_interval(*quotient(pairs), confidence))
    if method == "simulation":
        return simulated_sets(pairs, confidence, draws, seed)
    raise InputError(f"unknown method {method!r}; choose from {', '.join(METHODS)}")


def fieller_sets(pairs: Pairs, confidence: float) -> ConfidenceSets:
    """Return all r with (a - r b)² <= z² Var(a - r b): exact if a and b are normal.

    That is (b² - z² v_b) r² - 2 (a b - z² c) r + (a² - z² v_a) <= 0, an interval if b is more than z
    standard errors from 0. Otherwise any denominator near 0 may be the true one, and the set is the
    whole line, or the line without a gap (Fieller 1954, J. R. Stat. Soc. B 16, 175).
    """
    square = NormalDist().inv_cdf((1 + checked(confidence)) / 2) ** 2
    known = pairs.determined
    a, b, a_variance, b_variance = (
        np.where(known, part, 0.0)
        for part in (pairs.first, pairs.second, pairs.first_variance, pairs.second_variance)
    )
    c = pairs.covariance
    leading = b**2 - square * b_variance
    half = a * b - square * c
    constant = a**2 - square * a_variance
    # half² - leading · constant, multiplied out, because large terms cancel.
    added = b**2 * a_variance + a**2 * b_variance + square * c**2
    subtracted = 2 * a * b * c + square * a_variance * b_variance
    inside = square * variance_difference(added - subtracted, added + np.abs(subtracted))
    pole = half + np.copysign(np.sqrt(inside), half)
    with np.errstate(divide="ignore", invalid="ignore"):
        one, other = pole / leading, np.where(pole == 0, 0.0, constant / pole)
    bounded = known & (leading >= 0) & ~np.isnan(one)
    gap = known & (leading < 0) & (inside > 0)
    low, high = np.minimum(one, other), np.maximum(one, other)
    return ConfidenceSets(
        np.where(bounded, low, -np.inf),
        np.where(bounded, high, np.inf),
        np.where(gap, low, np.nan),
        np.where(gap, high, np.nan),
    )


def simulated_sets(pairs: Pairs, confidence: float, draws: int, seed: int) -> ConfidenceSets:
    """Return central quantiles of quotients drawn from the joint normal law of the estimates."""
    if draws < LEAST_DRAWS:
        raise InputError(f"draws: {draws} is too few; use {LEAST_DRAWS:,} or more")
    tail = (1 - checked(confidence)) / 2
    noise = np.random.default_rng(seed).standard_normal((2, draws))
    known = pairs.determined
    variances = [
        np.where(known, part, 0.0) for part in (pairs.first_variance, pairs.second_variance)
    ]
    second = np.sqrt(variances[1])
    slope = pairs.covariance / np.where(second > 0, second, 1.0)
    rest = np.sqrt(np.maximum(variances[0] - slope**2, 0.0))
    lower, upper = np.full(len(known), -np.inf), np.full(len(known), np.inf)
    step = max(1, _VALUES // draws)
    defined = np.flatnonzero(known & ((second > 0) | (pairs.second != 0)))
    for start in range(0, len(defined), step):
        some = defined[start : start + step]
        above = pairs.first[some, None] + np.outer(slope[some], noise[0])
        above += np.outer(rest[some], noise[1])
        below = pairs.second[some, None] + np.outer(second[some], noise[0])
        lower[some], upper[some] = np.quantile(above / below, (tail, 1 - tail), axis=1)
    return ConfidenceSets.plain(lower, upper)
