"""The public report: complete, sealed, the same for the same measurements, and about the plan alone."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from tests.conftest import TINY_PEOPLE, TINY_PLAN, run, write_people

from countveil import Release, Seeded, pipeline
from countveil.assess.plan_risk import judged, risk_by_level
from countveil.errors import InputError
from countveil.report.decision_sheet import decision_sheet
from countveil.report.document import public_report
from countveil.report.what_if import what_if
from countveil.schema.plan import Plan

INVARIANT = '[[invariants]]\nlevel = "region"\nquery = "TOTAL"\nreason = "known <already>"\n'


@pytest.fixture
def released(tiny):
    tiny.write_text(TINY_PLAN + INVARIANT)
    pipeline.release(Plan.load(tiny), to=tiny.parent / "out", rng=Seeded(1))
    return Release.read(tiny.parent / "out")


class Page(HTMLParser):
    """What a browser would find: identifiers, links, scripts, styles, text."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.inside, self.parts, self.text = [], [], [], {}, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given[key] for key in ("href", "src", "action") if key in given]
        assert not [key for key in given if key.startswith("on")], "inline handlers do not run"
        self.inside.append((tag, given))

    def handle_endtag(self, tag):
        while self.inside and self.inside.pop()[0] != tag:
            pass

    def handle_data(self, data):
        tag, given = self.inside[-1] if self.inside else ("", {})
        if tag in ("style", "script"):
            self.parts.setdefault((tag, given.get("type")), []).append(data)
        else:
            self.text.append(data)


def test_it_needs_nothing_from_outside_and_runs_only_what_its_policy_seals(released):
    html = public_report(released)
    page = Page(html)
    assert all(link.startswith("#") for link in page.links)
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)[1].replace("&#39;", "'")
    assert policy.startswith("default-src 'none'")
    for tag in ("style", "script"):
        (text,) = page.parts[tag, None]
        seal = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{seal}'" in policy
    assert "http://" not in html.replace("http://www.w3.org/", "")
    assert "https://" not in html
    assert len(html) < 1_500_000


def test_its_numbers_are_those_of_the_plan(released):
    words = " ".join("".join(Page(public_report(released)).text).split())
    for item in judged(released.plan, risk_by_level(released.plan)):
        assert f"{item.marginal_risk:,.4g}" in words
        assert f"{item.posterior:,.4g}" in words
    sheet = decision_sheet(released)
    assert sheet.sentence in words
    assert "known <already>" in words
    assert released.manifest["plan_sha256"] in words


def test_the_slider_holds_what_other_plans_would_give(released):
    page = Page(public_report(released))
    (data,) = page.parts["script", "application/json"]
    steps = json.loads(data)["steps"]
    assert [step["chosen"] for step in steps].count(True) == 1
    doubled = Plan.parse((TINY_PLAN + INVARIANT).replace('rho = "2"', 'rho = "4"'))
    expected = [item.marginal_risk for item in judged(doubled, risk_by_level(doubled))]
    (step,) = [step for step in steps if step["amount"] == 4.0]
    assert step["risks"] == pytest.approx(expected)
    risks = [step["risks"][0] for step in steps]
    assert risks == sorted(risks)
    assert what_if(released.plan).currency == "rho"


def test_it_is_the_same_for_the_same_measurements_whatever_the_records(tiny):
    """Records that differ in one row: with the noise shifted to match, nothing in the report moves."""
    pages = []
    for number, people in enumerate((TINY_PEOPLE, [*TINY_PEOPLE[:-1], ("A5", "old", "f")])):
        write_people(tiny.parent / "people.csv", people)
        out = tiny.parent / f"out{number}"
        pipeline.release(Plan.load(tiny), to=out, rng=Seeded(2))
        release = Release.read(out)
        release.manifest["release"] = "the same"
        release.manifest["files"] = {}
        pages.append(public_report(release))
    assert pages[0] == pages[1]


def test_the_command_adds_it_to_the_release_which_still_verifies(released):
    out = released.folder
    ran = run("report", out)
    assert ran.status == 0, ran.err
    assert "report.html" in json.loads((out / "manifest.json").read_text())["files"]
    first = (out / "report.html").read_bytes()
    assert run("verify", out, "--simulation").status == 0
    assert run("report", out, "--json").document()["bytes"] == len(first)
    assert (out / "report.html").read_bytes() == first
    assert run("postprocess", out).status in (0, 2)
    elsewhere = out.parent / "elsewhere.html"
    assert run("report", out, "--to", elsewhere).status == 0
    assert elsewhere.read_bytes()[:15] == b"<!doctype html>"


def test_what_was_post_processed_anew_loses_the_report_of_what_it_replaced(released):
    out = released.folder
    run("report", out)
    pipeline.estimate(out)
    assert not (out / "report.html").exists()
    assert Release.read(out).verify(simulation=True)


def test_a_ledger_adds_what_is_spent(tiny):
    pipeline.release(Plan.load(tiny), to=tiny.parent / "out", rng=Seeded(1))
    release = Release.read(tiny.parent / "out")
    book = release.plan.ledger(tiny.parent / "ledger.sqlite")
    words = " ".join("".join(Page(public_report(release, ledger=book)).text).split())
    assert "Spentrho = 0Leftrho = 2" in words


def test_a_table_beside_public_information_is_refused(tmp_path):
    (tmp_path / "c.csv").write_text("state,county\nS,A\nS,B\n")
    (tmp_path / "cases.csv").write_text("county,KIND,n\nA,x,3\nB,y,2\n")
    (tmp_path / "plan.toml").write_text(
        '[release]\ntitle = "T"\nunit = "person"\nneighbors = "change-one"\n'
        '[records]\npath = "cases.csv"\ncounts = "n"\none_row_per_person = true\n'
        '[geography]\npath = "c.csv"\nlevels = ["state", "county"]\n'
        '[attributes]\nKIND = ["x", "y"]\n[budget]\nepsilon = "1"\n'
        '[[invariants]]\nlevel = "state"\nquery = "TOTAL"\nreason = "known"\n'
        '[postprocess]\nmethod = "congenial"\n'
    )
    pipeline.release(Plan.load(tmp_path / "plan.toml"), to=tmp_path / "out", rng=Seeded(1))
    with pytest.raises(InputError, match="--lens public"):
        public_report(Release.read(tmp_path / "out"))
