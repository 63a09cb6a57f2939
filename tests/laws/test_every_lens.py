"""Statements that are true of every lens, and what a new one gets by being listed."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from countveil import Plan, Release, Seeded, cli, pipeline
from countveil.assess.verdict import judge
from countveil.explorer.explorer_page import lens_sections
from countveil.explorer.settings import Settings
from countveil.report import lenses
from countveil.report.html_parts import section_body
from countveil.report.lenses import LENSES, Lens, sections_of
from countveil.report.report_page import public_report
from countveil.report.section_data import Section, SectionTable, Subject
from tests.conftest import TINY_PLAN, run

every_plan_lens = pytest.mark.parametrize(
    "lens", [lens for lens in LENSES if lens.needs == "plan"], ids=lambda lens: lens.name
)


def toy(subject: Subject) -> Section:
    levels = len(subject.plan.levels)
    table = SectionTable(
        "Toys", ("Level", "Toys"), tuple((name, 7) for name in subject.plan.levels)
    )
    return Section("toy", "A toy", (f"There are {levels} levels of toys.",), (table,))


@pytest.fixture
def listed(monkeypatch):
    monkeypatch.setattr(lenses, "LENSES", [*LENSES, Lens("toy", "Show toys.", "plan", toy)])


@pytest.fixture
def out(tiny):
    folder = tiny.parent / "out"
    pipeline.release(Plan.load(tiny), to=folder, rng=Seeded(2))
    return folder


def in_process(*words):
    assert cli.main is not None
    return CliRunner().invoke(cli.command_line.app, [str(word) for word in words])


def test_a_lens_that_is_listed_is_shown_everywhere(listed, tiny, out):
    sentence = "There are 2 levels of toys."
    assert sentence in in_process("assess", "toy", tiny).output
    document = json.loads(in_process("assess", "toy", out, "--json").output)
    assert document["sentences"] == [sentence]
    assert document["tables"][0]["rows"] == [["region", 7], ["area", 7]]
    assert "toy" in in_process("assess", "--help").output
    assert sentence in public_report(Release.read(out))
    plan = Plan.load(tiny)
    assert sentence in lens_sections(plan, Settings.of(plan))["html"]


def test_commands_describe_lenses_in_the_words_and_the_order_of_the_registry():
    listed = " ".join(in_process("assess", "--help").output.replace("│", " ").split())
    places = [listed.index(f" {lens.name} {lens.help}") for lens in LENSES]
    assert places == sorted(places)
    for lens in LENSES:
        shown = " ".join(in_process("assess", lens.name, "--help").output.split())
        assert lens.help in shown


def test_sections_of_commands_come_from_the_registry():
    for path in Path(cli.assess_commands.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("_section"):
                # One released unit is an answer to a question, not a lens.
                names = {item.name for item in node.names}
                assert node.module.endswith("unit_section") or not names & {"section", "section_of"}


@every_plan_lens
def test_a_section_says_the_same_in_every_rendering(lens):
    section = lens.section(Subject(Plan.parse(TINY_PLAN)))
    assert section.name == lens.name
    assert section.document["sentences"] == list(section.sentences)
    json.dumps(section.document)
    html = section_body(section).unescape()
    for sentence in section.sentences:
        assert sentence in html
    for chart in section.charts:
        assert chart.audience == section.audience


@every_plan_lens
def test_a_lens_is_silent_about_counts(lens, tiny, out):
    """The same measurements, other records: not a character differs."""
    release = Release.read(out)
    before = lens.section(Subject(release.plan, release)).document
    people = tiny.parent / "people.csv"
    people.write_text(people.read_text().splitlines()[0] + "\n")
    again = Release.read(out)
    assert lens.section(Subject(again.plan, again)).document == before


@pytest.mark.parametrize("prior", [0.02, 0.5, 0.9])
def test_the_risk_of_someone_who_is_there_is_at_least_1_and_grows_with_the_budget(prior):
    risks = []
    for rho in ("1/8", "1/2", "2", "8"):
        plan = Plan.parse(TINY_PLAN.replace('rho = "2"', f'rho = "{rho}"'))
        summary = Subject(plan, priors=(prior,)).summary
        assert all(item.marginal_risk >= 1 for item in (*summary.attacks, *summary.levels))
        risks.append(max(item.marginal_risk for item in summary.attacks))
    assert risks == sorted(risks)


def test_every_place_shows_the_one_verdict(tiny, out):
    """The same sentence on the command line, in JSON, in the report and in the explorer."""
    from countveil.explorer.explorer_page import numbers
    from tests.explorer.whole_answer import answer

    for more in ("", "[intruder]\nlimit = 1.5\n", "[intruder]\nlimit = 50.0\n"):
        plan = Plan.parse(TINY_PLAN + more, folder=tiny.parent)
        expected = judge(plan)
        tiny.write_text(TINY_PLAN + more)
        ran = run("price", tiny)
        assert expected.sentence in " ".join(ran.out.split())
        assert ran.status == (1 if expected.status == "above" else 0)
        document = run("price", tiny, "--json").document()
        assert document["verdict"] == expected.sentence
        settings = Settings.of(plan)
        shown = numbers(answer(plan, settings), settings)["verdict"]
        assert shown == {"status": expected.status, "text": expected.sentence}
        if expected.status == "above":
            refused = run("release", tiny, "--to", tiny.parent / "refused")
            assert refused.status == 1
            assert expected.sentence in refused.err
        made = Release.read(out)
        report = public_report(Release(made.folder, made.manifest, plan))
        assert expected.sentence.replace("'", "&#39;") in report


def test_sections_come_in_the_order_of_the_registry(out):
    release = Release.read(out)
    names = [section.name for section in sections_of(Subject(release.plan, release))]
    listed = [lens.name for lens in LENSES if lens.needs != "records"]
    assert names == [name for name in listed if name in names]
