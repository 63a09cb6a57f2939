"""Lines labelled at their ends: the plot behind most charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import altair as alt

from countveil.report.charts import theme

_FEW = 45  # points of a line up to which each is marked
_LINE = 15  # pixels that a label takes
_LED = 4  # pixels by which a line may end away from its label


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: title, ends if fixed, number format, and whether only whole numbers are shown."""

    title: str
    low: float | None = None
    high: float | None = None
    log: bool = False
    format: str = ",~r"
    whole: bool = False

    def tight(self, values: Sequence[float]) -> Axis:
        """Return the axis cut to the values, unless its ends are fixed or all values are equal."""
        if min(values) == max(values) or self.low is not None or self.high is not None:
            return self
        return replace(self, low=min(values), high=max(values))

    def ends(self, values: Sequence[float]) -> tuple[float, float]:
        """Return both ends."""
        low = min(values) if self.low is None else self.low
        high = max(values) if self.high is None else self.high
        if self.low is not None and self.high is not None:
            return low, high
        domain = theme.padded(low, high, log=self.log)
        return (
            domain[0] if self.low is None else self.low,
            domain[1] if self.high is None else self.high,
        )

    def scale(self, values: Sequence[float]) -> alt.Scale:
        """Return the Altair scale."""
        kind: Any = "log" if self.log else "linear"
        return alt.Scale(type=kind, domain=list(self.ends(values)), nice=False, zero=False)

    def axis(self, values: Sequence[float], *, grid: bool, count: int = 6) -> alt.Axis:
        """Return the Altair axis, with ticks and title."""
        options: dict[str, Any] = {"title": self.title, "grid": grid, "format": self.format}
        if self.log:
            options |= {"values": theme.log_ticks(*self.ends(values)), "labelOverlap": "greedy"}
        else:
            options |= {"tickCount": count, "labelOverlap": "greedy"}
        if self.whole:
            options["tickMinStep"] = 1
        return alt.Axis(**options)


def line_chart(
    rows: Sequence[dict[str, Any]],
    names: Sequence[str],
    x: Axis,
    y: Axis,
    *,
    width: int = theme.WIDTH,
    height: int = theme.HEIGHT,
    labels: bool = True,
    marked: bool | None = None,
) -> alt.LayerChart:
    """Draw rows of x, y and series as labelled lines that differ in colour, dash and shape.

    A row without y interrupts its line.
    """
    across = [row["x"] for row in rows]
    x = x.tight(across)
    up = [row["y"] for row in rows if row["y"] is not None]
    base = theme.values(rows).encode(
        x=alt.X("x:Q", scale=x.scale(across), axis=x.axis(across, grid=False)),
        y=alt.Y("y:Q", scale=y.scale(up), axis=y.axis(up, grid=True)),
        color=theme.colour(names),
    )
    layers: list[alt.Chart] = [base.mark_line(clip=True).encode(strokeDash=theme.dash(names))]
    longest = max(sum(row["series"] == name for row in rows) for name in names)
    if (longest <= _FEW) if marked is None else marked:
        layers.append(base.mark_point(opacity=1).encode(shape=theme.shape(names)))
    if labels:
        layers += end_labels(rows, names, y, up, height, right=x.ends(across)[1])
    return theme.layered(*layers).properties(width=width, height=height)


def end_labels(
    rows: Sequence[dict[str, Any]],
    names: Sequence[str],
    y: Axis,
    up: Sequence[float],
    height: int,
    *,
    right: float,
) -> list[alt.Chart]:
    """Write the name of each series at the right end of the plot, without overlaps.

    If some line does not lead to its name, the symbol of each series precedes it. `right` is the x of
    the right end.
    """
    ends = [
        next(row for row in reversed(rows) if row["series"] == name and row["y"] is not None)
        for name in names
        if any(row["series"] == name and row["y"] is not None for row in rows)
    ]
    low, high = y.ends(up)
    start, stop = (math.log(low), math.log(high)) if y.log else (low, high)
    pixel = (stop - start) / height
    places = [math.log(end["y"]) if y.log else end["y"] for end in ends]
    moved = theme.move_apart(places, _LINE * pixel, start, stop)
    led = all(
        end["x"] == right and abs(place - own) <= _LED * pixel
        for end, place, own in zip(ends, moved, places, strict=True)
    )
    labels = [
        {
            "y": math.exp(place) if y.log else place,
            "label": theme.shortened(end["series"]),
            "series": end["series"],
        }
        for end, place in zip(ends, moved, strict=True)
    ]
    base = theme.values(labels).encode(x=alt.value("width"), y="y:Q")
    text = base.mark_text(align="left", dx=9 if led else 25, baseline="middle")
    if led:
        return [text.encode(text="label:N")]
    marks = base.mark_point(xOffset=15, opacity=1)
    return [
        marks.encode(color=theme.colour(names), shape=theme.shape(names)),
        text.encode(text="label:N"),
    ]


def upright(at: float, label: str, *, left: bool = False) -> list[alt.Chart]:
    """Draw a vertical rule at x, with a label at its upper end, to its left or right."""
    base = theme.values([{"x": at, "label": label}])
    rule = base.mark_rule(color=theme.INK, strokeDash=[3, 3], strokeWidth=1.2)
    text = base.mark_text(
        align="right" if left else "left", dx=-5 if left else 5, dy=3, baseline="top"
    )
    return [rule.encode(x="x:Q"), text.encode(x="x:Q", y=alt.value(0), text="label:N")]


def level_rule(at: float, label: str, *, left: float) -> list[alt.Chart]:
    """Draw a horizontal rule at y, with a label at its left end."""
    base = theme.values([{"x": left, "y": at, "label": label}])
    rule = base.mark_rule(color=theme.INK, strokeDash=[3, 3], strokeWidth=1.2)
    text = base.mark_text(align="left", dx=4, dy=-4, baseline="bottom")
    return [rule.encode(y="y:Q"), text.encode(x="x:Q", y="y:Q", text="label:N")]
