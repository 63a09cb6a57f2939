"""The gallery page: whole, self-contained, and with the numbers of its items."""

import base64
import hashlib
import html
import re
from html.parser import HTMLParser

import pyarrow as pa
import pytest

from countveil.errors import InputError
from countveil.papers import catalogue, gallery, item_charts
from countveil.papers.item import Item, ItemChart, ReferenceLine, Value
from countveil.papers.item_text import display, display_printed, item_json, to_json

LINES = ItemChart(
    "rates",
    "lines",
    pa.table({"x": [1, 2, 1, 2], "y": [0.5, 2.0, 1.0, 4.0], "who": ["a", "a", "b", "b"]}),
    "x",
    "y",
    "who",
    "time",
    "rate",
    reference_lines=(ReferenceLine("y", 1.5, "limit"), ReferenceLine("x", 2, "now")),
)
TILES = ItemChart(
    "map",
    "tiles",
    pa.table({"x": [1, 2], "y": [1, 1], "z": [3, 7]}),
    "x",
    "y",
    "z",
    "east",
    "north",
)
BARS = ItemChart("bars", "bars", pa.table({"x": ["a", "b"], "y": [1.0, 2.0]}), "x", "y")
POINTS = ItemChart("points", "points", pa.table({"x": [1.0], "y": [2.0]}), "x", "y", log_x=True)
SPANS = ItemChart(
    "spans",
    "intervals",
    pa.table({"x": ["a"], "y": [2.0], "low": [1.0], "high": [3.0], "s": ["one"]}),
    "x",
    "y",
    "s",
    low="low",
    high="high",
)
ITEM = Item(
    "002",
    "Table 9",
    "A <table> & more",
    (
        Value("a", "first <b>", 0.5, 0.51, None, 0.05),
        Value("b", "second", 1.1, 1.2, "because 1 < 2", 0.005),
        Value("c", "third", (0.1, None), (0.1, None), None, 0.05),
    ),
    (LINES, TILES),
    "A note with <angle> brackets.",
    "Bring a file.",
)


class Page(HTMLParser):
    """Collects tags, ids and rows; HTMLParser calls these by name."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.sources, self.text = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        inputs = dict(attrs)
        if "id" in inputs:
            self.ids.append(inputs["id"])
        for name in ("src", "href", "xlink:href"):
            if name in inputs:
                self.sources.append(inputs[name])
        if tag not in ("meta", "br", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def page():
    return gallery.html([ITEM])


def test_the_page_is_well_formed_and_asks_for_nothing(page):
    read = Page(page)
    assert read.open == []
    assert len(read.ids) == len(set(read.ids))
    links = [source for source in read.sources if source != "data:,"]  # no icon
    assert all(source.startswith("#") for source in links)
    assert {source.removeprefix("#") for source in links} <= set(read.ids)
    assert "<script" not in page
    assert not re.findall(r"url\((?!#)", page)
    assert not re.findall(r"@import|https?://(?!www\.w3\.org)", page)
    assert "default-src &#39;none&#39;" in page
    assert "unsafe" not in page
    style = page.partition("<style>")[2].partition("</style>")[0]
    seal = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src &#39;sha256-{html.escape(seal)}&#39;" in page.replace("&#43;", "+")
    assert ' style="' not in page  # the policy would not apply it
    assert "<th></th>" not in re.sub(r"<th [^>]*>", "<th>", page)


def test_the_page_shows_every_value_escaped(page):
    text = " ".join(Page(page).text)
    for sentence in (
        "first <b>",
        "because 1 < 2",
        "A <table> & more",
        "Bring a file.",
        "0.51",
        "1.100",
    ):
        assert sentence.replace("1.100", "1.10") in text
    assert '<tr class="off"><th scope="row">second' in page
    assert '<tr><th scope="row">first' in page
    assert "The papers print 3 of them: 2 agree" in text
    assert "1 does not" in text
    assert "1 item, 3 numbers" in text


@pytest.mark.parametrize(
    ("off", "sentence"),
    [
        (
            (False,),
            "1 item, 1 number, computed by the public API of countveil. The papers print 1 of ",
        ),
        ((False,), "them, and all agree within"),
        ((True,), "0 agree within rounding or the paper's own simulation error, 1 does not, and"),
        (
            (False, True, True),
            "1 agrees within rounding or the paper's own simulation error, 2 do not",
        ),
        ((False, False, True), "2 agree within"),
    ],
)
def test_what_is_one_is_said_as_one(off, sentence):
    values = tuple(
        Value(f"{n}", "label", 1.0, 2.0 if other else 1.0, "why" if other else None, 0.1)
        for n, other in enumerate(off)
    )
    page = gallery.html([Item("003", "Figure 1", "t", values, (), "", None)])
    text = "".join(Page(page).text)
    assert sentence in text


def test_a_page_without_printed_numbers_says_so():
    item = Item("003", "Figure 1", "t", (Value("a", "l", None, 1.0),), (), "", None)
    assert "The papers print none of them." in gallery.html([item])


@pytest.mark.parametrize("chart", [LINES, TILES, BARS, POINTS, SPANS])
def test_every_kind_is_drawn(chart):
    drawing = item_charts.svg(chart, prefix="p-")
    assert drawing.startswith("<svg role=")
    assert f'aria-label="{item_charts.describe(chart)}"' in drawing
    used = set(re.findall(r"url\(#([^)]+)\)", drawing))
    assert used <= set(re.findall(r'\bid="([^"]+)"', drawing))
    assert all(name.startswith("p-") for name in used)
    if chart.kind in ("lines", "points", "tiles"):
        assert chart.x_title in drawing


def test_descriptions_say_the_plotted_numbers():
    assert item_charts.describe(LINES) == (
        "rates: rate against time, 4 points; values from 0.5 to 4; series: a, b."
    )
    assert item_charts.describe(TILES) == ("map: north against east, 2 points; values from 3 to 7.")


def test_series_differ_by_colour_and_by_dash():
    spec = item_charts.altair_chart(LINES).to_dict()
    encoding = spec["layer"][0]["encoding"]
    for channel in ("color", "strokeDash"):
        scale = encoding[channel]["scale"]
        assert scale["domain"] == ["a", "b"]
        assert scale["range"][0] != scale["range"][1]


def test_a_chart_needs_its_columns():
    with pytest.raises(InputError, match="no column y, z; the table has x"):
        ItemChart("t", "lines", pa.table({"x": [1]}), "x", "y", "z")
    with pytest.raises(InputError, match="rename the series"):
        ItemChart("t", "lines", pa.table({"x": [1], "count": ["a"]}), "x", "x", "count")


def test_writing_replaces_the_page(tmp_path):
    folder = tmp_path / "new" / "gallery"
    page = gallery.write([ITEM], folder)
    gallery.write([ITEM], folder)
    assert page == folder / "index.html"
    assert [path.name for path in folder.iterdir()] == ["index.html"]
    assert page.read_text(encoding="utf-8") == gallery.html([ITEM])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "—"),
        (45, "45"),
        (2016.0, "2,016"),
        (0.12345678, "0.12346"),
        (1.2e-18, "1.2e-18"),
        (123.456, "123.46"),
        ((0.1, None), "0.1, —"),
        ({"a": 0.5, "b": [1.0, 2.5]}, "a 0.5; b 1, 2.5"),
        ("<0.01", "<0.01"),
    ],
)
def test_numbers_are_shown_short(value, text):
    assert display(value) == text


@pytest.mark.parametrize(
    ("inputs", "tolerance", "text"),
    [
        (1.1, 0.005, "1.10"),
        (0.13, 0.0005, "0.130"),
        (0.5954, 0.00105, "0.5954"),
        (864, 0, "864"),
        (2016, 0, "2,016"),
        ((0.001, 0.0008), 0.0001, "0.001, 0.0008"),
        ("<0.01", None, "<0.01"),
        (None, None, "—"),
    ],
)
def test_printed_numbers_keep_their_decimals(inputs, tolerance, text):
    assert display_printed(Value("id", "label", inputs, 0.0, tolerance=tolerance)) == text


def test_json_has_no_number_that_is_not_finite():
    assert to_json({"a": (1, float("inf"), float("nan"), None, "x", True)}) == {
        "a": [1, None, None, None, "x", True]
    }
    document = item_json(ITEM)
    assert document["item"] == "table-9"
    assert document["values"][1]["differs"] is True
    assert document["pictures"][0]["table"] == {
        "x": [1, 2, 1, 2],
        "y": [0.5, 2.0, 1.0, 4.0],
        "who": ["a", "a", "b", "b"],
    }


def test_a_real_item_is_on_its_page():
    item = catalogue.reproduce("002", "table-4")
    page = gallery.html([item])
    for value in item.values:
        assert f"<td>{display(value.ours)}</td>" in page
