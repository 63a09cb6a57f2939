"""Tables to publish: the official redistricting tables by name, or any query with a line per cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from countveil.errors import PlanError
from countveil.schema.attributes import listed
from countveil.schema.plan_file import PlanFile
from countveil.schema.workload import TOTAL, Query, Schema, without_blanks

MOST_LINES = 10_000
MOST_LINES_TOGETHER = 100_000
_MOST_TEXT = 10_000_000  # characters of the labels of a table

Kept = Mapping[str, tuple[str, ...]]  # per attribute, the categories that a line counts
_Line = tuple[int, str, Kept]  # indent, label, who is counted


@dataclass(frozen=True, slots=True)
class Variable:
    """One line of a table: it sums `cells` of the table's query."""

    name: str
    label: str
    indent: int
    cells: tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Table:
    """Lines of sums of a query; cell c of the full histogram lies in cell query.cell_of[c]."""

    name: str
    title: str
    universe: str
    query: Query
    variables: tuple[Variable, ...]


@dataclass(frozen=True, slots=True)
class _Official:
    """A table of the 2020 redistricting files (Public Law 94-171)."""

    title: str
    universe: str
    attributes: tuple[str, ...]
    preset: str
    lines: tuple[_Line, ...]


# The names of Public Law 94-171, in official order; a combination follows the order of its parts.
_RACES = {
    "white": "White",
    "black": "Black or African American",
    "aian": "American Indian and Alaska Native",
    "asian": "Asian",
    "nhpi": "Native Hawaiian and Other Pacific Islander",
    "other": "Some Other Race",
}
_INSTITUTIONAL = {
    "correctional facilities for adults": "Correctional facilities for adults",
    "juvenile facilities": "Juvenile facilities",
    "nursing facilities": "Nursing facilities/Skilled-nursing facilities",
    "other institutional": "Other institutional facilities",
}
_NONINSTITUTIONAL = {
    "college housing": "College/University student housing",
    "military quarters": "Military quarters",
    "other noninstitutional": "Other noninstitutional facilities",
}
_QUARTERS = (*_INSTITUTIONAL, *_NONINSTITUTIONAL)


def _combinations(size: int) -> list[str]:
    return ["+".join(some) for some in combinations(_RACES, size)]


# What the official tables need: the categories of the presets.
CATEGORIES = {
    "HHGQ": ("household", *_QUARTERS),
    "VOTINGAGE": ("under 18", "18 and over"),
    "HISPANIC": ("not Hispanic", "Hispanic"),
    "CENRACE": tuple(race for size in range(1, 7) for race in _combinations(size)),
    "OCCUPANCY": ("occupied", "vacant"),
}


def _by_race(among: Kept, indent: int) -> Iterator[_Line]:
    """Yield the lines by number and combination of races."""
    several = CATEGORIES["CENRACE"][len(_RACES) :]
    yield indent, "Population of one race:", {**among, "CENRACE": tuple(_RACES)}
    for race, label in _RACES.items():
        yield indent + 1, f"{label} alone", {**among, "CENRACE": (race,)}
    yield indent, "Population of two or more races:", {**among, "CENRACE": several}
    for size, word in enumerate(("two", "three", "four", "five", "six"), 2):
        races = _combinations(size)
        yield indent + 1, f"Population of {word} races:", {**among, "CENRACE": tuple(races)}
        for race in races:
            label = "; ".join(_RACES[part] for part in race.split("+"))
            yield indent + 2, label, {**among, "CENRACE": (race,)}


def _race(among: Kept) -> tuple[_Line, ...]:
    return ((0, "Total:", among), *_by_race(among, 1))


def _origin_and_race(among: Kept) -> tuple[_Line, ...]:
    others = {**among, "HISPANIC": ("not Hispanic",)}
    return (
        (0, "Total:", among),
        (1, "Hispanic or Latino", {**among, "HISPANIC": ("Hispanic",)}),
        (1, "Not Hispanic or Latino:", others),
        *_by_race(others, 2),
    )


def _quarters() -> Iterator[_Line]:
    yield 0, "Total:", {"HHGQ": _QUARTERS}
    for title, kinds in (
        ("Institutionalized population:", _INSTITUTIONAL),
        ("Noninstitutionalized population:", _NONINSTITUTIONAL),
    ):
        yield 1, title, {"HHGQ": tuple(kinds)}
        for kind, label in kinds.items():
            yield 2, label, {"HHGQ": (kind,)}


_ADULTS = {"VOTINGAGE": ("18 and over",)}
_ORIGIN = "Hispanic or Latino, and Not Hispanic or Latino by Race"
_OFFICIAL = {
    "P1": _Official("Race", "Total population", ("CENRACE",), "pl94-2020", _race({})),
    "P2": _Official(
        _ORIGIN,
        "Total population",
        ("HISPANIC", "CENRACE"),
        "pl94-2020",
        _origin_and_race({}),
    ),
    "P3": _Official(
        "Race for the Population 18 Years and Over",
        "Total population 18 years and over",
        ("VOTINGAGE", "CENRACE"),
        "pl94-2020",
        _race(_ADULTS),
    ),
    "P4": _Official(
        f"{_ORIGIN} for the Population 18 Years and Over",
        "Total population 18 years and over",
        ("VOTINGAGE", "HISPANIC", "CENRACE"),
        "pl94-2020",
        _origin_and_race(_ADULTS),
    ),
    "P5": _Official(
        "Group Quarters Population by Major Group Quarters Type",
        "Population in group quarters",
        ("HHGQ",),
        "pl94-2020",
        tuple(_quarters()),
    ),
    "H1": _Official(
        "Occupancy Status",
        "Housing units",
        ("OCCUPANCY",),
        "pl94-2020-housing",
        (
            (0, "Total:", {}),
            (1, "Occupied", {"OCCUPANCY": ("occupied",)}),
            (1, "Vacant", {"OCCUPANCY": ("vacant",)}),
        ),
    ),
}


def read_tables(checked: PlanFile, schema: Schema) -> tuple[Table, ...]:
    """Resolve the tables of a plan."""
    tables: list[Table] = []
    lines = text = 0
    for name in checked.postprocess.tables:
        try:
            tables.append(table_named(schema, name))
        except PlanError as error:
            raise PlanError(f"postprocess.tables: {error}") from error
        lines += len(tables[-1].variables)
        text += sum(len(item.label) for item in tables[-1].variables)
        if lines > MOST_LINES_TOGETHER or text > 5 * _MOST_TEXT:
            raise PlanError(
                f"postprocess.tables: together they have more than {MOST_LINES_TOGETHER:,} columns, or "
                f"labels of more than {5 * _MOST_TEXT:,} characters, the limits; drop some: the "
                f"estimates hold every cell"
            )
    for name, times in Counter(table.name for table in tables).items():
        if times > 1:
            raise PlanError(f"postprocess.tables: {name!r} is listed {times} times; list it once")
    return tuple(tables)


def table_named(schema: Schema, name: str) -> Table:
    """Return an official table, P1 to P5 or H1, or the table of a query."""
    own = [item.name for item in schema.attributes] + [item.name for item in schema.recodes]
    if name in _OFFICIAL and name not in own:
        return _official(schema, name, _OFFICIAL[name])
    name = without_blanks(name)
    if name not in (*own, TOTAL) and "*" not in name:
        raise PlanError(
            f"no table {name!r}; choose from {listed(_OFFICIAL)}, and the queries of TOTAL, "
            f"{listed(own)}"
        )
    return _of_query(schema.query(name))


def _official(schema: Schema, name: str, table: _Official) -> Table:
    known = {item.name: set(item.categories) for item in schema.attributes}
    for needed in table.attributes:
        if known.get(needed) != set(CATEGORIES[needed]):
            lacking = "has other categories" if needed in known else "is not there"
            raise PlanError(
                f"table {name!r} needs {' and '.join(table.attributes)} with the categories of preset "
                f"{table.preset}, and {needed} {lacking}; declare them so, or name queries instead"
            )
    query = schema.query("*".join(table.attributes))
    variables = tuple(
        Variable(f"{name[0]}{int(name[1:]):03d}{number:04d}", label, indent, _cells(query, kept))
        for number, (indent, label, kept) in enumerate(table.lines, 1)
    )
    return Table(name, table.title, table.universe, query, variables)


def _cells(query: Query, kept: Kept) -> tuple[int, ...]:
    """Return the cells of a query whose categories are all kept."""
    chosen = [
        [number for number, label in enumerate(labels) if label in kept.get(name, labels)]
        for name, labels in query.labels
    ]
    sizes = [len(labels) for _, labels in query.labels]
    return tuple(np.ravel_multi_index(np.ix_(*chosen), sizes).ravel().tolist())


def _of_query(query: Query) -> Table:
    if query.cells > MOST_LINES:
        raise PlanError(
            f"query {query.name!r} has {query.cells:,} cells, and a table at most {MOST_LINES:,} "
            f"columns; name a smaller one: the estimates hold every cell"
        )
    longest = sum(max(map(len, categories)) for _, categories in query.labels)
    if query.cells * longest > _MOST_TEXT:
        raise PlanError(
            f"query {query.name!r} has {query.cells:,} cells with labels of up to {longest:,} "
            f"characters, and {_MOST_TEXT:,} together are the limit; shorten its categories"
        )
    stem = query.name.replace("*", "_")
    width = max(4, len(str(query.cells)))
    variables = tuple(
        Variable(f"{stem}_{cell + 1:0{width}d}", "; ".join(labels) or "Total", 0, (cell,))
        for cell, labels in enumerate(query.cell_labels())
    )
    universe = "All that is counted" if query.complete else f"Those in a category of {query.name}"
    title = " by ".join(name for name, _ in query.labels) or "Total"
    return Table(query.name, title, universe, query, variables)
