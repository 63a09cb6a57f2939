"""Table files: one row per unit of every level, and a codebook."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import scipy.sparse as sp

from countveil.base import storage
from countveil.base.delimited import without_formula
from countveil.base.histograms import Histograms
from countveil.base.numerics import IntArray
from countveil.plan.table_layouts import TableLayout
from countveil.postprocess.estimates import Estimates
from countveil.postprocess.unmeasured import published_tables
from countveil.publish.columns import FORMAT

FOLDER = "tables"
CODEBOOK = "codebook"
CODEBOOKS = [f"{FOLDER}/{CODEBOOK}.csv", f"{FOLDER}/{CODEBOOK}.md"]
_VALUES = 4_000_000  # counts held at a time
_INDENT = "\u2003"  # a wide space: Markdown keeps it at the start of a cell


def write_tables(estimates: Estimates, folder: Path) -> list[str]:
    """Write every table of the plan as Parquet and CSV, and the codebook; return their names."""
    tables = published_tables(estimates.plan)
    if not tables:
        return []
    storage.make_folder(folder / FOLDER)
    names = []
    stems = file_stems(tables)
    for table, stem in zip(tables, stems, strict=True):
        files = names_of(stem)
        _write_table(estimates, table, *(folder / name for name in files))
        names += files
    texts = (codebook_csv(tables), codebook_markdown(estimates))
    for name, text in zip(CODEBOOKS, texts, strict=True):
        storage.write_bytes(folder / name, text.encode())
    return [*names, *CODEBOOKS]


def names_of(stem: str) -> list[str]:
    """Return the names of a table's files."""
    return [f"{FOLDER}/{stem}.parquet", f"{FOLDER}/{stem}.csv"]


def file_stems(tables: tuple[TableLayout, ...]) -> list[str]:
    """Return names for the files of tables, distinct even if case is ignored."""
    used = {CODEBOOK}
    stems = []
    for table in tables:
        plain = stem = table.name.replace("*", "-")
        number = 1
        while stem.lower() in used:
            number += 1
            stem = f"{plain}-{number}"
        used.add(stem.lower())
        stems.append(stem)
    return stems


def _write_table(estimates: Estimates, table: TableLayout, parquet: Path, text: Path) -> None:
    """Write the rows of all levels to both files of a table."""
    layout = layout_of(table)
    with ExitStack() as stack:
        parquet, text = (stack.enter_context(storage.replacing(path)) for path in (parquet, text))
        writers = [
            stack.enter_context(pq.ParquetWriter(parquet, layout, **FORMAT)),
            stack.enter_context(pa_csv.CSVWriter(text, layout)),
        ]
        for rows in rows_of(estimates, table):
            for writer in writers:
                writer.write_table(rows)


def layout_of(table: TableLayout) -> pa.Schema:
    """Return the columns of a table's files."""
    counts = [pa.field(item.name, pa.int64(), nullable=False) for item in table.variables]
    keys = [pa.field(name, pa.string(), nullable=False) for name in ("level", "geocode")]
    return pa.schema([*keys, *counts])


def rows_of(estimates: Estimates, table: TableLayout) -> Iterator[pa.Table]:
    """Yield the rows of all levels, from the top down, some units at a time."""
    layout = layout_of(table)
    for level, histograms in estimates.levels.items():
        for start, stop, values in _sums(histograms, table):
            codes = estimates.geography.geocodes(level, start, stop)
            columns = [pa.repeat(level, stop - start), codes, *np.ascontiguousarray(values.T)]
            yield pa.table([pa.array(column) for column in columns], schema=layout)


def _sums(histograms: Histograms, table: TableLayout) -> Iterator[tuple[int, int, IntArray]]:
    """Yield runs of units, (start, stop), with their rows, units × variables."""
    query = table.query
    sizes = [len(item.cells) for item in table.variables]
    cells = np.concatenate([item.cells for item in table.variables])
    lines = np.repeat(np.arange(len(sizes)), sizes)
    sums = sp.csr_array(
        (np.ones(len(cells), np.int64), (cells, lines)), shape=(query.cells, len(sizes))
    )
    step = max(1, _VALUES // len(sizes))
    for first, last in histograms.batches():
        for start in range(first, last, step):
            stop = min(start + step, last)
            unit, cell, count = histograms.entries(start, stop)
            where = query.cells_at(cell)
            counted = where >= 0
            counts = sp.csr_array(
                (count[counted], (unit[counted], where[counted])), shape=(stop - start, query.cells)
            )
            yield start, stop, (counts @ sums).toarray()


def codebook_csv(tables: tuple[TableLayout, ...]) -> str:
    """Return the codebook as CSV, one row per variable."""
    text = io.StringIO()
    # Quoted, so that a program that splits at another delimiter keeps a text in one cell.
    rows = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    rows.writerow(["table", "file", "title", "universe", "variable", "indent", "label"])
    for table, stem in zip(tables, file_stems(tables), strict=True):
        for item in table.variables:
            about = (table.name, stem, table.title, table.universe)
            labels = [*about, item.name, item.label]
            *first, label = (without_formula(label) for label in labels)
            rows.writerow([*first, item.indent, label])
    return text.getvalue()


def codebook_markdown(estimates: Estimates) -> str:
    """Return the codebook as Markdown."""
    plan = estimates.plan
    parts = [
        f"# Codebook: {escaped(plan.title)}",
        f"Each table has one row per place of each level, from the top down. The column `level` "
        f"names the level and `geocode` the place; the other columns are the variables below. All "
        f"numbers are estimates: noise was added to protect each {escaped(plan.unit)}, and the "
        f"results were then made consistent. A line includes the lines below it that are indented "
        f"further.",
        f"Levels, with their numbers of places: {units_in_words(estimates)}.",
    ]
    tables = published_tables(plan)
    for table, stem in zip(tables, file_stems(tables), strict=True):
        name = table.name if table.title == table.name else f"{table.name}: {table.title}"
        parts.append(f"## {escaped(name)}")
        parts.append(
            f"Universe: {escaped(table.universe)}. Files: `{stem}.parquet`, `{stem}.csv`. "
            f"Variables: {len(table.variables)}."
        )
        lines = [
            f"| `{item.name}` | {_INDENT * item.indent}{escaped(item.label)} |"
            for item in table.variables
        ]
        parts.append("\n".join(["| variable | label |", "| --- | --- |", *lines]))
    return "\n\n".join(parts) + "\n"


def units_in_words(estimates: Estimates) -> str:
    """Return the levels with their numbers of places."""
    units = estimates.geography.units
    return ", ".join(f"{level} ({units(level):,})" for level in estimates.levels)


def escaped(text: str) -> str:
    """Escape Markdown."""
    text = " ".join(text.split())
    for mark in "\\`*_|<>[]":
        text = text.replace(mark, f"\\{mark}")
    return text
