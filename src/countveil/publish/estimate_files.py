"""Estimates as published: written to a release folder, and read back from it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from countveil.base import storage
from countveil.base.histograms import Entries, store
from countveil.base.numerics import FloatArray, IntArray
from countveil.base.parquet_size import UNREADABLE
from countveil.errors import InputError, VerificationError
from countveil.plan.attributes import Attribute, listed
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.plan.workload import Schema
from countveil.postprocess.certificate import LevelCertificate
from countveil.postprocess.estimates import Estimates
from countveil.publish import microdata, table_files
from countveil.publish.columns import (
    COLUMNS,
    FORMAT,
    GROUP,
    Errors,
    categories,
    coded,
    unit_codes,
    without_errors,
)

FOLDER = "estimates"


def write_estimate_files(
    estimates: Estimates, folder: Path, errors: Errors | None = None
) -> list[str]:
    """Write estimates, tables and microdata into a release folder; return the names of the files.

    With `errors` each estimate has its standard error and an interval beside it.
    """
    clear(folder)
    storage.make_folder(folder / FOLDER)
    names = []
    for level in estimates.levels:
        names.append(f"{FOLDER}/{level}.parquet")
        _write_level(estimates, level, folder / names[-1], errors)
    names += table_files.write_tables(estimates, folder)
    if estimates.plan.microdata:
        names.append(microdata.write_microdata(estimates, folder))
    return names


def read_estimates(
    folder: Path,
    plan: Plan,
    geography: Geography,
    certificate: tuple[LevelCertificate, ...],
) -> Estimates:
    """Read published estimates back; refuse files that are not this plan's."""
    levels = estimated_levels(plan)
    # Histograms lie in files without a name: the folder is done with when they are mapped.
    with tempfile.TemporaryDirectory(prefix="countveil-") as work:
        histograms = {
            level: store(
                _entries(folder / FOLDER / f"{level}.parquet", plan.schema, geography, level),
                geography.units(level),
                Path(work),
            )
            for level in levels
        }
    return Estimates(plan, geography, histograms, certificate)


def estimated_levels(plan: Plan) -> tuple[str, ...]:
    """Return the levels that estimates are published of: down to the lowest measured one."""
    return plan.levels[: plan.levels.index(plan.measured_levels[-1]) + 1]


def names_of_estimates(plan: Plan) -> list[str]:
    """Return the names of the files that estimates of a plan are published in."""
    names = [f"{FOLDER}/{level}.parquet" for level in estimated_levels(plan)]
    for stem in table_files.file_stems(plan.tables):
        names += table_files.names_of(stem)
    names += table_files.CODEBOOKS if plan.tables else []
    return [*names, microdata.NAME] if plan.microdata else names


def refuse_impossible_errors(path: Path, schema: Schema, stated: Any) -> None:
    """Refuse standard errors and intervals that cannot be, or that the manifest does not announce.

    They come from all measurements, and are not computed again.
    """
    names = [column.name for column in COLUMNS]
    with pq.ParquetFile(path) as file:
        _refuse_other_columns(file, schema, path)
        there = all(name in file.schema_arrow.names for name in names)
        if isinstance(stated, dict) and ("confidence" in stated) != there:
            raise InputError(
                f"{path.name} has standard errors that the manifest does not announce, or lacks them"
            )
        for batch in file.iter_batches(GROUP, columns=names) if there else ():
            error, lower, upper = (batch.column(name) for name in names)
            known = pc.is_valid(error)
            if (
                known != pc.is_valid(lower)
                or known != pc.is_valid(upper)
                or pc.any(pc.invert(pc.is_finite(error))).as_py()
                or pc.any(pc.less(error, 0)).as_py()
                or pc.any(pc.less(lower, 0)).as_py()
                or pc.any(pc.greater(lower, upper)).as_py()
            ):
                raise InputError(f"{path.name} has a standard error or an interval that cannot be")


def clear(folder: Path) -> None:
    """Take away what an earlier publication left, whole or not."""
    ours = ((FOLDER, ".parquet"), (table_files.FOLDER, ".parquet", ".csv", ".md"))
    for name, *suffixes in ours:
        storage.sweep(folder / name)
        for path in sorted((folder / name).glob("*")):
            if path.suffix in suffixes:
                path.unlink()
    storage.sweep(folder)
    (folder / microdata.NAME).unlink(missing_ok=True)


def _layout(schema: Schema, *, errors: bool) -> pa.Schema:
    names = ["geocode", *(attribute.name for attribute in schema.attributes)]
    estimate = pa.field("estimate", pa.int32(), nullable=False)
    return pa.schema([*map(coded, names), estimate, *(COLUMNS if errors else ())])


def _write_level(estimates: Estimates, level: str, path: Path, errors: Errors | None) -> None:
    """Write the cells of a level that are not zero, by unit and then by cell."""
    schema = estimates.plan.schema
    layout = _layout(schema, errors=errors is not None)
    with (
        storage.replacing(path) as temporary,
        pq.ParquetWriter(temporary, layout, **FORMAT) as writer,
    ):
        for unit, cell, count, more in _rows(estimates, level, errors):
            codes = unit_codes(estimates.geography, level, unit)
            columns = [codes, *categories(schema, cell), count.astype(np.int32), *more]
            if len(cell):
                writer.write_table(pa.table(columns, schema=layout), row_group_size=len(cell))


def _rows(
    estimates: Estimates, level: str, errors: Errors | None
) -> Iterator[tuple[IntArray, IntArray, IntArray, list[pa.Array]]]:
    """Yield units, cells, counts and the columns of errors, a row group at a time."""
    histograms = estimates.levels[level]
    found = None if errors is None else errors.batches(level)
    if errors is None or found is None:
        for start, stop in histograms.batches(GROUP):
            unit, cell, count = histograms.entries(start, stop)
            more = [] if errors is None else without_errors(len(cell))
            yield unit + start, cell, count, more
        return
    waiting: list[tuple[IntArray, IntArray, IntArray, FloatArray, FloatArray]] = []
    for start, stop, value, error in found:
        unit, cell, count = histograms.entries(start, stop)
        waiting.append((unit + start, cell, count, value[unit, cell], error[unit, cell]))
        if sum(len(part[1]) for part in waiting) >= GROUP or stop == histograms.units:
            units, cells, counts, values, each = map(np.concatenate, zip(*waiting, strict=True))
            yield units, cells, counts, errors.columns(counts, values, each)
            waiting.clear()


def _entries(path: Path, schema: Schema, geography: Geography, level: str) -> Iterator[Entries]:
    """Yield what a file holds, a row group at a time, by unit and cell number."""
    last = -1
    try:
        with pq.ParquetFile(path) as file:
            _refuse_other_columns(file, schema, path)
            for group in range(file.num_row_groups):
                table = file.read_row_group(group).unify_dictionaries().combine_chunks()
                if not table.num_rows:
                    continue
                near = max(last, 0) // schema.cells
                unit = _unit_numbers(table["geocode"].chunk(0), geography, level, near, path)
                cell = np.zeros(len(unit), np.int64)
                for item in schema.attributes:
                    number = _numbers(table[item.name].chunk(0), item, path)
                    cell = cell * len(item.categories) + number
                count = table["estimate"].to_numpy().astype(np.int64)
                key = unit * schema.cells + cell
                if (np.diff(key, prepend=last) <= 0).any() or (count <= 0).any():
                    raise VerificationError(
                        f"{path}: rows must go by unit and then by cell, each once and above zero; "
                        f"restore the file as it was released"
                    )
                last = int(key[-1])
                yield unit, cell, count
    except UNREADABLE as error:
        raise VerificationError(
            f"{path}: cannot be read ({str(error).splitlines()[0]}); restore it as it was released"
        ) from error


def _refuse_other_columns(file: pq.ParquetFile, schema: Schema, path: Path) -> None:
    """Refuse a file that does not have the columns of estimates, with errors or without."""
    known = [_layout(schema, errors=errors) for errors in (True, False)]
    if not any(file.schema_arrow.equals(layout) for layout in known):
        raise VerificationError(
            f"{path}: has other columns than the plan; they must be geocode, "
            f"{listed(item.name for item in schema.attributes)} as text in dictionaries, and "
            f"estimate as int32, none of them null, then standard_error, lower and upper"
        )


def _unit_numbers(
    column: pa.DictionaryArray, geography: Geography, level: str, near: int, path: Path
) -> IntArray:
    """Return the number of each row's unit, looking from unit `near` on: files go by unit.

    A writer may cut row groups anywhere and give each the dictionary of more: only codes that rows
    have are looked up.
    """
    row_codes, rows = np.unique(column.indices.to_numpy(), return_inverse=True)
    codes, units = column.dictionary.take(pa.array(row_codes)), geography.units(level)
    stop = near + len(codes)
    found = pc.index_in(codes, value_set=geography.geocodes(level, near, min(stop, units)))
    while found.null_count and stop < units:
        stop += 3 * (stop - near)
        found = pc.index_in(codes, value_set=geography.geocodes(level, near, min(stop, units)))
    if found.null_count:
        code = codes.filter(pc.is_null(found))[0]
        raise VerificationError(
            f"{path}: {code} is no {level} of the crosswalk, or not in its order; restore the file as "
            f"it was released"
        )
    numbers: IntArray = near + found.to_numpy().astype(np.int64)[rows]
    return numbers


def _numbers(column: pa.DictionaryArray, attribute: Attribute, path: Path) -> IntArray:
    """Return the number of each row's category."""
    found = pc.index_in(column.dictionary, value_set=pa.array(attribute.categories))
    if found.null_count:
        label = column.dictionary.filter(pc.is_null(found))[0]
        raise VerificationError(
            f"{path}: {attribute.name} holds {str(label)!r}; its categories are "
            f"{listed(attribute.categories)}"
        )
    numbers: IntArray = found.to_numpy().astype(np.int64)[column.indices.to_numpy()]
    return numbers
