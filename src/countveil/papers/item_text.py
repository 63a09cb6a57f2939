"""Values and items as text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from countveil.papers.item import Item, Ours, Printed, Value

Json: TypeAlias = "str | float | bool | list[Json] | dict[str, Json] | None"
Plain: TypeAlias = "str | float | bool | Sequence[Plain] | Mapping[str, Plain] | None"


def display(value: Ours | Printed) -> str:
    """Return a number, several numbers or a bound as text for a reader."""
    if value is None:
        return "—"
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "; ".join(f"{name} {_display_parts(part)}" for name, part in value.items())
    return _display_parts(value)


def _display_parts(value: float | Sequence[float | None]) -> str:
    if isinstance(value, Sequence):
        return ", ".join("—" if part is None else _display_number(part) for part in value)
    return _display_number(value)


def _display_number(value: float) -> str:
    number = float(value)
    if number == int(number) and abs(number) < 1e15:
        return f"{int(number):,}"
    if abs(number) < 1e-3:
        return f"{number:.3g}"
    return f"{number:.5g}" if abs(number) < 100 else f"{number:,.2f}"


def display_printed(value: Value) -> str:
    """Return what the paper prints, with the paper's decimals if the tolerance reveals them."""
    return _as_printed(value.printed, _decimals(value.tolerance))


def _decimals(tolerance: float | None) -> int | None:
    """Return the decimals that a number was rounded to, if the tolerance is that of rounding."""
    if not tolerance:
        return None
    places = -math.log10(2 * tolerance)
    return round(places) if abs(places - round(places)) < 1e-9 else None


def _as_printed(number: Printed, decimals: int | None) -> str:
    if number is None:
        return "—"
    if isinstance(number, str):
        return number
    if isinstance(number, Sequence):
        return ", ".join(_as_printed(part, decimals) for part in number)
    if isinstance(number, int):
        return f"{number:,}"
    return f"{number:.6g}" if decimals is None else f"{number:.{decimals}f}"


def item_json(item: Item) -> dict[str, Json]:
    """Return an item as JSON: values, notes, and the table behind each chart."""
    values: list[Json] = [
        {
            "id": value.id,
            "label": value.label,
            "printed": to_json(value.printed),
            "ours": to_json(value.ours),
            "tolerance": value.tolerance,
            "differs": value.differs,
            "erratum": value.erratum,
        }
        for value in item.values
    ]
    charts: list[Json] = [
        {
            "title": chart.title,
            "x": chart.x,
            "y": chart.y,
            "series": chart.series,
            "table": to_json(chart.table.to_pydict()),
        }
        for chart in item.charts
    ]
    return {
        "paper": item.paper,
        "item": item.slug,
        "name": item.name,
        "title": item.title,
        "note": item.note,
        "needs": item.needs,
        "values": values,
        "pictures": charts,  # readers of the JSON know them by this name
    }


def to_json(value: Plain) -> Json:
    """Return a value as JSON; a number that is not finite becomes null."""
    if isinstance(value, Mapping):
        return {str(name): to_json(part) for name, part in value.items()}
    if isinstance(value, str) or value is None or isinstance(value, bool):
        return value
    if isinstance(value, Sequence):
        return [to_json(part) for part in value]
    if isinstance(value, int):
        return value
    number = float(value)
    return number if math.isfinite(number) else None
