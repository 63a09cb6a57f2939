"""Charts of an item as SVG: colour and dash carry the same information, so either is enough."""

from __future__ import annotations

import re
from html import escape
from typing import Any, TypeAlias

import altair as alt
import pyarrow as pa
import vl_convert

from countveil.papers.item import ItemChart, ReferenceLine

AltairChart: TypeAlias = Any  # its own types are loose

_WIDTH, _HEIGHT = 380, 240
# Okabe and Ito's colours, which colour-blind readers can tell apart; dark enough on white.
_COLOURS = ["#0072b2", "#d55e00", "#009e73", "#a0568a", "#6b6b6b", "#8a6d00", "#000000"]
_DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [1, 3], [10, 2], [4, 4]]
_FONT = "system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif"


def svg(chart: ItemChart, *, prefix: str = "") -> str:
    """Return a chart as a self-contained SVG element.

    `prefix` keeps its ids apart from those of other charts on the same page.
    """
    drawing: str = vl_convert.vegalite_to_svg(altair_chart(chart).to_json(), allowed_base_urls=[])
    label = escape(describe(chart), quote=True)
    # The converter numbers ids across charts; renumbered, equal charts are equal bytes.
    for number, name in enumerate(dict.fromkeys(re.findall(r'\bid="([^"]+)"', drawing))):
        drawing = re.sub(
            rf'(\bid="|url\(#|href="#){re.escape(name)}(?=[")])', rf"\g<1>{prefix}{number}", drawing
        )
    # To a screen reader the chart is one image; its marks say nothing by themselves.
    drawing = re.sub(r'\s(role|aria-[a-z]+)="[^"]*"', "", drawing)
    return drawing.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def altair_chart(chart: ItemChart) -> AltairChart:
    """Return a chart of Altair; nothing is computed here."""
    rows = alt.InlineData(values=chart.table.to_pylist())
    layers = [_LAYERS[chart.kind](alt.Chart(rows), chart)]
    layers += [_reference_line(line) for line in chart.reference_lines]
    layered = alt.layer(*layers).properties(width=_WIDTH, height=_HEIGHT, title=chart.title)
    return (
        layered.configure(font=_FONT)
        .configure_view(stroke=None)
        .configure_title(anchor="start", fontSize=13, fontWeight=600)
        .configure_axis(
            gridColor="#e6e6e6", labelFontSize=11, titleFontSize=11, titleFontWeight=400
        )
    )


def describe(chart: ItemChart) -> str:
    """Return what a chart shows in words, made from its own table."""
    x, y = (chart.table[name].to_pylist() for name in (chart.x, chart.y))
    y_name = chart.y_title or chart.y
    text = "" if chart.title == y_name else f"{chart.title}: "
    text += f"{y_name} against {chart.x_title or chart.x}"
    text += f", {len(x):,} {'point' if len(x) == 1 else 'points'}"
    if chart.kind == "tiles" and chart.series is not None:
        shade = chart.table[chart.series].to_pylist()
        return f"{text}; values from {_four_digits(min(shade))} to {_four_digits(max(shade))}."
    text += f"; values from {_four_digits(min(y))} to {_four_digits(max(y))}"
    if chart.series is not None and chart.kind != "tiles":
        names = list(dict.fromkeys(chart.table[chart.series].to_pylist()))
        text += f"; series: {', '.join(map(str, names))}"
    return text + "."


def _four_digits(value: float | str) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


def _lines(base: AltairChart, chart: ItemChart) -> AltairChart:
    return base.mark_line(strokeWidth=2).encode(**_axes(chart), **_series(chart, dash=True))


def _points(base: AltairChart, chart: ItemChart) -> AltairChart:
    marks = base.mark_point(size=28, filled=False, strokeWidth=1.2, opacity=0.8)
    return marks.encode(**_axes(chart), **_series(chart, shape=True))


def _bars(base: AltairChart, chart: ItemChart) -> AltairChart:
    axes = _axes(chart, discrete=True)
    if chart.series is not None:
        axes["xOffset"] = alt.XOffset(f"{chart.series}:N", sort=None)
    return base.mark_bar().encode(**axes, **_series(chart))


def _intervals(base: AltairChart, chart: ItemChart) -> AltairChart:
    axes = _axes(chart, discrete=True)
    axes["y"] = axes["y"].scale(_scale(chart.log_y))
    if chart.series is not None:
        axes["xOffset"] = alt.XOffset(f"{chart.series}:N", sort=_names(chart))
    spans = {**axes, "y": axes["y"].copy(), "y2": f"{chart.high}:Q"}
    spans["y"]["shorthand"] = f"{chart.low}:Q"
    marks = base.mark_point(size=40, filled=True).encode(**axes, **_series(chart, shape=True))
    return base.mark_rule(strokeWidth=2).encode(**spans, **_series(chart)) + marks


def _tiles(base: AltairChart, chart: ItemChart) -> AltairChart:
    shade = alt.Color(
        f"{chart.series}:Q",
        scale=alt.Scale(scheme="viridis"),
        title=None,
        legend=alt.Legend(tickMinStep=1),
    )
    return base.mark_rect().encode(
        x=alt.X(f"{chart.x}:O", title=chart.x_title, axis=alt.Axis(labelOverlap=True)),
        y=alt.Y(f"{chart.y}:O", title=chart.y_title, sort="descending"),
        color=shade,
    )


def _axes(chart: ItemChart, *, discrete: bool = False) -> dict[str, Any]:
    if discrete:
        axis = alt.Axis(labelAngle=-35, labelLimit=300)
        x = alt.X(f"{chart.x}:N", title=chart.x_title, sort=None, axis=axis)
    else:
        whole = pa.types.is_integer(chart.table[chart.x].type)
        marks: dict[str, Any] = {"tickMinStep": 1} if whole else {}
        marks |= {"labelOverlap": "greedy", "labelSeparation": 8}
        axis = alt.Axis(**marks)
        x = alt.X(f"{chart.x}:Q", title=chart.x_title, axis=axis, scale=_scale(chart.log_x))
    return {
        "x": x,
        "y": alt.Y(f"{chart.y}:Q", title=chart.y_title, scale=_scale(chart.log_y, zero=discrete)),
    }


def _scale(log: bool, *, zero: bool = False) -> alt.Scale:
    return alt.Scale(type="log", nice=False) if log else alt.Scale(zero=zero)


def _series(chart: ItemChart, *, dash: bool = False, shape: bool = False) -> dict[str, Any]:
    if chart.series is None:
        return {"color": alt.value(_COLOURS[0])}
    field, names = f"{chart.series}:N", _names(chart)
    size: dict[str, Any] = {"symbolSize": 240} if dash else {}
    legend = alt.Legend(
        title=None, orient="bottom", columns=2, columnPadding=24, labelLimit=300, **size
    )
    channels: dict[str, Any] = {
        "color": alt.Color(
            field, sort=names, scale=alt.Scale(domain=names, range=_COLOURS), legend=legend
        )
    }
    if dash:
        channels["strokeDash"] = alt.StrokeDash(
            field, sort=names, scale=alt.Scale(domain=names, range=_DASHES), legend=legend
        )
    if shape:
        channels["shape"] = alt.Shape(
            field, sort=names, scale=alt.Scale(domain=names), legend=legend
        )
    return channels


def _names(chart: ItemChart) -> list[str]:
    assert chart.series is not None
    return list(dict.fromkeys(map(str, chart.table[chart.series].to_pylist())))


def _reference_line(reference: ReferenceLine) -> AltairChart:
    base = alt.Chart(
        alt.InlineData(values=[{reference.axis: reference.at, "label": reference.label}])
    )
    line = base.mark_rule(strokeDash=[4, 3], color="#333333")
    text = base.mark_text(align="left", dx=4, dy=-4, fontSize=10, color="#333333")
    if reference.axis == "x":
        position = {"x": alt.X("x:Q")}
        return line.encode(**position) + text.encode(**position, y=alt.value(10), text="label:N")
    level = {"y": alt.Y("y:Q")}
    return line.encode(**level) + text.encode(**level, x=alt.value(2), text="label:N")


_LAYERS = {
    "lines": _lines,
    "points": _points,
    "bars": _bars,
    "tiles": _tiles,
    "intervals": _intervals,
}
