"""What changed between two releases: differences, tested with a correction for their number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from scipy.special import erfc

from countveil.base.intervals import checked, normal_interval
from countveil.base.numerics import FloatArray
from countveil.errors import InputError
from countveil.estimate.area_rates import Rates
from countveil.estimate.joint_variance import Estimated
from countveil.estimate.result_tables import labelled_rows
from countveil.estimate.unbiased import LeastSquares
from countveil.plan.attributes import choices
from countveil.plan.workload import Query

Compared: TypeAlias = Estimated | LeastSquares


@dataclass(frozen=True, eq=False, slots=True)
class Change:
    """The second release minus the first, with a test of no change for each count.

    A count without noise is known to have changed or not: its p-values are 0 or 1, and it is not
    tested.

    Attributes
    ----------
    place : str
        What the names are of: "area" or "geocode".
    names : tuple of str
        The names of the units or areas.
    query : Query
        What is counted.
    first, second : array of places × cells
        The estimates of both releases.
    value, standard_error, lower, upper : array of places × cells
        Their differences, with standard errors and intervals.
    z : array of places × cells
        The differences in standard errors.
    p_value : array of places × cells
        Two-sided, for one count looked at alone.
    adjusted_p_value : array of places × cells
        For all counts together, by Holm's method: if you call all counts with at most 0.05 changed, the
        probability that any of them did not change is at most 0.05, however the noise is correlated.
    confidence : float
        The confidence of the intervals.

    """

    place: str
    names: tuple[str, ...]
    query: Query
    first: FloatArray
    second: FloatArray
    value: FloatArray
    standard_error: FloatArray
    lower: FloatArray
    upper: FloatArray
    z: FloatArray
    p_value: FloatArray
    adjusted_p_value: FloatArray
    confidence: float

    def table(self) -> pa.Table:
        """Return a row per place and cell: name, categories, and a column per array of numbers."""
        names = ("first", "second", "value", "standard_error", "lower", "upper")
        tests = ("z", "p_value", "adjusted_p_value")
        columns = {name: getattr(self, name) for name in (*names, *tests)}
        return labelled_rows({self.place: self.names}, self.query, columns)


def change(
    first: Compared,
    second: Compared,
    query: str | None = None,
    *,
    level: str | None = None,
    areas: Mapping[str, Sequence[str]] | None = None,
    confidence: float | None = None,
) -> Change:
    """Return what changed from one release to another, and test it.

    The noise of two releases is independent, so variances add up. The test is whether the counts
    differ; it does not include the randomness of how many people were affected in the first place.

    Parameters
    ----------
    first, second : AreaEstimates, Rates or LeastSquares
        Two of the same kind, of two releases.
    query : str, optional
        For least squares: what to compare.
    level : str, optional
        For least squares: the level whose units to compare, or of which `areas` are made.
    areas : mapping of str to sequence of str, optional
        For least squares: areas to compare, instead of all units of a level.
    confidence : float, optional
        That of the first by default.

    Returns
    -------
    Change

    Examples
    --------
    >>> june, july = (least_squares(r.measurements, r.plan) for r in releases)  # doctest: +SKIP
    >>> change(june, july, "TOTAL", level="county").table()  # doctest: +SKIP

    """
    _refuse_same_noise(first, second)
    if isinstance(first, LeastSquares) and isinstance(second, LeastSquares):
        one, other = (_estimated(item, query, level, areas) for item in (first, second))
    elif isinstance(first, LeastSquares) or isinstance(second, LeastSquares):
        raise InputError(
            f"a {type(first).__name__} cannot be compared with a {type(second).__name__}; pass two of "
            f"the same kind"
        )
    else:
        if query is not None or level is not None or areas is not None:
            raise InputError(
                "query, level and areas are for least squares; estimates of areas already have them"
            )
        one, other = _Side.of(first), _Side.of(second)
    other = other.like(one)
    value = other.value - one.value
    error = np.hypot(one.error, other.error)
    chosen = one.confidence if confidence is None else checked(confidence)
    z, p_value, adjusted = _tests(value, error)
    return Change(
        one.place,
        one.names,
        one.query,
        one.value,
        other.value,
        value,
        error,
        *normal_interval(value, error, chosen),
        z,
        p_value,
        adjusted,
        chosen,
    )


def holm(p_values: FloatArray) -> FloatArray:
    """Return p-values adjusted for their number.

    The k-th smallest of m becomes the largest of (m - j + 1) p_j over j <= k, but at most 1 (Holm 1979,
    Scandinavian Journal of Statistics 6, 65).
    """
    order = np.argsort(p_values, kind="stable")
    times = np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(times * p_values[order]), 1.0)
    return adjusted


class _Side(NamedTuple):
    """One side of a comparison: estimates, places × cells, and what they are of."""

    place: str
    names: tuple[str, ...]
    query: Query
    value: FloatArray
    error: FloatArray
    per: float | None
    confidence: float

    @classmethod
    def of(cls, estimates: Estimated) -> _Side:
        return cls(
            "area",
            estimates.names,
            estimates.query,
            estimates.value,
            estimates.standard_error,
            estimates.per if isinstance(estimates, Rates) else None,
            estimates.confidence,
        )

    def like(self, other: _Side) -> _Side:
        """Return this side in the order of the other; refuse if they are of different things."""
        if self.query.labels != other.query.labels:
            raise InputError(
                f"query {other.query.name!r} cannot be compared with {self.query.name!r}; use the same "
                f"attributes and categories, in the same order"
            )
        if self.per != other.per:
            kinds = ["counts" if per is None else f"per {per:,g}" for per in (other.per, self.per)]
            raise InputError(f"{kinds[0]} cannot be compared with {kinds[1]}; pass two of one kind")
        apart = set(self.names) ^ set(other.names)
        if apart:
            raise InputError(
                f"{choices(sorted(apart))}: only in one of the two; compare the same {self.place}s"
            )
        number = {name: at for at, name in enumerate(self.names)}
        order = np.array([number[name] for name in other.names], np.int64)
        return self._replace(names=other.names, value=self.value[order], error=self.error[order])


def _estimated(
    source: LeastSquares,
    query: str | None,
    level: str | None,
    areas: Mapping[str, Sequence[str]] | None,
) -> _Side:
    """Return a query of areas or units, estimated by least squares."""
    if query is None:
        raise InputError('query is missing; name one, such as "TOTAL"')
    if areas is not None:
        return _Side.of(source.areas(areas, query, level=level))
    if level is None:
        raise InputError(
            f"level and areas are both missing; name a level, {choices(source.geography.levels)}, or "
            f"areas with their units"
        )
    parts = list(source.batches(level, query))
    value, error = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("value", "standard_error")
    )
    names = tuple(source.geography.geocodes(level).to_pylist())
    parsed = source.plan.schema.query(query)
    return _Side("geocode", names, parsed, value, error, None, source.confidence)


class _Tests(NamedTuple):
    """z, two-sided p-values, and Holm's."""

    z: FloatArray
    p_value: FloatArray
    adjusted: FloatArray


def _tests(value: FloatArray, error: FloatArray) -> _Tests:
    """Test each difference; exact ones are certain, undetermined ones NaN."""
    noisy = np.isfinite(error) & (error > 0)
    exact = error == 0
    z = np.where(noisy, value, np.nan) / np.where(noisy, error, 1.0)
    z = np.where(exact & (value == 0), 0.0, z)
    z = np.where(exact & (value != 0), np.copysign(np.inf, value), z)
    p_value = np.asarray(erfc(np.abs(z) / math.sqrt(2)))
    adjusted = p_value.copy()
    adjusted[noisy] = holm(p_value[noisy])
    return _Tests(z, p_value, adjusted)


def _refuse_same_noise(first: Compared, second: Compared) -> None:
    one, other = (item.counts if isinstance(item, Rates) else item for item in (first, second))
    mine, theirs = one.source, other.source
    if one is other or (mine and theirs and mine.release == theirs.release):
        named = f", {mine.release}" if mine else ""
        raise InputError(
            f"both are of the same release{named}; pass two releases, whose noise is independent"
        )
    if mine and theirs and mine.seed is not None and mine.seed == theirs.seed:
        raise InputError(
            f"both have the same noise, {mine.seed}; simulate them with different seeds"
        )
