"""One table or figure of a paper, reproduced: what is printed, what is right, and what to draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import pyarrow as pa

from countveil.errors import InputError

Number: TypeAlias = float | None
Printed: TypeAlias = float | str | tuple[Number, ...] | None
Computed: TypeAlias = float | tuple[Number, ...]
Ours: TypeAlias = Computed | Mapping[str, float | Sequence[float]]
ChartKind: TypeAlias = Literal["lines", "points", "bars", "tiles", "intervals"]

_BOUNDS: dict[str, Callable[[float, float], bool]] = {
    "<=": lambda ours, limit: ours <= limit,
    ">=": lambda ours, limit: ours >= limit,
    "<": lambda ours, limit: ours < limit,
    ">": lambda ours, limit: ours > limit,
}


@dataclass(frozen=True, slots=True)
class Value:
    """A number as the paper prints it, if it does, and as computed here.

    Parameters
    ----------
    id
        A name that no other value of the papers has.
    label
        What the number is.
    printed
        The printed number or numbers, a bound such as "<0.01", or None.
    ours
        What is computed here; several ways to compute it have names.
    erratum
        Why the two differ, if they do.
    tolerance
        The difference that rounding, or the paper's own simulation, explains.

    Examples
    --------
    >>> Value("pi", "the ratio", 3.14, 3.14159, tolerance=0.005).differs
    False
    """

    id: str
    label: str
    printed: Printed
    ours: Ours
    erratum: str | None = None
    tolerance: float | None = None

    @property
    def differs(self) -> bool:
        """Whether the printed number differs from ours by more than the tolerance."""
        if self.printed is None:
            return False
        ways = self.ours.values() if isinstance(self.ours, Mapping) else [self.ours]
        return any(self._is_off(self.printed, ours) for ours in ways)

    def explained(self, why: str) -> Value:
        """Return it with an erratum if it differs, and unchanged if it agrees."""
        return replace(self, erratum=why) if self.differs else self

    def _is_off(self, printed: Printed, ours: Number | Sequence[Number]) -> bool:
        if isinstance(printed, tuple):
            if not isinstance(ours, Sequence) or len(ours) != len(printed):
                return True
            return any(self._is_off(a, b) for a, b in zip(printed, ours, strict=True))
        if printed is None or ours is None:
            return printed is not ours
        assert not isinstance(ours, Sequence)  # one number is printed, so one is computed
        if isinstance(printed, str):
            return not _satisfies(printed, ours)
        return bool(abs(ours - printed) > (self.tolerance or 0.0))


def _satisfies(printed: str, ours: float) -> bool:
    """Whether a number satisfies a printed bound, a range "0..1", or a number in words."""
    for sign, holds in _BOUNDS.items():
        if printed.startswith(sign):
            return holds(ours, float(printed.removeprefix(sign)))
    if ".." in printed:
        low, high = map(float, printed.split(".."))
        return bool(low <= ours <= high)
    return bool(float(printed.strip("()").removeprefix("implied ")) == ours)


@dataclass(frozen=True, slots=True)
class ReferenceLine:
    """A labelled line across a chart, at a value of one axis.

    Parameters
    ----------
    axis
        The axis that it crosses, "x" or "y".
    at
        Where it crosses.
    label
        What it marks.
    """

    axis: Literal["x", "y"]
    at: float
    label: str


@dataclass(frozen=True, eq=False, slots=True)
class ItemChart:
    """One panel of a figure: a table, and which of its columns are drawn.

    Parameters
    ----------
    title
        The title above the chart.
    kind
        "lines", "points", "bars", "tiles" or "intervals".
    table
        What is drawn.
    x, y
        The columns of the axes.
    series
        The column that tells lines apart, or shades tiles.
    x_title, y_title
        The titles of the axes.
    log_x, log_y
        Whether an axis is logarithmic.
    reference_lines
        Lines across the chart.
    low, high
        The columns between which intervals run, with a mark at y.
    """

    title: str
    kind: ChartKind
    table: pa.Table
    x: str
    y: str
    series: str | None = None
    x_title: str = ""
    y_title: str = ""
    log_x: bool = False
    log_y: bool = False
    reference_lines: tuple[ReferenceLine, ...] = ()
    low: str | None = None
    high: str | None = None

    def __post_init__(self) -> None:
        """Refuse columns that the table does not have, and a name that Vega reserves."""
        if self.series == "count":
            raise InputError('chart: "count" is a reserved name of Vega; rename the series')
        columns = [self.x, self.y, self.series, self.low, self.high]
        absent = [name for name in columns if name and name not in self.table.column_names]
        if absent:
            has = ", ".join(self.table.column_names)
            raise InputError(f"chart: no column {', '.join(absent)}; the table has {has}")


@dataclass(frozen=True, slots=True)
class Content:
    """What an item computes: values, charts, and a note for its readers.

    `missing` says which part is left out because its data are not shipped, and which file to bring.
    """

    values: tuple[Value, ...] = ()
    charts: tuple[ItemChart, ...] = ()
    note: str = ""
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """How to compute: a folder with the reader's data, and whether to make fewer draws."""

    data: Path | None = None
    quick: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """An item that can be computed.

    Parameters
    ----------
    paper
        The number of its paper, such as "002".
    name
        Its name in the paper, such as "Table 1".
    title
        What it shows.
    compute
        The function that computes it.
    needs
        Data that its readers must bring for all of it, if any.
    """

    paper: str
    name: str
    title: str
    compute: Callable[[Setting], Content]
    needs: str | None = None

    @property
    def slug(self) -> str:
        """The name as a command line and a link spell it: "table-1"."""
        return _slug(self.name)


@dataclass(frozen=True, slots=True)
class Item:
    """A computed item.

    Parameters
    ----------
    paper, name, title
        As for `Entry`.
    values
        Its numbers, printed and computed.
    charts
        Its panels, if it is a figure.
    note
        What a reader should know.
    needs
        Which data the missing part needs, if a part is missing.
    """

    paper: str
    name: str
    title: str
    values: tuple[Value, ...]
    charts: tuple[ItemChart, ...]
    note: str
    needs: str | None

    @property
    def slug(self) -> str:
        """The name as a command line and a link spell it: "table-1"."""
        return _slug(self.name)


def _slug(name: str) -> str:
    return name.strip().lower().replace(" ", "-")
