"""The lines of a CSV file, looked at before Spark splits them: a record must be one line.

Spark's reader ends a record at every line break, also within quotes: one person's text could hold
what looks like another record. So a file is scanned once, and refused where a line is no record.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

LINE = "value"  # what Spark calls the text of a line

_RUNS_OVER = (
    "a quoted field runs over a line, which Spark would take for two records; write Parquet, or "
    "take the line breaks out"
)
_RETURN = (
    "a carriage return inside a line, where Spark would end a record; write Parquet, or end lines "
    "with a line feed and take other returns out"
)
_STRAY = (
    'a quotation mark in a field that is not quoted as a whole; write it as "" in a quoted field, or '
    "write Parquet"
)
_BLANK = "nothing but blanks, which is neither a record nor an empty line; take it out"


@dataclass(frozen=True, eq=False, slots=True)
class Lines:
    """The lines of a file with their place in it, how fields are divided, and the most a line has."""

    frame: DataFrame
    delimiter: str
    most_fields: int


def faults_of(lines: Lines) -> list[tuple[Column, str]]:
    """Return where a line is no record, each with the words for it, worst first."""
    line = sql.col(LINE)
    returns = sql.when(line.endswith("\r"), 1).otherwise(0)
    quotes = _times('"')
    # Java's `trim`, by which Spark takes a line for an empty one, strips all up to the blank.
    blank = (line < "!") & line.rlike(r"\A[\x00-\x20]+\z") & ~line.isin("", "\r")
    too_many = (
        f"more than {lines.most_fields:,} fields, which the header does not name; mend the line"
    )
    return [
        (quotes % 2 == 1, _RUNS_OVER),
        (_times("\r") > returns, _RETURN),
        ((quotes > 0) & ~line.rlike(_well_quoted(lines.delimiter)), _STRAY),
        (blank, _BLANK),
        (_times(lines.delimiter) >= lines.most_fields, too_many),
    ]


def _times(mark: str) -> Column:
    """Return how often a character of one byte is in a line."""
    line = sql.col(LINE)
    return sql.octet_length(line) - sql.octet_length(sql.replace(line, sql.lit(mark), sql.lit("")))


def _well_quoted(delimiter: str) -> str:
    """Return the pattern of a line whose fields are quoted as a whole or not at all (RFC 4180).

    Its quantifiers give nothing back, so Java walks a line of any length without recursion.
    """
    mark = f"\\x{ord(delimiter):02x}"
    field = rf'(?:"(?:[^"]++|"")*+"|[^"{mark}\r]*+)'
    return rf"\A{field}(?:{mark}{field})*+\r?\z"
