"""The made-up example of the explorer: the library's section, and numbers that do not wait for it."""

import html
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from tests.conftest import HANG, TINY_PLAN
from tests.explorer.visiting import Visitor, serving
from tests.report.numbers_in_words import ends_of

from countveil import Plan
from countveil.explorer import server
from countveil.report.sections import published_homogeneity_section, published_section
from countveil.report.sections.published_section import example

TOP_DOWN = '[postprocess]\nmethod = "top-down"\n'


@pytest.fixture
def inside(tiny):
    tiny.write_text(TINY_PLAN + TOP_DOWN)
    with serving(tiny) as address:
        yield Visitor(address).enter()


def test_it_is_the_section_of_the_library(inside, tiny):
    reply = inside.ask("published", amount="1", prior="0.1")
    text = TINY_PLAN.replace('rho = "2"', 'rho = "1"') + TOP_DOWN
    plan = Plan.parse(text, folder=tiny.parent)
    section, groups = example(plan, prior=0.1), published_homogeneity_section.example(plan)
    assert reply["sections"] == [section.document, groups.document]
    for sentence in (*section.sentences, *groups.sentences):
        assert sentence in html.unescape(reply["html"])
    assert "To the same intruder, the epsilon of the published tables" in reply["html"]
    assert "a person is alone in one area, and there is one other area" in reply["html"]
    low, high = section.figures["lower"], section.figures["upper"]
    assert 1 < low < high < 10
    shown = reply["html"].split("raise it ")[1].split(" times on average")[0].split(" to ")
    assert tuple(map(float, shown)) == (ends_of(low, high)[0], float(f"{high:.2g}"))


def test_it_is_simulated_once_and_in_another_process(inside, monkeypatch):
    def unused(*given, **named):
        raise AssertionError("simulated in the process that answers the page")

    monkeypatch.setattr(published_section, "brackets", unused)
    first = inside.ask("published")
    # The attack of the page is not asked about: it leaves it as it is.
    monkeypatch.setattr("countveil.engines.workers.Processes.map", unused)
    again = inside.ask("published", attack="whole record", attribute=None)
    assert again == first


def test_it_is_about_the_intruder_of_the_page(inside):
    """Who knows everyone else in a region knows those in the other area, too."""
    one, other = (
        inside.ask("published", level=level)["sections"][0] for level in ("area", "region")
    )
    assert (one["knows"], one["siblings"]) == ("area", "flat")
    assert (other["knows"], other["siblings"]) == ("region", "known")
    assert one["upper"] < other["upper"]
    assert "others are counted in the only other area" in other["sentences"][0]


def test_numbers_do_not_wait_for_a_simulation(inside, monkeypatch):
    """While examples are simulated, one after the other, numbers are computed as ever."""
    started, end = Event(), Event()

    def slow(opened, settings):
        started.set()
        assert end.wait(HANG)
        return {"html": "", "sections": [{"prior": settings.prior}]}

    monkeypatch.setattr(server, "answered_published", slow)
    with ThreadPoolExecutor(4) as threads:
        pending = [
            threads.submit(inside.ask, "published", prior=prior) for prior in ("0.1", "0.2", "0.3")
        ]
        assert started.wait(HANG)
        found = inside.ask("numbers", amount="3")["numbers"]
        assert found["cost"].startswith("rho = 3")
        assert not any(item.done() for item in pending)
        end.set()
        assert [item.result()["sections"][0]["prior"] for item in pending] == ["0.1", "0.2", "0.3"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('[postprocess]\nmethod = "none"\n', "publishes no tables other than the measurements"),
        (
            '[[constraints]]\nlevel = "area"\nquery = "SEX"\npath = "facts.csv"\n'
            'reason = "known"\n[postprocess]\nmethod = "top-down"\n',
            "constraints: they name places of the crosswalk",
        ),
        (
            '[[invariants]]\nlevel = "area"\nquery = "TOTAL"\nreason = "law"\n'
            '[postprocess]\nmethod = "top-down"\n',
            "takes too long to simulate while you wait",
        ),
    ],
)
def test_what_cannot_be_simulated_is_refused_with_the_reason(more, message, tiny):
    text = TINY_PLAN
    if "invariants" in more:  # at a level that is not measured, so that each release stands alone
        text = text.replace('region = "1/2"', 'region = "1"').replace('area = "1/2"', 'area = "0"')
    (tiny.parent / "facts.csv").write_text("area,SEX,at_most\nA1,f,3\n")
    tiny.write_text(text + more)
    with serving(tiny) as address:
        inside = Visitor(address).enter()
        reply = inside.call(f"/plans/{inside.data['plan']}/published", inside.data["settings"])
        assert message in reply.document()["refused"]


def test_the_page_has_a_place_for_it(inside):
    page = inside.page.text
    assert '<details id="published"><summary>What the tables would reveal about someone' in page
    assert '<div id="published-section" aria-live="polite"' in page
