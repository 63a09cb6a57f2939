"""Tables to publish: layouts from presets, or any query with one line per cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from countveil.errors import PlanError
from countveil.plan.attributes import choices
from countveil.plan.plan_file import PlanFile
from countveil.plan.presets import PRESETS, read_preset
from countveil.plan.workload import TOTAL, Query, Schema, without_blanks

MOST_LINES = 10_000
MOST_LINES_TOGETHER = 100_000
_MOST_TEXT = 10_000_000  # characters of the labels of a table


@dataclass(frozen=True, slots=True)
class Variable:
    """One line of a table: the sum of `cells` of the table's query."""

    name: str
    label: str
    indent: int
    cells: tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class TableLayout:
    """A table to publish: lines that sum cells of a query."""

    name: str
    title: str
    universe: str
    query: Query
    variables: tuple[Variable, ...]


def read_tables(checked: PlanFile, schema: Schema) -> tuple[TableLayout, ...]:
    """Resolve the tables of a plan."""
    tables: list[TableLayout] = []
    lines = text = 0
    for name in checked.postprocess.tables:
        try:
            tables.append(table_named(schema, name, preset=checked.release.preset))
        except PlanError as error:
            raise PlanError(f"postprocess.tables: {error}") from error
        lines += len(tables[-1].variables)
        text += sum(len(item.label) for item in tables[-1].variables)
        if lines > MOST_LINES_TOGETHER or text > 5 * _MOST_TEXT:
            raise PlanError(
                f"postprocess.tables: the tables have more than {MOST_LINES_TOGETHER:,} columns or "
                f"{5 * _MOST_TEXT:,} characters of labels in total, the limits; remove some: the "
                f"estimates have every cell"
            )
    for name, times in Counter(table.name for table in tables).items():
        if times > 1:
            raise PlanError(f"postprocess.tables: {name!r} is listed {times} times; list it once")
    return tuple(tables)


def table_named(schema: Schema, name: str, preset: str | None = None) -> TableLayout:
    """Return the layout of a table.

    Parameters
    ----------
    schema
        The attributes and recodes of the plan.
    name
        A table that a preset lays out, such as "P1", or a query.
    preset
        The preset of the plan, whose layouts take precedence over those of other presets.

    Returns
    -------
    TableLayout
        The title and universe of the table, and its lines.

    Raises
    ------
    PlanError
        If there is no such table, or the plan lacks the categories that it needs.

    Examples
    --------
    >>> from countveil.plan.attributes import Attribute
    >>> homes = Schema((Attribute("OCCUPANCY", ("occupied", "vacant")),))
    >>> [line.label for line in table_named(homes, "H1").variables]
    ['Total:', 'Occupied', 'Vacant']
    >>> [line.label for line in table_named(homes, "OCCUPANCY").variables]
    ['occupied', 'vacant']

    """
    own = [item.name for item in schema.attributes] + [item.name for item in schema.recodes]
    layouts = _preset_layouts()
    if name in layouts and name not in own:
        candidates = sorted(layouts[name], key=lambda layout: layout.preset != preset)
        fitting = [layout for layout in candidates if layout.misfit(schema) is None]
        return (fitting or candidates)[0].resolve(schema)
    name = without_blanks(name)
    if name not in (*own, TOTAL) and "*" not in name:
        raise PlanError(
            f"unknown table {name!r}; choose from {choices(layouts)}, or from queries of TOTAL, "
            f"{choices(own)}"
        )
    return _of_query(schema.query(name))


def _of_query(query: Query) -> TableLayout:
    """Return the table of a query: one line per cell."""
    if query.cells > MOST_LINES:
        raise PlanError(
            f"query {query.name!r} has {query.cells:,} cells; the limit for tables is {MOST_LINES:,} "
            f"columns: name a smaller query (the estimates have every cell)"
        )
    longest = sum(max(map(len, categories)) for _, categories in query.labels)
    if query.cells * longest > _MOST_TEXT:
        raise PlanError(
            f"query {query.name!r} has {query.cells:,} cells with labels of up to {longest:,} "
            f"characters; the limit is {_MOST_TEXT:,} in total: shorten its categories"
        )
    stem = query.name.replace("*", "_")
    width = max(4, len(str(query.cells)))
    variables = tuple(
        Variable(f"{stem}_{cell + 1:0{width}d}", "; ".join(labels) or "Total", 0, (cell,))
        for cell, labels in enumerate(query.cell_labels())
    )
    universe = "All that is counted" if query.complete else f"Those in a category of {query.name}"
    title = " by ".join(name for name, _ in query.labels) or "Total"
    return TableLayout(query.name, title, universe, query, variables)


Categories = Mapping[str, tuple[str, ...]]  # by attribute, those that a line counts


@dataclass(frozen=True, slots=True)
class _Line:
    """A line in a preset; without categories, it is the sum of the lines below it."""

    indent: int
    label: str
    categories: Categories


@dataclass(frozen=True, slots=True)
class PresetLayout:
    """A table of a preset, not yet resolved for the schema of a plan."""

    preset: str
    name: str
    title: str
    universe: str
    attributes: tuple[str, ...]
    stem: str
    only: Categories
    lines: tuple[_Line, ...]
    needed: Categories  # the categories that the preset declares for `attributes`

    def misfit(self, schema: Schema) -> str | None:
        """Return why a schema cannot have this table, None if it can."""
        declared = {item.name: set(item.categories) for item in schema.attributes}
        for attribute in self.attributes:
            if attribute not in declared:
                return f"{attribute} is missing"
            if declared[attribute] != set(self.needed[attribute]):
                return f"{attribute} has different categories"
        return None

    def resolve(self, schema: Schema) -> TableLayout:
        """Return the table for a schema."""
        misfit = self.misfit(schema)
        if misfit is not None:
            raise PlanError(
                f"table {self.name!r} needs {' and '.join(self.attributes)} with the categories of "
                f"preset {self.preset}, but {misfit}; declare them as in the preset, or name a query "
                f"instead"
            )
        query = schema.query("*".join(self.attributes))
        variables = tuple(
            Variable(f"{self.stem}{number:04d}", line.label, line.indent, cells)
            for number, (line, cells) in enumerate(
                zip(self.lines, self._cells(query), strict=True), 1
            )
        )
        return TableLayout(self.name, self.title, self.universe, query, variables)

    def _cells(self, query: Query) -> list[tuple[int, ...]]:
        """Return the cells of the query that each line sums."""
        parents = list(_parents(self.lines))
        everyone = _inside(query, self.only)
        inside: list[
            NDArray[np.bool_]
        ] = []  # cells in the categories of a line and of those above it
        for line, parent in zip(self.lines, parents, strict=True):
            above = everyone if parent is None else inside[parent]
            inside.append(above & _inside(query, line.categories))
        sums: dict[int, NDArray[np.bool_]] = {}
        for number in reversed(range(len(self.lines))):
            whole = bool(self.lines[number].categories) or number not in sums
            cells = inside[number] if whole else sums[number]
            sums[number] = cells
            parent = parents[number]
            if parent is not None:
                sums[parent] = sums.get(parent, np.zeros_like(cells)) | cells
        return [tuple(np.flatnonzero(sums[number]).tolist()) for number in range(len(self.lines))]


def _parents(lines: tuple[_Line, ...]) -> Iterator[int | None]:
    """Yield, for each line, the number of the line that it is indented under."""
    path: list[int] = []
    for number, line in enumerate(lines):
        del path[line.indent :]
        yield path[-1] if path else None
        path.append(number)


def _inside(query: Query, categories: Categories) -> NDArray[np.bool_]:
    """Return which cells of a query are in the named categories of every attribute."""
    inside = np.ones([len(labels) for _, labels in query.labels], bool)
    for axis, (name, labels) in enumerate(query.labels):
        if name in categories:
            chosen = np.array([label in categories[name] for label in labels])
            inside &= chosen.reshape([-1 if i == axis else 1 for i in range(inside.ndim)])
    return inside.ravel()


class _TableSection(BaseModel):
    """`[tables.NAME]` of a preset."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    title: str
    universe: str
    query: str
    stem: str
    only: dict[str, str | list[str]] = Field(default_factory=dict)
    lines: str | list[list[Any]]


_OPTIONAL: tuple[Any, ...] = ({}, "")  # defaults of the last two parts: categories, and a table


@cache
def _preset_layouts() -> dict[str, list[PresetLayout]]:
    """Return the layouts of all presets, by the name of their table."""
    layouts: dict[str, list[PresetLayout]] = {}
    for preset in PRESETS:
        document = read_preset(preset)
        for layout in layouts_of(preset, document):
            layouts.setdefault(layout.name, []).append(layout)
    return layouts


def layouts_of(preset: str, document: Mapping[str, Any]) -> list[PresetLayout]:
    """Return the layouts of a preset's tables; refuse those that its own categories do not fit."""
    declared = {name: tuple(values) for name, values in document["attributes"].items()}
    sections: dict[str, _TableSection] = {}
    layouts = []
    for name, section in document.get("tables", {}).items():
        where = f"preset {preset}: tables.{name}"
        try:
            sections[name] = _TableSection.model_validate(section)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"]))
            raise PlanError(f"{where}.{key}: {first['msg']}") from error
        attributes = tuple(sections[name].query.split("*"))
        for attribute in attributes:
            if attribute not in declared:
                raise PlanError(
                    f"{where}.query: unknown attribute {attribute!r}; choose from {choices(declared)}"
                )
        needed = {attribute: declared[attribute] for attribute in attributes}
        layouts.append(
            PresetLayout(
                preset=preset,
                name=name,
                title=sections[name].title,
                universe=sections[name].universe,
                attributes=attributes,
                stem=sections[name].stem,
                only=_categories(sections[name].only, needed, f"{where}.only"),
                lines=tuple(_lines(sections, name, needed, where)),
                needed=needed,
            )
        )
    return layouts


def _lines(
    sections: Mapping[str, _TableSection], name: str, needed: Categories, where: str
) -> Iterator[_Line]:
    """Yield the lines of a table, including those that it copies from earlier tables."""
    lines = sections[name].lines
    if isinstance(lines, str):
        yield from _lines(sections, _earlier(sections, name, lines, where), needed, where)
        return
    deepest = 0
    for number, line in enumerate(lines, 1):
        at = f"{where}: line {number}"
        match [*line, *_OPTIONAL[len(line) - 2 :]]:
            case [int(indent), str(label), dict(categories), str(more)]:
                pass
            case _:
                raise PlanError(
                    f"{at}: {line!r} is not allowed; write [indent, label], optionally followed by the "
                    f"categories it counts and the table whose lines go below it"
                )
        if not 0 <= indent <= deepest:
            raise PlanError(
                f"{at}: indent {indent} is not allowed; it must be from 0 to {deepest} here"
            )
        deepest = indent + 1
        yield _Line(indent, label, _categories(categories, needed, at))
        if more:
            below = _lines(sections, _earlier(sections, name, more, at), needed, where)
            next(below)  # its total is this line
            yield from (_Line(indent + item.indent, item.label, item.categories) for item in below)


def _earlier(sections: Mapping[str, _TableSection], name: str, other: str, where: str) -> str:
    """Return the name of a table, if it comes before another one in the preset."""
    known = [item for item in sections if item != name]
    if other not in known:
        raise PlanError(
            f"{where}: unknown table {other!r} before {name}; choose from {choices(known)}"
        )
    return other


def _categories(written: Mapping[str, Any], needed: Categories, where: str) -> Categories:
    """Return the categories of a line; a single one may be written without brackets."""
    categories = {
        attribute: (values,) if isinstance(values, str) else tuple(values)
        for attribute, values in written.items()
    }
    for attribute, values in categories.items():
        if attribute not in needed:
            raise PlanError(
                f"{where}: attribute {attribute!r} is not in its query; choose from {choices(needed)}"
            )
        for value in values:
            if value not in needed[attribute]:
                raise PlanError(
                    f"{where}: unknown category {value!r} of {attribute}; choose from "
                    f"{choices(needed[attribute])}"
                )
    return categories
