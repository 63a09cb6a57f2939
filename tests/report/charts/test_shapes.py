"""Shapes of places: what is drawn of them, and what is refused and how."""

import math

import pytest
from tests.report import hand_plan
from tests.report import sections_of_hand as made

from countveil import Plan, Release, Seeded, pipeline
from countveil.errors import InputError
from countveil.report import charts, report_page
from countveil.report.budget_steps import other_budgets
from countveil.report.charts.risk_by_place import features_of

RING = [[0, 0], [1, 0], [1, 1], [0, 0]]


def feature(code="A1", geometry=None, **more):
    shape = {"type": "Polygon", "coordinates": [RING]} if geometry is None else geometry
    return {"type": "Feature", "properties": {"geocode": code}, "geometry": shape, **more}


def collection(*features):
    return {"type": "FeatureCollection", "features": list(features)}


def polygon(*positions):
    return {"type": "Polygon", "coordinates": [list(positions)]}


def test_a_feature_is_kept_with_its_code_and_its_positions_alone():
    given = feature(signal="warn('x')", url="file:///etc/passwd", bbox=[0, 0, 1, 1])
    given["geometry"]["crs"] = {"href": "http://example.org"}
    given["geometry"]["coordinates"] = [[[0, 0, 5], [1.5, 0, 5], [1, 1, 5], [0, 0, 5]]]
    assert features_of(collection(given)) == [
        {
            "type": "Feature",
            "geometry": polygon([0, 0], [1.5, 0], [1, 1], [0, 0]),
            "properties": {"place": "A1"},
        }
    ]


def test_codes_are_of_the_property_or_the_id():
    shapes = collection(
        feature("A1"),
        {**feature(), "id": "A2", "properties": None},
        {**feature(), "id": 7, "properties": {}},
        {**feature("A3"), "geometry": None},
    )
    assert [item["properties"]["place"] for item in features_of(shapes)] == ["A1", "A2", "7", "A3"]
    assert charts.places_of(shapes) == ["A1", "A2", "7"], "without a geometry there is no shape"
    assert charts.places_of(collection(feature(id="x")), key="other") == ["x"]


@pytest.mark.parametrize("kind", ["MultiPolygon", "LineString", "MultiLineString", "Point"])
def test_other_geometries_are_kept(kind):
    positions = {
        "MultiPolygon": [[RING]],
        "LineString": RING,
        "MultiLineString": [RING],
        "Point": [0, 0],
    }
    geometry = {"type": kind, "coordinates": positions[kind]}
    assert features_of(collection(feature(geometry=geometry)))[0]["geometry"] == geometry


DEEP = []
for _ in range(100_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([1, 2], "shapes: got list"),
        (collection(), "not a GeoJSON FeatureCollection with features"),
        ({"type": "FeatureCollection", "features": "abc"}, "not a GeoJSON FeatureCollection"),
        (collection("A1", 5, None), "feature 1: not a GeoJSON Feature"),
        (collection(feature(), None), "feature 2: not a GeoJSON Feature"),
        (collection({"type": "Polygon"}), "feature 1: not a GeoJSON Feature"),
        (collection({**feature(), "properties": ["A1"]}), "its properties are list"),
        (collection(feature({"a": 1})), "its geocode is dict; it must be text or a number"),
        (collection(feature(geometry="x")), "its geometry is str; choose from Point"),
        (collection(feature(geometry={"type": "Nope"})), "its geometry is 'Nope'; choose from"),
        (collection(feature(geometry={"type": []})), "its geometry is dict; choose from"),
        (
            collection(feature(geometry={"type": "GeometryCollection", "geometries": DEEP})),
            "'GeometryCollection'; choose from",
        ),
        (collection(feature(geometry={"type": "Polygon"})), "are not lists of positions"),
        (
            collection(feature(geometry={"type": "Polygon", "coordinates": "x"})),
            "are not lists of positions",
        ),
        (
            collection(feature(geometry={"type": "Polygon", "coordinates": DEEP})),
            "not two finite numbers|are not lists of positions",
        ),
        (collection(feature(geometry=polygon([math.nan, 0]))), "not two finite numbers"),
        (collection(feature(geometry=polygon([0, math.inf]))), "not two finite numbers"),
        (collection(feature(geometry=polygon([0, 10**400]))), "not two finite numbers"),
        (collection(feature(geometry=polygon([0, True]))), "not two finite numbers"),
        (collection(feature(geometry=polygon([0]))), "not two finite numbers"),
        (collection(feature(geometry=polygon(["0", "1"]))), "not two finite numbers"),
        (
            collection(feature(geometry=polygon(*([[0, 0]] * 100_001)))),
            "more than 100,000 points, too many for a page; simplify the shapes",
        ),
    ],
)
def test_what_is_no_shape_is_refused_and_why(shapes, message):
    with pytest.raises(InputError, match=message):
        features_of(shapes)


@pytest.mark.parametrize("given", [collection(feature("A1")), None])
def test_a_page_that_shapes_would_make_too_large_is_refused(hand, monkeypatch, given):
    page = "é" * 750_000
    monkeypatch.setattr(report_page, "_rendered", lambda *_, **__: page)
    monkeypatch.setattr(report_page, "sections_of", lambda *_: [])
    assert report_page.public_report(hand, shapes=given) == page
    page += "."
    if given is None:
        assert report_page.public_report(hand) == page, "nobody can make it smaller"
        return
    told = "has 1,500,001 bytes; at most 1,500,000 are allowed; simplify the shapes"
    with pytest.raises(InputError, match=told):
        report_page.public_report(hand, shapes=given)


def drawn(release, others, *features):
    section = made.intruder(release, collection(*features))
    (chart,) = [item for item in section.charts if item.name == "risk-map"]
    return chart.svg().count("mark-shape")


def test_shapes_are_drawn_and_those_without_a_value_are_white(hand, hand_others):
    assert drawn(hand, hand_others, feature("A1")) == 1
    assert (
        drawn(
            hand,
            hand_others,
            feature("A1"),
            feature("nowhere"),
            {**feature("A2"), "geometry": None},
        )
        == 2
    )
    with pytest.raises(InputError, match="no feature with a geometry has"):
        drawn(hand, hand_others, {**feature("A1"), "geometry": None})


def test_shapes_of_places_that_read_nothing_leave_the_bars(tmp_path):
    """With next to no noise the cells of an empty area read 0: there is no risk to draw there."""
    text = hand_plan.PLAN.replace('rho = "9/10"', 'rho = "900"').replace("limit = 4.0\n", "")
    pipeline.release(Plan.load(hand_plan.write(tmp_path, text)), to=tmp_path / "out", rng=Seeded(3))
    release = Release.read(tmp_path / "out")
    others = other_budgets(release.plan)
    assert drawn(release, others, feature("A6")) == 0
    assert drawn(release, others, feature("A1")) == 1
