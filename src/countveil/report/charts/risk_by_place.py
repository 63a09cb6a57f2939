"""Where the risk is: places in order of risk, and on a map if shapes are given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import pyarrow as pa

from countveil.assess.risk_maps import RiskMap
from countveil.base import words
from countveil.errors import InputError
from countveil.report.charts import chart_inputs, theme
from countveil.report.charts.chart import Chart, described

# Shapes of places from GeoJSON: validated, and reduced to what a map needs.

_DEPTHS = {  # how deep a geometry nests its positions in lists
    "Point": 0,
    "MultiPoint": 1,
    "LineString": 1,
    "MultiLineString": 2,
    "Polygon": 2,
    "MultiPolygon": 3,
}
_FAR = 1e300
_MOST_POINTS = 100_000  # of all shapes together; more would not fit on a page


def features_of(shapes: Mapping[str, Any], *, key: str = "geocode") -> list[dict[str, Any]]:
    """Return the features of a FeatureCollection, reduced to type, geometry and geocode.

    A feature without a geometry is kept but not drawn.
    """
    chart_inputs.mapping(shapes, "shapes")
    features = shapes.get("features")
    if shapes.get("type") != "FeatureCollection" or not isinstance(features, list) or not features:
        raise InputError("shapes: not a GeoJSON FeatureCollection with features; pass one")
    pairs, points = [], 0
    for number, feature in enumerate(features, start=1):
        what = f"shapes, feature {number:,}"
        if not isinstance(feature, Mapping) or feature.get("type") != "Feature":
            raise InputError(f"{what}: not a GeoJSON Feature; correct it, or leave it out")
        geometry, own = _geometry(feature.get("geometry"), what)
        points += own
        if points > _MOST_POINTS:
            raise InputError(
                f"shapes: more than {_MOST_POINTS:,} points, too many for a page; simplify the "
                f"shapes"
            )
        place = _code(feature, key, what)
        pairs.append({"type": "Feature", "geometry": geometry, "properties": {"place": place}})
    return pairs


def places_of(shapes: Mapping[str, Any], *, key: str = "geocode") -> list[str]:
    """Return the geocodes of the places that have a shape.

    Parameters
    ----------
    shapes
        A GeoJSON FeatureCollection.
    key
        The property that holds the geocode; if a feature lacks it, its id is used.

    Returns
    -------
    list of str
        The geocodes of the features that have a geometry.

    """
    features = features_of(shapes, key=key)
    return [item["properties"]["place"] for item in features if item["geometry"] is not None]


def _code(feature: Mapping[str, Any], key: str, what: str) -> str:
    properties = feature.get("properties")
    if properties is not None and not isinstance(properties, Mapping):
        raise InputError(
            f"{what}: its properties are {type(properties).__name__}; they must be an object or "
            f"null"
        )
    code = (properties or {}).get(key, feature.get("id"))
    if not isinstance(code, str | int | float | None):
        raise InputError(
            f"{what}: its geocode is {type(code).__name__}; it must be text or a number"
        )
    return str(code)


def _geometry(geometry: Any, what: str) -> tuple[dict[str, Any] | None, int]:
    """Return a geometry rebuilt from its positions, and the number of positions."""
    if geometry is None:
        return None, 0
    kind = geometry.get("type") if isinstance(geometry, Mapping) else None
    if not isinstance(kind, str) or kind not in _DEPTHS:
        name = repr(kind) if isinstance(kind, str) else type(geometry).__name__
        raise InputError(
            f"{what}: its geometry is {name[:80]}; choose from {', '.join(_DEPTHS)}, or null"
        )
    coordinates = _positions(geometry.get("coordinates"), _DEPTHS[kind], what)
    return {"type": kind, "coordinates": coordinates}, _number(coordinates, _DEPTHS[kind])


def _positions(value: Any, depth: int, what: str) -> list[Any]:
    """Return positions nested `depth` deep, each cut to its first two numbers."""
    if not isinstance(value, list | tuple):
        raise InputError(f"{what}: its coordinates are not lists of positions; correct them")
    if depth:
        return [_positions(item, depth - 1, what) for item in value]
    if len(value) < 2 or not all(_is_finite(item) for item in value[:2]):
        raise InputError(f"{what}: a position is not two finite numbers; correct it")
    return [value[0], value[1]]


def _number(coordinates: list[Any], depth: int) -> int:
    return sum(_number(item, depth - 1) for item in coordinates) if depth else 1


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _FAR


# The chart.

_LIGHT, _DARK = "#fde6d3", "#8c2d04"
_SHOWN = {"mean_risk": "mean risk", "largest_risk": "largest risk"}


def risk_map(
    risks: RiskMap,
    *,
    by: str = "place",
    column: str = "mean_risk",
    most: int = 30,
    shapes: Mapping[str, Any] | None = None,
    key: str = "geocode",
) -> Chart:
    """Draw the risk of each place, largest first; with `shapes`, on a map as well.

    Parameters
    ----------
    risks
        A risk map, made by `assess.risk_maps`.
    by
        "place", or an attribute that the map groups by.
    column
        "mean_risk" or "largest_risk".
    most
        How many bars to draw; the table has all places.
    shapes, key
        A GeoJSON FeatureCollection, and the property that holds the geocode of each feature.

    Returns
    -------
    Chart

    """
    risks = chart_inputs.of_kind(risks, RiskMap, "risks")
    kinds = list(dict.fromkeys(risks.groups["by"].to_pylist()))
    if by not in kinds:
        raise InputError(
            f"by: the map has no groups by {by!r}; choose from {', '.join(kinds) or 'none at all'}"
        )
    if column not in _SHOWN:
        raise InputError(f"column: unknown column {column!r}; choose from {', '.join(_SHOWN)}")
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise InputError(f"most: got {most!r}; pass a whole number of at least 1")
    groups = [row for row in risks.groups.to_pylist() if row["by"] == by]
    rows = [
        {
            "place": str(row["group"]),
            "mean_risk": row["mean_risk"],
            "largest_risk": row["largest_risk"],
            "cells": row["cells"],
            "prior": risks.prior,
        }
        for row in sorted(groups, key=lambda row: (-row[column], str(row["group"])))
    ]
    most_at_risk = rows[:most]
    plot: Any = _bars(most_at_risk, column)
    if shapes is not None:
        plot = alt.vconcat(_map(rows, column, shapes, key), plot, spacing=20)
    first, last = rows[0], rows[-1]
    largest, smallest = words.multiple(first[column]), words.multiple(last[column])
    summary = f"{first['place']} has the largest {_SHOWN[column]}, {largest}."
    if len(rows) > 1:
        kind = "places" if by == "place" else "groups"
        summary = (
            f"Of {words.number(len(rows))} {kind}, {first['place']} has the largest {_SHOWN[column]} "
            f"({largest}) and {last['place']} the smallest ({smallest})."
        )
    what = (
        "From published values alone: the risk of a target who would be alone in a cell that "
        "reads one or more"
        if risks.audience == "public"
        else "The risk of everyone counted, given the noise that was drawn"
    )
    return described(
        "risk-map" if by == "place" else f"risk-by-{by}",
        f"Risk by {by}, level {risks.level}",
        plot,
        alt_text=[f"Bars of the {_SHOWN[column]} of each {by}, largest first.", summary],
        caption=[
            f"{what}, with prior {words.number(risks.prior)}.",
            summary,
            "The table also lists those not drawn." if len(rows) > len(most_at_risk) else "",
        ],
        table=pa.Table.from_pylist(rows),
        audience=risks.audience,
    )


def _bars(rows: list[dict[str, Any]], column: str) -> alt.LayerChart:
    drawn = [{**row, "value": row[column], "label": words.number(row[column])} for row in rows]
    high = theme.padded(0.0, max(row["value"] for row in drawn) or 1.0)[1]
    base = theme.values(drawn).encode(
        y=alt.Y(
            "place:N",
            sort=[row["place"] for row in rows],
            title=None,
            axis=alt.Axis(ticks=False, domain=False, labelLimit=200),
        ),
        x=alt.X(
            "value:Q",
            title=f"{_SHOWN[column]}: posterior over prior",
            scale=alt.Scale(domain=[0, high], nice=False),
            axis=alt.Axis(grid=True, tickCount=5, format=",~r"),
        ),
    )
    return theme.layered(
        base.mark_bar(color=theme.COLOURS[0], height={"band": 0.75}),
        base.mark_text(align="left", dx=4).encode(text="label:N"),
    ).properties(width=360, height=alt.Step(19))


def _map(
    rows: list[dict[str, Any]], column: str, shapes: Mapping[str, Any], key: str
) -> alt.LayerChart:
    """Draw shapes, darker where the risk is larger, white where it is unknown."""
    joined = features_of(shapes, key=key)
    risk = {row["place"]: row[column] for row in rows}
    for feature in joined:
        feature["properties"]["value"] = risk.get(feature["properties"]["place"])
    if not any(item["geometry"] and item["properties"]["value"] is not None for item in joined):
        raise InputError(
            f"shapes: no shape belongs to a place of the map; their geocodes were read from "
            f"{key!r}: name another property with key="
        )
    values = [row[column] for row in rows]
    low, high = min(values), max(values)
    if low == high:
        low, high = theme.padded(low, high)
    shaped = [item for item in joined if item["geometry"] is not None]
    known = [item for item in shaped if item["properties"]["value"] is not None]
    unknown = [item for item in shaped if item["properties"]["value"] is None]
    layers = (
        [
            alt.Chart(alt.InlineData(values=unknown)).mark_geoshape(
                fill="#ffffff", stroke="#767676", strokeDash=[2, 2]
            )
        ]
        if unknown
        else []
    )
    layers.append(
        alt.Chart(alt.InlineData(values=known))
        .mark_geoshape(stroke="#ffffff", strokeWidth=0.7)
        .encode(
            color=alt.Color(
                "properties.value:Q",
                title=_SHOWN[column],
                scale=alt.Scale(domain=[low, high], range=[_LIGHT, _DARK]),
                legend=alt.Legend(orient="right", gradientLength=160, format=",.3~r", tickCount=4),
            )
        )
    )
    projected: alt.LayerChart = theme.layered(*layers).project(type="identity", reflectY=True)
    return projected.properties(width=360, height=260)
