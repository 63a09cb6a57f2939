"""Places: any number of nested levels, read from a crosswalk with one row per lowest unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from countveil.errors import GeographyError
from countveil.numerics import IntArray


@dataclass(frozen=True, eq=False, slots=True)
class Geography:
    """All units of all levels, in the order of their path from the top.

    `parents[l][u]` is the number, at the level above, of the unit that holds unit u of level l;
    units of one parent are neighbours, so numbers never fall along a level.
    """

    levels: tuple[str, ...]
    codes: tuple[pa.StringArray, ...]
    parents: tuple[IntArray, ...]

    def units(self, level: str) -> int:
        """How many units a level has."""
        return len(self.codes[self.index(level)])

    def index(self, level: str) -> int:
        """Return the position of a level, 0 at the top."""
        if level not in self.levels:
            raise GeographyError(f"no level {level!r}; choose from {', '.join(self.levels)}")
        return self.levels.index(level)

    def geocodes(self, level: str, start: int = 0, stop: int | None = None) -> pa.StringArray:
        """Return the codes of units start … stop - 1."""
        codes = self.codes[self.index(level)]
        return codes.slice(start, (len(codes) if stop is None else stop) - start)

    def batches(self, level: str, most: int) -> list[tuple[int, int]]:
        """Cut a level into runs of whole families, about `most` units each and at least one family."""
        parents = self.parents[self.index(level)]
        ends = np.append(np.flatnonzero(np.diff(parents)) + 1, len(parents))
        cuts, start = [], 0
        while start < len(parents):
            within = np.searchsorted(ends, start + most, side="right") - 1
            stop = int(ends[within]) if within >= 0 and ends[within] > start else 0
            stop = stop or int(ends[np.searchsorted(ends, start, side="right")])
            cuts.append((start, stop))
            start = stop
        return cuts


def read_crosswalk(path: Path, levels: Sequence[str]) -> Geography:
    """Read a CSV or Parquet crosswalk; every message names the file, the rows and the rule."""
    table = _read_text(path)
    for level in levels:
        if level not in table.column_names:
            raise GeographyError(
                f"{path}: no column {level!r} for the level of that name; its columns are "
                f"{', '.join(table.column_names[:20])}"
            )
    if table.num_rows == 0:
        raise GeographyError(f"{path}: no rows; list one row per {levels[-1]}")
    ranks, texts = [], []
    for level in levels:
        rank, text = _ranked(table[level], path, level)
        ranks.append(rank)
        texts.append(text)
    order = np.lexsort(ranks[::-1]).astype(np.int64)
    starts = np.zeros(len(order), bool)
    starts[0] = True
    codes, parents = [], []
    above = np.zeros(len(order), np.int64)
    for level, rank, text in zip(levels, ranks, texts, strict=True):
        along = rank[order]
        starts = starts.copy()
        starts[1:] |= along[1:] != along[:-1]
        number = np.cumsum(starts) - 1
        first = np.flatnonzero(starts)
        _refuse_two_parents(path, levels, level, along[first], text, order[first], table)
        codes.append(text.take(pa.array(along[first])))
        parents.append(_read_only(above[first]))
        above = number
    _refuse_repeats(path, levels[-1], starts, order, codes[-1], above)
    return Geography(tuple(levels), tuple(codes), tuple(parents))


def _read_text(path: Path) -> pa.Table:
    if not path.is_file():
        raise GeographyError(
            f"{path}: no such file; geography.path names a CSV or Parquet file with one row per "
            f"lowest unit"
        )
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            return pa.parquet.read_table(path)
        with pa.csv.open_csv(path) as reader:
            names = reader.schema.names
        convert = pa.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
        )
        return pa.csv.read_csv(path, convert_options=convert)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise GeographyError(
            f"{path}: cannot be read as a {'Parquet' if path.suffix != '.csv' else 'CSV'} file "
            f"({str(error).splitlines()[0]}); write it again, with codes as text"
        ) from error


def _ranked(
    column: pa.ChunkedArray, path: Path, level: str
) -> tuple[NDArray[np.int64], pa.StringArray]:
    """Return each row's position among the sorted codes of its level, and those codes."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise GeographyError(
            f"{path}: column {level!r} holds {column.type}, and codes are text so that leading "
            f"zeros survive; store the column as text"
        )
    bad = np.flatnonzero(
        pc.or_(pc.fill_null(pc.equal(column, ""), True), pc.is_null(column)).to_numpy()
    )
    if len(bad):
        raise GeographyError(
            f"{path}: {_rows(bad)}: no code in column {level!r}; every row names a unit at every "
            f"level"
        )
    encoded = column.cast(pa.string()).combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    order = pc.sort_indices(encoded.dictionary).to_numpy()
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[encoded.indices.to_numpy()], encoded.dictionary.take(pa.array(order))


def _refuse_two_parents(
    path: Path,
    levels: Sequence[str],
    level: str,
    ranks: NDArray[np.int64],
    text: pa.StringArray,
    rows: NDArray[np.int64],
    table: pa.Table,
) -> None:
    """A code that starts two units lies in two places."""
    order = np.argsort(ranks, kind="stable")
    twice = np.flatnonzero(ranks[order][1:] == ranks[order][:-1])
    if not len(twice):
        return
    first, second = (int(rows[order[twice[0] + step]]) for step in (0, 1))
    upper = levels[: levels.index(level)]
    where = [next(u for u in reversed(upper) if table[u][first] != table[u][second])]
    raise GeographyError(
        f"{path}: {_rows(np.array([first, second]))}: {level} {text[int(ranks[order[twice[0]]])]} lies "
        f"in {where[0]} {table[where[0]][first]} and in {where[0]} {table[where[0]][second]}; a unit "
        f"has one parent, and codes are unique within their level: use full codes"
    )


def _refuse_repeats(
    path: Path,
    level: str,
    starts: NDArray[np.bool_],
    order: NDArray[np.int64],
    codes: pa.StringArray,
    number: NDArray[np.int64],
) -> None:
    again = np.flatnonzero(~starts)
    if len(again):
        rows = np.sort(order[[again[0] - 1, again[0]]])
        raise GeographyError(
            f"{path}: {_rows(rows)}: {level} {codes[int(number[again[0]])]} is listed twice; list "
            f"each {level} once"
        )


def _rows(numbers: NDArray[np.int64]) -> str:
    """Name rows as a reader counts them, the first below the header being row 1."""
    shown = ", ".join(str(int(n) + 1) for n in numbers[:5])
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return f"row{'s' if len(numbers) > 1 else ''} {shown}{more}"


def _read_only(array: NDArray[np.int64]) -> IntArray:
    array.setflags(write=False)
    return array
