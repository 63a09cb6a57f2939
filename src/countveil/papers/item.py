"""One table or figure of a paper, reproduced: what is printed, what is right, and what to draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from countveil.errors import InputError

Number: TypeAlias = float | None
Printed: TypeAlias = float | str | tuple[Number, ...] | None
Ours: TypeAlias = float | tuple[Number, ...] | Mapping[str, Any]
Kind = Literal["lines", "points", "bars", "tiles", "intervals"]

_BOUNDS: dict[str, Callable[[float, float], bool]] = {
    "<=": lambda ours, limit: ours <= limit,
    ">=": lambda ours, limit: ours >= limit,
    "<": lambda ours, limit: ours < limit,
    ">": lambda ours, limit: ours > limit,
}


@dataclass(frozen=True, slots=True)
class Value:
    """A number: as the paper prints it, if it does, and as computed here.

    `printed` may be a bound such as "<0.01". `tolerance` is what rounding, or the paper's own
    simulation, explains; beyond it the `erratum` says why they differ.
    """

    id: str
    label: str
    printed: Printed
    ours: Ours
    erratum: str | None = None
    tolerance: float | None = None

    @property
    def differs(self) -> bool:
        """Whether what is printed is not what is computed, beyond the tolerance."""
        if self.printed is None:
            return False
        return any(self._is_off(self.printed, ours) for ours in _parts(self.ours))

    def explained(self, why: str) -> Value:
        """Return it with an erratum if it differs, and as it is if it agrees."""
        return replace(self, erratum=why) if self.differs else self

    def _is_off(self, printed: Printed, ours: Any) -> bool:
        if isinstance(printed, str):
            return not _holds(printed, ours)
        if isinstance(printed, tuple):
            if not isinstance(ours, Sequence) or len(ours) != len(printed):
                return True
            return any(self._is_off(a, b) for a, b in zip(printed, ours, strict=True))
        if printed is None or ours is None:
            return printed is not ours
        return bool(abs(ours - printed) > (self.tolerance or 0.0))


def _parts(ours: Ours) -> list[Any]:
    return list(ours.values()) if isinstance(ours, Mapping) else [ours]


def _holds(printed: str, ours: Any) -> bool:
    """Whether a number keeps to a printed bound, a range "0..1", or one in words."""
    for sign, keeps in _BOUNDS.items():
        if printed.startswith(sign):
            return keeps(ours, float(printed.removeprefix(sign)))
    if ".." in printed:
        low, high = map(float, printed.split(".."))
        return bool(low <= ours <= high)
    return bool(float(printed.strip("()").removeprefix("implied ")) == ours)


@dataclass(frozen=True, slots=True)
class Rule:
    """A line across a picture, at a value of one axis."""

    axis: Literal["x", "y"]
    at: float
    label: str


@dataclass(frozen=True, eq=False, slots=True)
class Picture:
    """What one panel of a figure shows: a table, and which columns go where.

    Intervals run from the column `low` to `high`, with a mark at y.
    """

    title: str
    kind: Kind
    table: pa.Table
    x: str
    y: str
    series: str | None = None
    x_title: str = ""
    y_title: str = ""
    log_x: bool = False
    log_y: bool = False
    rules: tuple[Rule, ...] = ()
    low: str | None = None
    high: str | None = None

    def __post_init__(self) -> None:
        """Refuse columns that the table does not have, and a name that Vega takes for its own."""
        if self.series == "count":
            raise InputError('picture: "count" is a name of Vega\'s own; call the series otherwise')
        wanted = [self.x, self.y, self.series, self.low, self.high]
        absent = [name for name in wanted if name and name not in self.table.column_names]
        if absent:
            has = ", ".join(self.table.column_names)
            raise InputError(f"picture: no column {', '.join(absent)}; the table has {has}")


@dataclass(frozen=True, slots=True)
class Content:
    """What an item computes: values, pictures, and what a reader must know of them.

    `missing` says which part is left out for want of data, and what to bring.
    """

    values: tuple[Value, ...] = ()
    pictures: tuple[Picture, ...] = ()
    note: str = ""
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """How to compute: a folder with the reader's data, and whether fewer draws will do."""

    data: Path | None = None
    quick: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """An item that can be computed; `needs` names data that its reader must bring for all of it."""

    paper: str
    name: str
    title: str
    compute: Callable[[Setting], Content]
    needs: str | None = None

    @property
    def slug(self) -> str:
        """The name as a command line and a link spell it: "table-1"."""
        return self.name.lower().replace(" ", "-")


@dataclass(frozen=True, slots=True)
class Item:
    """An item, computed. `needs` says what data the missing part needs, if a part is missing."""

    paper: str
    name: str
    title: str
    values: tuple[Value, ...]
    pictures: tuple[Picture, ...]
    note: str
    needs: str | None

    @property
    def slug(self) -> str:
        """The name as a command line and a link spell it: "table-1"."""
        return self.name.lower().replace(" ", "-")
