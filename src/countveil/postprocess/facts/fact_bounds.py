"""Bounds on the counts of units and of groups of siblings, read from files of public facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from countveil.base.delimited import FORMULA, read_header
from countveil.base.numerics import IntArray
from countveil.errors import InputError
from countveil.plan.attributes import choices
from countveil.plan.geography import Geography
from countveil.plan.public_facts import BOUNDS, Constraint
from countveil.plan.workload import TOTAL, Query

UNBOUNDED = 2**31 - 1
MOST_VALUES = 2**28  # units times cells of a query with public facts
_DIGITS = 10  # of numbers below UNBOUNDED


@dataclass(frozen=True, eq=False, slots=True)
class Bounds:
    """lower ≤ counts of a query ≤ upper, for units of a level: units × cells."""

    query: Query
    lower: NDArray[np.int32]
    upper: NDArray[np.int32]

    def slice(self, start: int, stop: int) -> Bounds:
        """Return the bounds of units start … stop - 1."""
        return Bounds(self.query, self.lower[start:stop], self.upper[start:stop])


@dataclass(frozen=True, eq=False, slots=True)
class GroupBound:
    """lower ≤ one cell of a query, summed over some units of a level, ≤ upper."""

    query: Query
    cell: int
    units: IntArray
    lower: int
    upper: int
    name: str


def unbounded(query: Query, units: int) -> Bounds:
    """Return bounds that bound nothing."""
    refuse_many_values(query, units)
    shape = (units, query.cells)
    return Bounds(query, np.zeros(shape, np.int32), np.full(shape, UNBOUNDED, np.int32))


def refuse_many_values(query: Query, units: int) -> None:
    """Refuse public facts about more counts than fit into memory, before allocating it."""
    if units * query.cells > MOST_VALUES:
        raise InputError(
            f"public facts on {query.name} would bound {units * query.cells:,} counts of {units:,} "
            f"units; {MOST_VALUES:,} is the limit: bound a smaller query, or a level above"
        )


def in_words(query: Query, labels: tuple[str, ...]) -> str:
    """Return the categories of a cell of a query in words."""
    if query.name == TOTAL:
        return TOTAL
    return ", ".join(
        f"{name} = {label}" for (name, _), label in zip(query.labels, labels, strict=True)
    )


def read_bounds(item: Constraint, geography: Geography) -> Bounds:
    """Read a constraint file, with a row per unit and cell."""
    table = _read_csv(item.path, [item.level, *(name for name, _ in item.query.labels)])
    unit = _positions(item.path, table[item.level], geography.geocodes(item.level), item.level)
    bounds = unbounded(item.query, geography.units(item.level))
    cell, lower, upper = _cells_and_bounds(item, table)
    np.maximum.at(bounds.lower, (unit, cell), lower)
    np.minimum.at(bounds.upper, (unit, cell), upper)
    return bounds


def read_groups(
    item: Constraint, geography: Geography, visited: Sequence[str]
) -> Iterator[GroupBound]:
    """Yield bounds on groups of siblings, from a row per group and cell and a list of members."""
    if item.members is None:
        return
    if item.level not in visited:
        raise InputError(
            f"{item.path}: bounds groups at level {item.level}, which is not measured; bound groups at "
            f"a measured level"
        )
    members = _read_csv(item.members, ["group", item.level], bounds=False)
    unit = _positions(item.members, members[item.level], geography.geocodes(item.level), item.level)
    groups, of_row = np.unique(members["group"].to_numpy(), return_inverse=True)
    order = np.argsort(of_row, kind="stable")
    ends = np.cumsum(np.bincount(of_row, minlength=len(groups)))
    listed_units = dict(zip(groups, np.split(unit[order], ends[:-1]), strict=False))
    above = [level for level in visited if visited.index(level) < visited.index(item.level)]
    parents = (
        geography.ancestors(item.level, above[-1])
        if above
        else np.zeros(geography.units(item.level), np.int64)
    )
    table = _read_csv(item.path, ["group", *(name for name, _ in item.query.labels)])
    cell, lower, upper = _cells_and_bounds(item, table)
    for number, group in enumerate(table["group"].to_pylist()):
        if group not in listed_units:
            raise InputError(
                f"{item.members}: lists no {item.level} in group {group!r}; list its units"
            )
        units = np.unique(listed_units[group])
        if len(np.unique(parents[units])) > 1:
            raise InputError(
                f"{item.members}: group {group!r} has units of more than one {above[-1]}; all units of "
                f"a group must be in the same one"
            )
        what = f"{in_words(item.query, item.query.labels_of(int(cell[number])))} of group {group}"
        yield GroupBound(
            item.query, int(cell[number]), units, int(lower[number]), int(upper[number]), what
        )


def _read_csv(path: Path, required: Sequence[str], *, bounds: bool = True) -> pa.Table:
    """Read a file of public facts as text; every message names the file."""
    try:
        header, delimiter = read_header(path)
        allowed = (*required, *(BOUNDS if bounds else ()))
        for name in required:
            if name not in header:
                raise InputError(f"{path}: no column {name!r}; it needs {', '.join(required)}")
        for name in header:
            if name not in allowed:
                raise InputError(f"{path}: unknown column {name!r}; choose from {choices(allowed)}")
        if bounds and not set(BOUNDS) & set(header):
            raise InputError(f"{path}: none of the columns {', '.join(BOUNDS)}; add one")
        table = pa.csv.read_csv(
            path,
            parse_options=pa.csv.ParseOptions(delimiter=delimiter),
            convert_options=pa.csv.ConvertOptions(
                column_types={name: pa.string() for name in header}, strings_can_be_null=False
            ),
        ).combine_chunks()
        _refuse_formulas(path, table)
        return table
    except (OSError, pa.ArrowException, ValueError) as error:
        raise InputError(
            f"{path}: cannot be read as a CSV file ({str(error).splitlines()[0]}); constraints must "
            f"be a CSV file with a header"
        ) from error


def _refuse_formulas(path: Path, table: pa.Table) -> None:
    """Refuse texts that a spreadsheet would run, because the file is published unchanged."""
    for name in table.column_names:
        if name in BOUNDS:
            continue  # anything but numbers is refused elsewhere
        formula = pc.match_substring_regex(table[name], FORMULA).to_numpy()
        if formula.any():
            row = int(np.flatnonzero(formula)[0]) + 1
            raise InputError(
                f"{path}: row {row}: column {name!r} begins with =, +, -, @, a tab or a line break, or "
                f"has one of these after ; or |, and spreadsheets would run it; the file is published, "
                f"so use another character"
            )


def _positions(path: Path, codes: pa.ChunkedArray, known: pa.StringArray, what: str) -> IntArray:
    """Return the position of each code among the known ones; refuse an unknown one."""
    index = pc.index_in(codes, value_set=known)
    missing = np.flatnonzero(pc.is_null(index).to_numpy())
    if len(missing):
        row = int(missing[0])
        raise InputError(
            f"{path}: row {row + 1}: unknown {what} {codes[row]}; use a code of the crosswalk"
        )
    return np.asarray(index.to_numpy(), np.int64)


class _CellBounds(NamedTuple):
    """The cell, the lower and the upper bound of each row of a file."""

    cell: IntArray
    lower: IntArray
    upper: IntArray


def _cells_and_bounds(item: Constraint, table: pa.Table) -> _CellBounds:
    cell = np.zeros(table.num_rows, np.int64)
    for name, categories in item.query.labels:
        position = _positions(item.path, table[name], pa.array(categories), f"{name} category")
        cell = cell * len(categories) + position
    lower = np.zeros(table.num_rows, np.int64)
    upper = np.full(table.num_rows, UNBOUNDED, np.int64)
    for name in BOUNDS:
        if name not in table.column_names:
            continue
        numbers, present = _whole_numbers(item.path, name, table[name].to_pylist())
        if name != "at_most":
            lower = np.where(present, np.maximum(lower, numbers), lower)
        if name != "at_least":
            upper = np.where(present, np.minimum(upper, numbers), upper)
    return _CellBounds(cell, lower, upper)


def _whole_numbers(
    path: Path, name: str, texts: Sequence[str]
) -> tuple[IntArray, NDArray[np.bool_]]:
    """Return the numbers in a column, 0 for an empty text, and which texts are not empty."""
    numbers, present = np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
    for row, text in enumerate(texts):
        if text == "":
            continue
        digits = text.isascii() and text.isdigit() and len(text.lstrip("0")) <= _DIGITS
        if not digits or int(text) >= UNBOUNDED:
            raise InputError(
                f"{path}: row {row + 1}: {name} = {text[:20]!r}; it must be a whole number of 0 or "
                f"more, below {UNBOUNDED:,}"
            )
        numbers[row], present[row] = int(text), True
    return numbers, present
