"""The public report: complete, sealed, the same for the same measurements, and about the plan alone."""

import base64
import hashlib
import json
import re
import stat
import sys
import uuid
from html.parser import HTMLParser
from io import BytesIO

import pyarrow as pa
import pytest
from pypdf import PdfReader
from tests.conftest import TINY_PEOPLE, TINY_PLAN, run, write_people
from tests.report.numbers_in_words import NUMBER, rounds_to
from weasyprint.urls import FatalURLFetchingError

from countveil import Release, Secure, Seeded, open_engine, pipeline
from countveil.assess.plan_risk import judged, risk_by_level
from countveil.assess.realised import realised
from countveil.errors import InputError, MissingExtra
from countveil.measure import drawing
from countveil.release.attachment import attach
from countveil.report import lenses
from countveil.report.decision_sheet import decision_sheet
from countveil.report.document import as_pdf, internal_report, public_report
from countveil.report.internal_lenses import internal_sections
from countveil.report.interval_lens import interval_section
from countveil.report.what_if import what_if
from countveil.schema.plan import Plan

INVARIANT = '[[invariants]]\nlevel = "region"\nquery = "TOTAL"\nreason = "known <already>"\n'
ESTIMATED = '[postprocess]\nmethod = "top-down"\n'


@pytest.fixture
def released(tiny):
    tiny.write_text(TINY_PLAN + INVARIANT + ESTIMATED)
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
    (step,) = [step for step in steps if step["amount"] == "4"]
    assert step["risks"] == pytest.approx(expected)
    risks = [step["risks"][0] for step in steps]
    assert risks == sorted(risks)
    assert what_if(released.plan).currency == "rho"
    assert step["decisions"] == pytest.approx(
        [item.correct_decision for item in judged(doubled, risk_by_level(doubled))]
    )


def test_it_is_the_same_for_the_same_measurements_whatever_the_records(tiny, monkeypatch):
    """Non-interference: with measurements held, other records change no byte of the report."""
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=7))
    fixed, real = {}, drawing.noisy

    def noisy(plan, task, rng):
        return fixed.setdefault((task.level, task.number), real(plan, task, rng))

    monkeypatch.setattr(drawing, "noisy", noisy)
    pages = []
    for number, people in enumerate((TINY_PEOPLE, TINY_PEOPLE[:1], TINY_PEOPLE * 40)):
        write_people(tiny.parent / "people.csv", people)
        out = tiny.parent / f"run{number}" / "out"
        pipeline.release(Plan.load(tiny), to=out, rng=Secure(), ledger=out.parent / "l.sqlite")
        pages.append(public_report(Release.read(out)))
    assert pages[0] == pages[1] == pages[2]
    assert pages[0].count("<figure>") > 5


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
    attach(released, {"report.html": b"one", "report.pdf": b"two"})
    pipeline.estimate(out)
    assert not (out / "report.html").exists()
    assert not (out / "report.pdf").exists()
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


@pytest.fixture
def found(released):
    counts = open_engine("local").tabulate(Plan.load(released.folder.parent / "plan.toml"))
    return realised(released, counts)


def sections(release, found):
    plan = release.plan
    others, sheet = what_if(plan), decision_sheet(release)
    yield lenses.intruder_section(release, others)
    yield lenses.error_section(plan, sheet.errors)
    yield interval_section(release)
    yield lenses.loss_section(plan)
    yield lenses.homogeneity_section(plan)
    yield lenses.public_section(release)
    yield from internal_sections(plan, found)


def known(section):
    """Return the numbers that a section lists and draws, and the names it uses."""
    texts, numbers = [], []
    for listing in section.listings:
        texts += [listing.caption, *listing.columns]
        for row in listing.rows:
            texts += [cell for cell in row if isinstance(cell, str)]
            numbers += [float(cell) for cell in row if isinstance(cell, int | float)]
    for picture in section.pictures:
        for column in picture.table.columns:
            if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
                numbers += [float(value) for value in column.to_pylist() if value is not None]
    for text in texts:
        for shown, percent in NUMBER.findall(text.replace("\xa0", " ")):
            numbers.append(float(shown.replace(",", "")) / (100 if percent else 1))
    return numbers


def untold(section, sentence):
    numbers = known(section)
    return [
        shown
        for shown, percent in NUMBER.findall(sentence)
        if not any(rounds_to(shown, bool(percent), value, False) for value in numbers)
    ]


def test_every_number_of_a_sentence_is_listed_or_drawn_beside_it(released, found):
    told = 0
    for section in sections(released, found):
        for sentence in section.sentences:
            # What the parameters of a section are is said in its own words.
            assert untold(section, sentence.replace("95 % confidence", "")) == [], sentence
            told += len(NUMBER.findall(sentence))
    assert told > 20
    first = next(sections(released, found))
    assert untold(first, first.sentences[0].replace("times", "1.23456 times")) == ["1.23456"]


def test_the_decision_sheet_says_what_its_table_says(released):
    sheet = decision_sheet(released)
    worst = max(sheet.risks, key=lambda row: row.marginal_risk)
    for shown, value in zip(
        NUMBER.findall(sheet.sentence),
        (worst.prior, worst.released, worst.marginal_risk),
        strict=True,
    ):
        assert rounds_to(shown[0], False, value, False)
    assert [n for n, _ in NUMBER.findall(sheet.suppression)] == ["1", "4", "1", "3"]
    assert all((row.exact, row.suppressed) == (1.0, 1.0) for row in sheet.risks)


def test_a_total_published_as_counted_has_no_error(tiny):
    tiny.write_text(TINY_PLAN + INVARIANT)
    pipeline.release(Plan.load(tiny), to=tiny.parent / "out", rng=Seeded(1))
    words = " ".join("".join(Page(public_report(Release.read(tiny.parent / "out"))).text).split())
    assert "regionpublished as counted: no error" in words.replace(" published", "published")


def test_purpose_and_who_chose_are_on_page_one(tiny):
    text = TINY_PLAN.replace("[budget]", '[budget]\nchosen_by = "the board <of> 12 May"')
    tiny.write_text(text.replace("[release]", '[release]\npurpose = "to plan schools"'))
    pipeline.release(Plan.load(tiny), to=tiny.parent / "out", rng=Seeded(1))
    words = "".join(Page(public_report(Release.read(tiny.parent / "out"))).text)
    assert "to plan schools" in words
    assert "the board <of> 12 May" in words


def test_the_internal_report_is_marked_private_and_nowhere_public(released, found):
    page = internal_report(released, found)
    assert '<body class="internal">' in page
    assert page.count("INTERNAL") > 5
    out, internal = released.folder, released.folder.parent / "out-internal"
    before = sorted(path.name for path in out.iterdir())
    ran = run("report", out, "--internal", "--quiet")
    assert ran.status == 0, ran.err
    assert stat.S_IMODE((internal / "report-internal.html").stat().st_mode) == 0o600
    assert sorted(path.name for path in out.iterdir()) == before
    assert (internal / "report-internal.html").read_text() == page
    refused = run("report", out, "--internal", "--to", out / "x.html")
    assert refused.status == 2
    assert "nothing internal may be" in refused.err
    assert not (out / "x.html").exists()
    assert run("report", out, "--plan", "plan.toml").status == 2


def test_the_internal_report_shows_what_came_out(released, found):
    """Errors recomputed from the published totals and the records, by hand."""
    exact = {f"A{n}": sum(1 for p in TINY_PEOPLE if p[0] == f"A{n}") for n in range(1, 6)}
    table = released.estimates.table("area", "TOTAL").to_pydict()
    off = [abs(e - exact[c]) for c, e in zip(table["geocode"], table["estimate"], strict=True)]
    (error,) = [s for s in internal_sections(released.plan, found) if s.name == "realised-error"]
    row = {row[0]: row for row in error.listings[0].rows}["area"]
    assert row[1] == len(exact)
    assert row[2] == pytest.approx(sum(off) / len(off))


def test_the_pdf_is_tagged_titled_and_has_no_outside_reference(released):
    data = as_pdf(public_report(released))
    found = PdfReader(BytesIO(data))
    assert found.metadata.title == f"{released.plan.title}: disclosure report"
    assert found.trailer["/Root"]["/MarkInfo"]["/Marked"]
    assert len(found.pages) < 25
    text = found.pages[0].extract_text()
    for words in (
        "PUBLIC",
        "Decision sheet",
        "Risk before and after",
        "Not covered",
        "Approved by",
    ):
        assert words in text, "page one is the decision sheet, whole"
    with pytest.raises(FatalURLFetchingError):
        as_pdf('<img src="http://example.org/x.png">')


def test_without_the_extra_a_pdf_is_refused_with_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "weasyprint", None)
    with pytest.raises(MissingExtra, match=r"pip install 'countveil\[pdf\]'"):
        as_pdf("<p>")


def test_a_report_without_pdf_takes_the_older_pdf_away(released):
    out = released.folder
    attach(released, {"report.html": b"one", "report.pdf": b"two"})
    assert Release.read(out).verify(simulation=True)
    attach(released, {"report.html": b"three"})
    assert not (out / "report.pdf").exists()
    assert Release.read(out).verify(simulation=True)


def square(code, x):
    ring = [[x, 0], [x + 1, 0], [x + 1, 1], [x, 1], [x, 0]]
    shape = {"type": "Polygon", "coordinates": [ring]}
    return {"type": "Feature", "properties": {"geocode": code}, "geometry": shape}


def test_shapes_of_places_are_drawn(released, tmp_path):
    shapes = {"type": "FeatureCollection", "features": [square(f"A{n}", n) for n in range(1, 6)]}
    plain, drawn = public_report(released), public_report(released, shapes=shapes)
    assert plain.count("mark-shape") == 0
    assert drawn.count("mark-shape") > 0
    assert "Risk by place" in drawn
    other = {"type": "FeatureCollection", "features": [square("nowhere", 0)]}
    with pytest.raises(InputError, match="give shapes of one of these levels"):
        public_report(released, shapes=other)
    (tmp_path / "broken.json").write_text("{")
    ran = run("report", released.folder, "--shapes", tmp_path / "broken.json")
    assert ran.status == 2
    assert "cannot be read as GeoJSON" in ran.err


def test_attributes_that_are_not_measured_leave_a_report(tiny):
    """They tell nothing, so that there is nothing to compare the levels above with."""
    tiny.write_text(TINY_PLAN.replace('TOTAL = "1/4"\n"AGE*SEX" = "3/4"', 'TOTAL = "1"'))
    pipeline.release(Plan.load(tiny), to=tiny.parent / "out", rng=Seeded(1))
    assert "unknown attribute: AGE" in public_report(Release.read(tiny.parent / "out"))
