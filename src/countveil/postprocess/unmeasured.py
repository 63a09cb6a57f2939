"""Tables that measurements do not determine: refused, or published under a name that says so.

TopDown fills in every cell, also those that no query tells apart. A table made of such cells looks like
data and is not: it shows where the solver happened to put people.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from countveil.errors import InputError, PlanError
from countveil.plan.passes import coarsens
from countveil.plan.plans import Plan
from countveil.plan.table_layouts import TableLayout, Variable
from countveil.plan.workload import Query
from countveil.tree.determination import Determination
from countveil.tree.observed_levels import Observed

SUFFIX = "_unmeasured"


def refuse_unmeasured(plan: Plan) -> None:
    """Raise if a table of a plan has a line that measurements do not determine.

    Parameters
    ----------
    plan
        A plan of counts.

    Raises
    ------
    PlanError
        With the table, the level, and what to measure; not if the plan labels such tables.

    """
    if plan.method != "top-down" or plan.unmeasured == "label":
        return
    for table in plan.tables:
        for level, known in determined_lines(plan, table).items():
            if known.all():
                continue
            line = table.variables[int(np.argmin(known))]
            below = plan.levels[plan.levels.index(level) :]
            measured = dict.fromkeys(item.query.name for at in below for item in plan.at(at))
            raise PlanError(
                f"postprocess.tables: {table.name}: nothing measured at level {level} or below "
                f"determines {line.label!r}, so the table would show made-up numbers (measured: "
                f"{', '.join(measured) or 'nothing'}); give {table.query.name} a share in "
                f"[budget.queries] at level {level}, remove the table, or set "
                f'unmeasured = "label" in [postprocess] to publish it marked as not measured'
            )


def determined_lines(plan: Plan, table: TableLayout) -> dict[str, NDArray[np.bool_]]:
    """Return, for each level with estimates, which lines of a table measurements determine."""
    levels = plan.estimated_levels
    if _measured(plan, table.query, levels[-1]):
        return {level: np.ones(len(table.variables), bool) for level in levels}
    members = [np.asarray(item.cells, np.int64) for item in table.variables]
    determination = _determination(plan, table.query)
    if determination is None:
        return {
            level: np.full(len(members), _measured(plan, table.query, level)) for level in levels
        }
    return {level: determination.sums(plan.levels.index(level), members) for level in levels}


def determined_cells(plan: Plan, level: str) -> NDArray[np.bool_]:
    """Return which cells of the full histogram measurements of a level and below determine."""
    query = plan.schema.every_cell
    determination = _determination(plan, query)
    if determination is None:
        return np.full(query.cells, _measured(plan, query, level))
    return determination.cells(plan.levels.index(level))


def published_tables(plan: Plan) -> tuple[TableLayout, ...]:
    """Return the tables of a plan, with lines that are not measured named and labelled as such."""
    if plan.unmeasured != "label":
        return plan.tables
    return tuple(_labelled(plan, table) for table in plan.tables)


def unmeasured_in_words(plan: Plan) -> list[str]:
    """Return a sentence for each table of a plan with lines that are not measured."""
    sentences = []
    for table in plan.tables if plan.method == "top-down" else ():
        known = determined_lines(plan, table)
        missing = [level for level, lines in known.items() if not lines.all()]
        if missing:
            levels = f"level {missing[0]}" if len(missing) == 1 else f"levels {', '.join(missing)}"
            marked = plan.unmeasured == "label"  # older releases have such tables without a mark
            numbers = f"numbers in columns that end in {SUFFIX}" if marked else "its numbers"
            sentences.append(
                f"{table.name} is not measured at {levels}: {numbers} are filled in to make tables "
                f"complete, and say nothing about the people there."
            )
    return sentences


def _labelled(plan: Plan, table: TableLayout) -> TableLayout:
    known = determined_lines(plan, table)
    variables = []
    for number, line in enumerate(table.variables):
        missing = [level for level, lines in known.items() if not lines[number]]
        variables.append(_marked(line, missing, whole=len(missing) == len(known)))
    return replace(table, variables=tuple(variables))


def _marked(line: Variable, missing: list[str], *, whole: bool) -> Variable:
    if not missing:
        return line
    where = "unmeasured" if whole else f"unmeasured at level {', '.join(missing)}"
    return replace(line, name=f"{line.name}{SUFFIX}", label=f"{line.label} ({where})")


@lru_cache(maxsize=16)
def _determination(plan: Plan, query: Query) -> Determination | None:
    """Return what determines a query, None if it is too large: then only what is measured."""
    try:
        return Determination.of(Observed.planned(plan), query)
    except InputError:
        return None


def _measured(plan: Plan, query: Query, level: str) -> bool:
    """Whether a query is a sum of one that is measured at a level or below."""
    below = plan.levels[plan.levels.index(level) :]
    measured = [item.query for at in below for item in plan.at(at)]
    return query in measured or (
        query.complete and any(item.complete and coarsens(query, item) for item in measured)
    )
