"""The explorer in a real browser: drawn, moved and saved, by keyboard alone, on narrow screens."""

import re
from dataclasses import replace

import pytest
from playwright.sync_api import expect
from tests.browser.conftest import file_address
from tests.conftest import TINY_PLAN
from tests.explorer.visiting import running, serving
from tests.explorer.whole_answer import answer

from countveil.base import words
from countveil.explorer import explorer_page, offered_charts
from countveil.explorer.browser import leading_page
from countveil.explorer.settings import Settings, changed, opening
from countveil.plan.plans import Plan
from countveil.report.sections.published_section import example

PLAN = TINY_PLAN + (
    '[[invariants]]\nlevel = "region"\nquery = "TOTAL"\nreason = "known"\n'
    "[intruder]\npriors = [0.5, 0.1]\nlimit = 1.6\n"
)
CONTROLS = (
    *("mechanism", "amount", "amount-slider", "weight-0", "weight-1"),
    *("prior", "prior-slider", "level", "attack", "reset"),
    *("save-name", "save", "replace", "open-name", "open", "upload"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plans")
    (folder / "plan.toml").write_text(PLAN)
    return folder


@pytest.fixture(scope="module")
def address(folder):
    with serving(folder / "plan.toml") as found:
        yield found


def expected_sentence(**changes):
    """Return the sentence that the library's numbers give."""
    plan = Plan.parse(PLAN)
    settings = replace(opening(plan), **changes)
    return explorer_page.answer_sentence(answer(changed(plan, settings), settings), settings)


OFFERED = offered_charts.offered(opening(Plan.parse(PLAN)))


def drawn(page, names=OFFERED):
    """Wait until every chart that the page opens with is drawn."""
    for name in names:
        expect(page.locator(f"#chart-{name}[aria-busy=false] svg")).to_be_attached()


def test_it_draws_every_chart_under_its_policy_and_asks_no_other_host(visit, address):
    with visit(address) as seen:
        page = seen.page
        expect(page.locator("#sentence")).to_have_text(expected_sentence())
        drawn(page)
        page.locator("#attack").select_option("presence")
        drawn(page, offered_charts.TITLES)
        for name in offered_charts.TITLES:
            svg = page.locator(f"#chart-{name} svg")
            box = svg.bounding_box()
            assert box["width"] > 200
            assert box["height"] > 80
            assert svg.locator("path, text").count() > 10
            assert svg.get_attribute("role") == "img"
            assert len(page.locator(f"#chart-{name} figcaption").inner_text()) > 40
        assert "token" not in page.url
        assert len(seen.requests) >= 3 + len(offered_charts.TITLES)
        assert page.evaluate("document.cookie") == ""  # out of any script's reach


def test_a_browser_is_led_in_by_a_file_of_its_owner_once(chromium, folder):
    with (
        running(folder / "plan.toml") as explorer,
        leading_page(explorer.opening) as path,
        chromium.new_context() as first,
        chromium.new_context() as second,
    ):
        page = first.new_page()
        page.goto(file_address(path))
        expect(page.locator("#sentence")).to_have_text(
            expected_sentence()
        )  # with the cookie, which is strict
        assert "opening" not in page.url
        page.reload()
        expect(page.locator("#sentence")).to_have_text(expected_sentence())
        other = second.new_page()
        other.goto(file_address(path))
        expect(other.locator("body")).to_contain_text("open the address that the terminal shows")


def test_a_slider_moves_the_numbers_and_the_charts(visit, address):
    with visit(address) as seen:
        page = seen.page
        drawn(page)
        before = page.locator("#chart-budget-allocation").inner_html()
        page.locator("#amount-slider").fill("1")
        expect(page.locator("#amount")).to_have_value("10")
        expect(page.locator("#sentence")).to_have_text(expected_sentence(amount="10"))
        expect(page.locator("#cost")).to_contain_text("rho = 10")
        expect(page.locator("#verdict")).to_contain_text("Above the plan's limit of 1.6")
        expect(page.locator("#chart-budget-allocation")).to_contain_text("spend rho 10")
        drawn(page)
        assert page.locator("#chart-budget-allocation").inner_html() != before
        page.locator("#amount").fill("1/3")
        expect(page.locator("#sentence")).to_have_text(expected_sentence(amount="1/3"))
        page.locator("#weight-1").fill("10")
        weights = (("region", "1/2"), ("area", "10/100"))
        expect(page.locator("#sentence")).to_have_text(
            expected_sentence(amount="1/3", weights=weights)
        )
        expect(page.locator("#share-0")).to_have_text("83.3 %")
        page.locator("#attack").select_option("SEX")
        page.locator("#level").select_option("region")
        page.locator("#prior").fill("0.2")
        given = {"attack": "unknown attribute", "attribute": "SEX", "level": "region"}
        expect(page.locator("#sentence")).to_have_text(
            expected_sentence(amount="1/3", weights=weights, prior="0.2", **given)
        )
        expect(page.locator("#chart-intruders")).to_be_hidden()
        expect(page.locator("#ladder")).to_contain_text(
            "for someone who knows everyone else in the"
        )
        page.locator("#reset").click()
        expect(page.locator("#sentence")).to_have_text(expected_sentence())
        expect(page.locator("#by-level")).not_to_contain_text("…")
        own = Plan.parse(PLAN)
        for item in answer(own, opening(own)).levels:
            for risk in item.risks:
                shown = "certain" if item.settled else words.multiple(risk.marginal_risk)
                expect(page.locator("#by-level")).to_contain_text(shown)
        page.locator("#mechanism").select_option("discrete Laplace")
        expect(page.locator("#amount")).to_have_value("2")  # epsilon²/2 = rho
        expect(page.locator("#cost")).to_contain_text("epsilon = 2")
        expect(page.locator("#chart-risk-by-rho")).to_be_hidden()


def test_what_is_refused_is_said_and_the_last_answer_stays(visit, address):
    with visit(address) as seen:
        page = seen.page
        expect(page.locator("#sentence")).to_have_text(expected_sentence())
        alert = page.get_by_role("alert")
        expect(alert).to_be_hidden()
        page.get_by_label("add-remove").check()
        expect(alert).to_contain_text("TOTAL of region cannot be public with add-remove neighbours")
        expect(alert).to_contain_text("The answer below is the previous one")
        expect(page.locator("#sentence")).to_have_text(expected_sentence())
        page.get_by_label("change-one").check()
        expect(alert).to_be_hidden()
        invalid = page.locator("[aria-invalid=true]")
        expect(invalid).to_have_count(0)
        page.locator("#amount").fill("a lot")
        expect(alert).to_contain_text("budget.rho: 'a lot' is not a number")
        expect(invalid).to_have_id("amount")
        assert page.locator("#amount").get_attribute("aria-errormessage") == "message"
        page.locator("#amount").fill("3")
        expect(alert).to_be_hidden()
        expect(invalid).to_have_count(0)
        expect(page.locator("#sentence")).to_have_text(expected_sentence(amount="3"))
        page.locator("#prior").fill("7")
        expect(alert).to_contain_text("prior: 7 is not allowed")
        expect(invalid).to_have_id("prior")
        page.locator("#reset").click()
        expect(invalid).to_have_count(0)
        assert page.locator("#verdict").get_attribute("role") == "status"


def test_it_works_by_keyboard_alone(visit, address, folder):
    with visit(address) as seen:
        page = seen.page
        drawn(page)
        order = seen.tab_order()
        assert order[0] == "Skip to the answer"
        places = [order.index(name) for name in CONTROLS]
        assert places == sorted(places)
        assert len([name for name in order if name.startswith("Numbers of this chart")]) == len(
            OFFERED
        )
        page.keyboard.press("Tab")
        assert seen.focused() == "Skip to the answer"
        page.keyboard.press("Enter")
        expect(page.locator("#answer")).to_be_focused()
        page.locator("#amount-slider").focus()
        before = page.locator("#amount").input_value()
        page.keyboard.press("ArrowLeft")
        after = page.locator("#amount").input_value()
        assert float(after) < float(before)
        expect(page.locator("#sentence")).to_have_text(expected_sentence(amount=after))
        valued = page.locator("#amount-slider").get_attribute("aria-valuetext")
        assert valued == f"rho {after}"
        page.locator("#prior-slider").focus()
        page.keyboard.press("Home")
        expect(page.locator("#sentence")).to_have_text(
            expected_sentence(amount=after, prior="0.01")
        )
        page.get_by_label("change-one").focus()
        page.keyboard.press("ArrowDown")
        expect(page.get_by_role("alert")).to_contain_text("add-remove")
        page.keyboard.press("ArrowUp")
        expect(page.get_by_role("alert")).to_be_hidden()
        page.locator("#chart-risk-by-level summary").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#chart-risk-by-level table")).to_be_visible()
        page.locator("#save-name").focus()
        page.keyboard.press("Control+A")
        page.keyboard.type("by hand.toml")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator("#file-status")).to_have_text("Saved as by hand.toml.")
        saved = Plan.load(folder / "by hand.toml")
        assert str(saved.cost) == f"rho = {Settings.of(saved).amount}"
        assert float(saved.cost.rho) == pytest.approx(float(after))
        assert saved.intruder.priors == [0.5, 0.1, 0.01]


def test_plans_are_opened_from_the_folder_and_from_elsewhere(visit, address, folder, tmp_path):
    (folder / "other.toml").write_text(PLAN.replace('"Tiny"', '"Another one"'))
    (tmp_path / "sent.toml").write_text(PLAN.replace('"Tiny"', '"Sent"'))
    (tmp_path / "broken.toml").write_text("[release\n")
    with visit(address) as seen:
        page = seen.page
        page.locator("#open-name").select_option("other.toml")
        page.locator("#open").click()
        expect(page.locator("h1")).to_have_text("Another one")
        page.locator("#upload").set_input_files(tmp_path / "broken.toml")
        expect(page.locator("#file-status")).to_contain_text("broken.toml: not valid TOML")
        page.locator("#upload").set_input_files(tmp_path / "sent.toml")
        expect(page.locator("h1")).to_have_text("Sent")
        expect(page.locator("#sentence")).to_have_text(expected_sentence())
        page.locator("#save-name").fill("../plan.toml")
        page.locator("#save").click()
        expect(page.locator("#file-status")).to_contain_text("is not a valid file name")
        page.locator("#save-name").fill("plan.toml")
        page.locator("#save").click()
        expect(page.locator("#file-status")).to_contain_text("already exists")
    assert (folder / "plan.toml").read_text() == PLAN


def test_nothing_is_scrolled_sideways_and_axe_finds_nothing(visit, address):
    with visit(address, bypass_csp=True) as seen:  # axe-core is a script that the policy refuses
        page = seen.page
        drawn(page)
        assert seen.violations() == []
        for state in ("as opened", "with all tables and a message"):
            for width in (1280, 640, 320):
                page.set_viewport_size({"width": width, "height": 900})
                assert seen.fits(), (width, state)
            seen.open_all()
            page.locator("#amount").fill("a lot")
            expect(page.get_by_role("alert")).to_be_visible()
        assert page.locator("[aria-invalid=true]").count() == 1
        assert seen.violations() == []


def test_in_print_every_chart_has_its_table_and_controls_are_gone(visit, address):
    with visit(address) as seen:
        page = seen.page
        page.locator("#attack").select_option("presence")
        drawn(page, offered_charts.TITLES)
        page.emulate_media(media="print")
        expect(page.locator("#controls")).to_be_hidden()
        for name in offered_charts.TITLES:
            assert page.locator(f"#chart-{name} table").bounding_box()["height"] > 30
            assert page.locator(f"#chart-{name} svg").bounding_box()["height"] > 80
        assert re.search(r"/Type\s*/Page\b", page.pdf().decode("latin-1"))


def test_when_the_explorer_has_ended_the_page_says_so(visit, folder):
    with serving(folder / "plan.toml") as address, visit(address) as seen:
        expect(seen.page.locator("#sentence")).to_have_text(expected_sentence())
        seen.page.route("**/numbers", lambda route: route.abort())
        seen.page.locator("#amount").fill("3")
        expect(seen.page.get_by_role("alert")).to_contain_text("Run `countveil explore` again")
        assert any("numbers" in text for text in seen.complaints)
        seen.complaints.clear()


def test_the_published_tables_are_simulated_when_they_are_opened(visit, folder):
    text = PLAN + '[postprocess]\nmethod = "top-down"\n'
    (folder / "tables.toml").write_text(text)
    with (
        serving(folder / "tables.toml") as address,
        visit(address, bypass_csp=True) as seen,  # for axe-core
    ):
        page = seen.page
        drawn(page)
        assert not any(url.endswith("/published") for url in seen.requests)
        page.locator("#published summary").focus()
        page.keyboard.press("Enter")
        place = page.locator("#published-section[aria-busy=false]")
        plan = Plan.parse(text)
        for prior in (opening(plan).prior, "0.2"):
            page.locator("#prior").fill(prior)
            expect(place).to_contain_text(example(plan, prior=float(prior)).sentences[1])
        assert seen.violations() == []
