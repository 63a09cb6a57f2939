"""People by identifiers and a sensitive attribute: the table that a homogeneity attack reads."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from countveil.assess import reading
from countveil.errors import InputError
from countveil.numerics import Array, IntArray

Records: TypeAlias = str | os.PathLike[str] | Any  # a file, or a pandas, Polars or Arrow table
Kind = Literal["homogeneous", "partial", "heterogeneous"]

_MOST_ENTRIES = 200_000_000
_CELL, _LABEL, _PEOPLE = "__countveil_cell", "__countveil_label", "__countveil_people"


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Table:
    """Confidential: `counts` of people by occupied cell of the identifiers (rows) and label (columns).

    `cells` names the identifiers' values, a row per cell; `possible` is how many combinations of values
    there are, occupied or not; `domains` has the values of each identifier.
    """

    counts: IntArray
    labels: tuple[str, ...]
    cells: pa.Table
    sensitive: str
    possible: int
    domains: tuple[pa.Array, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what is not a table of people; keep the counts read-only."""
        if not self.domains:
            domains = tuple(column.unique() for column in self.cells.columns)
            object.__setattr__(self, "domains", domains)
        if self.counts.shape != (self.cells.num_rows, len(self.labels)):
            raise InputError(
                f"counts: {self.counts.shape} came for {self.cells.num_rows:,} cells and "
                f"{len(self.labels)} labels; give a row per cell and a column per label"
            )
        if len(self.labels) < 2:
            raise InputError(
                f"{self.sensitive}: {len(self.labels)} label came; an attack chooses among two or "
                f"more; take another attribute"
            )
        if len(set(self.labels)) < len(self.labels):
            raise InputError(f"{self.sensitive}: two labels have the same name; rename one")
        counts = _whole(np.asarray(self.counts))
        if not len(counts):
            raise InputError("counts: nobody is counted; give at least one person")
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
        """Count one row per person by the identifiers and each sensitive attribute.

        Several sensitive attributes give a table each, with the same cells in the same order.
        """
        names = [identifiers] if isinstance(identifiers, str) else list(identifiers)
        wanted = [sensitive] if isinstance(sensitive, str) else list(sensitive)
        _refuse_overlap(names, wanted)
        with reading.opened(records, [*names, *wanted]) as source:
            source.refuse_missing([*names, *wanted])
            cells, possible = _number_cells(source, names)
            tables = tuple(_tabulated(source, cells, possible, attribute) for attribute in wanted)
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
        """Take an array of counts, a row per cell, or a table with a column per label.

        Cells without people are left out. Columns of a table that are not `identifiers` are labels.
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
        """Return the share of cells, or of people, whose label the exact table gives away."""
        same = self.homogeneous
        return float(self.sizes[same].sum() / self.sizes.sum() if weighted else same.mean())


def classify(*tables: Table) -> list[Kind]:
    """Return what each cell is over several sensitive attributes (Definitions 4 and 5).

    "homogeneous" in every attribute, "heterogeneous" in every attribute, or "partial".
    """
    refuse_different_cells(tables)
    homogeneous = np.array([table.homogeneous for table in tables]).sum(axis=0)
    kinds: dict[int, Kind] = {0: "heterogeneous", len(tables): "homogeneous"}
    return [kinds.get(int(number), "partial") for number in homogeneous]


def refuse_different_cells(tables: Sequence[Table]) -> None:
    """Refuse tables that do not share their cells."""
    if not tables:
        raise InputError("tables: none came; give one per sensitive attribute")
    for table in tables[1:]:
        if not table.cells.equals(tables[0].cells):
            raise InputError(
                f"tables: {table.sensitive} and {tables[0].sensitive} have different cells; make both "
                f'in one call, Table.from_records(..., sensitive=["{tables[0].sensitive}", ...])'
            )


def _refuse_overlap(identifiers: Sequence[str], sensitive: Sequence[str]) -> None:
    if not identifiers or not sensitive:
        raise InputError("identifiers, sensitive: none came; name at least one column of each")
    for name in sensitive:
        if name in identifiers:
            raise InputError(
                f"sensitive: {name!r} is among the identifiers, which the intruder knows; take it out "
                f"of one of them"
            )
    names = [*identifiers, *sensitive]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"identifiers, sensitive: {name!r} is named twice; name it once")


def _number_cells(source: reading.Source, identifiers: Sequence[str]) -> tuple[pa.Table, int]:
    """Number the occupied cells in order; return their values and how many combinations there are."""
    columns = ", ".join(map(reading.identifier, identifiers))
    source.connection.execute(
        f"CREATE TEMP TABLE {_CELL}s AS SELECT *, row_number() OVER (ORDER BY {columns}) - 1 AS "
        f"{_CELL} FROM (SELECT DISTINCT {columns} FROM {source.relation})"
    )
    cells = source.table(f"SELECT {columns} FROM {_CELL}s ORDER BY {_CELL}")
    return cells, _combinations(cells)


def _tabulated(source: reading.Source, cells: pa.Table, possible: int, attribute: str) -> Table:
    columns = ", ".join(map(reading.identifier, cells.column_names))
    label = f"CAST({reading.identifier(attribute)} AS VARCHAR)"
    found = source.table(
        f"SELECT {_CELL}, {_LABEL}, {_PEOPLE} FROM (SELECT {columns}, {label} AS {_LABEL}, count(*) AS "
        f"{_PEOPLE} FROM {source.relation} GROUP BY ALL) JOIN {_CELL}s USING ({columns})"
    )
    names = found[_LABEL].unique().to_pylist()
    names.sort()
    if cells.num_rows * len(names) > _MOST_ENTRIES:
        raise InputError(
            f"{attribute}: {len(names):,} labels in {cells.num_rows:,} cells came; at most "
            f"{_MOST_ENTRIES:,} counts fit; group the labels, or take fewer identifiers"
        )
    column = np.asarray(pc.index_in(found[_LABEL], pa.array(names, found[_LABEL].type)))
    counts = np.zeros((cells.num_rows, len(names)), np.int64)
    counts[found[_CELL].to_numpy(), column] = found[_PEOPLE].to_numpy()
    return Table(counts, tuple(names), cells, attribute, possible)


def _combinations(cells: pa.Table) -> int:
    return math.prod(len(column.unique()) for column in cells.columns)


def _parts(
    counts: Any, identifiers: list[str], labels: Sequence[str] | None
) -> tuple[pa.Table, list[str], Array]:
    """Return the cells, the names of labels, and the counts."""
    if hasattr(counts, "__arrow_c_stream__"):
        table = reading.as_arrow(counts)
        names = (
            [n for n in table.column_names if n not in identifiers] if labels is None else [*labels]
        )
        part = reading.as_arrow(counts, [*identifiers, *names])
        cells = part.select(identifiers) if identifiers else _numbered(part.num_rows)
        _refuse_unclear(cells)
        columns = [part[name].to_numpy() for name in names]
        numbers = np.column_stack(columns) if columns else np.zeros((part.num_rows, 0))
        return cells, names, numbers
    try:
        numbers = np.asarray(counts)
    except ValueError:
        raise InputError("counts: rows have different lengths; give a column per label") from None
    if identifiers or numbers.ndim != 2:
        raise InputError(
            f"counts: an array of {numbers.ndim} dimensions came; give a row per cell and a column per "
            f"label, or a table with the columns of the identifiers"
        )
    names = [str(number + 1) for number in range(numbers.shape[1])] if labels is None else [*labels]
    return _numbered(len(numbers)), names, numbers


def _refuse_unclear(cells: pa.Table) -> None:
    """Refuse cells without a value, and cells that come twice."""
    for name in cells.column_names:
        if cells[name].null_count:
            raise InputError(f"counts: {name!r} misses values; every cell needs one; fill them in")
    if cells.group_by(cells.column_names).aggregate([]).num_rows < cells.num_rows:
        raise InputError("counts: a cell comes twice; give one row per cell; add them up")


def _numbered(rows: int) -> pa.Table:
    return pa.table({"cell": np.arange(rows)})


def _whole(numbers: Array) -> IntArray:
    try:
        floats = numbers.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError("counts: not all are numbers; give whole numbers, 0 or more") from None
    proper = np.isfinite(floats) & (floats >= 0) & (floats <= 2.0**53)
    if not proper.all() or (floats != np.floor(floats)).any():
        raise InputError(
            "counts: some are missing, negative or not whole; a count is a whole number, 0 or more; "
            "give exact counts"
        )
    return np.asarray(numbers.astype(np.int64))
