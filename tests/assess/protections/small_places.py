"""A plan and random people small enough that every other database can be tried."""

import numpy as np
import pyarrow as pa

from countveil import Plan
from countveil.assess.protections.exact_tables import ExactTables, tables_of, tabulated
from countveil.plan.geography import Geography

PLAN = """
[release]
title = "Small"
unit = "person"
neighbors = "change-one"

[geography]
path = "places.csv"
levels = ["region", "area"]

[attributes]
AGE = ["young", "old"]
SEX = ["f", "m"]

[budget]
rho = "1"
[budget.levels]
region = "1/2"
area = "1/2"
[budget.queries."*"]
TOTAL = "1/4"
AGE = "1/4"
"AGE*SEX" = "1/2"

[intruder]
knows = "area"
priors = [0.5, 0.1]
"""

THREE_LEVELS = PLAN.replace('["region", "area"]', '["nation", "region", "area"]').replace(
    '[budget.levels]\nregion = "1/2"', '[budget.levels]\nnation = "1/4"\nregion = "1/4"'
)


def places(*parents: list[int]) -> Geography:
    """Return places with one unit at the top and the stated parents below."""
    names = ("nation", "region", "area")[-len(parents) - 1 :]
    sizes = [1, *(len(level) for level in parents)]
    codes = tuple(
        pa.array([f"{name}{u}" for u in range(n)]) for name, n in zip(names, sizes, strict=True)
    )
    above = (np.zeros(1, np.int64), *(np.array(level, np.int64) for level in parents))
    return Geography(names, codes, above)


def tables(histogram, *, plan=PLAN, parents=None, basis="records") -> ExactTables:
    """Return the exact tables of people, given as lowest units × cells."""
    histogram = np.asarray(histogram)
    parsed = Plan.parse(plan)
    geography = places(*(parents or [[0] * len(histogram)]))
    unit, cell = np.nonzero(histogram)
    entries = (unit, cell, histogram[unit, cell])
    return tabulated(parsed, geography, basis, entries, tables_of(parsed))


def sums_of(exact: ExactTables):
    """Yield each table's key, and the matrix that makes its counts from the people, flat."""
    cells = exact.plan.schema.cells
    units = exact.geography.units(exact.lowest)
    for key, counts in exact.counts.items():
        query, place = exact.query(key), exact.place(key.level)
        matrix = np.zeros((counts.size, units * cells), int)
        for unit in range(units):
            for cell in range(cells):
                where = int(query.cells_at(cell))
                matrix[place[unit] * query.cells + where, unit * cells + cell] = 1
        yield key, matrix
