"""Take a query from a plan to something that can be selected from, or refuse it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb

from countveil.engines import rules
from countveil.engines.query.alone import Judge, Together
from countveil.engines.query.catalog import Catalog
from countveil.engines.query.reads import refuse_all_but_reading
from countveil.engines.query.stated_layout import state_layouts
from countveil.engines.query.tree import bracketed, parse, too_deep, written
from countveil.schema.plan_file import RecordsSection


def accept(
    records: RecordsSection,
    connection: duckdb.DuckDBPyConnection,
    folder: Path,
    label: str,
    lock: Callable[[bool], None],
) -> str:
    """Return the SQL of a query that only reads, and whose rows stand alone or are attested to.

    `lock` is called before any part of the query is prepared, with whether it reads files: it selects
    the database and closes the settings of the connection for good.
    """
    try:
        text, tree = parse(records.query or "", label)
        catalog = Catalog.of(connection, folder, label)
        lock(refuse_all_but_reading(tree, catalog, label))
        if records.each_person_alone:
            return bracketed(text)
        if state_layouts(tree, folder, label):
            text, tree = parse(written(tree), label)  # what is judged is what is run
        judge = Judge(
            catalog,
            frozenset(records.public_tables),
            label,
            lambda sql: connection.execute(sql).fetchall(),
        )
        counts = () if records.counts is None else (records.counts.lower(),)
        rows = judge.whole(tree, frozenset(counts))
    except Together as error:
        raise rules.depends_on_others(label, str(error)) from None
    except RecursionError:
        raise too_deep(label) from None
    if not rows.sources and judge.uses_public:
        raise rules.all_public(label)
    if rows.several is not None and records.person_id is None:
        raise rules.several_rows(label, rows.several)
    return bracketed(text)
