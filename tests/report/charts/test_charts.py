"""Charts: their words are their numbers, their bytes are stable, they need nothing from outside."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pytest
from tests.report.chart_cases import CHARTS, INTERNAL, drawn, places, svg_of
from tests.report.numbers_in_words import NUMBER, rounds_to, without_true_bounds

from countveil.assess.risk_maps import RiskMap
from countveil.report import charts


@pytest.fixture(params=CHARTS, ids=lambda name: name.replace(" ", "-"))
def case(request):
    return request.param, drawn(request.param)


def numbers_of(chart, sentence):
    """Yield the numbers of a sentence, those within names of the table left out."""
    texts = {
        str(value)
        for column in chart.table.columns
        if pa.types.is_string(column.type)
        for value in column.to_pylist()
        if value
    }
    kept = {text for text in texts if NUMBER.fullmatch(text.removeprefix("prior "))}
    for text in sorted(texts - kept, key=len, reverse=True):
        sentence = re.sub(rf"(?<!\w){re.escape(text)}(?!\w)", "…", sentence)
    for found in NUMBER.finditer(sentence):
        yield found[1], bool(found[2])


def missing(chart, sentence):
    """Return the numbers of a sentence that no number of the table rounds to."""
    columns = {
        name: [float(v) for v in column.to_pylist() if v is not None]
        for name, column in zip(chart.table.column_names, chart.table.columns, strict=True)
        if pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    }
    columns["rows"] = [float(chart.table.num_rows)]
    columns["texts"] = [
        float(value)
        for column in chart.table.columns
        for value in column.to_pylist()
        if isinstance(value, str) and NUMBER.fullmatch(value) and "," not in value
    ]
    return [
        shown
        for shown, percent in numbers_of(chart, without_true_bounds(sentence, columns))
        if not any(
            rounds_to(shown, percent, value, name == "epsilon")
            or rounds_to(shown, percent, value, False)
            for name, values in columns.items()
            for value in values
        )
    ]


def test_every_number_in_words_is_a_number_of_the_table(case):
    _, chart = case
    for sentence in (chart.alt, chart.caption):
        assert missing(chart, sentence) == []


def test_words_hold_numbers_at_all(case):
    _, chart = case
    assert list(numbers_of(chart, chart.alt + chart.caption))


def test_the_check_of_words_finds_a_wrong_number():
    chart = CHARTS["risk by rho"]()
    assert missing(chart, chart.caption.replace("1.8", "1.752")) == ["1.752"]
    assert missing(chart, "about 93.17 %") == ["93.17"]


def test_svg_has_words_and_nothing_from_outside(case):
    case_name, chart = case
    svg = svg_of(case_name)
    root = ElementTree.fromstring(svg)
    texts = [item.text for item in root.iter("{http://www.w3.org/2000/svg}text") if item.text]
    assert chart.title in texts
    assert len(texts) > 2
    assert root.get("role") == "img"
    ids = [item.get("id") for item in root.iter() if item.get("id")]
    assert len(ids) == len(set(ids))
    assert set(root.get("aria-labelledby").split()) <= set(ids)
    described = root.find("{http://www.w3.org/2000/svg}desc")
    assert described.text == chart.alt
    assert "NaN" not in svg
    assert "undefined" not in svg
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
    name, chart = case
    again = CHARTS[name]()
    assert svg_of(name) == again.svg()
    assert json.dumps(chart.spec()) == json.dumps(again.spec())
    assert chart.html_table() == again.html_table()
    assert (chart.alt, chart.caption) == (again.alt, again.caption)


def test_spec_holds_its_data_and_no_address(case):
    _, chart = case
    text = json.dumps(chart.spec())
    assert "http" not in text
    assert '"url"' not in text
    assert chart.spec()["usermeta"]["embedOptions"]["ast"] is True
    assert chart.spec()["config"]["font"].endswith("sans-serif")
    assert '"values"' in text or '"datasets"' in text


def test_internal_results_give_internal_charts(case):
    name, chart = case
    assert chart.audience == ("internal" if name in INTERNAL else "public")
    marked = chart.audience == "internal"
    for text in (chart.alt, chart.caption, chart.html_table(), svg_of(name)):
        assert ("INTERNAL" in text) is marked


def test_png_is_an_image_of_the_scale_asked_for():
    chart = CHARTS["budget"]()
    small, large = chart.png(1), chart.png()
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
    _, chart = case
    cells = Cells(chart.html_table())
    rows = chart.table.num_rows
    assert chart.title in cells.caption
    assert cells.scopes == ["col"] * chart.table.num_columns + ["row"] * rows
    assert len(cells.rows) == rows + 1
    assert cells.rows[0] == [name.replace("_", " ") for name in chart.table.column_names]
    for shown, row in zip(cells.rows[1:], chart.table.to_pylist(), strict=True):
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
    chart = charts.risk_map(unsafe)
    assert "<b onclick" not in chart.html_table()
    assert "<b onclick" not in chart.svg()
    ElementTree.fromstring(chart.svg())
    assert '<b onclick="x">&' in str(Cells(chart.html_table()).rows)


def test_charts_stay_small(case):
    name, _ = case
    assert len(svg_of(name)) < 120_000, name


def test_altair_is_loaded_by_charts_alone():
    program = "import {}; import sys; print('altair' in sys.modules, 'vl_convert' in sys.modules)"
    for module, expected in (
        ("countveil, countveil.report, countveil.report.terminal.price_tables", "False False"),
        ("countveil.report.charts", "True True"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", program.format(module)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == expected


def test_two_charts_on_a_page_share_no_id():
    one, other = (set(re.findall(r'\bid="([^"]+)"', svg_of(n))) for n in ("budget", "posterior"))
    assert one
    assert not one & other
