"""Rates of areas: estimated counts per public number of people."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from countveil.base.delimited import read_header
from countveil.base.intervals import checked, normal_interval
from countveil.base.numerics import FloatArray
from countveil.errors import InputError
from countveil.estimate.areas import AreaEstimates
from countveil.estimate.result_tables import labelled_rows
from countveil.plan.attributes import choices
from countveil.plan.workload import Query

AREA, PEOPLE = "area", "people"


@dataclass(frozen=True, eq=False, slots=True)
class Rates:
    """Counts per `per` people, with their errors; they can be compared and ranked like counts.

    The error is that of the privacy noise. It does not include the randomness of how many people were
    affected in the first place.

    Attributes
    ----------
    counts : AreaEstimates
        The estimated counts.
    people : array of areas
        The public number of people of each area, taken as exact.
    per : float
        For example 100,000.
    value, standard_error, lower, upper : array of areas × cells
        The rates, their standard errors, and the ends of their intervals.
    confidence : float
        The confidence of the intervals.

    """

    counts: AreaEstimates = field(repr=False)
    people: FloatArray
    per: float
    value: FloatArray
    standard_error: FloatArray
    lower: FloatArray
    upper: FloatArray
    confidence: float

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the areas."""
        return self.counts.names

    @property
    def query(self) -> Query:
        """The query that was counted."""
        return self.counts.query

    @property
    def factors(self) -> FloatArray:
        """The factor of each area's counts."""
        return self.per / self.people

    def table(self) -> pa.Table:
        """Return a row per area and cell: its name, categories, people, value and interval."""
        columns = {
            PEOPLE: np.repeat(self.people, self.query.cells),
            "value": self.value,
            "standard_error": self.standard_error,
            "lower": self.lower,
            "upper": self.upper,
        }
        return labelled_rows({AREA: self.names}, self.query, columns)


def rates(
    counts: AreaEstimates,
    denominators: Mapping[str, float] | str | Path,
    *,
    per: float = 100_000,
    confidence: float | None = None,
    possible: bool = False,
) -> Rates:
    """Return counts per `per` people, the numbers of people being public and exact.

    Parameters
    ----------
    counts : AreaEstimates
        Counts of areas, from least squares.
    denominators : mapping of str to float, or path
        The people of each area by name, or a CSV file with columns `area` and `people`.
    per : float
        For example 100,000.
    confidence : float, optional
        That of the counts by default.
    possible : bool
        Whether to clip the ends of intervals at 0. Unclipped intervals are centred on an unbiased
        estimate; do not average or combine clipped ones.

    Returns
    -------
    Rates

    """
    if not (_is_number(per) and per > 0):
        raise InputError(f"per: {per!r} is not allowed; use a number above 0, such as 100_000")
    people = _people(counts.names, denominators)
    factors = (per / people)[:, None]
    value, error = counts.value * factors, counts.standard_error * factors
    level = counts.confidence if confidence is None else checked(confidence)
    lower, upper = normal_interval(value, error, level)
    if possible:
        lower, upper = np.maximum(lower, 0.0), np.maximum(upper, 0.0)
    return Rates(counts, people, float(per), value, error, lower, upper, level)


def _people(names: tuple[str, ...], denominators: Mapping[str, float] | str | Path) -> FloatArray:
    """Return the people of each area; refuse an area without any."""
    if isinstance(denominators, str | Path):
        where, people = str(denominators), _read(Path(denominators))
    else:
        where, people = "denominators", dict(denominators)
    missing = [name for name in names if name not in people]
    if missing:
        raise InputError(
            f"{where}: no number of people for {choices(missing)}; add one for every area, or leave "
            f"the area out of the estimates"
        )
    for name in names:
        if not (_is_number(people[name]) and people[name] > 0):
            raise InputError(
                f"{where}: {name} has {people[name]!r} people; a rate needs a finite number above 0; "
                f"leave the area out of the estimates"
            )
    return np.array([float(people[name]) for name in names])


def _read(path: Path) -> dict[str, float]:
    """Read the people of each area from a CSV file."""
    try:
        header, delimiter = read_header(path)
        absent = [name for name in (AREA, PEOPLE) if name not in header]
        if absent:
            raise InputError(
                f"{path}: no column {absent[0]!r}; it needs columns {AREA!r} and {PEOPLE!r}"
            )
        convert = pa.csv.ConvertOptions(
            include_columns=[AREA, PEOPLE],
            column_types={AREA: pa.string(), PEOPLE: pa.float64()},
            strings_can_be_null=False,
        )
        parse = pa.csv.ParseOptions(delimiter=delimiter)
        table = pa.csv.read_csv(path, parse_options=parse, convert_options=convert)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be read ({str(error).splitlines()[0]}); it must be a CSV file with "
            f"columns {AREA!r} and {PEOPLE!r}, the latter with numbers"
        ) from error
    names = table[AREA].to_pylist()
    people = dict(zip(names, table[PEOPLE].to_pylist(), strict=True))
    if len(people) != len(names):
        twice = next(name for name in people if names.count(name) > 1)
        raise InputError(f"{path}: area {twice!r} is listed twice; list each area once")
    return people


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    return math.isfinite(value)
