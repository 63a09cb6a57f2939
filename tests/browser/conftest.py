"""A real Chromium, and visits that record every request, message and error."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests.conftest import HANG

QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa")


@dataclass
class Visit:
    """A page, and what it asked for and complained about."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def fits(self) -> bool:
        """Whether nothing has to be scrolled sideways."""
        widths = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        whole, seen = self.page.evaluate(widths)
        return whole <= seen

    def focused(self) -> str:
        """Say what has the focus: its id, or its text."""
        return self.page.evaluate(
            "(e => e.id || e.innerText?.trim() || e.getAttribute('aria-label') || e.tagName)"
            "(document.activeElement)"
        )

    def tab_order(self, most: int = 200) -> list[str]:
        """Press Tab until the focus leaves the page; return what had it."""
        found = []
        for _ in range(most):
            self.page.keyboard.press("Tab")
            if self.page.evaluate("document.activeElement === document.body"):
                return found
            found.append(self.focused())
        raise AssertionError("the focus never leaves the page")

    def open_all(self) -> None:
        """Open everything that is folded."""
        self.page.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true; })")

    def violations(self) -> list[str]:
        """Return what axe-core finds wrong, by rule and element, drawings and all."""
        options = {"runOnly": {"type": "tag", "values": list(RULES)}}
        found: dict[str, Any] = Axe().run(self.page, options=options).response
        assert len(found["passes"]) > 10  # it looked
        return [f"{v['id']}: {node['html']}" for v in found["violations"] for node in v["nodes"]]


expect.set_options(timeout=HANG * 1000)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    program = shutil.which("chromium")
    assert program is not None, "these tests need the distribution's chromium"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=program, args=list(QUIET), timeout=HANG * 1000
        )
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Browser) -> Callable[..., Any]:
    """Return a way to visit an address; afterwards nothing else was asked, and nobody complained."""

    @contextmanager
    def visiting(address: str, **options: Any) -> Iterator[Visit]:
        context = chromium.new_context(viewport={"width": 1280, "height": 900}, **options)
        page = context.new_page()
        page.set_default_timeout(HANG * 1000)
        found = Visit(page)
        page.on("request", lambda request: found.requests.append(request.url))
        page.on(
            "console",
            lambda said: (
                found.complaints.append(said.text) if said.type in ("error", "warning") else None
            ),
        )
        page.on("pageerror", lambda error: found.complaints.append(str(error)))
        page.on(
            "requestfailed",
            lambda request: (
                found.complaints.append(request.url)
                if request.failure != "net::ERR_ABORTED"  # the page was left
                else None
            ),
        )
        page.goto(address)
        yield found
        context.close()
        own = address.partition("?")[0].rpartition("/")[0]
        assert found.requests
        assert [url for url in found.requests if not url.startswith((own, "data:,"))] == []
        assert found.complaints == []

    return visiting


def file_address(path: Path) -> str:
    return path.resolve().as_uri()
