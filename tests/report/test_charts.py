"""Pictures: their numbers are the library's, their words are their numbers, their bytes are stable."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from fractions import Fraction
from html.parser import HTMLParser
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from tests.conftest import TINY_PLAN
from tests.report.numbers_in_words import NUMBER, rounds_to

from countveil import (
    DiscreteGaussian,
    Intruder,
    Laplace,
    Plan,
    Release,
    Seeded,
    assess,
    open_engine,
    pipeline,
)
from countveil.assess import Level, hierarchy, homogeneity
from countveil.assess.empirical_loss import kde
from countveil.assess.empirical_loss.residuals import gathered
from countveil.assess.plan_error import expected_error
from countveil.assess.plan_lenses import homogeneity_by_size
from countveil.assess.plan_risk import risk_by_level
from countveil.assess.release_error import Accuracy
from countveil.assess.risk import Risk
from countveil.assess.risk_map import RiskMap, internal_map, public_map
from countveil.errors import InputError
from countveil.infer import AreaEstimates
from countveil.infer.level_errors import LevelError
from countveil.privacy.costs import ZCDP
from countveil.report import charts
from countveil.report.charts import theme, words

SEEN = list(range(-4, 7))
RHOS = ["0.01", "0.1", "0.5", "1", "2.56", "6"]
PRIORS = (0.5, 0.2, 0.02)
INTRUDERS = [Intruder(prior=prior) for prior in PRIORS]
NOISE = DiscreteGaussian.from_rho(Fraction("0.3"))
LAWS = [DiscreteGaussian.from_rho(Fraction(rho)) for rho in RHOS]
LEVELS = [Level(NOISE, siblings=3), Level(DiscreteGaussian.from_rho(Fraction(1, 2)))]
DRAWN = np.random.default_rng(1)
RESIDUALS = np.rint(DRAWN.laplace(0, 3, 3_000)).astype(int)
EXACT = DRAWN.poisson(20, 60)
EPSILONS = [0.1, 1.0, 10.0]


def marginal():
    return {w: [assess.marginal_risk(law, intruder=w) for law in LAWS] for w in INTRUDERS}


def decided():
    return {w: [assess.correct_decision(law, intruder=w) for law in LAWS] for w in INTRUDERS}


def disclosed():
    seen = np.array(SEEN)
    return {w: assess.disclosure_risk(NOISE, observed=seen, intruder=w) for w in INTRUDERS}


def believed():
    return {w: assess.posterior(NOISE, observed=np.array(SEEN), intruder=w) for w in INTRUDERS}


def two_levels():
    return {
        parent: [
            hierarchy.posterior(
                LEVELS, observed=(x, parent), intruder=INTRUDERS[1], sibling_sums=(8,)
            )
            for x in SEEN
        ]
        for parent in (6, 10, 14)
    }


def levels_known():
    return {
        w: [hierarchy.marginal_risk(LEVELS[:k], truth=(1, 9)[:k], intruder=w) for k in (1, 2)]
        for w in INTRUDERS
    }


def plan():
    return Plan.parse(TINY_PLAN)


def table_of_people():
    rng = np.random.default_rng(2)
    data = {"a": rng.integers(0, 12, 200).astype(str), "s": rng.choice(["x", "y", "z"], 200)}
    return homogeneity.Table.from_records(pa.table(data), identifiers=["a"], sensitive="s")


def homogeneity_curve():
    return homogeneity.curve(table_of_people(), mechanisms=[Laplace(1 / e) for e in EPSILONS])


def homogeneity_frontier():
    return homogeneity.frontier(
        table_of_people(), mechanism=Laplace, epsilons=EPSILONS, draws=3, rng=Seeded(1)
    )


def accuracy(rows=None):
    given = [
        ("area", "TOTAL", "0", 0.0),
        ("area", "TOTAL", "1-9", 2.25),
        ("region", "TOTAL", "10-99", 0.75),
    ]
    rows = [
        {
            "level": level,
            "query": query,
            "size_class": size,
            "mean_absolute_error": error,
            "bias": -0.5,
            "cells": 12,
        }
        for level, query, size, error in (given if rows is None else rows)
    ]
    schema = None if rows else pa.schema([("query", pa.string()), ("size_class", pa.string())])
    empty = pa.table({})
    return Accuracy("Tiny", pa.Table.from_pylist(rows, schema), empty, empty)


def places(audience="public", number=4):
    rows = [{"by": "all", "group": "all", "cells": 9, "mean_risk": 1.5, "largest_risk": 3.0}]
    rows += [
        {
            "by": "place",
            "group": f"R{i}",
            "cells": 5 + i,
            "mean_risk": 1.05 + i / 7,
            "largest_risk": 2 + i / 3,
        }
        for i in range(number)
    ]
    return RiskMap("area", 0.1, (1.5,), pa.Table.from_pylist(rows), pa.table({}), audience)


SHAPES = {
    "type": "FeatureCollection",
    "features": [
        {
            "type": "Feature",
            "properties": {"geocode": f"R{i}"},
            "geometry": {
                "type": "Polygon",
                "coordinates": [[[i, 0], [i, 1], [i + 1, 1], [i + 1, 0], [i, 0]]],
            },
        }
        for i in range(5)
    ],
}


def released():
    rng = np.random.default_rng(3)
    return {
        "projection": 20 + rng.integers(-9, 9, (3, 200)),
        "beside totals": 20 + rng.integers(-3, 3, (3, 200)),
    }


def level_errors():
    """Exact at the top, one error for all in the middle, some exact and some not told below."""
    return [
        LevelError("region", "TOTAL", 2, 2, 2, 0, None, None, None, 1.5),
        LevelError("town", "TOTAL", 4, 4, 0, 0, 2.5, 2.5, 2.5, None),
        LevelError("area", "TOTAL", 40, 40, 3, 2, 2.25, 3.125, 90.5, 111.0),
    ]


def area_estimates(areas=4, query="TOTAL", error=7.0):
    asked = SimpleNamespace(query=plan().schema.query(query))
    cells = asked.query.cells
    value = 100.0 + 37.5 * (np.arange(areas * cells).reshape(areas, cells) % 3)
    errors = np.full((areas, cells), error)
    names = tuple(f"district {number}" for number in range(areas))
    if areas > 2:
        errors[1], errors[2], value[2] = 0.0, np.inf, np.nan
    return AreaEstimates(names, asked, value, errors, (), 0.9)


def covered(**more):
    rows = {
        "level": ["county", "tract", "tract"],
        "size_class": ["10,000+", "100-999", "0"],
        "intervals": [400, 8_000, 50_000],
        "covered": [0.905, 0.8875, 0.9975],
        "standard_error": [0.0125, 0.0035, 0.0],
    }
    return pa.table(rows | more)


PICTURES = {
    "posterior": lambda: charts.posterior(SEEN, disclosed()),
    "risk by rho": lambda: charts.risk_by_rho(
        RHOS, marginal(), chosen="2.56", delta="1e-10", limit=5
    ),
    "risk by rho, plain": lambda: charts.risk_by_rho(RHOS, marginal()),
    "decision by rho": lambda: charts.decision_by_rho(RHOS, decided(), chosen="0.5", delta="1e-6"),
    "risk and error": lambda: charts.risk_and_error(
        RHOS, marginal(), [law.variance**0.5 for law in LAWS], chosen="1"
    ),
    "decision map": lambda: charts.decision_map(SEEN, believed()),
    "decision map, two levels": lambda: charts.decision_map_two_levels(SEEN, two_levels()),
    "levels known": lambda: charts.risk_by_levels_known(["block", "tract"], levels_known()),
    "risk by level": lambda: charts.risk_by_level(risk_by_level(plan())),
    "budget": lambda: charts.budget_allocation(plan()),
    "expected error": lambda: charts.expected_error(expected_error(plan())),
    "error by size": lambda: charts.error_by_size(accuracy()),
    "exact and released": lambda: charts.exact_and_released(
        EXACT, EXACT + RESIDUALS[:60], audience="internal"
    ),
    "residuals": lambda: charts.residuals(gathered(RESIDUALS)),
    "empirical loss": lambda: charts.empirical_loss(
        {"county": kde(RESIDUALS), "tract": kde(RESIDUALS[:1500])}, epsilon=1.0
    ),
    "homogeneity": lambda: charts.homogeneity_by_epsilon(EPSILONS, homogeneity_curve()),
    "frontier": lambda: charts.frontier(homogeneity_frontier()),
    "replicates": lambda: charts.replicates(
        ["A1", "A2", "A3"], released(), true=np.array([20, 21, 22]), audience="internal"
    ),
    "intruders": lambda: charts.two_hundred_intruders(
        INTRUDERS[1],
        assess.correct_decision(LAWS[3], intruder=INTRUDERS[1]),
        assess.correct_decision(LAWS[3], intruder=INTRUDERS[1], present=False),
    ),
    "risk map": lambda: charts.risk_map(places()),
    "risk map with shapes": lambda: charts.risk_map(places("internal"), shapes=SHAPES),
    "error by level": lambda: charts.error_by_level(level_errors()),
    "areas with intervals": lambda: charts.areas_with_intervals(area_estimates()),
    "a cell of areas": lambda: charts.areas_with_intervals(
        area_estimates(2, "AGE*SEX"), cell=("old", "x")
    ),
    "coverage": lambda: charts.coverage(covered(), confidence=0.9, audience="public"),
    # The awkward ones: a single point, one level, one place, zeros, very long names.
    "one released value": lambda: charts.posterior(
        [3], {INTRUDERS[0]: assess.disclosure_risk(NOISE, observed=3, intruder=INTRUDERS[0])}
    ),
    "one rho": lambda: charts.risk_by_rho(
        ["1"], {INTRUDERS[0]: [marginal()[INTRUDERS[0]][3]]}, chosen=1, delta="1e-10"
    ),
    "one level": lambda: charts.risk_by_levels_known(
        ["block"], {w: items[:1] for w, items in levels_known().items()}
    ),
    "one decision": lambda: charts.decision_map(
        [9], {INTRUDERS[0]: assess.posterior(NOISE, observed=9, intruder=INTRUDERS[0])}
    ),
    "one place": lambda: charts.risk_map(places(number=1)),
    "one release": lambda: charts.replicates(["A1"], {"x": np.array([[0]])}, audience="public"),
    "no error": lambda: charts.error_by_size(accuracy([("area", "TOTAL", "0", 0.0)])),
    "long names": lambda: charts.empirical_loss(
        {"a level with a name that is longer than any picture is wide " * 3: kde(RESIDUALS)}
    ),
    "uniform groups": lambda: charts.uniform_groups(homogeneity_by_size(plan())),
    "one epsilon": lambda: charts.homogeneity_by_epsilon([1.0], homogeneity_curve().slice(1, 1)),
    "one level with an error": lambda: charts.error_by_level(level_errors()[1:2]),
    "one exact area": lambda: charts.areas_with_intervals(area_estimates(1, error=0.0)),
    "many areas": lambda: charts.areas_with_intervals(area_estimates(120), most=30),
    "one internal coverage": lambda: charts.coverage(
        covered().slice(0, 1), confidence=0.95, audience="internal"
    ),
}
INTERNAL = {
    *("error by size", "exact and released", "residuals", "empirical loss", "homogeneity"),
    *("frontier", "replicates", "risk map with shapes", "no error", "long names", "one epsilon"),
    "one internal coverage",
}
_DRAWN: dict[str, charts.Picture] = {}


@pytest.fixture(params=PICTURES, ids=lambda name: name.replace(" ", "-"))
def case(request):
    if request.param not in _DRAWN:
        _DRAWN[request.param] = PICTURES[request.param]()
    return request.param, _DRAWN[request.param]


def told(picture, sentence):
    """Yield the numbers of a sentence, those within names of the table left out."""
    texts = {
        str(value)
        for column in picture.table.columns
        if pa.types.is_string(column.type)
        for value in column.to_pylist()
        if value
    }
    kept = {text for text in texts if NUMBER.fullmatch(text.removeprefix("prior "))}
    for text in sorted(texts - kept, key=len, reverse=True):
        sentence = re.sub(rf"(?<!\w){re.escape(text)}(?!\w)", "…", sentence)
    for found in NUMBER.finditer(sentence):
        yield found[1], bool(found[2])


def missing(picture, sentence):
    """Return the numbers of a sentence that no number of the table rounds to."""
    columns = {
        name: [float(v) for v in column.to_pylist() if v is not None]
        for name, column in zip(picture.table.column_names, picture.table.columns, strict=True)
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    }
    columns["rows"] = [float(picture.table.num_rows)]
    columns["texts"] = [
        float(value)
        for column in picture.table.columns
        for value in column.to_pylist()
        if isinstance(value, str) and NUMBER.fullmatch(value) and "," not in value
    ]
    return [
        shown
        for shown, percent in told(picture, sentence)
        if not any(
            rounds_to(shown, percent, value, name == "epsilon")
            or rounds_to(shown, percent, value, False)
            for name, values in columns.items()
            for value in values
        )
    ]


def test_every_number_in_words_is_a_number_of_the_table(case):
    _, picture = case
    for sentence in (picture.alt, picture.caption):
        assert missing(picture, sentence) == []


def test_words_hold_numbers_at_all(case):
    _, picture = case
    assert list(told(picture, picture.alt + picture.caption))


def test_the_check_of_words_finds_a_wrong_number():
    picture = PICTURES["risk by rho"]()
    assert missing(picture, picture.caption.replace("1.751", "1.752")) == ["1.752"]
    assert missing(picture, "about 93.17 %") == ["93.17"]


def test_svg_has_words_and_nothing_from_outside(case):
    _, picture = case
    drawn = picture.svg()
    root = ElementTree.fromstring(drawn)
    texts = [item.text for item in root.iter("{http://www.w3.org/2000/svg}text") if item.text]
    assert picture.title in texts
    assert len(texts) > 2
    assert root.get("role") == "img"
    ids = [item.get("id") for item in root.iter() if item.get("id")]
    assert len(ids) == len(set(ids))
    assert set(root.get("aria-labelledby").split()) <= set(ids)
    described = root.find("{http://www.w3.org/2000/svg}desc")
    assert described.text == picture.alt
    assert "NaN" not in drawn
    assert "undefined" not in drawn
    for name in ("script", "image", "style", "foreignObject", "use", "a"):
        assert not list(root.iter(f"{{http://www.w3.org/2000/svg}}{name}"))
    for item in root.iter():
        for key, value in item.attrib.items():
            assert "href" not in key
            assert key != "style"  # a strict page allows none
            assert not key.startswith("on")
            assert "://" not in value
            assert "url(" not in value or value.startswith("url(#")


def test_the_same_result_gives_the_same_bytes(case):
    name, picture = case
    again = PICTURES[name]()
    assert picture.svg() == again.svg() == picture.svg()
    assert json.dumps(picture.spec()) == json.dumps(again.spec())
    assert picture.html_table() == again.html_table()
    assert (picture.alt, picture.caption) == (again.alt, again.caption)


def test_spec_holds_its_data_and_no_address(case):
    _, picture = case
    text = json.dumps(picture.spec())
    assert "http" not in text
    assert '"url"' not in text
    assert picture.spec()["usermeta"]["embedOptions"]["ast"] is True
    assert picture.spec()["config"]["font"].endswith("sans-serif")
    assert '"values"' in text or '"datasets"' in text


def test_internal_results_give_internal_pictures(case):
    name, picture = case
    assert picture.audience == ("internal" if name in INTERNAL else "public")
    marked = picture.audience == "internal"
    for text in (picture.alt, picture.caption, picture.html_table(), picture.svg()):
        assert ("INTERNAL" in text) is marked


def test_png_is_an_image_of_the_scale_asked_for():
    picture = PICTURES["budget"]()
    small, large = picture.png(1), picture.png()
    assert small[:8] == large[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(large[16:20]) == pytest.approx(2 * int.from_bytes(small[16:20]), abs=2)


class Cells(HTMLParser):
    """The cells of a table, row by row, and the scopes of its headings."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.scopes, self.caption, self.inside = [], [], "", None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.inside = tag
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "th":
            self.scopes.append(dict(attributes)["scope"])

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside in ("td", "th"):
            self.rows[-1][-1] += data
        if self.inside == "caption":
            self.caption += data


def test_html_table_holds_the_table(case):
    _, picture = case
    cells = Cells(picture.html_table())
    rows = picture.table.num_rows
    assert picture.title in cells.caption
    assert cells.scopes == ["col"] * picture.table.num_columns + ["row"] * rows
    assert len(cells.rows) == rows + 1
    assert cells.rows[0] == [name.replace("_", " ") for name in picture.table.column_names]
    for shown, row in zip(cells.rows[1:], picture.table.to_pylist(), strict=True):
        for text, value in zip(shown, row.values(), strict=True):
            if isinstance(value, str):
                assert text == value
            elif value is None:
                assert text == "none"
            elif not isinstance(value, bool) and np.isfinite(value):
                assert float(text.replace(",", "")) == pytest.approx(value, rel=1e-5, abs=1e-300)


def test_html_is_escaped():
    risk = places()
    rows = risk.groups.to_pylist()
    rows[1]["group"] = '<b onclick="x">&'
    unsafe = RiskMap("area", 0.1, (1.5,), pa.Table.from_pylist(rows), pa.table({}), "public")
    picture = charts.risk_map(unsafe)
    assert "<b onclick" not in picture.html_table()
    assert "<b onclick" not in picture.svg()
    ElementTree.fromstring(picture.svg())
    assert '<b onclick="x">&' in str(Cells(picture.html_table()).rows)


def column(picture, name, **where):
    return [
        row[name]
        for row in picture.table.to_pylist()
        if all(row[key] == value for key, value in where.items())
    ]


def test_tables_hold_what_the_library_found():
    picture = _drawn("posterior")
    for who, risk in disclosed().items():
        assert column(picture, "risk", prior=who.prior) == list(risk.value)
        assert column(picture, "posterior", prior=who.prior) == list(risk.posterior)
        after = np.array(column(picture, "posterior", prior=who.prior))
        np.testing.assert_allclose(after / who.prior, risk.value, rtol=1e-12)
    picture = _drawn("risk by rho")
    for who, risks in marginal().items():
        assert column(picture, "marginal_risk", prior=who.prior) == [r.value for r in risks]
    assert column(picture, "epsilon", prior=0.5) == [ZCDP(rho).epsilon("1e-10") for rho in RHOS]
    picture = _drawn("decision by rho")
    for who, risks in decided().items():
        assert column(picture, "probability", prior=who.prior) == [r.value for r in risks]
    picture = _drawn("levels known")
    for who, risks in levels_known().items():
        assert column(picture, "marginal_risk", prior=who.prior) == [r.value for r in risks]
    found = _drawn("risk by level").table
    assert found["marginal_risk"].to_pylist() == [r.marginal_risk for r in risk_by_level(plan())]
    found = _drawn("expected error").table
    assert found["standard_error"].to_pylist() == [
        item.standard_error for item in expected_error(plan())
    ]
    found = _drawn("homogeneity")
    curve = homogeneity_curve()
    assert (
        column(found, "risk", series="marginal shrinkage")
        == curve["marginal_shrinkage"].to_pylist()
    )
    found = _drawn("frontier").table
    other = homogeneity_frontier().sort_by([("epsilon", "descending")])
    assert found["risk"].to_pylist() == other["local_weighted"].to_pylist()
    loss = kde(RESIDUALS)
    found = _drawn("empirical loss")
    assert column(found, "size_of_loss", series="county", largest=True) == [loss.value]
    assert column(found, "residual", series="county", largest=True) == [loss.at]
    assert column(found, "loss", series="county") == loss.curve["loss"].to_pylist()
    found = _drawn("risk map")
    assert sorted(column(found, "mean_risk"), reverse=True) == column(found, "mean_risk")
    assert column(found, "largest_risk", place="R2") == [2 + 2 / 3]


def _drawn(name):
    if name not in _DRAWN:
        _DRAWN[name] = PICTURES[name]()
    return _DRAWN[name]


def test_rhos_and_errors_stay_together_in_any_order():
    errors = [law.variance**0.5 for law in LAWS]
    mixed = [3, 0, 5, 1, 4, 2]
    risks = {w: [items[i] for i in mixed] for w, items in marginal().items()}
    picture = charts.risk_and_error([RHOS[i] for i in mixed], risks, [errors[i] for i in mixed])
    assert column(picture, "rho", prior=0.5) == [float(rho) for rho in RHOS]
    assert column(picture, "error", prior=0.5) == errors
    assert column(picture, "marginal_risk", prior=0.02) == [
        r.value for r in marginal()[INTRUDERS[2]]
    ]


def test_a_budget_is_shared_as_the_plan_says():
    rows = _drawn("budget").table.to_pylist()
    shares = {(row["level"], row["query"]): row["share_of_all"] for row in rows}
    assert shares["area", "TOTAL"] == 1 / 8
    assert shares["area", "AGE*SEX"] == 3 / 8
    assert shares["area", "all queries"] == 1 / 2
    assert shares["all levels", "all queries"] == 1
    assert sum(row["rho"] for row in rows if row["query"] != "all queries") == 2.0


def test_the_decision_map_turns_where_the_posterior_passes_one_half():
    rows = _drawn("decision map").table.to_pylist()
    for who, risk in believed().items():
        yes = [x for x, after in zip(SEEN, risk.value, strict=True) if after > 0.5]
        there = [r for r in rows if r["row"] == f"prior {who.prior:g}" and r["decision"] == "there"]
        assert [(r["first_value"], r["last_value"]) for r in there] == [
            (x, SEEN[-1]) for x in yes[:1]
        ]
        assert {r["prior"] for r in there} <= {who.prior}
    assert {r["prior"] for r in rows if r["decision"] == "there"} == {0.5, 0.2}
    rows = _drawn("decision map, two levels").table.to_pylist()
    for parent, risks in two_levels().items():
        yes = [x for x, risk in zip(SEEN, risks, strict=True) if risk.value > 0.5]
        there = [r for r in rows if r["row"] == str(parent) and r["decision"] == "there"]
        assert [r["first_value"] for r in there] == yes[:1]


def test_intruders_are_counted_by_the_law_of_total_probability():
    who, rows = INTRUDERS[1], _drawn("intruders").table.to_pylist()
    there = assess.correct_decision(LAWS[3], intruder=who).value
    away = assess.correct_decision(LAWS[3], intruder=who, present=False).value
    assert [row["when"] for row in rows] == ["before", "after"]
    assert rows[0]["decide_rightly"] == 160  # all say no, and four in five are right
    share = 0.2 * there + 0.8 * away
    assert rows[1]["probability_of_a_right_decision"] == pytest.approx(share, rel=1e-14)
    assert rows[1]["decide_rightly"] == round(200 * share) > 160
    alone = charts.two_hundred_intruders(who, assess.correct_decision(LAWS[3], intruder=who))
    assert alone.table["decide_rightly"].to_pylist() == [0, round(200 * there)]
    svg = alone.svg()
    assert svg.count(f'fill="{theme.COLOURS[0]}"') + svg.count(
        f"fill: {theme.COLOURS[0]}"
    ) == round(200 * there)


def test_boxes_are_quantiles():
    row = _drawn("replicates").table.to_pylist()[0]
    values = np.sort(released()["projection"][0])
    assert row["median"] == (values[99] + values[100]) / 2
    inside = ((values >= row["percentile_25"]) & (values <= row["percentile_75"])).mean()
    assert inside >= 0.5
    assert row["percentile_05"] == pytest.approx(np.percentile(values, 5))
    assert row["true"] == 20


def test_residuals_are_all_counted():
    table = _drawn("residuals").table
    assert sum(table["residuals"].to_pylist()) == len(RESIDUALS)
    at = {row["from"]: row["residuals"] for row in table.to_pylist()}
    assert at[0] == (RESIDUALS == 0).sum()
    assert at[-3] == (RESIDUALS == -3).sum()
    wide = charts.residuals(gathered(RESIDUALS * 1000)).table
    assert sum(wide["residuals"].to_pylist()) == len(RESIDUALS)
    assert wide.num_rows <= 101


def test_colours_dashes_and_shapes_differ():
    for items in (theme.COLOURS, theme.DASHES, theme.SHAPES):
        assert len(set(items)) == len(items) == theme.MOST_SERIES
    drawn = _drawn("risk by rho").svg()
    for number in range(len(PRIORS)):
        assert theme.COLOURS[number] in drawn
        if number:
            assert f'stroke-dasharray="{",".join(map(str, theme.DASHES[number]))}"' in drawn


def _linear(colour):
    value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def test_colours_can_be_read_and_told_apart_by_the_colour_blind():
    # Machado, Oliveira & Fernandes (2009), severity 1.
    sights = {
        "all": np.eye(3),
        "deutan": [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.01182, 0.04294, 0.968881],
        ],
        "protan": [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
    }
    weights = np.array([0.2126, 0.7152, 0.0722])
    for colour in (*theme.COLOURS, theme.FAINT, theme.INK, theme.INTERNAL_COLOUR):
        contrast = 1.05 / (weights @ _linear(colour) + 0.05)
        assert contrast >= (3 if colour in theme.COLOURS else 4.5)
    # Four series are told apart by colour alone; beyond, dash and shape are needed.
    for sight in sights.values():
        for one, other in combinations(theme.COLOURS[:4], 2):
            seen = [np.clip(np.array(sight) @ _linear(c), 0, 1) ** (1 / 2.2) for c in (one, other)]
            assert np.linalg.norm(seen[0] - seen[1]) > 0.15


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: charts.posterior([], {}), "observed: none came"),
        (lambda: charts.posterior(SEEN, {}), "risks: none came"),
        (lambda: charts.posterior(SEEN[:3], disclosed()), "11 values came for 3"),
        (lambda: charts.posterior(SEEN, believed()), "assess.disclosure_risk"),
        (lambda: charts.posterior(SEEN, {0.5: 1}), "give Intruder"),
        (lambda: charts.risk_by_rho([], marginal()), "rhos: none came"),
        (lambda: charts.risk_by_rho(["0"], {}), "above 0"),
        (lambda: charts.risk_by_rho(RHOS, {}), "risks: none came"),
        (lambda: charts.risk_by_rho(RHOS[:2], marginal()), "6 came for 2 points"),
        (lambda: charts.risk_by_rho(RHOS, decided()), "give what measures 'marginal risk'"),
        (lambda: charts.risk_by_rho(RHOS, marginal(), chosen=3), "add it to `rhos`"),
        (lambda: charts.risk_and_error(RHOS, marginal(), [1.0]), "1 came for 6 rhos"),
        (lambda: charts.decision_map(SEEN, {}), "posteriors: none came"),
        (lambda: charts.decision_map_two_levels(SEEN, {}), "posteriors: none came"),
        (lambda: charts.risk_by_levels_known([], {}), "levels: none came"),
        (lambda: charts.risk_by_levels_known(["a", "a"], levels_known()), "name each once"),
        (lambda: charts.risk_by_level([]), "risks: none came"),
        (lambda: charts.expected_error([]), "errors: none came"),
        (lambda: charts.budget_allocation("plan.toml"), "str came; give Plan"),
        (lambda: charts.error_by_size(accuracy([])), "no errors of 'TOTAL'"),
        (lambda: charts.error_by_size(accuracy(), query="AGE"), "choose from TOTAL"),
        (lambda: charts.exact_and_released([], [], audience="internal"), "exact: none came"),
        (lambda: charts.exact_and_released([1], [1], audience="public"), "'internal' alone"),
        (lambda: charts.residuals([1, 2]), "give Residuals"),
        (lambda: charts.empirical_loss({}), "losses: none came"),
        (lambda: charts.homogeneity_by_epsilon([], homogeneity_curve()), "epsilons: none came"),
        (lambda: charts.homogeneity_by_epsilon([1.0], homogeneity_curve().slice(0, 0)), "no rows"),
        (lambda: charts.homogeneity_by_epsilon([1.0], homogeneity_curve()), "3 rows came for 1"),
        (lambda: charts.frontier(homogeneity_frontier().slice(0, 0)), "no rows"),
        (lambda: charts.frontier(homogeneity_frontier(), risk="x"), "no column 'x'"),
        (lambda: charts.replicates([], {}, audience="public"), "places: none came"),
        (lambda: charts.replicates(["a"], {}, audience="public"), "released: none came"),
        (lambda: charts.replicates(["a"], {"x": [[1]]}, audience="all"), "choose 'public'"),
        (lambda: charts.risk_map(places(), by="AGE"), "choose from all, place"),
        (lambda: charts.risk_map(places(number=0)), "choose from all"),
        (lambda: charts.risk_map(places(), shapes={"type": "Point"}), "FeatureCollection"),
        (lambda: charts.risk_map(places(), shapes=SHAPES, key="x"), "name the right one"),
        (lambda: charts.two_hundred_intruders(INTRUDERS[0], Risk("posterior", 0.5)), "_decision"),
        (lambda: charts.empirical_loss({"a": kde(RESIDUALS)}, audience="all"), "choose 'public'"),
    ],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused_with_a_reason(draw, message):
    with pytest.raises(InputError, match=message):
        draw()


def test_more_series_than_can_be_told_apart_are_refused():
    many = {Intruder(prior=(i + 1) / 20): [Risk("marginal risk", 1.5)] for i in range(9)}
    with pytest.raises(InputError, match="9 came, and at most 8"):
        charts.risk_by_rho(["1"], many)


class Counts:
    """Stands for confidential counts: silent, and no result."""

    def __repr__(self):
        raise AssertionError("a message showed confidential counts")


@pytest.mark.parametrize("name", sorted(set(charts.__all__) - {"Picture"}))
def test_no_picture_accepts_confidential_counts(name):
    draw = getattr(charts, name)
    confidential = Counts()
    arguments = {
        "posterior": (SEEN, {INTRUDERS[0]: confidential}),
        "risk_by_rho": (RHOS, {INTRUDERS[0]: [confidential] * 6}),
        "decision_by_rho": (RHOS, {INTRUDERS[0]: [confidential] * 6}),
        "risk_and_error": (RHOS, {INTRUDERS[0]: [confidential] * 6}, [1.0] * 6),
        "decision_map": (SEEN, {INTRUDERS[0]: confidential}),
        "decision_map_two_levels": (SEEN, {1: [confidential] * 11}),
        "risk_by_levels_known": (["a"], {INTRUDERS[0]: [confidential]}),
        "risk_by_level": ([confidential],),
        "expected_error": ([confidential],),
        "exact_and_released": (confidential, confidential),
        "empirical_loss": ({"a": confidential},),
        "homogeneity_by_epsilon": ([1.0], confidential),
        "replicates": (["a"], {"x": confidential}),
        "two_hundred_intruders": (INTRUDERS[0], confidential),
    }.get(name, (confidential,))
    options = {"audience": "internal"} if name in ("exact_and_released", "replicates") else {}
    if name == "coverage":
        options = {"audience": "internal", "confidence": 0.9}
    with pytest.raises(InputError, match="came"):
        draw(*arguments, **options)


def test_an_internal_risk_makes_an_internal_picture():
    risk = Risk("marginal risk", 1.5, audience="internal")
    picture = charts.risk_by_rho(["1"], {INTRUDERS[0]: [risk]})
    assert picture.audience == "internal"
    assert picture.caption.startswith("INTERNAL")
    assert "INTERNAL" in picture.svg()


def test_pictures_stay_small(case):
    name, picture = case
    assert len(picture.svg()) < 120_000, name


def test_words():
    assert words.number(1234.5) == "1,234"
    assert words.number(12) == "12"
    assert words.number(0.012341) == "0.01234"
    assert words.percent(0.02) == "2 %"
    assert words.percent(1e-9) == "almost 0 %"
    assert words.percent(1 - 1e-9) == "almost 100 %"
    assert words.percent(1.0) == "100 %"
    assert words.upwards(17.151) == "17.16"
    assert words.listed(["a", "b", "c"]) == "a, b and c"


def test_labels_keep_their_distance():
    moved = theme.apart([0.5, 0.5, 0.51, 0.9], 0.1, 0.0, 1.0)
    assert np.diff(sorted(moved)).min() >= 0.1 - 1e-12
    assert max(theme.apart([1.0, 1.0, 1.0], 0.1, 0.0, 1.0)) <= 1.0
    assert theme.apart([0.1, 0.9], 0.1, 0.0, 1.0) == [0.1, 0.9]


def test_altair_is_loaded_by_pictures_alone():
    program = "import {}; import sys; print('altair' in sys.modules, 'vl_convert' in sys.modules)"
    for module, expected in (
        ("countveil, countveil.report, countveil.report.terminal", "False False"),
        ("countveil.report.charts", "True True"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", program.format(module)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == expected


def test_two_pictures_on_a_page_share_no_id():
    one, other = (
        set(re.findall(r'\bid="([^"]+)"', _drawn(n).svg())) for n in ("budget", "posterior")
    )
    assert one
    assert not one & other


def test_a_release_can_be_drawn_from_end_to_end(tiny):
    plan = Plan.load(tiny)
    pipeline.release(plan, to=tiny.parent / "out", rng=Seeded(4))
    release = Release.read(tiny.parent / "out")
    counts = open_engine("local").tabulate(plan)
    public = public_map(release.measurements, counts.geography, prior=0.1)
    inside = internal_map(release.measurements, counts, prior=0.1)
    for found, audience in ((public, "public"), (inside, "internal")):
        picture = charts.risk_map(found)
        assert picture.audience == audience
        groups = [row for row in found.groups.to_pylist() if row["by"] == "place"]
        assert {(row["place"], row["mean_risk"]) for row in picture.table.to_pylist()} == {
            (row["group"], row["mean_risk"]) for row in groups
        }
    with pytest.raises(InputError, match="Counts came; give RiskMap"):
        charts.risk_map(counts)
    with pytest.raises(InputError, match="exact: Counts came; give a list of numbers"):
        charts.exact_and_released(counts, counts, audience="internal")
