"""Files of areas: the units of a level that make up each area."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from countveil.base.delimited import named_rows, read_header
from countveil.base.numerics import IntArray
from countveil.base.parquet_size import refuse_bomb
from countveil.errors import InputError
from countveil.plan.attributes import choices
from countveil.plan.geography import Geography

AREA, GEOCODE = "area", "geocode"
_ROWS = "a row for each area and unit in it"


@dataclass(frozen=True, eq=False, slots=True)
class NamedAreas:
    """Areas by name, in the order of their file. They may overlap.

    Attributes
    ----------
    level : str
        The level of the units.
    units : dict of str to pyarrow.StringArray
        The codes of the units of each area.

    """

    level: str
    units: dict[str, pa.StringArray]

    def __len__(self) -> int:
        """Return the number of areas."""
        return len(self.units)


def read_areas(path: str | Path, geography: Geography, *, level: str | None = None) -> NamedAreas:
    """Read the areas of a CSV or Parquet file, which has a row for each area and unit in it.

    Parameters
    ----------
    path : path
        Its columns are `area`, and the name of a level or `geocode`; others are ignored.
    geography : Geography
        The units of the release.
    level : str, optional
        The level of the codes in `geocode`, by default the lowest.

    Returns
    -------
    NamedAreas
        For example for `LeastSquares.areas(areas.units, query, level=areas.level)`.

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
            f"{path}: no such file; areas must be in a CSV or Parquet file with the columns area and "
            f"the name of a level"
        )
    if not path.stat().st_size:
        raise InputError(f"{path}: is empty; it needs a header, and {_ROWS}")
    with _translated(path):
        if _is_parquet(path):
            return list(pa.parquet.read_schema(path).names)
        return read_header(path)[0]


def _unit_column(
    path: Path, names: Sequence[str], geography: Geography, level: str | None
) -> tuple[str, str]:
    """Return the column that holds codes of units, and the level they are of."""
    if level is not None:
        geography.index(level)  # refuses an unknown one
    if AREA not in names:
        raise InputError(
            f"{path}: no column 'area' with the name of the area of each row; its columns are "
            f"{choices(names)}{_other_case(AREA, names)}"
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
            f"{path}: the units could be in column {' or '.join(both)}; choose one with --level, or "
            f"remove the other"
        )
    candidates = [level, GEOCODE] if level is not None else [*geography.levels, GEOCODE]
    hint = next((text for name in candidates if (text := _other_case(name, names))), "")
    what = "or ".join(f"{name!r} " for name in candidates if name != AREA).strip()
    raise InputError(
        f"{path}: no column of units; it needs {what}, with their codes as text, and has "
        f"{choices(names)}{hint}"
    )


def _other_case(expected: str, names: Sequence[str]) -> str:
    """Return a hint if a name differs only in case or in surrounding blanks."""
    for name in names:
        if name != expected and name.strip().casefold() == expected.casefold():
            return f"; case and blanks matter: rename {name!r} to {expected!r}"
    return ""


class _AreaRows(NamedTuple):
    """The area and the code of the unit of each row."""

    area: pa.DictionaryArray
    code: pa.StringArray


def _read(path: Path, column: str) -> _AreaRows:
    columns = [AREA, column]
    with _translated(path):
        if _is_parquet(path):
            refuse_bomb(path, columns, f"a file of areas has {_ROWS}")
            table = pa.parquet.read_table(path, columns=columns)
            _refuse_numbers(path, table)
        else:
            table = _read_delimited(path, columns)
    if not table.num_rows:
        raise InputError(f"{path}: has no rows; it needs {_ROWS}")
    area, code = (table[name].cast(pa.string()).combine_chunks() for name in columns)
    return _AreaRows(area.dictionary_encode(), code)


def _read_delimited(path: Path, columns: Sequence[str]) -> pa.Table:
    """Read columns of a delimited file as text; refuse rows with too few or too many fields."""
    uneven: list[pa.csv.InvalidRow] = []

    def skip(row: pa.csv.InvalidRow) -> str:
        uneven.append(row)
        return "skip"

    table = pa.csv.read_csv(
        path,
        read_options=pa.csv.ReadOptions(use_threads=False),  # otherwise rows have no numbers
        parse_options=pa.csv.ParseOptions(delimiter=read_header(path)[1], invalid_row_handler=skip),
        convert_options=pa.csv.ConvertOptions(
            include_columns=columns,
            column_types={name: pa.string() for name in columns},
            strings_can_be_null=False,
        ),
    )
    if uneven:
        first, rows = uneven[0], np.array([row.number - 2 for row in uneven])
        raise InputError(
            f"{path}: {named_rows(rows)}: {first.actual_columns} fields, and the header has "
            f"{first.expected_columns}; each row needs as many, in quotes if they contain a delimiter"
        )
    return table


def _refuse_numbers(path: Path, table: pa.Table) -> None:
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
        text = kind.value_type if pa.types.is_dictionary(kind) else kind
        texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
        if not any(of(text) for of in texts):
            raise InputError(
                f"{path}: column {name!r} has type {kind}; store it as text, so that codes keep their "
                f"leading zeros"
            )


def _refuse_blank(path: Path, column: str, values: pa.Array) -> None:
    text = values.cast(pa.string())
    blank = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(text), ""), True)
    bad = np.flatnonzero(blank.to_numpy(zero_copy_only=False))
    if len(bad):
        raise InputError(
            f"{path}: {named_rows(bad)}: column {column!r} is empty; every row needs an area and a unit"
        )


def _refuse_control_characters(path: Path, names: Sequence[str], number: IntArray) -> None:
    """Refuse names that would move a terminal's cursor, reverse its text, or break a line."""
    for at, name in enumerate(names):
        if any(unicodedata.category(letter) in ("Cc", "Cf", "Zl", "Zp") for letter in name):
            rows = named_rows(np.flatnonzero(number == at))
            raise InputError(
                f"{path}: {rows}: the name of area {name[:60]!r} has a line break or another control "
                f"character; write it on one line, without tabs"
            )
        if name != name.strip():
            rows = named_rows(np.flatnonzero(number == at))
            raise InputError(
                f"{path}: {rows}: the name of area {name[:60]!r} begins or ends with a blank; remove "
                f"it, since another area may differ in nothing else"
            )


def _units(path: Path, code: pa.StringArray, geography: Geography, level: str) -> IntArray:
    """Return the number of the unit of each row; refuse an unknown code."""
    known = geography.geocodes(level)
    positions = pc.index_in(code, known)
    missing = np.flatnonzero(pc.is_null(positions).to_numpy(zero_copy_only=False))
    if len(missing):
        first, example = code[int(missing[0])].as_py(), known[0].as_py()
        padded = first.strip().zfill(len(example))
        hint = f"use codes such as {example!r}"
        if pc.index(known, padded).as_py() >= 0:
            hint = f"did you mean {padded!r}? Keep leading zeros"
        raise InputError(
            f"{path}: {named_rows(missing)}: no {level} {first[:60]!r} in the release; {hint}"
        )
    return np.asarray(positions, np.int64)


def _refuse_twice(
    path: Path,
    names: Sequence[str],
    number: IntArray,
    unit: IntArray,
    code: pa.StringArray,
    level: str,
) -> None:
    """Refuse a unit listed twice in one area; two areas may share it."""
    order = np.lexsort((unit, number))
    again = np.flatnonzero(
        (unit[order][1:] == unit[order][:-1]) & (number[order][1:] == number[order][:-1])
    )
    if len(again):
        at = again[np.argmin(order[again + 1])]  # the first in the file
        rows = np.sort(order[at : at + 2])
        raise InputError(
            f"{path}: {named_rows(rows)}: {level} {code[int(rows[0])].as_py()} is listed twice in area "
            f"{names[number[rows[0]]]!r}; list each unit once per area"
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
            f"{path}: cannot be read as a {kind} file ({reason}); it needs the columns area and the "
            f"name of a level, with codes as text"
        ) from error
