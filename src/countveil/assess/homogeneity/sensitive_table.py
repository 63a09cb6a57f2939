"""People by identifiers and a sensitive attribute: the table that a homogeneity attack reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from countveil.assess import people_file
from countveil.assess.people_file import PeopleFile, Records
from countveil.base.numerics import Array, IntArray
from countveil.errors import InputError

Kind = Literal["homogeneous", "partial", "heterogeneous"]

_MOST_ENTRIES = 200_000_000
_CELL, _LABEL, _PEOPLE = "__countveil_cell", "__countveil_label", "__countveil_people"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Table:
    """Confidential: counts of people by occupied cell of the identifiers and by label.

    Parameters
    ----------
    counts : array, cells × labels
        How many people of each cell have each label.
    labels : tuple of str
        The values of the sensitive attribute.
    cells : pyarrow.Table
        The identifiers' values, a row per cell.
    sensitive : str
        The name of the sensitive attribute.
    possible : int
        How many combinations of identifiers there are, occupied or not.
    domains : tuple of pyarrow.Array
        The values of each identifier; those of `cells` by default.
    """

    counts: IntArray
    labels: tuple[str, ...]
    cells: pa.Table
    sensitive: str
    possible: int
    domains: tuple[pa.Array, ...] = ()

    def __post_init__(self) -> None:
        if not self.domains:
            domains = tuple(column.unique() for column in self.cells.columns)
            object.__setattr__(self, "domains", domains)
        if self.counts.shape != (self.cells.num_rows, len(self.labels)):
            raise InputError(
                f"counts: the shape is {self.counts.shape} for {self.cells.num_rows:,} cells and "
                f"{len(self.labels)} labels; give a row per cell and a column per label"
            )
        if len(self.labels) < 2:
            raise InputError(
                f"{self.sensitive}: got {len(self.labels)} label, and an attack needs two or "
                f"more; choose another attribute"
            )
        if len(set(self.labels)) < len(self.labels):
            raise InputError(f"{self.sensitive}: two labels have the same name; rename one")
        counts = _whole(np.asarray(self.counts))
        if not len(counts):
            raise InputError("counts: all are 0; give at least one person")
        if not (counts.sum(axis=1) > 0).all():
            raise InputError("counts: a cell is empty; give occupied cells, or use from_counts")
        if self.possible < len(counts):
            raise InputError(
                f"possible: {self.possible} is not allowed; {len(counts):,} cells are occupied"
            )
        counts.setflags(write=False)
        object.__setattr__(self, "counts", counts)

    def __repr__(self) -> str:
        return f"<confidential table of {self.sensitive} by {', '.join(self.identifiers)}>"

    @overload
    @classmethod
    def from_records(
        cls, records: Records, *, identifiers: Sequence[str], sensitive: str
    ) -> Table: ...

    @overload
    @classmethod
    def from_records(
        cls, records: Records, *, identifiers: Sequence[str], sensitive: list[str] | tuple[str, ...]
    ) -> tuple[Table, ...]: ...

    @classmethod
    def from_records(
        cls,
        records: Records,
        *,
        identifiers: Sequence[str],
        sensitive: str | list[str] | tuple[str, ...],
    ) -> Table | tuple[Table, ...]:
        """Count records by the identifiers and each sensitive attribute.

        Parameters
        ----------
        records : path or table
            A CSV or Parquet file, or a pandas, Polars or Arrow table, with one row per person.
        identifiers : sequence of str
            The columns that the intruder knows.
        sensitive : str or list of str
            The column they want to know, or several.

        Returns
        -------
        Table or tuple of Table
            One for each sensitive attribute, with the same cells in the same order.
        """
        names = [identifiers] if isinstance(identifiers, str) else list(identifiers)
        attributes = [sensitive] if isinstance(sensitive, str) else list(sensitive)
        _refuse_overlap(names, attributes)
        with people_file.open_people(records, [*names, *attributes]) as people:
            people.refuse_missing([*names, *attributes])
            cells, possible = _number_cells(people, names)
            tables = tuple(_tabulated(people, cells, possible, name) for name in attributes)
        return tables[0] if isinstance(sensitive, str) else tables

    @classmethod
    def from_counts(
        cls,
        counts: Any,
        *,
        identifiers: Sequence[str] = (),
        labels: Sequence[str] | None = None,
        sensitive: str = "label",
        possible: int | None = None,
    ) -> Table:
        """Return the table of counts that are known already; empty cells are left out.

        Parameters
        ----------
        counts : array or table
            A row per cell and a column per label.
        identifiers : sequence of str
            The columns of a table that identify cells; the others are labels.
        labels : sequence of str, optional
            The names of the labels.
        sensitive : str
            The name of the sensitive attribute.
        possible : int, optional
            How many combinations of identifiers there are, occupied or not.

        Returns
        -------
        Table
            With the occupied cells.

        Examples
        --------
        >>> Table.from_counts([[3, 0], [0, 0], [1, 2]]).homogeneous.tolist()
        [True, False]
        """
        cells, names, numbers = _parts(counts, list(identifiers), labels)
        whole = _whole(numbers)
        occupied = whole.sum(axis=1) > 0
        combinations = len(whole) if not identifiers else _combinations(cells)
        return cls(
            counts=whole[occupied],
            labels=tuple(names),
            cells=cells.filter(pa.array(occupied)),
            sensitive=sensitive,
            possible=combinations if possible is None else possible,
            domains=tuple(column.unique() for column in cells.columns),
        )

    @property
    def identifiers(self) -> tuple[str, ...]:
        """The names of the identifiers."""
        return tuple(self.cells.column_names)

    @property
    def sizes(self) -> IntArray:
        """How many people are in each cell."""
        return np.asarray(self.counts.sum(axis=1), np.int64)

    @property
    def homogeneous(self) -> Array:
        """Whether all people of a cell have the same label (Definition 4)."""
        return np.asarray((self.counts > 0).sum(axis=1) == 1)

    def given_away(self, *, weighted: bool) -> float:
        """Return the share of cells, or of people, whose label the exact table reveals."""
        same = self.homogeneous
        return float(self.sizes[same].sum() / self.sizes.sum() if weighted else same.mean())


def classify(*tables: Table) -> list[Kind]:
    """Return the kind of each cell over several sensitive attributes (Definitions 4 and 5).

    Parameters
    ----------
    *tables : Table
        One per sensitive attribute, with the same cells.

    Returns
    -------
    list of str
        "homogeneous" in every attribute, "heterogeneous" in every attribute, or "partial".
    """
    refuse_different_cells(tables)
    homogeneous = np.array([table.homogeneous for table in tables]).sum(axis=0)
    kinds: dict[int, Kind] = {0: "heterogeneous", len(tables): "homogeneous"}
    return [kinds.get(int(number), "partial") for number in homogeneous]


def refuse_different_cells(tables: Sequence[Table]) -> None:
    """Refuse tables that do not share their cells."""
    if not tables:
        raise InputError("tables: the list is empty; give one per sensitive attribute")
    for table in tables[1:]:
        if not table.cells.equals(tables[0].cells):
            raise InputError(
                f"tables: {table.sensitive} and {tables[0].sensitive} have different cells; make both "
                f'in one call, Table.from_records(..., sensitive=["{tables[0].sensitive}", ...])'
            )


def _refuse_overlap(identifiers: Sequence[str], sensitive: Sequence[str]) -> None:
    if not identifiers or not sensitive:
        raise InputError(
            "identifiers, sensitive: one of them is empty; name at least one column of each"
        )
    for name in sensitive:
        if name in identifiers:
            raise InputError(
                f"sensitive: {name!r} is also an identifier, which the intruder knows; remove it "
                f"from one of them"
            )
    names = [*identifiers, *sensitive]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"identifiers, sensitive: {name!r} is named twice; name it once")


def _number_cells(people: PeopleFile, identifiers: Sequence[str]) -> tuple[pa.Table, int]:
    """Number the occupied cells in order; return their values and how many combinations there are."""
    columns = ", ".join(map(people_file.identifier, identifiers))
    people.connection.execute(
        f"CREATE TEMP TABLE {_CELL}s AS SELECT *, row_number() OVER (ORDER BY {columns}) - 1 AS "
        f"{_CELL} FROM (SELECT DISTINCT {columns} FROM {people.relation})"
    )
    cells = people.table(f"SELECT {columns} FROM {_CELL}s ORDER BY {_CELL}")
    return cells, _combinations(cells)


def _tabulated(people: PeopleFile, cells: pa.Table, possible: int, attribute: str) -> Table:
    columns = ", ".join(map(people_file.identifier, cells.column_names))
    label = f"CAST({people_file.identifier(attribute)} AS VARCHAR)"
    entries = people.table(
        f"SELECT {_CELL}, {_LABEL}, {_PEOPLE} FROM (SELECT {columns}, {label} AS {_LABEL}, "
        f"count(*) AS {_PEOPLE} FROM {people.relation} GROUP BY ALL) JOIN {_CELL}s USING ({columns})"
    )
    names = entries[_LABEL].unique().to_pylist()
    names.sort()
    if cells.num_rows * len(names) > _MOST_ENTRIES:
        raise InputError(
            f"{attribute}: has {len(names):,} labels in {cells.num_rows:,} cells, and at most "
            f"{_MOST_ENTRIES:,} counts fit; group the labels, or use fewer identifiers"
        )
    column = np.asarray(pc.index_in(entries[_LABEL], pa.array(names, entries[_LABEL].type)))
    counts = np.zeros((cells.num_rows, len(names)), np.int64)
    counts[entries[_CELL].to_numpy(), column] = entries[_PEOPLE].to_numpy()
    return Table(counts, tuple(names), cells, attribute, possible)


def _combinations(cells: pa.Table) -> int:
    return math.prod(len(column.unique()) for column in cells.columns)


def _parts(
    counts: Any, identifiers: list[str], labels: Sequence[str] | None
) -> tuple[pa.Table, list[str], Array]:
    """Return the cells, the names of labels, and the counts."""
    if hasattr(counts, "__arrow_c_stream__"):
        table = people_file.as_arrow(counts)
        names = (
            [n for n in table.column_names if n not in identifiers] if labels is None else [*labels]
        )
        part = people_file.as_arrow(counts, [*identifiers, *names])
        cells = part.select(identifiers) if identifiers else _numbered(part.num_rows)
        _refuse_unclear(cells)
        columns = [part[name].to_numpy() for name in names]
        numbers = np.column_stack(columns) if columns else np.zeros((part.num_rows, 0))
        return cells, names, numbers
    try:
        numbers = np.asarray(counts)
    except ValueError:
        raise InputError("counts: the rows differ in length; give a column per label") from None
    if identifiers or numbers.ndim != 2:
        raise InputError(
            f"counts: got an array of {numbers.ndim} dimensions; give a row per cell and a column "
            f"per label, or a table with the columns of the identifiers"
        )
    names = [str(number + 1) for number in range(numbers.shape[1])] if labels is None else [*labels]
    return _numbered(len(numbers)), names, numbers


def _refuse_unclear(cells: pa.Table) -> None:
    """Refuse cells with a missing value, and cells that occur twice."""
    for name in cells.column_names:
        if cells[name].null_count:
            raise InputError(f"counts: {name!r} has missing values; fill them in")
    if cells.group_by(cells.column_names).aggregate([]).num_rows < cells.num_rows:
        raise InputError("counts: a cell occurs twice; add its rows up")


def _numbered(rows: int) -> pa.Table:
    return pa.table({"cell": np.arange(rows)})


def _whole(numbers: Array) -> IntArray:
    try:
        floats = numbers.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError("counts: some are not numbers; give whole numbers, 0 or more") from None
    proper = np.isfinite(floats) & (floats >= 0) & (floats <= 2.0**53)
    if not proper.all() or (floats != np.floor(floats)).any():
        raise InputError(
            "counts: some are missing, negative or not whole; give exact counts, 0 or more"
        )
    return np.asarray(numbers.astype(np.int64))
