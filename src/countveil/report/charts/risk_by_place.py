"""Where the risk is: places in order, and on a map where shapes are given."""

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

# Shapes of places from GeoJSON: checked, and no more of them kept than a map needs.

_DEPTHS = {  # of lists around the positions of a geometry
    "Point": 0,
    "MultiPoint": 1,
    "LineString": 1,
    "MultiLineString": 2,
    "Polygon": 2,
    "MultiPolygon": 3,
}
_FAR = 1e300
_MOST_POINTS = 100_000  # of all shapes together: more cannot fit into a page


def features_of(shapes: Mapping[str, Any], *, key: str = "geocode") -> list[dict[str, Any]]:
    """Return the features of a FeatureCollection, each with type, geometry and its place's code alone.

    A feature without a geometry is kept, and is not drawn.
    """
    chart_inputs.mapping(shapes, "shapes")
    features = shapes.get("features")
    if shapes.get("type") != "FeatureCollection" or not isinstance(features, list) or not features:
        raise InputError("shapes: it is no GeoJSON FeatureCollection with features; give one")
    found, points = [], 0
    for number, feature in enumerate(features, start=1):
        what = f"shapes, feature {number:,}"
        if not isinstance(feature, Mapping) or feature.get("type") != "Feature":
            raise InputError(f"{what}: it is no GeoJSON Feature; give one, or leave it out")
        geometry, own = _geometry(feature.get("geometry"), what)
        points += own
        if points > _MOST_POINTS:
            raise InputError(
                f"shapes: more than {_MOST_POINTS:,} points came, too many for a page; simplify "
                f"them"
            )
        place = _code(feature, key, what)
        found.append({"type": "Feature", "geometry": geometry, "properties": {"place": place}})
    return found


def places_of(shapes: Mapping[str, Any], *, key: str = "geocode") -> list[str]:
    """Return the codes of the places that shapes are of; without a geometry there is no shape."""
    found = features_of(shapes, key=key)
    return [item["properties"]["place"] for item in found if item["geometry"] is not None]


def _code(feature: Mapping[str, Any], key: str, what: str) -> str:
    properties = feature.get("properties")
    if properties is not None and not isinstance(properties, Mapping):
        raise InputError(
            f"{what}: its properties are {type(properties).__name__}; they are an object, or null"
        )
    code = (properties or {}).get(key, feature.get("id"))
    if not isinstance(code, str | int | float | None):
        raise InputError(f"{what}: its code is {type(code).__name__}; it is text or a number")
    return str(code)


def _geometry(geometry: Any, what: str) -> tuple[dict[str, Any] | None, int]:
    """Return a geometry rebuilt from its positions, and how many it has."""
    if geometry is None:
        return None, 0
    kind = geometry.get("type") if isinstance(geometry, Mapping) else None
    if not isinstance(kind, str) or kind not in _DEPTHS:
        shown = repr(kind) if isinstance(kind, str) else type(geometry).__name__
        raise InputError(
            f"{what}: its geometry is {shown[:80]}; choose from {', '.join(_DEPTHS)}, or null"
        )
    coordinates = _positions(geometry.get("coordinates"), _DEPTHS[kind], what)
    return {"type": kind, "coordinates": coordinates}, _number(coordinates, _DEPTHS[kind])


def _positions(value: Any, depth: int, what: str) -> list[Any]:
    """Return lists of positions, `depth` deep; a position is its first two finite numbers."""
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


# Where the risk is: places in order, and on a map where shapes are given.

_LIGHT, _DARK = "#fde6d3", "#8c2d04"
_SHOWN = {"mean_risk": "mean risk", "largest_risk": "largest risk"}


def risk_map(
    found: RiskMap,
    *,
    by: str = "place",
    column: str = "mean_risk",
    most: int = 30,
    shapes: Mapping[str, Any] | None = None,
    key: str = "geocode",
) -> Chart:
    """Draw the risk of each place, the largest first; with GeoJSON `shapes`, on a map as well.

    `by` may also be an attribute of the map's groups. `key` is the property of a shape that names its
    place.
    """
    found = chart_inputs.of_kind(found, RiskMap, "found")
    kinds = list(dict.fromkeys(found.groups["by"].to_pylist()))
    if by not in kinds:
        raise InputError(
            f"by: no groups by {by!r}; choose from {', '.join(kinds) or 'none at all'}"
        )
    if column not in _SHOWN:
        raise InputError(f"column: {column!r} is not known; choose from {', '.join(_SHOWN)}")
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise InputError(f"most: {most!r} is not allowed; it is a whole number from 1 on")
    groups = [row for row in found.groups.to_pylist() if row["by"] == by]
    rows = [
        {
            "place": str(row["group"]),
            "mean_risk": row["mean_risk"],
            "largest_risk": row["largest_risk"],
            "cells": row["cells"],
            "prior": found.prior,
        }
        for row in sorted(groups, key=lambda row: (-row[column], str(row["group"])))
    ]
    shown = rows[:most]
    plot: Any = _bars(shown, column)
    if shapes is not None:
        plot = alt.vconcat(_map(rows, column, shapes, key), plot, spacing=20)
    first, last = rows[0], rows[-1]
    told = f"{first['place']} has the largest {_SHOWN[column]}, {words.number(first[column])}" + (
        f"; {last['place']} the smallest, {words.number(last[column])}, of "
        f"{words.number(len(rows))}."
        if len(rows) > 1
        else "."
    )
    what = (
        "Published values alone give the risk of a target who would be alone in each cell that "
        "reads one or more"
        if found.audience == "public"
        else "It is the risk of everyone counted, as the noise came out"
    )
    return described(
        "risk-map" if by == "place" else f"risk-by-{by}",
        f"Risk by {by}, level {found.level}",
        plot,
        alt_text=[f"Bars of the {_SHOWN[column]} of each {by}, the largest first.", told],
        caption=[
            f"{what}, with prior {words.number(found.prior)}.",
            told,
            "Those not drawn are in the table." if len(rows) > len(shown) else "",
        ],
        table=pa.Table.from_pylist(rows),
        audience=found.audience,
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
    """Draw shapes, darker where the risk is larger, white where nothing is known."""
    joined = features_of(shapes, key=key)
    risk = {row["place"]: row[column] for row in rows}
    for feature in joined:
        feature["properties"]["value"] = risk.get(feature["properties"]["place"])
    if not any(item["geometry"] and item["properties"]["value"] is not None for item in joined):
        raise InputError(
            f"shapes: none is of a place in the map; {key!r} came as the property that holds their "
            f"codes: name the right one with key="
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
