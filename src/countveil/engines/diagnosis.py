"""What is wrong with records that do not fit: row, column, rule, what is allowed."""

from __future__ import annotations

from typing import NoReturn

from countveil.engines.source import RESERVED, Source
from countveil.errors import RecordsError
from countveil.schema.attributes import listed
from countveil.schema.plan import Plan

_SHOWN = 5


def explain(source: Source, plan: Plan) -> NoReturn:
    """Name the rows that could not be counted, worst rule first, and refuse."""
    lowest = plan.levels[-1]
    blank = f"coalesce({source.geocode}, '') = ''"
    _refuse_if(
        source,
        blank,
        source.geocode,
        f"column {lowest}: no geography code; every row names its {lowest}",
    )
    _refuse_if(
        source,
        f"{source.geocode} NOT IN (SELECT code FROM {RESERVED}units)",
        source.geocode,
        f"column {lowest}: a code that the crosswalk does not list; add the {lowest} to the "
        f"crosswalk, or mend the code",
    )
    for attribute in plan.schema.attributes:
        text = source.text(attribute.name)
        _refuse_if(
            source,
            f"coalesce({text}, '') = ''",
            text,
            f"column {attribute.name}: a missing code; fill it in, or declare the category that "
            f"stands for missing under records.missing",
        )
        _refuse_if(
            source,
            f"{source.category(attribute)} IS NULL",
            text,
            f"column {attribute.name}: not a declared category; choose from "
            f"{listed(attribute.categories)}",
        )
    raise AssertionError("rows that could not be counted, and no rule they break")


def check_counts(source: Source) -> None:
    """Refuse counts that are missing, negative or not whole."""
    assert source.counts is not None
    text = f"CAST({source.counts} AS VARCHAR)"
    _refuse_if(
        source,
        f"TRY_CAST({source.counts} AS DOUBLE) IS NULL OR TRY_CAST({source.counts} AS BIGINT) "
        f"IS DISTINCT FROM TRY_CAST({source.counts} AS DOUBLE)",
        text,
        "column of counts: not a whole number; a count is 0 or more",
    )
    _refuse_if(
        source,
        f"TRY_CAST({source.counts} AS BIGINT) < 0",
        text,
        "column of counts: a negative count; a count is 0 or more",
    )


def check_persons(source: Source) -> None:
    """Refuse rows that belong to nobody: their number per person has no bound."""
    assert source.person is not None
    text = f"CAST({source.person} AS VARCHAR)"
    not_a_number = f"coalesce(isnan(TRY_CAST({text} AS DOUBLE)), false)"
    _refuse_if(
        source,
        f"coalesce({text}, '') = '' OR {not_a_number}",
        source.person,
        "column of records.person_id: no person; every row belongs to someone",
    )


def refuse_empty(source: Source, plan: Plan) -> NoReturn:
    """Refuse records without a row."""
    raise RecordsError(f"{source.label}: no rows; it should hold one row per {plan.unit}")


def _refuse_if(source: Source, broken: str, value: str, rule: str) -> None:
    source.connection.execute("SET preserve_insertion_order = true")  # rows as the file counts them
    numbered = f"(SELECT row_number() OVER () AS {RESERVED}row, * FROM {source.relation})"
    found = source.connection.execute(
        f"SELECT {RESERVED}row, {value} FROM {numbered} WHERE {broken} "
        f"ORDER BY {RESERVED}row LIMIT {_SHOWN + 1}"
    ).fetchall()
    if not found:
        return
    rows = ", ".join(str(row) for row, _ in found[:_SHOWN])
    more = " and more" if len(found) > _SHOWN else ""
    values = ""
    if source.show_values:
        values = " (" + ", ".join(repr(value) for _, value in found[:_SHOWN]) + ")"
    several = "s" if len(found) > 1 else ""
    raise RecordsError(f"{source.label}: row{several} {rows}{more}: {rule}{values}")
