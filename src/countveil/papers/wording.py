"""Values and items in text and as JSON holds them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from countveil.papers.item import Item, Value


def shown(value: Any) -> str:
    """Return a number, some numbers or a bound as a reader sees them."""
    if value is None:
        return "—"
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "; ".join(f"{name} {shown(part)}" for name, part in value.items())
    if isinstance(value, Sequence):
        return ", ".join(shown(part) for part in value)
    number = float(value)
    if number == int(number) and abs(number) < 1e15:
        return f"{int(number):,}"
    if abs(number) < 1e-3:
        return f"{number:.3g}"
    return f"{number:.5g}" if abs(number) < 100 else f"{number:,.2f}"


def printed(value: Value) -> str:
    """Return what the paper prints, with as many decimals as it prints where rounding tells them."""
    decimals = _decimals(value.tolerance)
    return _as_printed(value.printed, decimals)


def _decimals(tolerance: float | None) -> int | None:
    """Return to how many decimals a number was rounded, if the tolerance is that of rounding."""
    if not tolerance:
        return None
    places = -math.log10(2 * tolerance)
    return round(places) if abs(places - round(places)) < 1e-9 else None


def _as_printed(given: Any, decimals: int | None) -> str:
    if given is None:
        return "—"
    if isinstance(given, str):
        return given
    if isinstance(given, Sequence):
        return ", ".join(_as_printed(part, decimals) for part in given)
    if isinstance(given, int):
        return f"{given:,}"
    return f"{given:.6g}" if decimals is None else f"{given:.{decimals}f}"


def document(item: Item) -> dict[str, Any]:
    """Return an item as JSON holds it: values, notes, and the table behind each picture."""
    return {
        "paper": item.paper,
        "item": item.slug,
        "name": item.name,
        "title": item.title,
        "note": item.note,
        "needs": item.needs,
        "values": [
            {
                "id": value.id,
                "label": value.label,
                "printed": plain(value.printed),
                "ours": plain(value.ours),
                "tolerance": value.tolerance,
                "differs": value.differs,
                "erratum": value.erratum,
            }
            for value in item.values
        ],
        "pictures": [
            {
                "title": picture.title,
                "x": picture.x,
                "y": picture.y,
                "series": picture.series,
                "table": plain(picture.table.to_pydict()),
            }
            for picture in item.pictures
        ],
    }


def plain(value: Any) -> Any:
    """Return what JSON can hold; a number that is not finite is null."""
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, str) or value is None or isinstance(value, bool):
        return value
    if isinstance(value, Sequence):
        return [plain(part) for part in value]
    if isinstance(value, int):
        return value
    number = float(value)
    return number if math.isfinite(number) else None
