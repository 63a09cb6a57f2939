"""Differences, ratios and shares of areas and cells, with intervals that heed their covariance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from countveil.errors import InputError
from countveil.infer.areas import AreaEstimate
from countveil.infer.interval import checked, normal_interval
from countveil.infer.joint_variance import Estimated, Pairs, Term, pairs
from countveil.infer.labelled_rows import cell_name, cell_number, labelled_rows
from countveil.infer.quotients import DRAWS, Ends, Method, ends, quotient
from countveil.numerics import FloatArray
from countveil.schema.attributes import listed
from countveil.schema.workload import Query

Kind = Literal["difference", "ratio", "share"]


@dataclass(frozen=True, eq=False, slots=True)
class Contrast:
    """`first` compared with `second`, cell by cell, with intervals.

    What is not determined is NaN, with an infinite standard error and the whole line as its interval.
    The set that Fieller's method makes of a quotient may have a gap: then it is lower … upper without
    what lies between gap_lower and gap_upper, which are NaN elsewhere. `query` is None where two cells
    are compared: there is one number then.
    """

    kind: Kind
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
    method: Method | Literal["normal"]

    def table(self) -> pa.Table:
        """Return a row per cell: first, second, its categories, value, standard_error, …."""
        names = ["value", "standard_error", "lower", "upper"]
        if self.method == "fieller":
            names += ["gap_lower", "gap_upper"]
        columns = {name: getattr(self, name) for name in names}
        return labelled_rows({"first": [self.first], "second": [self.second]}, self.query, columns)


def difference(
    found: Estimated | AreaEstimate,
    first: str | Sequence[str],
    second: str | Sequence[str],
    *,
    confidence: float | None = None,
) -> Contrast:
    """Return `first` less `second`: two areas in every cell, or two cells of one area.

    Of `found["north"]`, one area, `first` and `second` are cells: a category, or one of each attribute.
    """
    chosen = _two(found, first, second)
    value = chosen.pairs.first - chosen.pairs.second
    error = np.sqrt(chosen.pairs.variance_less(1.0))
    level = chosen.confidence if confidence is None else checked(confidence)
    inside = Ends.plain(*normal_interval(value, error, level))
    return _contrast("difference", chosen, value, error, inside, level, "normal")


def ratio(
    found: Estimated | AreaEstimate,
    first: str | Sequence[str],
    second: str | Sequence[str],
    *,
    method: Method = "fieller",
    confidence: float | None = None,
    possible: bool = False,
    draws: int = DRAWS,
    seed: int = 1,
) -> Contrast:
    """Return `first` over `second`: two areas in every cell, or two cells of one area.

    The standard error is the delta method's. Intervals are Fieller's, which hold the truth as often as
    they say however near 0 the denominator may be, and agree with the delta method where it is far
    away; `method` asks for those of the delta method, or of `draws` simulated quotients. `possible`
    clips ends at 0. As they are, intervals follow from unbiased estimates and hold the truth as often
    as they say; a clipped one does not lie around its estimate, so that averages of them mislead.
    """
    chosen = _two(found, first, second)
    level = chosen.confidence if confidence is None else checked(confidence)
    most = np.inf if possible else None
    return _quotient("ratio", chosen, level, method, most, draws, seed)


def share(
    found: Estimated,
    area: str,
    *,
    of: str | None = None,
    method: Method = "fieller",
    confidence: float | None = None,
    possible: bool = False,
    draws: int = DRAWS,
    seed: int = 1,
) -> Contrast:
    """Return each cell's part of all cells of an area, or an area's part `of` one that contains it.

    All cells are those of the query: who is counted in none of them is not in the total. That one area
    contains the other is yours to know. Methods are those of `ratio`. `possible` clips ends to 0 … 1;
    as they are, intervals follow from unbiased estimates and hold the truth as often as they say.
    """
    if of is None:
        if found.query.cells == 1:
            raise InputError(
                f"query {found.query.name!r}: has one cell, which is all of itself; name the area to "
                f"compare with, of=…, or ask for a query of several cells"
            )
        number = _number(found, area)
        both = pairs(found, Term(number), Term(number, None))
        chosen = _Chosen(area, f"all of {area}", found.query, both, found.confidence)
    else:
        chosen = _two(found, area, of)
    level = found.confidence if confidence is None else checked(confidence)
    most = 1.0 if possible else None
    return _quotient("share", chosen, level, method, most, draws, seed)


@dataclass(frozen=True, eq=False, slots=True)
class _Chosen:
    """Two things to compare: what they are called, and their estimates."""

    first: str
    second: str
    query: Query | None
    pairs: Pairs
    confidence: float


def _two(
    found: Estimated | AreaEstimate, first: str | Sequence[str], second: str | Sequence[str]
) -> _Chosen:
    """Return two areas in every cell, or two cells of an area."""
    if first == second:
        raise InputError(f"{first!r}: is compared with itself; name two that differ")
    if isinstance(found, AreaEstimate):
        numbers = [cell_number(found.query, cell) for cell in (first, second)]
        one, other = (Term(found.number, slice(number, number + 1)) for number in numbers)
        here, there = (f"{found.name}: {cell_name(found.query, number)}" for number in numbers)
        both = pairs(found.areas, one, other)
        return _Chosen(here, there, None, both, found.areas.confidence)
    one, other = (Term(_number(found, name)) for name in (first, second))
    both = pairs(found, one, other)
    return _Chosen(str(first), str(second), found.query, both, found.confidence)


def _number(found: Estimated, name: str | Sequence[str]) -> int:
    if name not in found.names:
        raise InputError(
            f"no area {name!r}; choose from {listed(found.names)}; cells are compared within one area, "
            f"found[{found.names[0]!r}]"
        )
    return found.names.index(str(name))


def _quotient(
    kind: Kind,
    chosen: _Chosen,
    confidence: float,
    method: Method,
    most: float | None,
    draws: int,
    seed: int,
) -> Contrast:
    inside = ends(chosen.pairs, method, confidence, draws, seed)
    if most is not None:
        inside = inside.within(0.0, most)
    return _contrast(kind, chosen, *quotient(chosen.pairs), inside, confidence, method)


def _contrast(
    kind: Kind,
    chosen: _Chosen,
    value: FloatArray,
    error: FloatArray,
    inside: Ends,
    confidence: float,
    method: Method | Literal["normal"],
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
