"""The gallery of the papers in a real browser: under its policy, on narrow screens, on paper."""

import pyarrow as pa
import pytest
from playwright.sync_api import expect
from tests.browser.conftest import file_address

from countveil.papers import gallery
from countveil.papers.item import Item, ItemChart, Value

RATES = ItemChart(
    "A rate with a title of some length",
    "lines",
    pa.table({"x": [1, 2, 1, 2], "y": [0.5, 2.0, 1.0, 4.0], "who": ["a", "a", "b", "b"]}),
    "x",
    "y",
    "who",
    "time",
    "rate",
)
WHY = "The paper rounds (2, 7) twice, which gives 0.13 where once would give 0.12; see its Table 4."


def values(count):
    return tuple(
        Value(f"v{n}", f"average_posterior_of_the_{n}th_intruder", 0.5, 0.6, WHY, 0.01)
        for n in range(count)
    )


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    items = [
        Item("002", "Table 9", "Few values", values(3), (RATES, RATES), "A note.", None),
        Item("002", "Figure 10", "Many values", values(40), (RATES,), "", "Bring a file."),
    ]
    return file_address(gallery.write(items, tmp_path_factory.mktemp("gallery")))


def test_it_is_drawn_under_its_policy_and_read_by_keyboard(visit, address):
    with visit(address) as seen:
        page = seen.page
        assert page.locator("svg[role=img]").count() == 3
        for drawn in page.locator("svg[role=img]").all():
            assert drawn.bounding_box()["height"] > 100
        assert (
            page.evaluate("getComputedStyle(document.querySelector('.why')).fontSize") == "13.6px"
        )
        heads = page.locator("thead th").all_text_contents()
        assert heads == 2 * ["Value", "Printed", "Ours", "Why they differ"]
        order = seen.tab_order()
        assert order[0] == "Skip to the papers"
        assert "40 values of Figure 10" in [" ".join(name.split()) for name in order]
        assert page.locator("details table").is_hidden()
        page.locator("summary").focus()
        page.keyboard.press("Enter")
        expect(page.locator("details table")).to_be_visible()
        assert len(seen.requests) == 1


@pytest.mark.parametrize("width", [1280, 320])
def test_nothing_is_scrolled_sideways_and_axe_finds_nothing(visit, address, width):
    with visit(address, bypass_csp=True) as seen:  # axe-core is a script that the policy refuses
        seen.page.set_viewport_size({"width": width, "height": 900})
        seen.page.locator("summary").click()
        assert seen.fits()
        assert seen.violations() == []


def test_in_print_every_table_is_open(visit, address):
    with visit(address) as seen:
        page = seen.page
        page.emulate_media(media="print")
        assert page.locator("details table").bounding_box()["height"] > 300
        page.set_viewport_size({"width": 700, "height": 900})  # A4 less its margins
        assert seen.fits()
        assert "average_posterior_of_the_39th" in page.locator("details").inner_text()
