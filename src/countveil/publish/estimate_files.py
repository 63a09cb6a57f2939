"""Estimate files: write them to a release folder, and read them back."""

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
from countveil.base.words import article
from countveil.errors import InputError, VerificationError
from countveil.plan.attributes import Attribute, choices
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan
from countveil.plan.workload import Schema
from countveil.postprocess.certificate import LevelCertificate
from countveil.postprocess.estimates import Estimates
from countveil.postprocess.unmeasured import determined_cells
from countveil.publish import microdata, table_files
from countveil.publish.columns import (
    COLUMNS,
    DETERMINED,
    FORMAT,
    GROUP,
    Errors,
    categories,
    dictionary_column,
    unit_codes,
    without_errors,
)

FOLDER = "estimates"


def write_estimate_files(
    estimates: Estimates, folder: Path, errors: Errors | None = None
) -> list[str]:
    """Write estimates, tables and microdata to a release folder; return the names of the files.

    With `errors`, each estimate gets a standard error and an interval.
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
    """Return the published estimates of a release; refuse files of another plan."""
    levels = plan.estimated_levels
    # Histograms are mapped from unnamed files, so the folder is not needed afterwards.
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


def names_of_estimates(plan: Plan) -> list[str]:
    """Return the names of the files with estimates, tables and microdata of a plan."""
    names = [f"{FOLDER}/{level}.parquet" for level in plan.estimated_levels]
    for stem in table_files.file_stems(plan.tables):
        names += table_files.names_of(stem)
    names += table_files.CODEBOOKS if plan.tables else []
    return [*names, microdata.NAME] if plan.microdata else names


def refuse_impossible_errors(path: Path, schema: Schema, stated: Any) -> None:
    """Refuse impossible standard errors and intervals, and those that contradict the manifest.

    They are computed from all measurements, which is not repeated here.
    """
    names = [column.name for column in COLUMNS]
    with pq.ParquetFile(path) as file:
        _refuse_other_columns(file, schema, path)
        present = all(name in file.schema_arrow.names for name in names)
        if isinstance(stated, dict) and ("confidence" in stated) != present:
            raise InputError(
                f"{path.name} has standard errors although the manifest states none, or lacks "
                f"those that it states; restore the release"
            )
        stated_known = DETERMINED.name in file.schema_arrow.names
        columns = [*names, DETERMINED.name] if stated_known else names
        for batch in file.iter_batches(GROUP, columns=columns) if present else ():
            error, lower, upper = (batch.column(name) for name in names)
            known = pc.is_valid(error)
            if stated_known and known != batch.column(DETERMINED.name):
                raise InputError(
                    f"{path.name} has a standard error for a cell that it says is not determined, or "
                    f"none for one that is; restore the release"
                )
            if (
                known != pc.is_valid(lower)
                or known != pc.is_valid(upper)
                or pc.any(pc.invert(pc.is_finite(error))).as_py()
                or pc.any(pc.less(error, 0)).as_py()
                or pc.any(pc.less(lower, 0)).as_py()
                or pc.any(pc.greater(lower, upper)).as_py()
            ):
                raise InputError(
                    f"{path.name} has an impossible standard error or interval; restore the release"
                )


def clear(folder: Path) -> None:
    """Delete the estimates, tables and microdata of an earlier publication, complete or not."""
    ours = ((FOLDER, ".parquet"), (table_files.FOLDER, ".parquet", ".csv", ".md"))
    for name, *suffixes in ours:
        storage.sweep(folder / name)
        for path in sorted((folder / name).glob("*")):
            if path.suffix in suffixes:
                path.unlink()
    storage.sweep(folder)
    (folder / microdata.NAME).unlink(missing_ok=True)


def _layout(schema: Schema, *, errors: bool, determined: bool = True) -> pa.Schema:
    names = ["geocode", *(attribute.name for attribute in schema.attributes)]
    estimate = pa.field("estimate", pa.int32(), nullable=False)
    more = [DETERMINED] if determined else []
    return pa.schema(
        [*map(dictionary_column, names), estimate, *more, *(COLUMNS if errors else ())]
    )


def _write_level(estimates: Estimates, level: str, path: Path, errors: Errors | None) -> None:
    """Write the non-zero cells of a level, by unit and then by cell."""
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
    """Yield units, cells, counts and further columns, a row group at a time."""
    histograms = estimates.levels[level]
    unbiased = None if errors is None else errors.batches(level)
    if errors is None or unbiased is None:
        known = determined_cells(estimates.plan, level)
        for start, stop in histograms.batches(GROUP):
            unit, cell, count = histograms.entries(start, stop)
            more = [] if errors is None else without_errors(len(cell))
            yield unit + start, cell, count, [pa.array(known[cell]), *more]
        return
    waiting: list[tuple[IntArray, IntArray, IntArray, FloatArray, FloatArray]] = []
    for start, stop, value, error in unbiased:
        unit, cell, count = histograms.entries(start, stop)
        waiting.append((unit + start, cell, count, value[unit, cell], error[unit, cell]))
        if sum(len(part[1]) for part in waiting) >= GROUP or stop == histograms.units:
            units, cells, counts, values, each = map(np.concatenate, zip(*waiting, strict=True))
            known = pa.array(np.isfinite(each))
            yield units, cells, counts, [known, *errors.columns(counts, values, each)]
            waiting.clear()


def _entries(path: Path, schema: Schema, geography: Geography, level: str) -> Iterator[Entries]:
    """Yield the units, cells and counts of a file, a row group at a time."""
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
                        f"{path}: rows are not sorted by unit and cell, each once and above 0; "
                        f"restore the original file"
                    )
                last = int(key[-1])
                yield unit, cell, count
    except UNREADABLE as error:
        raise VerificationError(
            f"{path}: cannot be read ({str(error).splitlines()[0]}); restore the original file"
        ) from error


def _refuse_other_columns(file: pq.ParquetFile, schema: Schema, path: Path) -> None:
    """Refuse a file that does not have the columns of estimates, with errors or without."""
    known = [
        _layout(schema, errors=errors, determined=determined)
        for errors in (True, False)
        for determined in (True, False)  # older releases do not say
    ]
    if not any(file.schema_arrow.equals(layout) for layout in known):
        raise VerificationError(
            f"{path}: its columns are not those of the plan, which are geocode, "
            f"{choices(item.name for item in schema.attributes)} (text in dictionaries), estimate "
            f"(int32, not null), determined (boolean, not null) and, with errors, standard_error, "
            f"lower and upper; restore the original file"
        )


def _unit_numbers(
    column: pa.DictionaryArray, geography: Geography, level: str, near: int, path: Path
) -> IntArray:
    """Return the number of each row's unit, searching from unit `near`, because files are sorted.

    The dictionary of a row group may have codes of other row groups; only codes in use are looked up.
    """
    row_codes, rows = np.unique(column.indices.to_numpy(), return_inverse=True)
    codes, units = column.dictionary.take(pa.array(row_codes)), geography.units(level)
    stop = near + len(codes)
    position = pc.index_in(codes, value_set=geography.geocodes(level, near, min(stop, units)))
    while position.null_count and stop < units:
        stop += 3 * (stop - near)
        position = pc.index_in(codes, value_set=geography.geocodes(level, near, min(stop, units)))
    if position.null_count:
        code = codes.filter(pc.is_null(position))[0]
        raise VerificationError(
            f"{path}: {code} is not {article(level)} of the crosswalk, or is out of order; restore the "
            f"original file"
        )
    numbers: IntArray = near + position.to_numpy().astype(np.int64)[rows]
    return numbers


def _numbers(column: pa.DictionaryArray, attribute: Attribute, path: Path) -> IntArray:
    """Return the number of each row's category."""
    position = pc.index_in(column.dictionary, value_set=pa.array(attribute.categories))
    if position.null_count:
        label = column.dictionary.filter(pc.is_null(position))[0]
        raise VerificationError(
            f"{path}: {attribute.name} has {str(label)!r}, but its categories are "
            f"{choices(attribute.categories)}; restore the original file"
        )
    numbers: IntArray = position.to_numpy().astype(np.int64)[column.indices.to_numpy()]
    return numbers
