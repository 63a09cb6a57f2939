"""The report in a real browser: from one file, sealed, by keyboard, on narrow screens and in print."""

import json
import re

import pytest
from playwright.sync_api import expect
from tests.browser.conftest import file_address
from tests.conftest import TINY_PLACES, TINY_PLAN, few_simulated_releases, write_people

from countveil import Release, Seeded, open_engine, pipeline
from countveil.assess.realised_disclosure import realised
from countveil.base import words
from countveil.plan.plans import Plan
from countveil.report.budget_steps import other_budgets
from countveil.report.report_page import internal_report, public_report

INVARIANT = '[[invariants]]\nlevel = "region"\nquery = "TOTAL"\nreason = "known <already>"\n'


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    folder = tmp_path_factory.mktemp("release")
    (folder / "plan.toml").write_text(TINY_PLAN + INVARIANT)
    (folder / "places.csv").write_text(TINY_PLACES)
    write_people(folder / "people.csv")
    pipeline.release(Plan.load(folder / "plan.toml"), to=folder / "out", rng=Seeded(1))
    return Release.read(folder / "out")


@pytest.fixture(scope="module")
def address(released, tmp_path_factory):
    path = tmp_path_factory.mktemp("elsewhere") / "report.html"
    with few_simulated_releases():
        path.write_text(public_report(released), encoding="utf-8")
    return file_address(path)


@pytest.fixture(scope="module")
def internal(released, tmp_path_factory):
    path = tmp_path_factory.mktemp("internal") / "report.html"
    counts = open_engine("local").tabulate(Plan.load(released.folder.parent / "plan.toml"))
    with few_simulated_releases():
        path.write_text(internal_report(released, realised(released, counts)), encoding="utf-8")
    return file_address(path)


def test_it_is_one_file_that_asks_for_nothing_and_draws_under_its_policy(visit, address):
    with visit(address) as seen:
        charts = seen.page.locator("figure svg")
        assert charts.count() >= 4
        for svg in charts.all():
            box = svg.bounding_box()
            assert box["width"] > 200
            assert box["height"] > 60
            assert svg.locator("path, text").count() > 5
            named = svg.get_attribute("aria-labelledby").split()
            assert all(seen.page.locator(f"[id='{name}']").count() == 1 for name in named)
        # The policy does seal it: what is not ours does not run.
        seen.page.evaluate(
            "document.body.appendChild(document.createElement('script')).textContent = 'window.ran = 1'"
        )
        assert seen.page.evaluate("window.ran") is None
        assert [text for text in seen.complaints if "Content Security Policy" in text]
        seen.complaints.clear()
        assert seen.requests == [address]


def test_without_scripts_it_is_complete_but_for_the_slider(visit, address):
    with visit(address, java_script_enabled=False) as seen:
        expect(seen.page.locator("#slider")).to_be_hidden()
        expect(seen.page.locator(".answer")).to_contain_text("times their prior")
        assert all(svg.is_visible() for svg in seen.page.locator("figure svg").all())


def test_the_slider_shows_what_other_budgets_would_give(visit, address, released):
    steps = other_budgets(released.plan).steps
    with visit(address) as seen:
        slider = seen.page.locator("#budget")
        shown = seen.page.locator("#budget-shown")
        expect(shown).to_have_text("rho = 2, as released")
        slider.focus()
        for key, number in (("Home", 0), ("End", len(steps) - 1), ("ArrowLeft", len(steps) - 2)):
            seen.page.keyboard.press(key)
            step = steps[number]
            expect(shown).to_contain_text(step.cost)
            assert slider.get_attribute("aria-valuetext") == shown.inner_text()
            expect(seen.page.locator("#budget-status")).to_contain_text(step.cost)
            for place, risk in enumerate(step.risks):
                text = seen.page.locator(f"#risk-{place}").inner_text()
                assert text == risk.times(limit=released.plan.intruder.limit)
            for place, error in enumerate(step.errors):
                text = seen.page.locator(f"#error-{place}").inner_text()
                assert text == ("0" if error.as_counted else words.brief(error.standard_error))


def test_it_works_by_keyboard_alone(visit, address):
    with visit(address) as seen:
        page = seen.page
        order = seen.tab_order()
        assert order[0].startswith("Skip to")
        assert "budget" in order
        summaries = page.locator("summary").all_inner_texts()
        assert len(summaries) >= 4
        assert [name for name in order if name in set(summaries)] == summaries
        for link in page.locator("nav a").all_inner_texts():
            assert link in order
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(r"#sheet$"))
        page.keyboard.press("Tab")
        inside = "document.activeElement.closest('#sheet') !== null"
        assert page.evaluate(f"{inside} || document.activeElement.tagName === 'SUMMARY'")
        first = page.locator("figure details").first
        expect(first.locator("table")).to_be_hidden()
        first.locator("summary").focus()
        page.keyboard.press("Enter")
        expect(first.locator("table")).to_be_visible()


@pytest.mark.parametrize("audience", ["public", "internal"])
def test_nothing_is_scrolled_sideways_and_axe_finds_nothing(visit, address, internal, audience):
    where = {"public": address, "internal": internal}[audience]
    with visit(where, bypass_csp=True) as seen:  # axe-core is a script that the policy refuses
        for width in (640, 320, 1280):
            seen.page.set_viewport_size({"width": width, "height": 900})
            assert seen.fits(), width
        seen.open_all()
        seen.page.set_viewport_size({"width": 320, "height": 900})
        assert seen.fits()
        assert seen.violations() == []


def test_the_internal_report_says_what_it_is_on_screen_and_in_print(visit, internal):
    with visit(internal) as seen:
        marked = "getComputedStyle(document.body, '::before').content"
        for media in ("screen", "print"):
            seen.page.emulate_media(media=media)
            assert "INTERNAL" in seen.page.evaluate(marked)
            expect(seen.page.locator(".audience").first).to_contain_text("not to be published")
        assert seen.requests == [internal]


def test_in_print_everything_is_open_and_the_slider_is_gone(visit, address):
    with visit(address) as seen:
        page = seen.page
        page.emulate_media(media="print")
        expect(page.locator("#slider")).to_be_hidden()
        tables = page.locator("details table")
        assert tables.count() >= 4
        for table in tables.all():
            assert table.bounding_box()["height"] > 15
            assert table.is_visible()
        assert seen.fits()
        pages = re.findall(rb"/Type\s*/Page\b", page.pdf(prefer_css_page_size=True))
        assert 2 <= len(pages) <= 40


def test_its_numbers_in_the_browser_are_those_it_holds(visit, address):
    with visit(address) as seen:
        data = json.loads(seen.page.locator("#other-budgets").text_content())
        chosen = next(step for step in data["steps"] if step["chosen"])
        text = seen.page.locator("#sheet").inner_text()
        for shown in chosen["risks"]:
            assert f"{shown}\n" in text or f"{shown}\t" in text
