"""What tables say about a unit: lines, each the sum of some cells of the full histogram."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from countveil.base.numerics import IntArray
from countveil.errors import InputError, PlanError
from countveil.plan.plans import Plan
from countveil.plan.table_layouts import TableLayout, table_named
from countveil.plan.workload import TOTAL, Schema, without_blanks

MOST_CELLS = 20_000


@dataclass(frozen=True, eq=False)
class PublishedLines:
    """The lines of some tables, without repetitions.

    Attributes
    ----------
    tables : tuple of str
        The names of the tables.
    masks : tuple of int
        The cells that each line adds up: bit k is set if cell k is in it.
    attributes : tuple of str
        What a record consists of: the attributes that the tables count.
    cells : int
        The number of cells: combinations of these attributes.
    possible : int
        The cells that may hold people, as bits.
    cell_of : array of int, optional
        The cell for each cell of a plan's full histogram, if that has more attributes.

    Examples
    --------
    >>> from countveil.plan.attributes import Attribute
    >>> homes = Schema((Attribute("KIND", ("flat", "house")), Attribute("USE", ("own", "rent"))))
    >>> lines = PublishedLines.of_queries(homes, ["KIND", "USE"])
    >>> lines.answers({0: 1, 3: 2})  # one owned flat, two rented houses
    (1, 2, 1, 2)

    """

    tables: tuple[str, ...]
    masks: tuple[int, ...]
    attributes: tuple[str, ...]
    cells: int
    possible: int
    cell_of: IntArray | None = None

    def __post_init__(self) -> None:
        everywhere = 0
        for mask in self.masks:
            everywhere |= mask
        if self.possible & ~everywhere:
            raise InputError(
                f"tables {', '.join(self.tables) or 'none'}: they leave some cells uncounted, so any "
                f"number of databases agrees with them; add {TOTAL}"
            )

    @staticmethod
    def of_queries(
        schema: Schema, queries: Iterable[str], *, possible: NDArray[np.bool_] | None = None
    ) -> PublishedLines:
        """Return the lines of queries: one for each cell of each query.

        Parameters
        ----------
        schema : Schema
            The attributes of a record.
        queries : iterable of str
            Names of attributes and recodes joined by `*`, or "TOTAL".
        possible : array of bool, optional
            The cells that may hold people; all by default.

        Returns
        -------
        PublishedLines
            The lines of all queries.

        """
        return _lines(schema, [table_named(schema, name) for name in queries], possible)

    @staticmethod
    def of_plan(plan: Plan, level: str, tables: Sequence[str] = ()) -> PublishedLines:
        """Return the lines of the tables that a plan publishes, and the total of each unit.

        A record consists of the attributes that these tables count: no table can reveal others.

        Parameters
        ----------
        plan : Plan
            The plan. If it lists no tables, the queries it measures at the level count as tables.
        level : str
            A level of the plan.
        tables : sequence of str
            Other tables by name, such as "P1", or queries.

        Returns
        -------
        PublishedLines
            The lines of the tables and of the total.

        """
        names = [without_blanks(name) for name in tables]
        names = names or [item.name for item in plan.tables]
        names = names or [item.query.name for item in plan.at(level)]
        if not names:
            raise InputError(
                f"level {level!r} has neither tables nor measured queries; name a table, or choose "
                f"from {', '.join(plan.measured_levels)}"
            )
        preset = plan.document["release"].get("preset")
        names = list(dict.fromkeys([*names, TOTAL]))
        try:
            layouts = [table_named(plan.schema, name, preset=preset) for name in names]
        except PlanError as error:
            raise InputError(f"tables: {error}") from error
        axes = {factor.axis for item in layouts for factor in item.query.factors}
        if not axes:
            raise InputError(
                f"tables {', '.join(names)}: they count no attribute, so there is no record to "
                f"reconstruct; name a table of attributes"
            )
        schema, cell_of = _with_attributes(plan.schema, axes)
        possible = np.zeros(schema.cells, bool)
        possible[cell_of[plan.possible]] = True
        layouts = [table_named(schema, name, preset=preset) for name in names]
        return replace(_lines(schema, layouts, possible), cell_of=cell_of)

    def database(self, cells: Sequence[int], counts: Sequence[int]) -> dict[int, int]:
        """Return the people of a unit by the attributes that the tables count.

        Parameters
        ----------
        cells : sequence of int
            Cells of the full histogram of the plan.
        counts : sequence of int
            The people in each of them.

        Returns
        -------
        dict of int to int
            The people in each cell of the tables' attributes.

        """
        if self.cell_of is None:
            return dict(zip(cells, counts, strict=True))
        people: dict[int, int] = {}
        for cell, count in zip(self.cell_of[cells].tolist(), counts, strict=True):
            people[cell] = people.get(cell, 0) + count
        return people

    def answers(self, histogram: Mapping[int, int]) -> tuple[int, ...]:
        """Return the count of each line.

        Parameters
        ----------
        histogram : mapping of int to int
            The people in each cell; cells without people may be left out.

        Returns
        -------
        tuple of int
            One count per line.

        """
        counts = [0] * len(self.masks)
        for cell, people in histogram.items():
            for line in self._lines_of[cell]:
                counts[line] += people
        return tuple(counts)

    @cached_property
    def _lines_of(self) -> tuple[tuple[int, ...], ...]:
        lines: list[list[int]] = [[] for _ in range(self.cells)]
        for number, mask in enumerate(self.masks):
            for cell in bits_of(mask):
                lines[cell].append(number)
        return tuple(map(tuple, lines))


def _with_attributes(schema: Schema, axes: Collection[int]) -> tuple[Schema, IntArray]:
    """Return a schema with some of the attributes, and its cell for each cell of the full one."""
    attributes = tuple(item for axis, item in enumerate(schema.attributes) if axis in axes)
    names = [item.name for item in attributes]
    recodes = tuple(item for item in schema.recodes if item.of in names)
    return Schema(attributes, recodes), schema.query("*".join(names)).cell_of


def countable(plan: Plan, level: str) -> bool:
    """Whether the tables of a plan count attributes, with few enough cells to be reconstructed."""
    try:
        PublishedLines.of_plan(plan, level)
    except InputError:
        return False
    return True


def bits_of(mask: int) -> list[int]:
    """Return the positions of the bits that are set.

    Examples
    --------
    >>> bits_of(0b1010)
    [1, 3]

    """
    positions = []
    while mask:
        lowest = mask & -mask
        positions.append(lowest.bit_length() - 1)
        mask ^= lowest
    return positions


def _lines(
    schema: Schema, layouts: Sequence[TableLayout], possible: NDArray[np.bool_] | None
) -> PublishedLines:
    if schema.cells > MOST_CELLS:
        raise InputError(
            f"a unit has {schema.cells:,} cells; reconstruction is limited to {MOST_CELLS:,}: name "
            f"tables of fewer attributes"
        )
    masks: dict[int, None] = {}
    for layout in layouts:
        cell_of = layout.query.cell_of
        for variable in layout.variables:
            masks[_mask(np.isin(cell_of, variable.cells))] = None
    masks.pop(0, None)
    names = tuple(dict.fromkeys(layout.name for layout in layouts))
    everyone = np.ones(schema.cells, bool) if possible is None else possible
    attributes = tuple(item.name for item in schema.attributes)
    return PublishedLines(names, tuple(masks), attributes, schema.cells, _mask(everyone))


def _mask(cells: NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(cells, bitorder="little").tobytes(), "little")
