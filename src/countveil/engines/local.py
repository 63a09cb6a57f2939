"""Counting on this machine with DuckDB: CSV, Parquet, a database query, or a table of counts."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from countveil.engines import diagnosis, rules
from countveil.engines.rules import RESERVED
from countveil.engines.source import Source, open_source
from countveil.errors import PlanError
from countveil.numerics import IntArray
from countveil.schema.geography import Geography
from countveil.schema.plan import Plan
from countveil.tabulate import counts as counting
from countveil.tabulate.counts import Counts
from countveil.tabulate.private_folder import private_folder
from countveil.workers import Processes

_ROWS = 1 << 17
_TALLY = f"{RESERVED}tally"


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """DuckDB in this process, within a bound of memory."""

    show_values: bool = False
    memory: str = "400MB"
    threads: int = os.cpu_count() or 1
    name = "local"

    def tabulate(self, plan: Plan) -> Counts:
        """Check the records against the plan and count them at every level."""
        if plan.records is None:
            raise PlanError(f"{plan.name}: records: is needed to release, and not there")
        geography = plan.geography()
        here = Path()
        if plan.records.query is not None:
            # File names inside a query are relative to the plan; DuckDB looks where we stand.
            plan = dataclasses.replace(plan, folder=plan.folder.absolute())
            here = plan.folder
        with private_folder() as spill, contextlib.chdir(here):
            source = open_source(plan, spill, self.memory, self.threads, self.show_values)
            try:
                with source.translated_errors():
                    if source.person is not None:
                        diagnosis.check_persons(source)
                    if source.counts is not None:
                        diagnosis.check_counts(source)
                    _count(source, plan, geography)
                    if source.one(
                        f"SELECT count(*) FROM {_TALLY} WHERE unit IS NULL OR cell IS NULL"
                    ):
                        diagnosis.explain(source, plan)
                    if not source.one(f"SELECT count(*) FROM {_TALLY}"):
                        raise rules.no_rows(source.label, plan)
                    entries = _sorted_tally(source)
                    return counting.build(
                        geography, plan.schema.cells, entries, plan.counting_digest
                    )
            finally:
                source.close()

    def workers(self, number: int | None = None) -> Processes:
        """Return processes of this machine: one per core, unless a number is given."""
        return Processes(number or len(os.sched_getaffinity(0)))


def _count(source: Source, plan: Plan, geography: Geography) -> None:
    """Fill `tally` with (unit, cell, n): one pass over the records, then a join of what is left."""
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


def _sorted_tally(source: Source) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
    ordered = source.connection.sql(
        f"SELECT unit::BIGINT, cell::BIGINT, n::BIGINT FROM {_TALLY} WHERE n > 0 ORDER BY unit, cell"
    )
    for batch in ordered.to_arrow_reader(_ROWS):
        unit, cell, count = (column.to_numpy() for column in batch.columns)
        yield unit, cell, count
