"""The look of every chart: colours that colour-blind readers can tell apart, dashes, shapes, sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from countveil.errors import InputError

WIDTH, HEIGHT = 440, 260
INK, FAINT, GRID = "#222222", "#595959", "#dddddd"
INTERNAL_COLOUR = "#a50026"
FONT = (
    "Liberation Sans, Arial, Helvetica, sans-serif"  # equally wide, so that labels fit everywhere
)

# Contrast with white is at least 3 to 1; series also differ in dash and shape.
COLOURS = (
    *("#0072b2", "#d55e00", "#000000", "#aa3377"),
    *("#007a5a", "#7a5c00", "#666666", "#332288"),
)
DASHES = (
    *((1, 0), (7, 3), (2, 2), (9, 3, 2, 3)),
    *((14, 4), (4, 2, 1, 2), (1, 4), (12, 2, 2, 2, 2, 2)),
)
SHAPES = (
    *("circle", "square", "triangle-up", "diamond"),
    *("cross", "triangle-down", "triangle-right", "triangle-left"),
)
MOST_SERIES = len(COLOURS)

CONFIG: dict[str, Any] = {
    "aria": False,  # the chart as a whole has a description
    "background": "#ffffff",
    "font": FONT,
    # Names are measured in one font; the reader's may be wider.
    "padding": {"left": 18, "right": 12, "top": 8, "bottom": 8},
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK,
        "titleColor": INK,
        "gridColor": GRID,
        "domainColor": FAINT,
        "tickColor": FAINT,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelLimit": 260,
        "titlePadding": 8,
    },
    "header": {"labelFontSize": 12, "labelColor": INK, "labelLimit": 260, "title": None},
    "title": {
        "anchor": "start",
        "color": INK,
        "fontSize": 15,
        "fontWeight": "bold",
        "limit": 720,
        "offset": 12,
        "subtitleColor": FAINT,
        "subtitleFontSize": 12,
        "subtitlePadding": 4,
    },
    "line": {"strokeWidth": 2},
    "point": {"size": 45, "filled": True},
    "text": {"fontSize": 12, "color": INK},
    "rule": {"color": FAINT},
}


def colour(names: Sequence[str]) -> alt.Color:
    """Return a colour for each series; labels at the lines replace the legend."""
    scale = alt.Scale(domain=list(names), range=list(COLOURS[: len(names)]))
    return alt.Color("series:N", scale=scale, legend=None)


def dash(names: Sequence[str]) -> alt.StrokeDash:
    """Return a dash for each series."""
    pattern = [list(item) for item in DASHES[: len(names)]]
    return alt.StrokeDash(
        "series:N", scale=alt.Scale(domain=list(names), range=pattern), legend=None
    )


def shape(names: Sequence[str]) -> alt.Shape:
    """Return a shape for each series."""
    scale = alt.Scale(domain=list(names), range=list(SHAPES[: len(names)]))
    return alt.Shape("series:N", scale=scale, legend=None)


def refuse_too_many(names: Sequence[str], what: str) -> None:
    """Refuse more series than readers can tell apart."""
    if len(names) > MOST_SERIES:
        raise InputError(
            f"{what}: got {len(names)}, and readers can tell at most {MOST_SERIES} apart in one "
            f"chart; draw several charts"
        )


def values(rows: Sequence[dict[str, Any]]) -> alt.Chart:
    """Return a plot with its rows embedded."""
    return alt.Chart(alt.InlineData(values=list(rows)))


def layered(*layers: Any) -> alt.LayerChart:
    """Draw plots on top of each other."""
    plot = alt.layer(*layers)
    assert isinstance(plot, alt.LayerChart)
    return plot


def shortened(text: str, most: int = 40) -> str:
    """Shorten a name to fit in a chart; the table has all of it."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def padded(low: float, high: float, *, log: bool = False) -> tuple[float, float]:
    """Return round ends of an axis that holds both values, even if they are equal."""
    if log:
        return (low / 2, high * 2) if low == high else (low, high)
    if low == high:
        room = abs(low) / 2 or 1.0
        return low - room, high + room
    step = _step(high - low)
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


def _step(span: float) -> float:
    rough = float(10 ** math.floor(math.log10(span / 5)))
    return next(factor * rough for factor in (1, 2, 5, 10) if factor * rough * 5.0001 >= span)


def log_ticks(low: float, high: float) -> list[float]:
    """Return round ticks for a logarithmic axis."""
    decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    span = math.log10(high / low)
    factors = (1,) if span > 3 else (1, 2, 5) if span > 0.7 else tuple(range(1, 10))
    if span > 12:
        decades = range(decades.start, decades.stop, math.ceil(span / 8))
    ticks = [float(f"{factor}e{decade}") for decade in decades for factor in factors]
    return [tick for tick in ticks if low * 0.999999 <= tick <= high * 1.000001]


def move_apart(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move positions as little as needed to be a gap apart, within two ends if they fit."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    positions = [places[i] for i in order]
    for i in range(1, len(positions)):
        positions[i] = max(positions[i], positions[i - 1] + gap)
    if positions and positions[-1] > high:
        positions[-1] = max(high, low + gap * (len(positions) - 1))
        for i in range(len(positions) - 2, -1, -1):
            positions[i] = min(positions[i], positions[i + 1] - gap)
    moved = [0.0] * len(places)
    for i, place in zip(order, positions, strict=True):
        moved[i] = place
    return moved
