"""The local engine: DuckDB counts CSV, Parquet, a database query, or a table of counts."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa

from countveil.base.numerics import IntArray
from countveil.base.spill_folder import private_folder
from countveil.engines import counts as counting
from countveil.engines import record_rules
from countveil.engines.counts import Counts
from countveil.engines.local.duckdb_source import DuckDBSource, literal, open_source
from countveil.engines.record_rules import RESERVED, SHOWN
from countveil.engines.workers import Processes
from countveil.errors import PlanError
from countveil.plan import person_ids
from countveil.plan.geography import Geography
from countveil.plan.plan_basis import PlanBasis


def explain(source: DuckDBSource, plan: PlanBasis) -> NoReturn:
    """Raise the error that names the rows that could not be counted, by the first rule they break."""
    lowest = plan.levels[-1]
    blank = f"coalesce({source.geocode}, '') = ''"
    _refuse_if(
        source,
        blank,
        source.geocode,
        record_rules.no_geocode(lowest),
    )
    _refuse_if(
        source,
        f"{source.geocode} NOT IN (SELECT code FROM {RESERVED}units)",
        source.geocode,
        record_rules.unknown_geocode(lowest),
    )
    for attribute in plan.schema.attributes:
        text = source.text(attribute.name)
        _refuse_if(
            source,
            f"coalesce({text}, '') = ''",
            text,
            record_rules.missing_code(attribute),
        )
        _refuse_if(
            source,
            f"{source.category(attribute)} IS NULL",
            text,
            record_rules.unknown_category(attribute),
        )
    raise AssertionError("rows that could not be counted break no rule")


def check_counts(source: DuckDBSource) -> None:
    """Refuse counts that are missing, negative or not whole."""
    text = f"CAST({source.counts} AS VARCHAR)"
    _refuse_if(source, f"{source.whole} IS NULL", text, record_rules.NOT_WHOLE)
    _refuse_if(source, f"{source.whole} < 0", text, record_rules.NEGATIVE)


def check_persons(source: DuckDBSource) -> None:
    """Refuse rows without a person id: several people would be bounded as if they were one."""
    assert source.person is not None
    text = f"coalesce(CAST({source.person} AS VARCHAR), '')"
    visible = f"regexp_replace({text}, {literal(person_ids.INVISIBLE)}, '', 'g')"
    blank = f"regexp_full_match({visible}, {literal(person_ids.BLANK)})"
    _refuse_if(source, blank, source.person, record_rules.BLANK_PERSON)
    bare = f"regexp_replace({visible}, {literal(person_ids.MARKS)}, '', 'g')"
    placeholder = (
        f"(regexp_full_match({visible}, {literal(person_ids.NUMBER)}) OR "
        f"regexp_full_match({bare}, {literal(person_ids.WORD)}))"
    )
    if source.real_ids:
        placeholder += f" AND {text} NOT IN ({', '.join(map(literal, source.real_ids))})"
    _refuse_if(source, placeholder, source.person, record_rules.PLACEHOLDER)


def _refuse_if(source: DuckDBSource, broken: str, value: str, rule: str) -> None:
    numbered = f"(SELECT row_number() OVER () AS {RESERVED}row, * FROM {source.relation})"
    faults = source.connection.execute(
        f"SELECT {RESERVED}row, {value} FROM {numbered} WHERE {broken} "
        f"ORDER BY {RESERVED}row LIMIT {SHOWN + 1}"
    ).fetchall()
    if faults:
        rows, values = zip(*faults, strict=True)
        raise record_rules.broken(source.label, rows, rule, values if source.show_values else None)


_ROWS = 1 << 17
_TALLY = f"{RESERVED}tally"


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """DuckDB in this process, within a limit of memory.

    Parameters
    ----------
    show_values
        Whether messages may quote values taken from records.
    memory
        DuckDB's limit; what does not fit spills to a private folder.
    threads
        How many threads DuckDB uses; one per core by default.

    """

    show_values: bool = False
    memory: str = "400MB"
    threads: int = os.cpu_count() or 1
    name = "local"

    def tabulate(self, plan: PlanBasis) -> Counts:
        """Return the counts of every level, once the records are checked against the plan."""
        if plan.records is None:
            raise PlanError(f"{plan.name}: [records] is missing; a release needs it")
        geography = plan.geography()
        here = Path()
        if plan.records.query is not None:
            # File names in a query are relative to the plan, and DuckDB uses the working folder.
            plan = dataclasses.replace(plan, folder=plan.folder.absolute())
            here = plan.folder
        with private_folder() as spill, contextlib.chdir(here):
            source = open_source(plan, spill, self.memory, self.threads, self.show_values)
            try:
                with source.translated_errors():
                    if source.person is not None:
                        check_persons(source)
                    if source.counts is not None:
                        check_counts(source)
                    _count(source, plan, geography)
                    if source.one(
                        f"SELECT count(*) FROM {_TALLY} WHERE unit IS NULL OR cell IS NULL"
                    ):
                        explain(source, plan)
                    if not source.one(f"SELECT count(*) FROM {_TALLY}"):
                        raise record_rules.no_rows(source.label, plan)
                    return counting.build(
                        geography,
                        plan.schema.cells,
                        _sorted_tally(source),
                        plan.counting_digest,
                        _rows_read(source, geography.units(plan.levels[-1])),
                    )
            finally:
                source.close()

    def workers(self, number: int | None = None) -> Processes:
        """Return processes of this machine: `number`, or one per core."""
        return Processes(number or len(os.sched_getaffinity(0)))


def _count(source: DuckDBSource, plan: PlanBasis, geography: Geography) -> None:
    """Fill `tally` with (unit, cell, n): one pass over the records, then a join of the groups."""
    units = pa.table(
        {
            "code": geography.codes[-1],
            "unit": pa.array(np.arange(geography.units(plan.levels[-1])), pa.int32()),
        }
    )
    source.connection.register(f"{RESERVED}units", units)
    stride, terms = plan.schema.cells, []
    for attribute in plan.schema.attributes:
        stride //= len(attribute.categories)
        terms.append(f"enum_code({source.category(attribute)})::INTEGER * {stride}")
    amount = "count(*)" if source.counts is None else f"sum({source.whole})"
    source.connection.execute(
        f"CREATE TEMP TABLE {RESERVED}grouped AS "
        f"SELECT {source.geocode} AS code, {' + '.join(terms) or '0'} AS cell, "
        f"{amount} AS n FROM {source.rows()} GROUP BY ALL"
    )
    source.connection.execute(
        f"CREATE TEMP TABLE {_TALLY} AS SELECT unit, cell, n FROM {RESERVED}grouped "
        f"LEFT JOIN {RESERVED}units USING (code)"
    )
    source.connection.execute(f"DROP TABLE {RESERVED}grouped")


def _rows_read(source: DuckDBSource, units: int) -> IntArray | None:
    """Return the rows of each lowest unit before `max_rows` is applied; None if it is not."""
    if source.person is None:
        return None
    tally = source.connection.sql(
        f"SELECT unit::BIGINT, count(*)::BIGINT FROM (SELECT {source.geocode} AS code FROM "
        f"{source.relation}) JOIN {RESERVED}units USING (code) GROUP BY unit"
    )
    rows: IntArray = np.zeros(units, np.int64)
    for batch in tally.to_arrow_reader(_ROWS):
        unit, count = (column.to_numpy() for column in batch.columns)
        rows[unit] = count
    return rows


def _sorted_tally(source: DuckDBSource) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    ordered = source.connection.sql(
        f"SELECT unit::BIGINT, cell::BIGINT, n::BIGINT FROM {_TALLY} WHERE n > 0 ORDER BY unit, cell"
    )
    for batch in ordered.to_arrow_reader(_ROWS):
        unit, cell, count = (column.to_numpy() for column in batch.columns)
        yield unit, cell, count
