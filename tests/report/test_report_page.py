"""The public report: complete, sealed, the same for the same measurements, and about the plan alone."""

import base64
import hashlib
import json
import re
import shutil
import stat
import sys
import uuid
from datetime import UTC, datetime
from io import BytesIO

import pyarrow as pa
import pytest
from pypdf import PdfReader
from tests.conftest import TINY_PEOPLE, TINY_PLACES, TINY_PLAN, few_simulated_releases, write_people
from tests.report.numbers_in_words import NUMBER, ends_of, rounds_to, without_true_bounds
from tests.report.reading import Page
from typer.testing import CliRunner
from weasyprint.urls import FatalURLFetchingError

from countveil import Release, Secure, Seeded, open_engine, pipeline
from countveil.assess.intruder.ladder import judged, risk_by_level
from countveil.assess.realised_disclosure import realised
from countveil.base import words
from countveil.cli.command_line import app
from countveil.errors import CountveilError, InputError, MissingExtra
from countveil.measure import draw_tasks
from countveil.plan.plans import Plan
from countveil.publish.additions import attach
from countveil.report.decision_sheets import decision_sheet
from countveil.report.lenses import sections_of
from countveil.report.report_page import as_pdf, internal_report, public_report
from countveil.report.section_data import Subject

INVARIANT = '[[invariants]]\nlevel = "region"\nquery = "TOTAL"\nreason = "known <already>"\n'
ESTIMATED = '[postprocess]\nmethod = "top-down"\n'


pytestmark = pytest.mark.usefixtures("few_simulations")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A release with an invariant and estimates, that no test changes."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "plan.toml").write_text(TINY_PLAN + INVARIANT + ESTIMATED)
    (folder / "places.csv").write_text(TINY_PLACES)
    write_people(folder / "people.csv")
    pipeline.release(Plan.load(folder / "plan.toml"), to=folder / "out", rng=Seeded(1))
    return Release.read(folder / "out")


@pytest.fixture(scope="module")
def html(made):
    with few_simulated_releases():
        return public_report(made)


@pytest.fixture
def released(made, tmp_path):
    """The same, to be changed."""
    shutil.copytree(made.folder.parent, tmp_path / "place")
    return Release.read(tmp_path / "place" / "out")


def ran(*arguments):
    """Run a command here; return its status and what it printed, or the error it ends with."""
    found = CliRunner().invoke(app, [*map(str, arguments)])
    if isinstance(found.exception, CountveilError):
        return found.exception.exit_status, str(found.exception)
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, found.output


def test_it_needs_nothing_from_outside_and_runs_only_what_its_policy_seals(html):
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


def test_its_numbers_are_those_of_the_plan(made, html):
    text = Page(html).words
    for item in judged(made.plan, risk_by_level(made.plan)):
        after = words.brief_percent(item.posterior, other=item.prior)
        times = words.multiple(item.marginal_risk)
        assert f"{after}, ×\u00a0{times}".replace("\u00a0", " ") in text
    sheet = decision_sheet(made)
    for row in sheet.risks:
        risk = row.released
        after, times = risk.reached, risk.times(limit=sheet.limit)
        assert f"up to 100 % {after}{times} {words.brief_percent(risk.correct_decision)}" in text
        assert f"{risk.marginal_risk:.6g}" in text, "in full below a chart"
        assert f"{risk.posterior:.6g}" in text
    assert sheet.sentence in text
    assert sheet.verdict in text
    assert "known <already>" in text
    assert made.manifest["plan_sha256"] in text
    assert "regionpublished exactly: no error" in text.replace(" published", "published")


def test_the_same_measurements_give_the_same_report_for_any_records(tiny, monkeypatch):
    """Non-interference: with measurements held, other records change no byte of the report."""
    monkeypatch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=7))
    fixed, real = {}, draw_tasks.draw_measurements

    def draw_measurements(plan, task, rng):
        return fixed.setdefault((task.level, task.number), real(plan, task, rng))

    monkeypatch.setattr(draw_tasks, "draw_measurements", draw_measurements)
    pages = []
    for number, people in enumerate((TINY_PEOPLE, TINY_PEOPLE[:1], TINY_PEOPLE * 40)):
        write_people(tiny.parent / "people.csv", people)
        out = tiny.parent / f"run{number}" / "out"
        pipeline.release(Plan.load(tiny), to=out, rng=Secure(), ledger=out.parent / "l.sqlite")
        pages.append(public_report(Release.read(out)))
    assert pages[0] == pages[1] == pages[2]
    assert pages[0].count("<figure>") > 5


def test_the_command_adds_it_to_the_release_which_still_verifies(released, monkeypatch):
    out = released.folder
    monkeypatch.chdir(out.parent)
    assert ran("report", "out", "--quiet") == (0, "out/report.html\n")
    assert "report.html" in json.loads((out / "manifest.json").read_text())["files"]
    first = (out / "report.html").read_bytes()
    assert ran("verify", out, "--simulation")[0] == 0
    status, text = ran("report", out, "--json", "--quiet")
    assert (status, json.loads(text)["bytes"]) == (0, len(first))
    assert (out / "report.html").read_bytes() == first
    assert ran("postprocess", out, "--quiet")[0] == 0
    elsewhere = out.parent / "elsewhere.html"
    assert ran("report", out, "--to", elsewhere, "--quiet")[0] == 0
    assert elsewhere.read_bytes()[:15] == b"<!doctype html>"


def test_what_was_post_processed_again_loses_the_report_of_what_it_replaced(released):
    out = released.folder
    attach(released, {"report.html": b"one", "report.pdf": b"two"})
    pipeline.make_estimates(out)
    assert not (out / "report.html").exists()
    assert not (out / "report.pdf").exists()
    assert Release.read(out).verify(simulation=True)


def test_a_ledger_with_a_calendar_tells_what_the_period_has_left(tiny):
    tiny.write_text(TINY_PLAN + '[ledger]\ntotal = "5"\nperiod = "year"\nperiod_limit = "2"\n')
    plan, ledger = Plan.load(tiny), tiny.parent / "ledger.sqlite"
    began = datetime.now(UTC).year
    done = pipeline.release(plan, to=tiny.parent / "out", rng=Secure(), ledger=ledger)
    page = public_report(done, ledger=done.plan.ledger(ledger))
    words = " ".join("".join(Page(page).text).split())
    left = {began: 0, datetime.now(UTC).year: 0}  # two years, should one end meanwhile
    assert any(f"Leftrho = 3Left in {year}rho = {rho}" in words for year, rho in left.items())


def test_a_ledger_adds_what_is_spent(tiny):
    tiny.write_text(TINY_PLAN + '[ledger]\ntotal = "5"\n')
    plan, ledger = Plan.load(tiny), tiny.parent / "ledger.sqlite"
    for name, spent, left in (("out", 2, 3), ("again", 4, 1)):
        pipeline.release(plan, to=tiny.parent / name, rng=Secure(), ledger=ledger)
        release = Release.read(tiny.parent / name)
        page = public_report(release, ledger=release.plan.ledger(ledger))
        words = " ".join("".join(Page(page).text).split())
        assert f"Spentrho = {spent}Leftrho = {left}" in words


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
    with pytest.raises(InputError, match="countveil assess public"):
        public_report(Release.read(tmp_path / "out"))
    status, text = ran("assess", "realised-error", tmp_path / "out", "--internal")
    assert status == 2
    assert "and has no measurements" in text


@pytest.fixture(scope="module")
def found(made):
    counts = open_engine("local").tabulate(Plan.load(made.folder.parent / "plan.toml"))
    return realised(made, counts)


def sections(release, found):
    return sections_of(Subject(release.plan, release, found))


def known(section):
    """Return the numbers that a section lists and draws, and the names it uses."""
    texts, numbers = [], []
    for table in section.tables:
        texts += [table.caption, *table.columns]
        for row in table.rows:
            texts += [cell for cell in row if isinstance(cell, str)]
            numbers += [float(cell) for cell in row if isinstance(cell, int | float)]
            numbers += [
                end for pair in zip(table.columns, row, strict=True) for end in outwards(*pair)
            ]
    for chart in section.charts:
        for column in chart.table.columns:
            if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
                numbers += [float(value) for value in column.to_pylist() if value is not None]
    for text in texts:
        for shown, percent in NUMBER.findall(text.replace("\xa0", " ")):
            numbers.append(float(shown.replace(",", "")) / (100 if percent else 1))
    return numbers


def outwards(column, cell):
    """Return how a sentence rounds what a table calls the least or the most, as a number or percent."""
    side = next((n for n, end in enumerate(("at least", "at most")) if column.endswith(end)), None)
    if side is None or not isinstance(cell, int | float):
        return []
    return [ends_of(cell, cell)[side], ends_of(100 * cell, 100 * cell)[side] / 100]


def numbers_without_a_source(section, sentence):
    numbers = known(section)
    return [
        shown
        for shown, percent in NUMBER.findall(without_true_bounds(sentence, {"all": numbers}))
        if not any(rounds_to(shown, bool(percent), value, False) for value in numbers)
    ]


def test_every_number_of_a_sentence_is_listed_or_drawn(made, found):
    told = 0
    every = list(sections(made, found))
    for section in every:
        for sentence in section.sentences:
            # What the parameters of a section are is said in its own words.
            assert (
                numbers_without_a_source(section, sentence.replace("95 % confidence", "")) == []
            ), sentence
            told += len(NUMBER.findall(sentence))
    assert told > 20
    first = every[0]
    assert numbers_without_a_source(
        first, first.sentences[0].replace("times", "1.23456 times")
    ) == ["1.23456"]


def test_purpose_and_who_chose_are_on_page_one(tiny):
    text = TINY_PLAN.replace("[budget]", '[budget]\nchosen_by = "the board <of> 12 May"')
    tiny.write_text(text.replace("[release]", '[release]\npurpose = "to plan schools"'))
    pipeline.release(Plan.load(tiny), to=tiny.parent / "out", rng=Seeded(1))
    words = "".join(Page(public_report(Release.read(tiny.parent / "out"))).text)
    assert "to plan schools" in words
    assert "the board <of> 12 May" in words


def test_the_internal_report_is_marked_private_and_nowhere_public(made, released, found):
    page = internal_report(made, found)
    assert '<body class="internal">' in page
    assert page.count("INTERNAL") > 5
    out, internal = released.folder, released.folder.parent / "out-internal"
    before = sorted(path.name for path in out.iterdir())
    assert ran("report", out, "--internal", "--quiet")[0] == 0
    assert stat.S_IMODE((internal / "report-internal.html").stat().st_mode) == 0o600
    assert sorted(path.name for path in out.iterdir()) == before
    assert (internal / "report-internal.html").read_text() == page
    status, told = ran("report", out, "--internal", "--to", out / "x.html", "--quiet")
    assert status == 2
    assert "which may hold only the files of its manifest and nothing internal" in told
    assert not (out / "x.html").exists()
    assert ran("report", out, "--plan", "plan.toml", "--quiet")[0] == 2


def test_the_pdf_is_tagged_titled_and_has_no_outside_reference(made, html):
    found = PdfReader(BytesIO(as_pdf(html)))
    assert found.metadata.title == f"{made.plan.title}: disclosure report, SIMULATION"
    assert found.trailer["/Root"]["/MarkInfo"]["/Marked"]
    assert len(found.pages) < 25
    text = found.pages[0].extract_text()
    for heading in (
        "SIMULATION",
        "Decision sheet",
        "Risk before and after",
        "Not covered",
        "Approved by",
    ):
        assert heading in text, "page one is the decision sheet, whole"
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


def test_attributes_that_are_not_measured_leave_a_report(tiny):
    """They tell nothing, so that there is nothing to compare the levels above with."""
    tiny.write_text(TINY_PLAN.replace('TOTAL = "1/4"\n"AGE*SEX" = "3/4"', 'TOTAL = "1"'))
    pipeline.release(Plan.load(tiny), to=tiny.parent / "out", rng=Seeded(1))
    assert "unknown attribute: AGE" in public_report(Release.read(tiny.parent / "out"))
