"""Make again what a release makes of its estimates, and compare: tables, codebook, microdata."""

from __future__ import annotations

import csv
import re
from collections.abc import Generator, Iterable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from countveil.errors import InputError
from countveil.postprocess import microdata, table_files
from countveil.postprocess.estimates import Estimates
from countveil.schema.parquet_footer import UNREADABLE
from countveil.schema.tables import Table

_BLOCK = 1 << 24  # bytes of a CSV file at a time
_ROWS = 1 << 16  # rows of a Parquet file at a time, unless a row is long
_VALUES = 1 << 22
_GUARD = r"([;|\t][ \u00a0]*)'(?=[=+\-@＝＋－＠])"


def refuse_other_tables(estimates: Estimates, folder: Path) -> None:
    """Refuse tables, codebooks and microdata that are not what the estimates give."""
    tables = estimates.plan.tables
    for table, stem in zip(tables, table_files.file_stems(tables), strict=True):
        _refuse_other_table(
            estimates, table, [folder / name for name in table_files.names_of(stem)]
        )
    if tables:
        _refuse_other_codebook(estimates, folder / table_files.FOLDER)
    if estimates.plan.microdata:
        _refuse_other_microdata(estimates, folder / microdata.NAME)


def _refuse_other_table(estimates: Estimates, table: Table, paths: list[Path]) -> None:
    """Compare a table with both of its files, some units at a time."""
    layout = table_files.layout_of(table)
    with ExitStack() as stack:
        files = []
        for path in paths:
            opened = _parquet_rows if path.suffix == ".parquet" else _csv_rows
            files.append((path, _Rows(stack.enter_context(closing(opened(path, layout))))))
        for rows in table_files.rows_of(estimates, table):
            for path, file in files:
                if not file.take(rows.num_rows, layout).equals(rows):
                    _fail(path)
        for path, file in files:
            file.refuse_more(path, layout)


def _refuse_other_codebook(estimates: Estimates, folder: Path) -> None:
    """Compare both codebooks; apostrophes behind separators came later than some releases."""
    path = folder / f"{table_files.CODEBOOK}.csv"
    expected = table_files.codebook_csv(estimates.plan.tables)
    text = _text(path, expected)
    try:
        rows = [list(csv.reader(lines.splitlines())) for lines in (text, expected)]
    except csv.Error:
        _fail(path)
    if rows[0] not in (rows[1], [list(map(_unguarded, row)) for row in rows[1]]):
        _fail(path)
    path = folder / f"{table_files.CODEBOOK}.md"
    expected = table_files.codebook_markdown(estimates)
    if _text(path, expected) != expected:
        _fail(path)


def _text(path: Path, expected: str) -> str:
    """Return the text of a file about as long as it should be."""
    if path.stat().st_size > 2 * len(expected.encode()) + 4096:
        _fail(path)
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError:
        _fail(path)


def _unguarded(cell: str) -> str:
    """Return a text as earlier versions wrote it, without an apostrophe before a formula inside."""
    return re.sub(_GUARD, r"\1", cell)


def _refuse_other_microdata(estimates: Estimates, path: Path) -> None:
    layout = microdata.layout_of(estimates)
    plain = pa.schema([pa.field(name, pa.string()) for name in layout.names])
    with closing(_parquet_rows(path, layout)) as batches:
        file = _Rows(_decoded(batch, plain) for batch in batches)
        for rows in microdata.rows_of(estimates):
            if not file.take(rows.num_rows, plain).equals(_as_text(rows, plain)):
                _fail(path)
        file.refuse_more(path, plain)


def _decoded(batch: pa.RecordBatch, plain: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch([column.cast(pa.string()) for column in batch.columns], schema=plain)


def _as_text(table: pa.Table, plain: pa.Schema) -> pa.Table:
    return pa.table([column.cast(pa.string()) for column in table.columns], schema=plain)


class _Rows:
    """Rows of a file, read as many at a time as they are compared."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._left: list[pa.RecordBatch] = []

    def take(self, number: int, layout: pa.Schema) -> pa.Table:
        """Return the next rows; fewer at the end of the file."""
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
        """Refuse rows after the last."""
        if self.take(1, layout).num_rows:
            _fail(path)


def _parquet_rows(path: Path, layout: pa.Schema) -> Generator[pa.RecordBatch, None, None]:
    with pq.ParquetFile(path) as file:
        if not file.schema_arrow.equals(layout):
            _fail(path)
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
        "parse_options": pa_csv.ParseOptions(newlines_in_values=True),
        "convert_options": convert,
    }
    try:
        with pa_csv.open_csv(path, **options) as reader:
            if reader.schema.names != layout.names:
                _fail(path)
            for batch in reader:
                yield pa.record_batch(batch.columns, schema=layout)
    except UNREADABLE:
        _fail(path)


def _fail(path: Path) -> NoReturn:
    raise InputError(
        f"{path.name} is not what the estimates give; make it again with `countveil postprocess`, or "
        f"restore the release"
    )
