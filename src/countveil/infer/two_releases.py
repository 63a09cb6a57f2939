"""What changed between two releases: differences, and tests that heed how many are made."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from scipy.special import erfc

from countveil.errors import InputError
from countveil.infer.interval import checked, normal_interval
from countveil.infer.joint_variance import Estimated
from countveil.infer.labelled_rows import labelled_rows
from countveil.infer.public_denominators import Rates
from countveil.infer.two_pass import LeastSquares
from countveil.numerics import FloatArray
from countveil.schema.attributes import listed
from countveil.schema.workload import Query

Compared: TypeAlias = Estimated | LeastSquares


@dataclass(frozen=True, eq=False, slots=True)
class Change:
    """The second release less the first, places × cells, with a test of no change for each.

    `p_value` is two-sided, for one cell looked at alone. `adjusted_p_value` is for all together, by
    Holm's method: calling changed what has at most 0.05 there calls anything wrongly with probability
    0.05 at most, however the noise is correlated. A cell without noise is known to have changed or
    not: 0 or 1, and no test.
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
        """Return a row per place and cell: first, second, value, standard_error, …, p-values."""
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
    """Return what changed from one release to another of the same areas and query, and test it.

    Both are estimates or rates of areas; or both are least squares, and then `query` is asked for all
    units of `level`, or for `areas` made of its units. Noise of two releases is independent, so that
    variances add. Tested is whether the counts differ; what chance did to the people is not noise.
    """
    _refuse_same_noise(first, second)
    if isinstance(first, LeastSquares) and isinstance(second, LeastSquares):
        one, other = (_asked(item, query, level, areas) for item in (first, second))
    elif isinstance(first, LeastSquares) or isinstance(second, LeastSquares):
        raise InputError(
            f"a {type(first).__name__} is compared with a {type(second).__name__}; give two of the "
            f"same kind"
        )
    else:
        if query is not None or level is not None or areas is not None:
            raise InputError(
                "query, level and areas are for least squares; estimates of areas have theirs"
            )
        one, other = _Found.of(first), _Found.of(second)
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
    """Return p-values that hold together.

    Of the k-th smallest of m it is the largest of (m - j + 1) p_j, j <= k, or 1 if that is less (Holm
    1979, Scandinavian Journal of Statistics 6, 65).
    """
    order = np.argsort(p_values, kind="stable")
    times = np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(times * p_values[order]), 1.0)
    return adjusted


class _Found(NamedTuple):
    """Estimates to compare: places × cells, and what they are of."""

    place: str
    names: tuple[str, ...]
    query: Query
    value: FloatArray
    error: FloatArray
    per: float | None
    confidence: float

    @classmethod
    def of(cls, found: Estimated) -> _Found:
        per = found.per if isinstance(found, Rates) else None
        names, query = found.names, found.query
        return cls("area", names, query, found.value, found.standard_error, per, found.confidence)

    def like(self, other: _Found) -> _Found:
        """Return it in the order of another; refuse where they are of different things."""
        if self.query.labels != other.query.labels:
            raise InputError(
                f"query {other.query.name!r} is compared with {self.query.name!r}; ask both for the "
                f"same attributes and categories, in the same order"
            )
        if self.per != other.per:
            kinds = ["counts" if per is None else f"per {per:,g}" for per in (other.per, self.per)]
            raise InputError(f"{kinds[0]} are compared with {kinds[1]}; give two of one kind")
        apart = set(self.names) ^ set(other.names)
        if apart:
            raise InputError(
                f"{listed(sorted(apart))}: in one of both only; compare the same {self.place}s"
            )
        number = {name: at for at, name in enumerate(self.names)}
        order = np.array([number[name] for name in other.names], np.int64)
        return self._replace(names=other.names, value=self.value[order], error=self.error[order])


def _asked(
    source: LeastSquares,
    query: str | None,
    level: str | None,
    areas: Mapping[str, Sequence[str]] | None,
) -> _Found:
    if query is None:
        raise InputError('query: none is given; name one, such as "TOTAL"')
    if areas is not None:
        return _Found.of(source.areas(areas, query, level=level))
    if level is None:
        raise InputError(
            f"neither level nor areas are given; name a level of {listed(source.geography.levels)}, or "
            f"areas with their units"
        )
    parts = list(source.batches(level, query))
    value, error = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("value", "standard_error")
    )
    names = tuple(source.geography.geocodes(level).to_pylist())
    asked = source.plan.schema.query(query)
    return _Found("geocode", names, asked, value, error, None, source.confidence)


def _tests(value: FloatArray, error: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return z, two-sided p-values and Holm's; what is exact is certain, what is unknown NaN."""
    noisy = np.isfinite(error) & (error > 0)
    exact = error == 0
    z = np.where(noisy, value, np.nan) / np.where(noisy, error, 1.0)
    z = np.where(exact & (value == 0), 0.0, z)
    z = np.where(exact & (value != 0), np.copysign(np.inf, value), z)
    p_value = np.asarray(erfc(np.abs(z) / math.sqrt(2)))
    adjusted = p_value.copy()
    adjusted[noisy] = holm(p_value[noisy])
    return z, p_value, adjusted


def _refuse_same_noise(first: Compared, second: Compared) -> None:
    one, other = (item.found if isinstance(item, Rates) else item for item in (first, second))
    if one is other or (one.source and one.source[:1] == other.source[:1]):
        named = f", {one.source[0]}" if one.source else ""
        raise InputError(
            f"both are of the same release{named}; give two, whose noise is independent"
        )
    if one.source[1:] and one.source[1:] == other.source[1:]:
        raise InputError(
            f"both have the same noise, {one.source[1]}; simulate them with different seeds"
        )
