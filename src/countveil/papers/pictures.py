"""Pictures of an item as SVG: colour and dash say the same, so that either is enough."""

from __future__ import annotations

import re
from html import escape
from typing import Any, TypeAlias

import altair as alt
import pyarrow as pa
import vl_convert

from countveil.papers.item import Picture, Rule

Chart: TypeAlias = Any  # an Altair chart, whose own types are loose

_WIDTH, _HEIGHT = 380, 240
# Okabe and Ito's colours, which the colour-blind can tell apart; dark enough on white.
_COLOURS = ["#0072b2", "#d55e00", "#009e73", "#a0568a", "#6b6b6b", "#8a6d00", "#000000"]
_DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [1, 3], [10, 2], [4, 4]]
_FONT = "system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif"


def svg(picture: Picture, *, prefix: str = "") -> str:
    """Return a picture as an SVG element, complete in itself.

    `prefix` keeps its ids apart from those of other drawings on the same page.
    """
    drawn: str = vl_convert.vegalite_to_svg(chart(picture).to_json(), allowed_base_urls=[])
    said = escape(description(picture), quote=True)
    # The converter numbers ids on from its last drawing: renamed, equal pictures are equal bytes.
    for number, name in enumerate(dict.fromkeys(re.findall(r'\bid="([^"]+)"', drawn))):
        drawn = re.sub(
            rf'(\bid="|url\(#|href="#){re.escape(name)}(?=[")])', rf"\g<1>{prefix}{number}", drawn
        )
    # For a reader of screens the drawing is one image; the marks inside it say nothing by themselves.
    drawn = re.sub(r'\s(role|aria-[a-z]+)="[^"]*"', "", drawn)
    return drawn.replace("<svg ", f'<svg role="img" aria-label="{said}" ', 1)


def chart(picture: Picture) -> Chart:
    """Return a picture as an Altair chart; nothing is computed here."""
    rows = alt.InlineData(values=picture.table.to_pylist())
    layers = [_LAYERS[picture.kind](alt.Chart(rows), picture)]
    layers += [_rule(rule) for rule in picture.rules]
    layered = alt.layer(*layers).properties(width=_WIDTH, height=_HEIGHT, title=picture.title)
    return (
        layered.configure(font=_FONT)
        .configure_view(stroke=None)
        .configure_title(anchor="start", fontSize=13, fontWeight=600)
        .configure_axis(
            gridColor="#e6e6e6", labelFontSize=11, titleFontSize=11, titleFontWeight=400
        )
    )


def description(picture: Picture) -> str:
    """Say what a picture shows, in words made from its own table."""
    x, y = (picture.table[name].to_pylist() for name in (picture.x, picture.y))
    shown = picture.y_title or picture.y
    said = "" if picture.title == shown else f"{picture.title}: "
    said += f"{shown} against {picture.x_title or picture.x}"
    said += f", {len(x):,} {'point' if len(x) == 1 else 'points'}"
    if picture.kind == "tiles" and picture.series is not None:
        shade = picture.table[picture.series].to_pylist()
        return f"{said}; values from {_short(min(shade))} to {_short(max(shade))}."
    said += f"; values from {_short(min(y))} to {_short(max(y))}"
    if picture.series is not None and picture.kind != "tiles":
        names = list(dict.fromkeys(picture.table[picture.series].to_pylist()))
        said += f"; series: {', '.join(map(str, names))}"
    return said + "."


def _short(value: float | str) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


def _lines(base: Chart, picture: Picture) -> Chart:
    return base.mark_line(strokeWidth=2).encode(**_axes(picture), **_series(picture, dash=True))


def _points(base: Chart, picture: Picture) -> Chart:
    marks = base.mark_point(size=28, filled=False, strokeWidth=1.2, opacity=0.8)
    return marks.encode(**_axes(picture), **_series(picture, shape=True))


def _bars(base: Chart, picture: Picture) -> Chart:
    axes = _axes(picture, discrete=True)
    if picture.series is not None:
        axes["xOffset"] = alt.XOffset(f"{picture.series}:N", sort=None)
    return base.mark_bar().encode(**axes, **_series(picture))


def _intervals(base: Chart, picture: Picture) -> Chart:
    axes = _axes(picture, discrete=True)
    axes["y"] = axes["y"].scale(_scale(picture.log_y))
    if picture.series is not None:
        axes["xOffset"] = alt.XOffset(f"{picture.series}:N", sort=_names(picture))
    spans = {**axes, "y": axes["y"].copy(), "y2": f"{picture.high}:Q"}
    spans["y"]["shorthand"] = f"{picture.low}:Q"
    marks = base.mark_point(size=40, filled=True).encode(**axes, **_series(picture, shape=True))
    return base.mark_rule(strokeWidth=2).encode(**spans, **_series(picture)) + marks


def _tiles(base: Chart, picture: Picture) -> Chart:
    shade = alt.Color(
        f"{picture.series}:Q",
        scale=alt.Scale(scheme="viridis"),
        title=None,
        legend=alt.Legend(tickMinStep=1),
    )
    return base.mark_rect().encode(
        x=alt.X(f"{picture.x}:O", title=picture.x_title, axis=alt.Axis(labelOverlap=True)),
        y=alt.Y(f"{picture.y}:O", title=picture.y_title, sort="descending"),
        color=shade,
    )


def _axes(picture: Picture, *, discrete: bool = False) -> dict[str, Any]:
    if discrete:
        axis = alt.Axis(labelAngle=-35, labelLimit=300)
        x = alt.X(f"{picture.x}:N", title=picture.x_title, sort=None, axis=axis)
    else:
        whole = pa.types.is_integer(picture.table[picture.x].type)
        marks: dict[str, Any] = {"tickMinStep": 1} if whole else {}
        marks |= {"labelOverlap": "greedy", "labelSeparation": 8}
        axis = alt.Axis(**marks)
        x = alt.X(f"{picture.x}:Q", title=picture.x_title, axis=axis, scale=_scale(picture.log_x))
    return {
        "x": x,
        "y": alt.Y(
            f"{picture.y}:Q", title=picture.y_title, scale=_scale(picture.log_y, zero=discrete)
        ),
    }


def _scale(log: bool, *, zero: bool = False) -> alt.Scale:
    return alt.Scale(type="log", nice=False) if log else alt.Scale(zero=zero)


def _series(picture: Picture, *, dash: bool = False, shape: bool = False) -> dict[str, Any]:
    if picture.series is None:
        return {"color": alt.value(_COLOURS[0])}
    field, names = f"{picture.series}:N", _names(picture)
    size: dict[str, Any] = {"symbolSize": 240} if dash else {}
    legend = alt.Legend(
        title=None, orient="bottom", columns=2, columnPadding=24, labelLimit=300, **size
    )
    said: dict[str, Any] = {
        "color": alt.Color(
            field, sort=names, scale=alt.Scale(domain=names, range=_COLOURS), legend=legend
        )
    }
    if dash:
        said["strokeDash"] = alt.StrokeDash(
            field, sort=names, scale=alt.Scale(domain=names, range=_DASHES), legend=legend
        )
    if shape:
        said["shape"] = alt.Shape(field, sort=names, scale=alt.Scale(domain=names), legend=legend)
    return said


def _names(picture: Picture) -> list[str]:
    assert picture.series is not None
    return list(dict.fromkeys(map(str, picture.table[picture.series].to_pylist())))


def _rule(rule: Rule) -> Chart:
    base = alt.Chart(alt.InlineData(values=[{rule.axis: rule.at, "label": rule.label}]))
    line = base.mark_rule(strokeDash=[4, 3], color="#333333")
    text = base.mark_text(align="left", dx=4, dy=-4, fontSize=10, color="#333333")
    if rule.axis == "x":
        where = {"x": alt.X("x:Q")}
        return line.encode(**where) + text.encode(**where, y=alt.value(10), text="label:N")
    level = {"y": alt.Y("y:Q")}
    return line.encode(**level) + text.encode(**level, x=alt.value(2), text="label:N")


_LAYERS = {
    "lines": _lines,
    "points": _points,
    "bars": _bars,
    "tiles": _tiles,
    "intervals": _intervals,
}
