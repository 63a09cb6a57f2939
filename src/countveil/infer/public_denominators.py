"""Rates of areas: estimated counts over public numbers of people."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from countveil.errors import InputError
from countveil.infer.areas import AreaEstimates
from countveil.infer.interval import checked, normal_interval
from countveil.infer.labelled_rows import labelled_rows
from countveil.numerics import FloatArray
from countveil.schema.attributes import listed
from countveil.schema.delimited import read_header
from countveil.schema.workload import Query

AREA, PEOPLE = "area", "people"


@dataclass(frozen=True, eq=False, slots=True)
class Rates:
    """Counts per so many people, areas × cells, with their errors.

    The error is that of the noise: a rate is of the people who were counted, and what chance did to
    them is not in it. Rates may be compared and ranked like counts.
    """

    found: AreaEstimates = field(repr=False)
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
        return self.found.names

    @property
    def query(self) -> Query:
        """The query counted."""
        return self.found.query

    @property
    def factors(self) -> FloatArray:
        """What the counts of each area are multiplied by."""
        return self.per / self.people

    def table(self) -> pa.Table:
        """Return a row per area and cell: its categories, people, value, standard_error, …."""
        columns = {
            PEOPLE: np.repeat(self.people, self.query.cells),
            "value": self.value,
            "standard_error": self.standard_error,
            "lower": self.lower,
            "upper": self.upper,
        }
        return labelled_rows({AREA: self.names}, self.query, columns)


def rates(
    found: AreaEstimates,
    denominators: Mapping[str, float] | str | Path,
    *,
    per: float = 100_000,
    confidence: float | None = None,
    possible: bool = False,
) -> Rates:
    """Return counts per `per` people, with numbers of people that are public and taken as exact.

    `denominators` names the people of each area, or a CSV file with columns `area` and `people`.
    `possible` clips the ends of intervals at 0. As they are, intervals lie around an unbiased estimate
    and hold the truth as often as they say; a clipped one does not, and so should not be averaged or
    combined.
    """
    if not (_is_number(per) and per > 0):
        raise InputError(f"per: {per!r} is not allowed; it is a number above 0, such as 100_000")
    people = _people(found.names, denominators)
    factors = (per / people)[:, None]
    value, error = found.value * factors, found.standard_error * factors
    level = found.confidence if confidence is None else checked(confidence)
    lower, upper = normal_interval(value, error, level)
    if possible:
        lower, upper = np.maximum(lower, 0.0), np.maximum(upper, 0.0)
    return Rates(found, people, float(per), value, error, lower, upper, level)


def _people(names: tuple[str, ...], denominators: Mapping[str, float] | str | Path) -> FloatArray:
    """Return the people of each area; refuse areas without any."""
    if isinstance(denominators, str | Path):
        where, given = str(denominators), _read(Path(denominators))
    else:
        where, given = "denominators", dict(denominators)
    missing = [name for name in names if name not in given]
    if missing:
        raise InputError(
            f"{where}: no people of {listed(missing)}; give a number for every area, or leave the "
            f"area out of the estimates"
        )
    for name in names:
        if not (_is_number(given[name]) and given[name] > 0):
            raise InputError(
                f"{where}: {name} has {given[name]!r} people; a rate needs a finite number above 0; "
                f"leave the area out of the estimates"
            )
    return np.array([float(given[name]) for name in names])


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
            f"{path}: cannot be read ({str(error).splitlines()[0]}); it is a CSV file with columns "
            f"{AREA!r} and {PEOPLE!r}, which has numbers"
        ) from error
    names = table[AREA].to_pylist()
    found = dict(zip(names, table[PEOPLE].to_pylist(), strict=True))
    if len(found) != len(names):
        twice = next(name for name in found if names.count(name) > 1)
        raise InputError(f"{path}: area {twice!r} is listed twice; list each once")
    return found


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    return math.isfinite(value)
