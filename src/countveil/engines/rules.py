"""The rules that records keep, in words: whichever engine finds them broken says the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from countveil.errors import PlanError, RecordsError
from countveil.schema.attributes import Attribute, listed
from countveil.schema.plan import Plan

RESERVED = "__countveil_"  # how names of our own begin
SHOWN = 5  # rows that a message names

# Counts written as text: whole numbers, also as "3.0".
WHOLE = r"[ \t]*([+-]?[0-9]+)(?:\.0*)?[ \t]*"
NOT_WHOLE = "column of counts: not a whole number; a count is 0 or more"
NEGATIVE = "column of counts: a negative count; a count is 0 or more"
NOBODY = "column of records.person_id: no person; every row belongs to someone"
PLACEHOLDER = (
    "column of records.person_id: no person but a placeholder, such as NA, null or 0; give each row "
    "the id of its person, or list real ids that look like this, as they are written, under "
    "records.real_ids"
)


def no_geocode(lowest: str) -> str:
    """Say that a row names no place."""
    return f"column {lowest}: no geography code; every row names its {lowest}"


def unknown_geocode(lowest: str) -> str:
    """Say that a row names a place that there is not."""
    return (
        f"column {lowest}: a code that the crosswalk does not list; add the {lowest} to the "
        f"crosswalk, or mend the code"
    )


def missing_code(attribute: Attribute) -> str:
    """Say that a row has no code where one is needed."""
    return (
        f"column {attribute.name}: a missing code; fill it in, or declare the category that "
        f"stands for missing under records.missing"
    )


def unknown_category(attribute: Attribute) -> str:
    """Say that a code is none of those declared."""
    return (
        f"column {attribute.name}: not a declared category; choose from "
        f"{listed(attribute.categories)}"
    )


def broken(
    label: str,
    rows: Sequence[int],
    rule: str,
    values: Sequence[Any] | None = None,
    *,
    each: str = "row",
) -> RecordsError:
    """Name the rows that break a rule; values only where they may be shown.

    Sources without an order have no row numbers: `rows` is empty then.
    """
    which = f"some {each}s"
    if rows:
        which = each + ("s " if len(rows) > 1 else " ") + ", ".join(map(str, rows[:SHOWN]))
        which += " and more" if len(rows) > SHOWN else ""
    shown = ""
    if values is not None:
        shown = " (" + ", ".join(repr(value) for value in values[:SHOWN]) + ")"
    return RecordsError(f"{label}: {which}: {rule}{shown}")


def no_rows(label: str, plan: Plan) -> RecordsError:
    """Say that there is nothing to count."""
    return RecordsError(f"{label}: no rows; it should hold one row per {plan.unit}")


def not_text(label: str, column: str, kind: str) -> RecordsError:
    """Say that codes of places came as something other than text."""
    return RecordsError(
        f"{label}: column {column!r} holds {kind}, and codes are text so that leading zeros "
        f"survive; store it as text"
    )


def no_column(label: str, name: str, key: str, has: Sequence[str] | None) -> RecordsError:
    """Say that a column is missing; `has` are those there, where they may be shown."""
    columns = "" if has is None else f"; its columns are {listed(has, 20)}"
    return RecordsError(
        f"{label}: no column {name!r} for {key}{columns}; rename the column, or map it under "
        f"records.columns"
    )


def depends_on_others(label: str, part: str) -> RecordsError:
    """Say that what a query returns for one person may depend on other people's records."""
    return RecordsError(
        f"{label}: {part} can make a person's rows depend on other people's records, and the guarantee "
        f"does not hold then; select row by row, declare look-up tables that are public under "
        f"records.public_tables, or attest each_person_alone = true if you know that no person's "
        f"rows depend on others"
    )


def several_rows(label: str, part: str) -> RecordsError:
    """Say that a query may return several rows for what is attested to be one."""
    return RecordsError(
        f"{label}: {part} can return several rows for one person, against one_row_per_person = true; "
        f"give person_id and max_rows instead, or attest each_person_alone = true if you know that "
        f"every person is counted once"
    )


def all_public(label: str) -> RecordsError:
    """Say that nothing confidential is left in a query."""
    return RecordsError(
        f"{label}: reads nothing but records.public_tables; list only look-up tables there, not the "
        f"records themselves"
    )


def refuse_twice(label: str, names: Sequence[str]) -> None:
    """Refuse names that several columns share: which of them is meant, nobody said."""
    if len(set(names)) < len(names):
        raise named_twice(label)


def named_twice(label: str) -> RecordsError:
    """Say that columns share a name, which is not quoted: without a header it is a value."""
    return RecordsError(f"{label}: several columns have the same name; rename all but one of them")


def refuse_reserved(label: str, names: Sequence[str]) -> None:
    """Refuse columns whose names could be taken for our own."""
    if any(name.lower().startswith(RESERVED) for name in names):
        raise RecordsError(f"{label}: columns that begin with {RESERVED} are reserved")


def refuse_unknown_renames(plan: Plan) -> None:
    """Refuse column names for something that is not read, and counts that are read as something else.

    If the category or place of a row were its count, one person more would move everyone in the row.
    """
    assert plan.records is not None
    known = [plan.levels[-1], *(item.name for item in plan.schema.attributes)]
    for name in plan.records.columns:
        if name not in known:
            raise PlanError(
                f"{plan.name}: records.columns.{name}: no level or attribute of that name is read; "
                f"choose from {listed(known)}"
            )
    columns = {name: plan.records.columns.get(name, name) for name in known}
    for name, column in columns.items():
        if plan.records.counts is not None and column.lower() == plan.records.counts.lower():
            raise PlanError(
                f"{plan.name}: records.counts: {column!r} is the column of counts, and {name} would be "
                f"read from it too; read {name} from another column"
            )


def unreadable(label: str, kind: str, *, detail: str = "", show_values: bool) -> RecordsError:
    """Say that a source cannot be read; `detail` holds no value unless values may be shown."""
    what = "be run" if kind == "query" else f"be read as {kind}"
    hint = "" if show_values else ", or see the values at fault with --show-values"
    return RecordsError(f"{label}: cannot {what}{detail}; check the file{hint}")
