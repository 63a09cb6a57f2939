"""Bounds on the counts of units and of groups of siblings, as read from files of public facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from countveil.errors import InputError
from countveil.numerics import IntArray
from countveil.schema.attributes import listed
from countveil.schema.delimited import FORMULA, read_header
from countveil.schema.geography import Geography
from countveil.schema.public_facts import BOUNDS, Constraint
from countveil.schema.workload import TOTAL, Query

UNBOUNDED = 2**31 - 1
MOST_VALUES = 2**28  # units times cells of a query with public facts
_DIGITS = 10  # of a number below UNBOUNDED


@dataclass(frozen=True, eq=False, slots=True)
class Bounds:
    """lower ≤ counts of a query ≤ upper, for units of a level: arrays of units × cells."""

    query: Query
    lower: NDArray[np.int32]
    upper: NDArray[np.int32]

    def slice(self, start: int, stop: int) -> Bounds:
        """Return the bounds of units start … stop - 1."""
        return Bounds(self.query, self.lower[start:stop], self.upper[start:stop])


@dataclass(frozen=True, eq=False, slots=True)
class GroupBound:
    """lower ≤ one cell of a query, summed over some units of a level ≤ upper."""

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
    """Refuse public facts of more counts than are held at once, before memory is taken for them."""
    if units * query.cells > MOST_VALUES:
        raise InputError(
            f"public facts on {query.name} would bound {units * query.cells:,} counts of {units:,} "
            f"units; {MOST_VALUES:,} is the limit: bound a smaller query, or a level above"
        )


def in_words(query: Query, labels: tuple[str, ...]) -> str:
    """Name a cell of a query."""
    if query.name == TOTAL:
        return TOTAL
    return ", ".join(
        f"{name} = {label}" for (name, _), label in zip(query.labels, labels, strict=True)
    )


def read_bounds(item: Constraint, geography: Geography) -> Bounds:
    """Read a constraint file: a row per unit and cell."""
    table = _read_csv(item.path, [item.level, *(name for name, _ in item.query.labels)])
    unit = _found(item.path, table[item.level], geography.geocodes(item.level), item.level)
    bounds = unbounded(item.query, geography.units(item.level))
    cell, lower, upper = _cells_and_bounds(item, table)
    np.maximum.at(bounds.lower, (unit, cell), lower)
    np.minimum.at(bounds.upper, (unit, cell), upper)
    return bounds


def read_groups(
    item: Constraint, geography: Geography, visited: Sequence[str]
) -> Iterator[GroupBound]:
    """Read bounds on groups of siblings: a row per group and cell, and the members of each group."""
    if item.members is None:
        return
    if item.level not in visited:
        raise InputError(
            f"{item.path}: bounds groups of {item.level}, which is not measured; bound the groups at "
            f"a measured level"
        )
    members = _read_csv(item.members, ["group", item.level], bounds=False)
    unit = _found(item.members, members[item.level], geography.geocodes(item.level), item.level)
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
                f"{item.members}: lists no {item.level} of group {group!r}; list its units"
            )
        units = np.unique(listed_units[group])
        if len(np.unique(parents[units])) > 1:
            raise InputError(
                f"{item.members}: group {group!r} has units of more than one {above[-1]}; a group lies "
                f"in one"
            )
        what = f"{in_words(item.query, item.query.labels_of(int(cell[number])))} of group {group}"
        yield GroupBound(
            item.query, int(cell[number]), units, int(lower[number]), int(upper[number]), what
        )


def _read_csv(path: Path, needed: Sequence[str], *, bounds: bool = True) -> pa.Table:
    """Read a file of public facts as text; every message names it."""
    try:
        header, delimiter = read_header(path)
        allowed = (*needed, *(BOUNDS if bounds else ()))
        for name in needed:
            if name not in header:
                raise InputError(f"{path}: no column {name!r}; it needs {', '.join(needed)}")
        for name in header:
            if name not in allowed:
                raise InputError(
                    f"{path}: column {name!r} is not known; choose from {listed(allowed)}"
                )
        if bounds and not set(BOUNDS) & set(header):
            raise InputError(f"{path}: no column of {', '.join(BOUNDS)}; give a bound")
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
            f"{path}: cannot be read as a CSV file ({str(error).splitlines()[0]}); constraints name "
            f"a CSV file with a header"
        ) from error


def _refuse_formulas(path: Path, table: pa.Table) -> None:
    """Refuse texts that a spreadsheet would run: the file is published as it is."""
    for name in table.column_names:
        if name in BOUNDS:
            continue  # numbers, and refused if they are none
        formula = pc.match_substring_regex(table[name], FORMULA).to_numpy()
        if formula.any():
            row = int(np.flatnonzero(formula)[0]) + 1
            raise InputError(
                f"{path}: row {row}: column {name!r} begins with =, +, -, @, a tab or a line break, or "
                f"has one of these after ; or |, which spreadsheets run; the file is published, so put "
                f"another character there"
            )


def _found(path: Path, codes: pa.ChunkedArray, known: pa.StringArray, what: str) -> IntArray:
    """Return the position of each code among those known; refuse an unknown one."""
    index = pc.index_in(codes, value_set=known)
    missing = np.flatnonzero(pc.is_null(index).to_numpy())
    if len(missing):
        row = int(missing[0])
        raise InputError(
            f"{path}: row {row + 1}: no {what} {codes[row]}; use a code of the crosswalk"
        )
    return np.asarray(index.to_numpy(), np.int64)


def _cells_and_bounds(item: Constraint, table: pa.Table) -> tuple[IntArray, IntArray, IntArray]:
    cell = np.zeros(table.num_rows, np.int64)
    for name, categories in item.query.labels:
        position = _found(item.path, table[name], pa.array(categories), f"{name} category")
        cell = cell * len(categories) + position
    lower = np.zeros(table.num_rows, np.int64)
    upper = np.full(table.num_rows, UNBOUNDED, np.int64)
    for name in BOUNDS:
        if name not in table.column_names:
            continue
        numbers, given = _whole_numbers(item.path, name, table[name].to_pylist())
        if name != "at_most":
            lower = np.where(given, np.maximum(lower, numbers), lower)
        if name != "at_least":
            upper = np.where(given, np.minimum(upper, numbers), upper)
    return cell, lower, upper


def _whole_numbers(
    path: Path, name: str, texts: Sequence[str]
) -> tuple[IntArray, NDArray[np.bool_]]:
    numbers, given = np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
    for row, text in enumerate(texts):
        if text == "":
            continue
        digits = text.isascii() and text.isdigit() and len(text.lstrip("0")) <= _DIGITS
        if not digits or int(text) >= UNBOUNDED:
            raise InputError(
                f"{path}: row {row + 1}: {name} = {text[:20]!r}; it is a whole number of 0 or more, "
                f"below {UNBOUNDED:,}"
            )
        numbers[row], given[row] = int(text), True
    return numbers, given
