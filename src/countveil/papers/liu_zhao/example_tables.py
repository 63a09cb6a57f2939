"""The tables of paper 004: people by identifiers and one sensitive attribute.

The bankruptcy tables are stored as counts of labels, which is all that a homogeneity attack uses;
readers bring the records. Source: UCI Machine Learning Repository, Qualitative Bankruptcy (2014).
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import pyarrow as pa

from countveil.assess.homogeneity.sensitive_table import Table
from countveil.errors import InputError
from countveil.papers.reader_files import (
    read_rows,
    reader_file,
    refuse_other_widths,
    whole_number,
)

ADULT_FILE, BANKRUPTCY_FILE = "adult.data", "Qualitative_Bankruptcy.data.txt"
NEEDS_ADULT = (
    f"The Adult data are not shipped: put UCI's {ADULT_FILE} into a folder and use --data."
)
NEEDS_BANKRUPTCY = (
    f"Marginals need records: put UCI's {BANKRUPTCY_FILE} into a folder and use --data."
)
_BANKRUPTCY = ("IR", "MR", "FF", "Cr", "Co", "OR", "Class")
_ADULT = (
    "age",
    "workclass",
    "weight",
    "education",
    "years",
    "marital",
    "occupation",
    "relationship",
    "race",
    "sex",
    "gain",
    "loss",
    "hours",
    "country",
    "income",
)
_QUALITATIVE = ("IR", "MR", "Cr", "Co", "OR")

# Counts by label, and how many cells have them: Class by six identifiers, and FF by five.
_BANK_CELLS = (
    *((0, 1, 26), (0, 2, 45), (0, 3, 1), (0, 4, 6), (1, 0, 3), (2, 0, 5), (3, 0, 1)),
    *((4, 0, 9), (5, 0, 2), (7, 0, 1), (8, 0, 1), (9, 0, 1), (10, 0, 1), (11, 0, 1)),
)
_SUBSET_CELLS = (
    *((0, 0, 1, 9), (0, 0, 2, 6), (0, 0, 4, 1), (0, 1, 0, 4), (0, 1, 1, 1), (0, 2, 0, 6)),
    *((0, 3, 0, 1), (0, 4, 0, 8), (0, 5, 0, 2), (0, 7, 0, 1), (0, 8, 0, 1), (0, 9, 0, 1)),
    *((0, 11, 0, 1), (1, 0, 0, 5), (1, 0, 1, 1), (1, 1, 0, 1), (1, 2, 0, 1), (2, 0, 0, 8)),
    *((2, 0, 1, 2), (2, 0, 2, 11), (2, 1, 0, 1), (2, 3, 0, 1), (4, 0, 2, 2), (4, 1, 2, 1)),
    *((4, 4, 0, 1), (4, 10, 0, 1)),
)


@cache
def bankruptcy() -> Table:
    """Return bankruptcies by six identifiers: 103 cells, all homogeneous."""
    return _repeated(_BANK_CELLS)


@cache
def subset() -> Table:
    """Return financial flexibility by five identifiers: 78 cells, 24 of them heterogeneous."""
    return _repeated(_SUBSET_CELLS)


def _repeated(cells: tuple[tuple[int, ...], ...]) -> Table:
    return Table.from_counts([vector for *vector, times in cells for _ in range(times)])


def subset_records(folder: Path | None) -> Table | None:
    """Return the subset from the reader's records, with its identifiers; None without the file."""
    path = reader_file(folder, BANKRUPTCY_FILE)
    if path is None:
        return None
    rows = read_rows(path)
    refuse_other_widths(path, rows, len(_BANKRUPTCY))
    if not rows:
        raise InputError(f"{path}: has no rows; check that it is UCI's file")
    table = pa.table({name: [row[at] for row in rows] for at, name in enumerate(_BANKRUPTCY)})
    _refuse_one_value(path, table, "FF")
    return Table.from_records(table, identifiers=_QUALITATIVE, sensitive="FF")


def adult(folder: Path | None) -> Table | None:
    """Return income by six identifiers from the reader's records; None without the file.

    It has the complete rows of people born in the United States, with ages in groups of 5 years and
    hours in groups of 10, including the upper end.
    """
    path = reader_file(folder, ADULT_FILE)
    if path is None:
        return None
    rows = read_rows(path)
    refuse_other_widths(path, rows, len(_ADULT))
    complete = [dict(zip(_ADULT, row, strict=True)) for row in rows if "?" not in row]
    people = [row for row in complete if row["country"] == "United-States"]
    if not people:
        raise InputError(
            f"{path}: no complete row of the United States; check that it is UCI's file"
        )
    columns = {
        name: [row[name] for row in people] for name in ("relationship", "education", "race")
    }
    columns["sex"] = [row["sex"] for row in people]
    for name, width in (("age", 5), ("hours", 10)):
        numbers = [whole_number(path, name, row[name], least=0) for row in people]
        columns[name] = [str(math.ceil(number / width)) for number in numbers]
    identifiers = list(columns)
    columns["income"] = [row["income"] for row in people]
    _refuse_one_value(path, pa.table(columns), "income")
    return Table.from_records(pa.table(columns), identifiers=identifiers, sensitive="income")


def _refuse_one_value(path: Path, table: pa.Table, name: str) -> None:
    if len(table[name].unique()) < 2:
        raise InputError(
            f"{path}: all {table.num_rows:,} rows in use have the same {name}, so there is nothing to "
            f"learn; check that it is UCI's file"
        )
