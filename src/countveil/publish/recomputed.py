"""Recompute and compare, for verification: invariants, tables, codebooks and microdata."""

from __future__ import annotations

import csv
import re
from collections.abc import Generator, Iterable, Iterator, Set
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from countveil.base.numerics import IntArray
from countveil.base.parquet_size import UNREADABLE, refuse_swollen
from countveil.errors import InputError
from countveil.measure.measurements import INVARIANTS, LAYOUT, values_of
from countveil.plan.geography import Geography
from countveil.plan.passes import cells_within, coarsens
from countveil.plan.plans import Plan
from countveil.plan.public_facts import Invariant
from countveil.plan.table_layouts import TableLayout
from countveil.plan.workload import Query
from countveil.postprocess.estimates import Estimates
from countveil.postprocess.facts.fact_bounds import refuse_many_values
from countveil.postprocess.unmeasured import published_tables
from countveil.publish import microdata, table_files
from countveil.publish.earlier_wording import earlier_codebook

# Invariants: their layout, their places, and whether they add up.

_Values = dict[str, NDArray[np.int32]]  # units × cells of each query, by its name


@dataclass(frozen=True, eq=False, slots=True)
class _Sum:
    """An invariant that must be the sum of a finer one, at its own level or a lower one.

    `cell` is the cell of the coarse query for each cell of the fine one; `together` is the sum so far
    over the units of a lower level.
    """

    coarse: Invariant
    fine: Invariant
    cell: IntArray
    together: IntArray | None


def refuse_other_invariants(folder: Path, plan: Plan, geography: Geography) -> int:
    """Refuse invariants with a wrong layout, wrong places or wrong sums; return their number.

    A level is read some units at a time; only sums for the levels above are kept in memory.
    """
    sums = [_sum(coarse, fine, geography) for coarse, fine in _pairs(plan)]
    values = 0
    for level in reversed(plan.levels):
        queries = [item.query for item in plan.invariants if item.level == level]
        if not queries:
            continue
        about = [item for item in sums if level in (item.coarse.level, item.fine.level)]
        above = {
            item.coarse.level: geography.ancestors(level, item.coarse.level)
            for item in about
            if item.fine.level == level
        }
        start = 0
        for parts in _groups(folder, level, queries, geography):
            stop = start + len(next(iter(parts.values())))
            for name, part in parts.items():
                values += part.size
                if part.min(initial=0) < 0:
                    _fail(level, f"{name} has a negative count")
            for item in about:
                ancestors = above.get(item.coarse.level)
                _compare(item, level, parts, start, stop, ancestors)
            start = stop
    return values


def _pairs(plan: Plan) -> Iterator[tuple[Invariant, Invariant]]:
    """Yield each invariant with a finer one at its own level, and with one at a lower level."""
    complete = [item for item in plan.invariants if item.query.complete]
    at = {level: {i.query.name: i for i in complete if i.level == level} for level in plan.levels}
    finer = _finer([item.query for item in complete])
    for coarse in complete:
        first = plan.levels.index(coarse.level)
        names = finer[coarse.query.name]
        own = at[coarse.level].keys() & (names - {coarse.query.name})
        below = next(
            (level for level in plan.levels[first + 1 :] if at[level].keys() & names), None
        )
        if own:
            yield coarse, _first(at[coarse.level], own)
        if below is not None:
            yield coarse, _first(at[below], names)


def _finer(queries: list[Query]) -> dict[str, set[str]]:
    """Return, by name, the queries that each query is a sum of; levels share queries."""
    different = {query.name: query for query in queries}.values()
    return {
        coarse.name: {fine.name for fine in different if coarsens(coarse, fine)}
        for coarse in different
    }


def _first(invariants: dict[str, Invariant], names: Set[str]) -> Invariant:
    """Return the first invariant, in the order of the plan, with one of the names."""
    return next(item for name, item in invariants.items() if name in names)


def _sum(coarse: Invariant, fine: Invariant, geography: Geography) -> _Sum:
    together = None
    if fine.level != coarse.level:
        units = geography.units(coarse.level)
        refuse_many_values(coarse.query, units)
        together = np.zeros((units, coarse.query.cells), np.int64)
    return _Sum(coarse, fine, cells_within(coarse.query, fine.query), together)


def _compare(
    item: _Sum, level: str, parts: _Values, start: int, stop: int, ancestors: IntArray | None
) -> None:
    """Add up the units of a level, or compare the sums, if the invariants are of that level."""
    coarse, fine = item.coarse, item.fine
    together = None
    if fine.level == level:
        part = parts[fine.query.name].astype(np.int64)
        cells = np.zeros((stop - start, coarse.query.cells), np.int64)
        np.add.at(cells.T, item.cell, part.T)
        if item.together is None or ancestors is None:
            together = cells
        else:
            np.add.at(item.together, ancestors[start:stop], cells)
    elif coarse.level == level and item.together is not None:
        together = item.together[start:stop]
    if together is not None and not np.array_equal(together, parts[coarse.query.name]):
        _fail(
            coarse.level,
            f"{coarse.query.name} is not the sum of {fine.query.name} of {fine.level}",
        )


def _groups(
    folder: Path, level: str, queries: list[Query], geography: Geography
) -> Iterator[_Values]:
    """Yield the values of some units at a time; refuse a wrong layout, wrong places, or noise."""
    units = geography.units(level)
    name = f"{INVARIANTS}/{level}.parquet"
    with pq.ParquetFile(folder / name) as file:
        if not file.schema_arrow.equals(LAYOUT):
            _fail(level, "its columns are not the measurement layout")
        if file.metadata.num_rows != units * len(queries):
            _fail(level, "its number of rows is not units times queries")
        refuse_swollen(folder, name, units * sum(query.cells for query in queries))
        start = 0
        for group in range(file.num_row_groups):
            table = file.read_row_group(group).combine_chunks()
            stop = start + table.num_rows // len(queries)
            parts = {}
            for number, query in enumerate(queries):
                part = table.slice(number * (stop - start), stop - start)
                if part["geocode"].combine_chunks() != geography.geocodes(level, start, stop):
                    _fail(level, "its units are not those of the crosswalk, in order")
                if pc.any(pc.not_equal(part["query"], query.name)).as_py():
                    _fail(level, "its queries are not the invariants of the plan, in order")
                if pc.any(pc.not_equal(part["variance"], 0.0)).as_py():
                    _fail(level, "it has a variance, but invariants have no noise")
                parts[query.name] = values_of(part, query)
            if stop > start:
                yield parts
            start = stop
        if start != units:
            _fail(level, "its row groups do not have all queries of each unit")


def _fail(level: str, what: str) -> NoReturn:
    raise InputError(f"{INVARIANTS}/{level}.parquet: {what}; restore the release")


# Files made from estimates: tables, codebooks and microdata.

_BLOCK = 1 << 24  # bytes of a CSV file at a time
_ROWS = 1 << 16  # rows of a Parquet file at a time, unless a row is long
_VALUES = 1 << 22
_GUARD = r"([;|\t][ \u00a0]*)'(?=[=+\-@＝＋－＠])"


def refuse_other_tables(estimates: Estimates, folder: Path) -> None:
    """Refuse tables, codebooks and microdata that do not match the estimates."""
    tables = published_tables(estimates.plan)
    for table, stem in zip(tables, table_files.file_stems(tables), strict=True):
        _refuse_other_table(
            estimates, table, [folder / name for name in table_files.names_of(stem)]
        )
    if tables:
        _refuse_other_codebook(estimates, folder / table_files.FOLDER)
    if estimates.plan.microdata:
        _refuse_other_microdata(estimates, folder / microdata.NAME)


def _refuse_other_table(estimates: Estimates, table: TableLayout, paths: list[Path]) -> None:
    """Compare a table with its two files, some units at a time; numbers in text by their digits."""
    layout = table_files.layout_of(table)
    plain = _plain(layout)
    with ExitStack() as stack:
        files = []
        for path in paths:
            parquet = path.suffix == ".parquet"
            batches = _parquet_rows(path, layout) if parquet else _csv_rows(path, plain)
            file = _FileRows(stack.enter_context(closing(batches)))
            files.append((path, file, layout if parquet else plain))
        for rows in table_files.rows_of(estimates, table):
            for path, file, kinds in files:
                expected = rows if kinds is layout else _as_text(rows, plain)
                if not file.take(rows.num_rows, kinds).equals(expected):
                    _fail_remaking(path)
        for path, file, kinds in files:
            file.refuse_more(path, kinds)


def _plain(layout: pa.Schema) -> pa.Schema:
    """Return the same columns as text."""
    return pa.schema([pa.field(name, pa.string()) for name in layout.names])


def _refuse_other_codebook(estimates: Estimates, folder: Path) -> None:
    """Compare both codebooks; older releases lack apostrophes after separators."""
    path = folder / f"{table_files.CODEBOOK}.csv"
    expected = table_files.codebook_csv(published_tables(estimates.plan))
    text = _text(path, expected)
    try:
        rows = [list(csv.reader(lines.splitlines())) for lines in (text, expected)]
    except csv.Error:
        _fail_remaking(path)
    if rows[0] not in (rows[1], [list(map(_unguarded, row)) for row in rows[1]]):
        _fail_remaking(path)
    path = folder / f"{table_files.CODEBOOK}.md"
    expected = table_files.codebook_markdown(estimates)
    units = table_files.units_in_words(estimates)
    earlier = earlier_codebook(expected, table_files.escaped(estimates.plan.unit), units)
    if _text(path, expected) not in (expected, earlier):
        _fail_remaking(path)


def _text(path: Path, expected: str) -> str:
    """Return the text of a file; refuse one that is much longer than expected."""
    if path.stat().st_size > 2 * len(expected.encode()) + 4096:
        _fail_remaking(path)
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError:
        _fail_remaking(path)


def _unguarded(cell: str) -> str:
    """Return a text as older versions wrote it, without apostrophes before formulas inside."""
    return re.sub(_GUARD, r"\1", cell)


def _refuse_other_microdata(estimates: Estimates, path: Path) -> None:
    layout = microdata.layout_of(estimates)
    plain = _plain(layout)
    with closing(_parquet_rows(path, layout)) as batches:
        file = _FileRows(_decoded(batch, plain) for batch in batches)
        for rows in microdata.rows_of(estimates):
            if not file.take(rows.num_rows, plain).equals(_as_text(rows, plain)):
                _fail_remaking(path)
        file.refuse_more(path, plain)


def _decoded(batch: pa.RecordBatch, plain: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch([column.cast(pa.string()) for column in batch.columns], schema=plain)


def _as_text(table: pa.Table, plain: pa.Schema) -> pa.Table:
    return pa.table([column.cast(pa.string()) for column in table.columns], schema=plain)


class _FileRows:
    """The rows of a file, read in pieces of any size."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._left: list[pa.RecordBatch] = []

    def take(self, number: int, layout: pa.Schema) -> pa.Table:
        """Return the next rows, or fewer at the end of the file."""
        parts, needed = [], number
        while needed:
            batch = self._left.pop() if self._left else next(self._batches, None)
            if batch is None:
                break
            parts.append(batch.slice(0, needed))
            if batch.num_rows > needed:
                self._left.append(batch.slice(needed))
            needed -= parts[-1].num_rows
        return pa.Table.from_batches(parts, schema=layout)

    def refuse_more(self, path: Path, layout: pa.Schema) -> None:
        """Refuse a file with more rows."""
        if self.take(1, layout).num_rows:
            _fail_remaking(path)


def _parquet_rows(path: Path, layout: pa.Schema) -> Generator[pa.RecordBatch, None, None]:
    with pq.ParquetFile(path) as file:
        if not file.schema_arrow.equals(layout):
            _fail_remaking(path)
        rows = max(1, min(_ROWS, _VALUES // len(layout)))
        for batch in file.iter_batches(rows):
            yield pa.record_batch(batch.columns, schema=layout)


def _csv_rows(path: Path, layout: pa.Schema) -> Generator[pa.RecordBatch, None, None]:
    convert = pa_csv.ConvertOptions(
        column_types=dict(zip(layout.names, layout.types, strict=True)),
        null_values=[],
        strings_can_be_null=False,
    )
    options = {
        "read_options": pa_csv.ReadOptions(block_size=_BLOCK),
        "parse_options": pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        "convert_options": convert,
    }
    try:
        with pa_csv.open_csv(path, **options) as reader:
            if reader.schema.names != layout.names:
                _fail_remaking(path)
            for batch in reader:
                yield pa.record_batch(batch.columns, schema=layout)
    except UNREADABLE:
        _fail_remaking(path)


def _fail_remaking(path: Path) -> NoReturn:
    raise InputError(
        f"{path.name} does not match the estimates; make it again with `countveil postprocess`, or "
        f"restore the release"
    )
