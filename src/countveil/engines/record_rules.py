"""The rules for records, as messages: every engine reports a broken rule in the same words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from countveil.errors import PlanError, RecordsError
from countveil.plan.attributes import Attribute, choices
from countveil.plan.plan_basis import PlanBasis

RESERVED = "__countveil_"  # prefix of our own names
SHOWN = 5  # rows listed in a message

# Counts written as text: whole numbers, also as "3.0".
WHOLE = r"[ \t]*([+-]?[0-9]+)(?:\.0*)?[ \t]*"
NOT_WHOLE = "column of counts: not a whole number; a count is 0 or more"
NEGATIVE = "column of counts: a negative count; a count is 0 or more"
BLANK_PERSON = "column of records.person_id: blank; give each row the id of its person"
PLACEHOLDER = (
    "column of records.person_id: a placeholder, such as NA, null or 0; give each row the id of its "
    "person, or list real ids that look like placeholders, exactly as written, under records.real_ids"
)


def no_geocode(lowest: str) -> str:
    """Return the rule that a row names its place."""
    return f"column {lowest}: blank; give each row the code of its {lowest}"


def unknown_geocode(lowest: str) -> str:
    """Return the rule that the crosswalk lists every place in the records."""
    return (
        f"column {lowest}: unknown geocode; add the {lowest} to the crosswalk, or correct the code"
    )


def missing_code(attribute: Attribute) -> str:
    """Return the rule that a row has a code for every attribute."""
    return (
        f"column {attribute.name}: missing code; fill it in, or declare a category for missing codes "
        f"under records.missing"
    )


def unknown_category(attribute: Attribute) -> str:
    """Return the rule that a code is a declared category."""
    return (
        f"column {attribute.name}: not a declared category; choose from "
        f"{choices(attribute.categories)}"
    )


def broken(
    label: str,
    rows: Sequence[int],
    rule: str,
    values: Sequence[Any] | None = None,
    *,
    each: str = "row",
) -> RecordsError:
    """Return the error that names the rows that break a rule, and their values if they may be shown.

    `rows` is empty for sources without an order, which have no row numbers.
    """
    which = f"some {each}s"
    if rows:
        which = each + ("s " if len(rows) > 1 else " ") + ", ".join(map(str, rows[:SHOWN]))
        which += " and more" if len(rows) > SHOWN else ""
    shown = ""
    if values is not None:
        shown = " (" + ", ".join(repr(value) for value in values[:SHOWN]) + ")"
    return RecordsError(f"{label}: {which}: {rule}{shown}")


def no_rows(label: str, plan: PlanBasis) -> RecordsError:
    """Return the error for records without a row."""
    return RecordsError(f"{label}: has no rows; it needs one row per {plan.unit}")


def not_text(label: str, column: str, kind: str) -> RecordsError:
    """Return the error for codes of places that are not text."""
    return RecordsError(
        f"{label}: column {column!r} holds {kind}, and codes are text so that leading zeros survive; "
        f"store it as text"
    )


def no_column(label: str, name: str, key: str, has: Sequence[str] | None) -> RecordsError:
    """Return the error for a missing column; `has` lists those in the file if they may be shown."""
    columns = "" if has is None else f"; its columns are {choices(has, 20)}"
    return RecordsError(
        f"{label}: no column {name!r} for {key}{columns}; rename the column, or map it under "
        f"records.columns"
    )


def depends_on_others(label: str, part: str) -> RecordsError:
    """Return the error for a query whose rows for one person may depend on others' records."""
    return RecordsError(
        f"{label}: {part} can make a person's rows depend on other people's records, which breaks the "
        f"guarantee; select row by row, list public look-up tables under records.public_tables, or "
        f"attest each_person_alone = true if you know that no person's rows depend on others"
    )


def several_rows(label: str, part: str) -> RecordsError:
    """Return the error for a query that may return several rows for one person."""
    return RecordsError(
        f"{label}: {part} can return several rows for one person, which contradicts "
        f"one_row_per_person = true; give person_id and max_rows instead, or attest "
        f"each_person_alone = true if you know that every person is counted once"
    )


def all_public(label: str) -> RecordsError:
    """Return the error for a query that reads public tables only."""
    return RecordsError(
        f"{label}: reads only records.public_tables; list look-up tables there, not the records "
        f"themselves"
    )


def refuse_twice(label: str, names: Sequence[str]) -> None:
    """Refuse names that several columns share: it is unclear which of them is meant."""
    if len(set(names)) < len(names):
        raise named_twice(label)


def named_twice(label: str) -> RecordsError:
    """Return the error for columns that share a name; a file without a header may have values there."""
    return RecordsError(f"{label}: several columns have the same name; rename all but one of them")


def refuse_reserved(label: str, names: Sequence[str]) -> None:
    """Refuse columns whose names could be mistaken for ours."""
    if any(name.lower().startswith(RESERVED) for name in names):
        raise RecordsError(
            f"{label}: column names that begin with {RESERVED} are reserved; rename them"
        )


def refuse_unknown_renames(plan: PlanBasis) -> None:
    """Refuse renamed columns that are not read, and a column of counts that is also read as a code.

    If the category or place of a row were its count, one more person would move everyone in the row.
    """
    assert plan.records is not None
    known = [plan.levels[-1], *(item.name for item in plan.schema.attributes)]
    for name in plan.records.columns:
        if name not in known:
            raise PlanError(
                f"{plan.name}: records.columns.{name}: no such level or attribute; choose from "
                f"{choices(known)}"
            )
    columns = {name: plan.records.columns.get(name, name) for name in known}
    for name, column in columns.items():
        if plan.records.counts is not None and column.lower() == plan.records.counts.lower():
            raise PlanError(
                f"{plan.name}: records.counts: {column!r} is the column of counts, and {name} would be "
                f"read from it too; read {name} from another column"
            )


def unreadable(label: str, kind: str, *, detail: str = "", show_values: bool) -> RecordsError:
    """Return the error for an unreadable source; `detail` has no values unless they may be shown."""
    what = "be run" if kind == "query" else f"be read as {kind}"
    hint = "" if show_values else ", or use --show-values to see the values that failed"
    return RecordsError(f"{label}: cannot {what}{detail}; check the file{hint}")
