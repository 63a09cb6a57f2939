"""Files of areas: which units of a level each area is made of."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from countveil.errors import InputError
from countveil.numerics import IntArray
from countveil.schema.attributes import listed
from countveil.schema.delimited import named_rows, read_header
from countveil.schema.geography import Geography
from countveil.schema.unpacking import refuse_bomb

AREA, GEOCODE = "area", "geocode"
_ROWS = "a row for each area and unit of it"


@dataclass(frozen=True, eq=False, slots=True)
class NamedAreas:
    """Areas by name, in the order of their file: the codes of the units of a level each is made of.

    They may overlap: `infer.LeastSquares.areas(found.units, query, level=found.level)`.
    """

    level: str
    units: dict[str, pa.StringArray]

    def __len__(self) -> int:
        """How many areas there are."""
        return len(self.units)


def read_areas(path: str | Path, geography: Geography, *, level: str | None = None) -> NamedAreas:
    """Read a CSV or Parquet file with a row per area and unit of it; refuse what does not fit.

    Its columns are `area` and the name of a level, or `geocode`: codes of `level`, the lowest one if
    not given. Others are not read.
    """
    path = Path(path)
    names = _column_names(path)
    column, level = _unit_column(path, names, geography, level)
    area, code = _read(path, column)
    _refuse_blank(path, AREA, area)
    _refuse_blank(path, column, code)
    number, name = area.indices.to_numpy(), area.dictionary.to_pylist()
    _refuse_control_characters(path, name, number)
    unit = _units(path, code, geography, level)
    _refuse_twice(path, name, number, unit, code, level)
    # Rows of one area together, each in the order of the file.
    order = np.argsort(number, kind="stable")
    ends = np.cumsum(np.bincount(number, minlength=len(name)))
    parts = np.split(order, ends[:-1])
    return NamedAreas(
        level, {key: code.take(pa.array(rows)) for key, rows in zip(name, parts, strict=True)}
    )


def _column_names(path: Path) -> list[str]:
    if not path.is_file():
        raise InputError(
            f"{path}: no such file; areas are a CSV or Parquet file with the columns area and the name "
            f"of a level"
        )
    if not path.stat().st_size:
        raise InputError(f"{path}: is empty; it needs a line of column names, and {_ROWS}")
    with _translated(path):
        if _is_parquet(path):
            return list(pa.parquet.read_schema(path).names)
        return read_header(path)[0]


def _unit_column(
    path: Path, names: Sequence[str], geography: Geography, level: str | None
) -> tuple[str, str]:
    """Return the column that holds codes of units, and the level they are of."""
    if level is not None:
        geography.index(level)  # refuses one that is not there
    if AREA not in names:
        raise InputError(
            f"{path}: no column 'area', which names the area of each row; its columns are "
            f"{listed(names)}{_other_case(AREA, names)}"
        )
    known = [name for name in geography.levels if name in names and name != AREA]
    if level is not None and level in known:
        return level, level
    if GEOCODE in names and (level is not None or not known):
        return GEOCODE, geography.levels[-1] if level is None else level
    if len(known) == 1 and level is None and GEOCODE not in names:
        return known[0], known[0]
    if len(known) and level is None:
        both = [*known, GEOCODE] if GEOCODE in names else known
        raise InputError(
            f"{path}: columns {' and '.join(both)} could each be the units; name their level by "
            f"--level, or keep one of them"
        )
    wanted = [level, GEOCODE] if level is not None else [*geography.levels, GEOCODE]
    hint = next((text for name in wanted if (text := _other_case(name, names))), "")
    what = "or ".join(f"{name!r} " for name in wanted if name != AREA).strip()
    raise InputError(
        f"{path}: no column of units; it needs {what}, with their codes as text, and has "
        f"{listed(names)}{hint}"
    )


def _other_case(wanted: str, names: Sequence[str]) -> str:
    """Return what to do where a name differs in upper and lower case, or in blanks, alone."""
    for name in names:
        if name != wanted and name.strip().casefold() == wanted.casefold():
            return f"; upper and lower case and blanks count: rename {name!r} to {wanted!r}"
    return ""


def _read(path: Path, column: str) -> tuple[pa.DictionaryArray, pa.StringArray]:
    """Return the name of the area and the code of the unit of each row."""
    wanted = [AREA, column]
    with _translated(path):
        if _is_parquet(path):
            refuse_bomb(path, wanted, f"a file of areas has {_ROWS}")
            table = pa.parquet.read_table(path, columns=wanted)
            _refuse_numbers(path, table)
        else:
            table = _read_delimited(path, wanted)
    if not table.num_rows:
        raise InputError(f"{path}: has no rows; it needs {_ROWS}")
    area, code = (table[name].cast(pa.string()).combine_chunks() for name in wanted)
    return area.dictionary_encode(), code


def _read_delimited(path: Path, wanted: Sequence[str]) -> pa.Table:
    """Read columns of a delimited file as text; refuse a row with fewer or more fields than names."""
    uneven: list[pa.csv.InvalidRow] = []

    def skip(row: pa.csv.InvalidRow) -> str:
        uneven.append(row)
        return "skip"

    table = pa.csv.read_csv(
        path,
        read_options=pa.csv.ReadOptions(use_threads=False),  # only then rows have numbers
        parse_options=pa.csv.ParseOptions(delimiter=read_header(path)[1], invalid_row_handler=skip),
        convert_options=pa.csv.ConvertOptions(
            include_columns=wanted,
            column_types={name: pa.string() for name in wanted},
            strings_can_be_null=False,
        ),
    )
    if uneven:
        first, rows = uneven[0], np.array([row.number - 2 for row in uneven])
        raise InputError(
            f"{path}: {named_rows(rows)}: {first.actual_columns} fields, and the header names "
            f"{first.expected_columns}; give each row as many, in quotes where they hold a delimiter"
        )
    return table


def _refuse_numbers(path: Path, table: pa.Table) -> None:
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        text = kind.value_type if pa.types.is_dictionary(kind) else kind
        texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
        if not any(of(text) for of in texts):
            raise InputError(
                f"{path}: column {name!r} holds {kind}, and codes are text so that leading zeros "
                f"survive; store the column as text"
            )


def _refuse_blank(path: Path, column: str, found: pa.Array) -> None:
    text = found.cast(pa.string())
    blank = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(text), ""), True)
    bad = np.flatnonzero(blank.to_numpy(zero_copy_only=False))
    if len(bad):
        raise InputError(
            f"{path}: {named_rows(bad)}: nothing in column {column!r}; every row names an area and a "
            f"unit"
        )


def _refuse_control_characters(path: Path, names: Sequence[str], number: IntArray) -> None:
    """Refuse names that would move the cursor of a terminal, turn its text, or break a line."""
    for at, name in enumerate(names):
        if any(unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp") for letter in name):
            rows = named_rows(np.flatnonzero(number == at))
            raise InputError(
                f"{path}: {rows}: the area {name[:60]!r} has a line break or another control "
                f"character in its name; write it on one line, without tabs"
            )
        if name != name.strip():
            rows = named_rows(np.flatnonzero(number == at))
            raise InputError(
                f"{path}: {rows}: the area {name[:60]!r} begins or ends with a blank; take it away: "
                f"another area may differ in nothing else"
            )


def _units(path: Path, code: pa.StringArray, geography: Geography, level: str) -> IntArray:
    """Return the number of the unit of each row; refuse one that is not there."""
    known = geography.geocodes(level)
    found = pc.index_in(code, known)
    missing = np.flatnonzero(pc.is_null(found).to_numpy(zero_copy_only=False))
    if len(missing):
        first, example = code[int(missing[0])].as_py(), known[0].as_py()
        padded = first.strip().zfill(len(example))
        hint = f"codes are text, such as {example!r}"
        if pc.index(known, padded).as_py() >= 0:
            hint = f"it has {padded!r}: write codes as they are there, leading zeros and all"
        raise InputError(
            f"{path}: {named_rows(missing)}: no {level} {first[:60]!r} in the release; {hint}"
        )
    return np.asarray(found, np.int64)


def _refuse_twice(
    path: Path,
    names: Sequence[str],
    number: IntArray,
    unit: IntArray,
    code: pa.StringArray,
    level: str,
) -> None:
    """Refuse a unit that one area lists twice; two areas may share it."""
    order = np.lexsort((unit, number))
    again = np.flatnonzero(
        (unit[order][1:] == unit[order][:-1]) & (number[order][1:] == number[order][:-1])
    )
    if len(again):
        at = again[np.argmin(order[again + 1])]  # the first that a reader meets
        rows = np.sort(order[at : at + 2])
        raise InputError(
            f"{path}: {named_rows(rows)}: {level} {code[int(rows[0])].as_py()} is listed twice in area "
            f"{names[number[rows[0]]]!r}; list each unit once in an area"
        )


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        kind = "Parquet" if _is_parquet(path) else "CSV"
        reason = (str(error).splitlines() or ["it is empty"])[0]
        raise InputError(
            f"{path}: cannot be read as a {kind} file ({reason}); areas are listed with the columns "
            f"area and the name of a level, codes as text"
        ) from error
