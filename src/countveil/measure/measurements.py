"""Measurements: noisy values with the law of their noise, in the noisy-measurement layout."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from countveil.base.numerics import IntArray
from countveil.base.parquet_size import read_footer
from countveil.errors import InputError
from countveil.measure.digest import parts_digest, public_digest, rows_digest, seal_of
from countveil.noise.law import Mechanism
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.plan.workload import Query

FOLDER = "measurements"
INVARIANTS = "invariants"
LAYOUT = pa.schema(
    [
        pa.field("geocode", pa.string(), nullable=False),
        pa.field("query", pa.string(), nullable=False),
        pa.field(
            "values", pa.list_(pa.field("element", pa.int32(), nullable=False)), nullable=False
        ),
        pa.field("variance", pa.float64(), nullable=False),
    ]
)
DRAWN = ("geocode", "query", "values")  # the plan determines the rest


@dataclass(frozen=True, eq=False, slots=True)
class Measurement:
    """One query for some units of a level: `values[unit, cell]`, and the mechanism of their noise."""

    level: str
    query: Query
    geocodes: pa.StringArray
    values: IntArray
    mechanism: Mechanism


class Measured(Protocol):
    """Noisy values of every unit and query, their mechanisms, and the invariants."""

    @property
    def plan(self) -> Plan:
        """The plan that was measured."""
        ...

    @property
    def mechanisms(self) -> dict[tuple[str, str], Mechanism]:
        """The mechanism of each level and query."""
        ...

    def units(self, level: str, start: int, stop: int) -> NDArray[np.int32]:
        """Return the values of units start … stop - 1, all queries of the level side by side."""
        ...

    def invariant(self, level: str, query: str) -> IntArray:
        """Return the exact counts of an invariant, for all units of a level."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class Measurements:
    """The measurements of a release folder, which are read on demand.

    Examples
    --------
    >>> from countveil import Release
    >>> release = Release.read("out")  # doctest: +SKIP
    >>> release.measurements.read("county", "TOTAL").values  # doctest: +SKIP

    """

    folder: Path
    plan: Plan
    mechanisms: dict[tuple[str, str], Mechanism]
    counted: Mapping[str, int]  # the number of units of each level

    def stream(self, level: str) -> Iterator[dict[str, Measurement]]:
        """Yield the queries of a level by name, some families of units at a time."""
        allocations = self.plan.at(level)
        if not allocations:
            return
        with self._level_file(FOLDER, level, len(allocations)) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                units = table.num_rows // len(allocations)
                batch = {}
                for number, allocation in enumerate(allocations):
                    part = table.slice(number * units, units).combine_chunks()
                    self._refuse_other(part, level, allocation.query.name)
                    batch[allocation.query.name] = self._measurement(level, allocation.query, part)
                yield batch

    def read(self, level: str, query: str) -> Measurement:
        """Return the measurement of one query, for all units of a level.

        Parameters
        ----------
        level, query
            A level and a query that the plan measures.

        Returns
        -------
        Measurement
            The values, units × cells, and the mechanism of their noise.

        """
        names = [allocation.query.name for allocation in self.plan.at(level)]
        if query not in names:
            raise InputError(
                f"unknown query {query!r} at level {level}; choose from {', '.join(names)}"
            )
        with self._level_file(FOLDER, level, len(names)) as file:
            table = self._rows_of(file, FOLDER, level, query)
        self._refuse_other(table, level, query)
        return self._measurement(level, self.plan.schema.query(query), table.combine_chunks())

    def units(self, level: str, start: int, stop: int) -> NDArray[np.int32]:
        """Return the values of units start … stop - 1, all queries of the level side by side."""
        allocations = self.plan.at(level)
        widths = [item.query.cells for item in allocations]
        result = np.empty((stop - start, sum(widths)), np.int32)
        with self._level_file(FOLDER, level, len(allocations)) as file:
            first = 0
            for group, size in enumerate(_rows_by_group(path_of(self.folder, level))):
                units = size // len(allocations)
                low, high = max(start - first, 0), min(stop - first, units)
                if low < high:
                    table = file.read_row_group(group, columns=["values", "query", "variance"])
                    at = 0
                    for number, item in enumerate(allocations):
                        part = table.slice(number * units, units).combine_chunks()
                        self._refuse_other(part, level, item.query.name)
                        values = values_of(part, item.query)[low:high]
                        rows = slice(first + low - start, first + high - start)
                        result[rows, at : at + item.query.cells] = values
                        at += item.query.cells
                first += units
        return result

    def seal(self, geography: Geography, crosswalk: str) -> str:
        """Return the seal that the ledger stored before these measurements were published.

        `crosswalk` is the SHA-256 of the original crosswalk file.
        """
        drawn = parts_digest(
            (level, digest)
            for level in self.plan.measured_levels
            for digest in self._digests(FOLDER, level)
        )
        facts = (
            (f"{INVARIANTS}/{level}", digest)
            for level in invariant_levels(self.plan)
            for digest in self._digests(INVARIANTS, level)
        )
        return seal_of(drawn, public_digest(geography, crosswalk, facts))

    def _digests(self, folder: str, level: str) -> Iterator[str]:
        """Yield the digest of each part of a level; a part is a row group of the file."""
        with pq.ParquetFile(self.folder / folder / f"{level}.parquet") as file:
            for group in range(file.num_row_groups):
                yield rows_digest(file.read_row_group(group, columns=list(DRAWN)), DRAWN)

    def runs(self, level: str) -> list[tuple[int, int]]:
        """Return the units, (start, stop), of each part of a level."""
        queries = len(self.plan.at(level))
        if not queries:
            return []
        with self._level_file(FOLDER, level, queries):
            rows = _rows_by_group(path_of(self.folder, level))
        stops = list(accumulate(number // queries for number in rows))
        return list(zip([0, *stops], stops, strict=False))

    def invariant(self, level: str, query: str) -> IntArray:
        """Return the exact counts of an invariant, for all units of a level."""
        queries = sum(item.level == level for item in self.plan.invariants)
        with self._level_file(INVARIANTS, level, queries) as file:
            table = self._rows_of(file, INVARIANTS, level, query)
        return values_of(table, self.plan.schema.query(query)).astype(np.int64)

    @contextmanager
    def _level_file(self, folder: str, level: str, queries: int) -> Iterator[pq.ParquetFile]:
        """Open the file of a level; refuse other columns, and rows other than units × queries."""
        path = self.folder / folder / f"{level}.parquet"
        try:
            with pq.ParquetFile(path) as file:
                groups = _rows_by_group(path)
                if not file.schema_arrow.equals(LAYOUT):
                    raise InputError(
                        f"{path}: its columns are not the measurement layout; restore the original file"
                    )
                if sum(groups) != self.counted[level] * queries or any(n % queries for n in groups):
                    raise InputError(
                        f"{path}: the number of rows, in the file or in a row group, is not units "
                        f"times queries; restore the original file"
                    )
                yield file
        except (pa.ArrowException, OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the disk failed; the file may be intact
            raise InputError(
                f"{path}: cannot be read ({str(error).splitlines()[0]}); restore the original file"
            ) from error

    def _rows_of(self, file: pq.ParquetFile, folder: str, level: str, query: str) -> pa.Table:
        """Return the rows of one query; refuse a number of rows other than one per unit."""
        groups = (file.read_row_group(number) for number in range(file.num_row_groups))
        tables = [group.filter(pc.equal(group["query"], query)) for group in groups]
        table = pa.concat_tables(tables) if tables else LAYOUT.empty_table()
        if table.num_rows != self.counted[level]:
            raise InputError(
                f"{folder}/{level}.parquet: {query} does not have one row per unit; restore the "
                f"original file"
            )
        return table

    def _refuse_other(self, part: pa.Table, level: str, query: str) -> None:
        """Refuse rows that have another query or variance than the plan at this position."""
        other = pc.any(pc.not_equal(part["query"], query)).as_py()
        variances = pc.unique(part["variance"]).to_pylist()
        law = self.mechanisms[level, query].variance
        if other or not all(math.isclose(v, law, rel_tol=1e-9) for v in variances):
            raise InputError(
                f"{path_of(self.folder, level)}: its queries or variances are not those of the "
                f"plan, in order, so the file is not from this release; restore the original file"
            )

    def _measurement(self, level: str, query: Query, table: pa.Table) -> Measurement:
        values = values_of(table, query).astype(np.int64)
        values.setflags(write=False)
        geocodes = table["geocode"].combine_chunks()
        return Measurement(level, query, geocodes, values, self.mechanisms[level, query.name])


def _rows_by_group(path: Path) -> tuple[int, ...]:
    """Return the number of rows of each row group; a changed file is read again."""
    facts = path.stat()
    return _rows_in_footer(path, (facts.st_ino, facts.st_size, facts.st_mtime_ns))


@lru_cache(maxsize=32)
def _rows_in_footer(path: Path, written: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(group.rows for group in read_footer(path))


def values_of(table: pa.Table, query: Query) -> NDArray[np.int32]:
    """Return the values, units × cells of the query; refuse rows of another length."""
    lists = table["values"].combine_chunks()
    lengths = pc.list_value_length(lists)
    if lists.null_count or pc.any(pc.not_equal(lengths, query.cells)).as_py():
        raise InputError(
            f"a row of {query.name} does not have {query.cells:,} values; restore the original file"
        )
    flat: NDArray[np.int32] = lists.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(-1, query.cells)


def path_of(folder: Path, level: str) -> Path:
    """Return the path of a level's measurements."""
    return folder / FOLDER / f"{level}.parquet"


def invariant_levels(plan: Plan) -> tuple[str, ...]:
    """Return the levels with invariants, in the order of the plan."""
    return tuple(dict.fromkeys(item.level for item in plan.invariants))


def in_layout(geocodes: pa.StringArray, parts: Sequence[tuple[str, IntArray, float]]) -> pa.Table:
    """Return a table of (query, values, variance), query by query, for the same units."""
    tables = []
    for query, values, variance in parts:
        units, cells = values.shape
        narrow = values.astype(np.int32)
        if not np.array_equal(narrow, values):
            raise OverflowError("a noisy value does not fit into 32 bits; lower the noise")
        lists = pa.ListArray.from_arrays(
            pa.array(np.arange(0, units * cells + 1, cells), pa.int32()),
            pa.array(narrow.reshape(-1)),
            type=LAYOUT.field("values").type,
        )
        columns = [geocodes, pa.repeat(query, units), lists, pa.repeat(variance, units)]
        tables.append(pa.table(columns, schema=LAYOUT))
    return pa.concat_tables(tables).combine_chunks()


def open_writer(path: Path) -> pq.ParquetWriter:
    """Open a Parquet file for measurements; deltas of small integers take a few bits each."""
    return pq.ParquetWriter(
        path,
        LAYOUT,
        compression="zstd",
        use_dictionary=["geocode", "query", "variance"],
        column_encoding={"values.list.element": "DELTA_BINARY_PACKED"},
    )
