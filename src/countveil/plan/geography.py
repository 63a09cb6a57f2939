"""Places: nested levels of units, read from a crosswalk with one row per lowest unit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from countveil.base.delimited import FORMULA, named_rows, read_header
from countveil.base.numerics import IntArray
from countveil.base.parquet_size import read_footer, refuse_bomb
from countveil.errors import GeographyError

MOST_CODES = 200_000_000  # rows times levels of a crosswalk: 20 million units on 10 levels
_CHUNK = 1 << 20
_LONGEST_CODE = 256


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Geography:
    """All units of all levels, sorted by their path from the top.

    `parents[l][u]` is the number, at the level above, of the parent of unit u of level l. The
    children of a unit are adjacent, so these numbers never decrease along a level. `sha256` is the
    hash of the crosswalk file.
    """

    levels: tuple[str, ...]
    codes: tuple[pa.StringArray, ...]
    parents: tuple[IntArray, ...]
    sha256: str = ""

    def __repr__(self) -> str:
        units = (
            f"{len(codes):,} × {level}"
            for level, codes in zip(self.levels, self.codes, strict=True)
        )
        return f"<Geography: {', '.join(units)}>"

    def units(self, level: str) -> int:
        """Return the number of units of a level."""
        return len(self.codes[self.index(level)])

    def index(self, level: str) -> int:
        """Return the position of a level, 0 at the top."""
        if level not in self.levels:
            raise GeographyError(f"unknown level {level!r}; choose from {', '.join(self.levels)}")
        return self.levels.index(level)

    def geocodes(self, level: str, start: int = 0, stop: int | None = None) -> pa.StringArray:
        """Return the codes of units start … stop - 1."""
        codes = self.codes[self.index(level)]
        return codes.slice(start, (len(codes) if stop is None else stop) - start)

    def own_geocodes(self, level: str, start: int, stop: int) -> pa.StringArray:
        """Return a copy of codes: a slice would take its whole array along to a worker."""
        return self.geocodes(level, start, stop).take(pa.array(np.arange(stop - start)))

    def ancestors(self, level: str, above: str) -> IntArray:
        """Return the number, at a level above, of the ancestor of each unit of a level."""
        first, last = self.index(above), self.index(level)
        if first == last:
            return np.arange(self.units(level))
        ancestors = self.parents[last]
        for index in range(last - 1, first, -1):
            ancestors = self.parents[index][ancestors]
        return ancestors

    def batches(self, level: str, most: int, above: str | None = None) -> list[tuple[int, int]]:
        """Return runs of whole families, (start, stop), of at most `most` units or one family each.

        Families are the units with the same ancestor at level `above`, by default the next level up.
        """
        parents = self.parents[self.index(level)] if above is None else self.ancestors(level, above)
        ends = np.append(np.flatnonzero(np.diff(parents)) + 1, len(parents))
        cuts, start = [], 0
        while start < len(parents):
            within = np.searchsorted(ends, start + most, side="right") - 1
            stop = int(ends[within]) if within >= 0 and ends[within] > start else 0
            stop = stop or int(ends[np.searchsorted(ends, start, side="right")])
            cuts.append((start, stop))
            start = stop
        return cuts


def write_crosswalk(path: Path, geography: Geography) -> None:
    """Write a crosswalk as Parquet, one row per lowest unit in the order of the units."""
    lowest = geography.levels[-1]
    codes = pa.dictionary(pa.int32(), pa.string())
    kinds = [codes] * (len(geography.levels) - 1) + [pa.string()]
    layout = pa.schema(zip(geography.levels, kinds, strict=True))
    above = [geography.ancestors(lowest, level) for level in geography.levels[:-1]]
    with pa.parquet.ParquetWriter(path, layout, compression="zstd") as writer:
        for start in range(0, geography.units(lowest), _CHUNK):
            stop = min(start + _CHUNK, geography.units(lowest))
            columns = []
            for ancestors, all_codes in zip(above, geography.codes, strict=False):
                first = int(ancestors[start])
                part = all_codes.slice(first, int(ancestors[stop - 1]) + 1 - first)
                indices = pa.array((ancestors[start:stop] - first).astype(np.int32))
                columns.append(pa.DictionaryArray.from_arrays(indices, part))
            columns.append(geography.geocodes(lowest, start, stop))
            writer.write_table(pa.table(columns, schema=layout))


def read_crosswalk(path: Path, levels: Sequence[str], units: int | None = None) -> Geography:
    """Read a CSV or Parquet crosswalk; every message names the file, the rows and the rule.

    `units` is the number of lowest units in the manifest of a release: a Parquet file with another
    number of rows is refused before it is read.
    """
    try:
        return _read_crosswalk(path, levels, units)
    except MemoryError:
        raise GeographyError(
            f"{path}: does not fit in memory; close other programs, or use a machine with more"
        ) from None


def _read_crosswalk(path: Path, levels: Sequence[str], units: int | None) -> Geography:
    names = _column_names(path)
    _refuse_row_count(path, levels, units)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    for level in levels:
        if level not in names:
            raise GeographyError(
                f"{path}: column {level!r} is missing, and geography.levels names it; the file has the "
                f"columns {', '.join(names[:20])}"
            )
    # One column at a time: all of them would take most of the memory of a national run.
    columns = [_ranked(path, level, lowest=level == levels[-1]) for level in levels]
    for level, column in zip(levels, columns, strict=True):
        if len(column.rank) != len(columns[0].rank):
            raise GeographyError(
                f"{path}: column {levels[0]!r} has {len(columns[0].rank):,} rows and {level!r} "
                f"{len(column.rank):,}, so the file is damaged; restore it"
            )
    order = np.lexsort([column.rank for column in reversed(columns)])
    starts = np.zeros(len(order), bool)
    starts[0] = True
    codes, parents = [], []
    above = np.zeros(len(order), np.int64)
    for number, column in enumerate(columns):
        along = column.rank[order]
        starts[1:] |= along[1:] != along[:-1]
        first = np.flatnonzero(starts)
        _refuse_two_parents(path, levels, columns[: number + 1], order[first])
        codes.append(column.codes.take(pa.array(along[first])))
        parents.append(_read_only(above[first]))
        above = np.cumsum(starts) - 1
    again = np.flatnonzero(~starts)
    if len(again):
        rows = np.sort(order[[again[0] - 1, again[0]]])
        raise GeographyError(
            f"{path}: {named_rows(rows)}: {levels[-1]} {codes[-1][int(above[again[0]])]} is listed "
            f"twice; list each {levels[-1]} once"
        )
    pa.default_memory_pool().release_unused()
    return Geography(tuple(levels), tuple(codes), tuple(parents), digest)


@dataclass(frozen=True, eq=False, slots=True)
class _Column:
    """The codes of a level, sorted, and each row's position among them."""

    rank: NDArray[np.int32]
    codes: pa.StringArray

    def code(self, row: int) -> str:
        return str(self.codes[int(self.rank[row])])


def _column_names(path: Path) -> list[str]:
    if not path.is_file():
        raise GeographyError(
            f"{path}: no such file; set geography.path to a CSV or Parquet file with one row per "
            f"lowest unit"
        )
    with _translated(path):
        if _is_parquet(path):
            return list(pa.parquet.read_schema(path).names)
        return read_header(path)[0]


def _refuse_row_count(path: Path, levels: Sequence[str], units: int | None) -> None:
    """Refuse a Parquet file by the number of rows in its footer, before reading any."""
    if not _is_parquet(path):
        return
    with _translated(path):
        rows = sum(group.rows for group in read_footer(path))
    if units is not None and rows != units:
        raise GeographyError(
            f"{path}: has {rows:,} units of {levels[-1]}, but the manifest has {units:,}; restore "
            f"the file"
        )
    if rows * len(levels) > MOST_CODES:
        raise GeographyError(
            f"{path}: has {rows:,} rows and {len(levels)} levels, {rows * len(levels):,} codes in "
            f"total; the limit is {MOST_CODES:,}: remove levels or units"
        )


def _ranked(path: Path, level: str, *, lowest: bool) -> _Column:
    """Read the column of a level and rank its rows by code."""
    with _translated(path):
        # At the lowest level nearly all codes differ, so sorting is faster than a dictionary.
        column = _read_column(path, level, as_text=lowest)
    if len(column) == 0:
        raise GeographyError(f"{path}: has no rows; list one row per lowest unit")
    if lowest:
        _refuse_blank(path, level, pc.equal(column, ""))
        order = pc.sort_indices(column).to_numpy()
        ordered = column.take(pa.array(order))
        new = np.ones(len(order), bool)
        new[1:] = _as_bool(pc.not_equal(ordered.slice(1), ordered.slice(0, len(order) - 1)))
        rank = np.empty(len(order), np.int32)
        rank[order] = np.cumsum(new, dtype=np.int32) - 1
        result = _Column(rank, ordered.filter(pa.array(new)))
    else:
        blank = pc.equal(column.dictionary, "").take(column.indices)
        _refuse_blank(path, level, blank)
        order = pc.sort_indices(column.dictionary).to_numpy()
        position = np.empty(len(order), np.int32)
        position[order] = np.arange(len(order), dtype=np.int32)
        result = _Column(
            position[column.indices.to_numpy()], column.dictionary.take(pa.array(order))
        )
    _refuse_odd(path, level, result)
    pa.default_memory_pool().release_unused()
    return result


def _refuse_odd(path: Path, level: str, column: _Column) -> None:
    """Refuse codes that a spreadsheet would run as a formula, and codes that are too long."""
    formula = _as_bool(pc.match_substring_regex(column.codes, FORMULA))
    long = _as_bool(pc.greater(pc.utf8_length(column.codes), _LONGEST_CODE))
    for bad, rule in (
        (
            formula,
            "a code that begins with =, +, -, @, a tab or a line break, or has one of these after "
            "; or |, which spreadsheets run as formulas",
        ),
        (long, f"a code of more than {_LONGEST_CODE} characters"),
    ):
        if bad.any():
            rows = np.flatnonzero(bad[column.rank])
            raise GeographyError(
                f"{path}: {named_rows(rows)}: column {level!r} has {rule}; start codes with a "
                f"letter or a digit, and keep them short"
            )


def _read_column(path: Path, level: str, *, as_text: bool) -> pa.Array:
    kind = pa.string() if as_text else pa.dictionary(pa.int32(), pa.string())
    if _is_parquet(path):
        refuse_bomb(path, [level], "a crosswalk has one row per lowest unit", GeographyError)
        column = pa.parquet.read_table(path, columns=[level])[level]
        text = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if not (pa.types.is_string(text) or pa.types.is_large_string(text)):
            raise GeographyError(
                f"{path}: column {level!r} has type {column.type}; store codes as text, to keep "
                f"leading zeros"
            )
        column = column.cast(pa.string())
        column = column if as_text else column.dictionary_encode()
    else:
        convert = pa.csv.ConvertOptions(
            include_columns=[level], column_types={level: kind}, strings_can_be_null=False
        )
        parse = pa.csv.ParseOptions(delimiter=read_header(path)[1])
        column = pa.csv.read_csv(path, parse_options=parse, convert_options=convert)[level].cast(
            kind
        )
    return column.unify_dictionaries().combine_chunks()


def _refuse_blank(path: Path, level: str, blank: pa.BooleanArray) -> None:
    bad = np.flatnonzero(_as_bool(pc.fill_null(blank, True)))
    if len(bad):
        raise GeographyError(
            f"{path}: {named_rows(bad)}: the code in column {level!r} is missing; give every row a "
            f"code at every level"
        )


def _as_bool(array: pa.BooleanArray) -> NDArray[np.bool_]:
    return np.asarray(array.to_numpy(zero_copy_only=False), bool)


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        kind = "Parquet" if _is_parquet(path) else "CSV"
        if "invalid UTF8" in str(error):
            raise GeographyError(f"{path}: is not UTF-8 text; save the file as UTF-8") from None
        raise GeographyError(
            f"{path}: cannot be read as a {kind} file ({str(error).splitlines()[0]}); save it "
            f"again, with codes as text"
        ) from error


def _refuse_two_parents(
    path: Path, levels: Sequence[str], columns: Sequence[_Column], rows: NDArray[np.int64]
) -> None:
    """Refuse a code that appears under two parents; `rows` are the first rows of the units."""
    *upper, column = columns
    ranks = column.rank[rows]
    order = np.argsort(ranks, kind="stable")
    twice = np.flatnonzero(ranks[order][1:] == ranks[order][:-1])
    if not len(twice):
        return
    first, second = (int(rows[order[twice[0] + step]]) for step in (0, 1))
    where = max(i for i, above in enumerate(upper) if above.code(first) != above.code(second))
    raise GeographyError(
        f"{path}: {named_rows(np.array([first, second]))}: {levels[len(upper)]} {column.code(first)} "
        f"is in {levels[where]} {upper[where].code(first)} and in {levels[where]} "
        f"{upper[where].code(second)}; a unit has one parent, and codes must be unique within their "
        f"level: use full codes"
    )


def _read_only(array: NDArray[np.int64]) -> IntArray:
    array.setflags(write=False)
    return array
