"""Shapes of places from GeoJSON: checked, and no more of them kept than a map needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from countveil.errors import InputError
from countveil.report.charts import given

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
    given.mapping(shapes, "shapes")
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
                f"shapes: more than {_MOST_POINTS:,} points came, too many for a page; simplify them"
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
