"""What is wrong with records that do not fit: row, column, rule, what is allowed."""

from __future__ import annotations

from typing import NoReturn

from countveil.engines import rules
from countveil.engines.rules import RESERVED, SHOWN
from countveil.engines.source import Source, literal
from countveil.schema import person_ids
from countveil.schema.plan import Plan


def explain(source: Source, plan: Plan) -> NoReturn:
    """Name the rows that could not be counted, worst rule first, and refuse."""
    lowest = plan.levels[-1]
    blank = f"coalesce({source.geocode}, '') = ''"
    _refuse_if(
        source,
        blank,
        source.geocode,
        rules.no_geocode(lowest),
    )
    _refuse_if(
        source,
        f"{source.geocode} NOT IN (SELECT code FROM {RESERVED}units)",
        source.geocode,
        rules.unknown_geocode(lowest),
    )
    for attribute in plan.schema.attributes:
        text = source.text(attribute.name)
        _refuse_if(
            source,
            f"coalesce({text}, '') = ''",
            text,
            rules.missing_code(attribute),
        )
        _refuse_if(
            source,
            f"{source.category(attribute)} IS NULL",
            text,
            rules.unknown_category(attribute),
        )
    raise AssertionError("rows that could not be counted, and no rule they break")


def check_counts(source: Source) -> None:
    """Refuse counts that are missing, negative or not whole."""
    text = f"CAST({source.counts} AS VARCHAR)"
    _refuse_if(source, f"{source.whole} IS NULL", text, rules.NOT_WHOLE)
    _refuse_if(source, f"{source.whole} < 0", text, rules.NEGATIVE)


def check_persons(source: Source) -> None:
    """Refuse rows without a person: several people would be bounded as if they were one."""
    assert source.person is not None
    text = f"coalesce(CAST({source.person} AS VARCHAR), '')"
    visible = f"regexp_replace({text}, {literal(person_ids.INVISIBLE)}, '', 'g')"
    nobody = f"regexp_full_match({visible}, {literal(person_ids.NOBODY)})"
    _refuse_if(source, nobody, source.person, rules.NOBODY)
    placeholder = f"regexp_full_match({visible}, {literal(person_ids.PLACEHOLDER)})"
    if source.real_ids:
        placeholder += f" AND {text} NOT IN ({', '.join(map(literal, source.real_ids))})"
    _refuse_if(source, placeholder, source.person, rules.PLACEHOLDER)


def _refuse_if(source: Source, broken: str, value: str, rule: str) -> None:
    numbered = f"(SELECT row_number() OVER () AS {RESERVED}row, * FROM {source.relation})"
    found = source.connection.execute(
        f"SELECT {RESERVED}row, {value} FROM {numbered} WHERE {broken} "
        f"ORDER BY {RESERVED}row LIMIT {SHOWN + 1}"
    ).fetchall()
    if found:
        rows, values = zip(*found, strict=True)
        raise rules.broken(source.label, rows, rule, values if source.show_values else None)
