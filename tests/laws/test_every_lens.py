"""Statements that are true of every lens, and what a new one gets by being listed."""

from __future__ import annotations

import ast
import json
import math
import re
import shutil
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from countveil import Plan, Release, Seeded, cli, open_engine, pipeline
from countveil.assess.realised_disclosure import Realised, realised
from countveil.assess.verdict import judge
from countveil.explorer.explorer_page import lens_sections
from countveil.explorer.settings import Settings
from countveil.report import lenses
from countveil.report.html_parts import cell, section_body
from countveil.report.lenses import LENSES, Lens, sections_of
from countveil.report.report_page import public_report
from countveil.report.section_data import Section, SectionTable, Subject
from countveil.report.terminal.terminal_tables import render_section
from tests.conftest import TINY_PLACES, TINY_PLAN, few_simulated_releases, run


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


def described(section):
    """Return all that a section says and shows, charts included."""
    charts = [(item.caption, item.alt, item.table.to_pydict()) for item in section.charts]
    return [section.document, charts]


@dataclass(frozen=True)
class World:
    """A release of known people, what it disclosed, and its section for each lens."""

    release: Release
    realised: Realised
    people: dict[tuple[str, str, str], int]

    @cached_property
    def sections(self):
        subject = Subject(self.release.plan, self.release, self.realised)
        with few_simulated_releases():
            return {lens.name: lens.section(subject) for lens in LENSES}


def world(folder, people, rho="2", seed=2):
    """Release so many people of each area, age and sex."""
    text = TINY_PLAN.replace('rho = "2"', f'rho = "{rho}"')
    text = text.replace("one_row_per_person", 'counts = "n"\none_row_per_person')
    text = text.replace("[budget]\n", '[budget]\ntargets = ["area TOTAL within 5", "region AGE"]\n')
    (folder / "plan.toml").write_text(f'{text}[postprocess]\nmethod = "top-down"\n')
    (folder / "places.csv").write_text(TINY_PLACES)
    rows = [",".join([*key, str(number)]) for key, number in people.items()]
    (folder / "people.csv").write_text("\n".join(["area,AGE,SEX,n", *rows]) + "\n")
    plan = Plan.load(folder / "plan.toml")
    pipeline.release(plan, to=folder / "out", rng=Seeded(seed), workers=1)
    release = Release.read(folder / "out")
    return World(release, realised(release, open_engine("local").tabulate(plan)), people)


CELLS = [
    (area, age, sex)
    for area in ("A1", "A2", "A3", "A4", "A5")
    for age in ("young", "old")
    for sex in ("f", "m", "x")
]


@pytest.fixture(scope="module")
def crowd(tmp_path_factory):
    """Counts of four digits, each different, and noise of hundreds: no count is met by accident."""
    people = {key: 1_013 + 271 * number for number, key in enumerate(CELLS)}
    return world(tmp_path_factory.mktemp("crowd"), people, rho="1/100000")


@pytest.fixture(scope="module")
def budgets(tmp_path_factory):
    """The sections of the same people with more and more to spend."""
    people = dict.fromkeys(CELLS, 1)
    made = []
    for number, rho in enumerate(("1/8", "1", "8")):
        made.append(world(tmp_path_factory.mktemp(f"budget-{number}"), people, rho=rho).sections)
    return made


def true_counts(people):
    """Return the count of every area and region, by age, sex, both and neither."""
    parents = dict(line.split(",")[::-1] for line in TINY_PLACES.split()[1:])
    counts = Counter()
    for (area, age, sex), number in people.items():
        for place in (area, parents[area]):
            for kind in {(age, sex), (age, ""), ("", sex), ("", "")}:
                counts[place, kind] += number
    return set(counts.values()) | {sum(people.values())}


def numbers_in(value):
    """Return every number in a document, those within its texts too."""
    if isinstance(value, dict):
        return numbers_in(list(value.items()))
    if isinstance(value, list | tuple):
        return set().union(*map(numbers_in, value))
    if isinstance(value, str):
        return {float(text.replace(",", "")) for text in re.findall(r"\d[\d,]*(?:\.\d+)?", value)}
    return {float(value)} if isinstance(value, int | float) and math.isfinite(value) else set()


every_lens = pytest.mark.parametrize("lens", LENSES, ids=lambda lens: lens.name)


@pytest.mark.parametrize("people", ["crowd", "few"])
@every_lens
def test_a_lens_shows_the_same_numbers_in_every_rendering(lens, people, crowd, budgets):
    """With few people, some figures have no limit, and others cannot be estimated."""
    sections = crowd.sections if people == "crowd" else budgets[-1]
    section = sections[lens.name]
    assert section is not None, "a lens that never applies is not tested here"
    assert section.name == lens.name
    assert section.audience == ("internal" if lens.needs == "records" else "public")
    document = json.loads(json.dumps(section.document, allow_nan=False))
    console = Console(file=StringIO(), width=1000)
    console.print(render_section(section))
    text, html = console.file.getvalue(), section_body(section).unescape()
    assert document["audience"] == section.audience
    assert text.startswith("INTERNAL") == (section.audience == "internal")
    assert document["sentences"] == list(section.sentences)
    for sentence in document["sentences"]:
        assert sentence in text
        assert sentence in html
    assert len(document["tables"]) == len(section.tables)
    for stated, table in zip(document["tables"], section.tables, strict=True):
        assert stated["caption"] in html
        assert [len(row) for row in stated["rows"]] == [len(stated["columns"])] * len(table.rows)
        for numbers, row in zip(stated["rows"], table.rows, strict=True):
            infinite = [isinstance(value, float) and math.isinf(value) for value in row]
            shown = [
                "no limit" if without else cell(number)
                for number, without in zip(numbers, infinite, strict=True)
            ]
            in_order = r"\s+".join(map(re.escape, shown))
            assert re.search(rf"^\s*{in_order}\s*$", text, re.MULTILINE), shown
            inside = "</t[dh]>\\s*<t[dh][^>]*>".join(map(re.escape, shown))
            assert re.search(inside, html), shown
    for chart in section.charts:
        assert chart.audience == section.audience


def test_some_figures_have_no_limit_where_few_people_are_counted(budgets):
    rows = budgets[-1]["realised-loss"].tables[0].rows
    assert math.inf in {value for row in rows for value in row}


@every_lens
def test_a_public_lens_names_no_true_count(lens, crowd):
    """Each lens is given records and release alike; what is for everyone shows no count of them."""
    shown = numbers_in(described(crowd.sections[lens.name]))
    secret = true_counts(crowd.people)
    assert len(secret) > 60
    if lens.needs == "records":
        return
    assert not shown & secret


def test_a_true_count_would_be_found_where_it_is_shown(crowd):
    shown = numbers_in(described(crowd.sections["realised-error"]))
    assert shown & true_counts(crowd.people), "its chart has the exact totals"


@pytest.mark.usefixtures("few_simulations")
@pytest.mark.parametrize(
    "lens", [lens for lens in LENSES if lens.needs != "records"], ids=lambda lens: lens.name
)
def test_a_public_lens_reads_no_records(lens, tmp_path):
    """The same measurements, no records: not a character differs."""
    release = world(tmp_path, dict.fromkeys(CELLS, 3)).release
    before = lens.section(Subject(release.plan, release))
    for path in (tmp_path / "people.csv", tmp_path / "plan.toml"):
        path.unlink()
    shutil.rmtree(tmp_path / "out-internal")
    again = Release.read(release.folder)
    assert lens.section(Subject(again.plan, again)).document == before.document


# The risk of a lens: its ratio of a belief after to one before, for someone who is there.


def reached(section):
    return [item["posterior"] / item["prior"] for item in section.figures["release"]]


def mean_over_people(section):
    """Return the mean realised risk of everyone counted, from the table by size of the cell."""
    (table,) = section.tables
    people = [row[2] for row in table.rows]
    return [sum(n * row[3] for n, row in zip(people, table.rows, strict=True)) / sum(people)]


def of_both_splits(section):
    return section.figures["risks"]


RISKS = {
    "presence": lambda section: [
        item["marginal_risk"] for key in ("attacks", "levels") for item in section.figures[key]
    ],
    "published": lambda section: [section.figures["upper"]],
    "split": of_both_splits,
    "loss": lambda section: [math.exp(row[-1]) for row in section.tables[0].rows],
    "reconstruction": reached,
    "everyone": mean_over_people,
    "realised-reconstruction": reached,
}
NO_RISK = {
    "published-homogeneity": "shares of people",
    "error": "errors",
    "margin": "errors",
    "homogeneity": "how often a value shows",
    "public": "a guarantee",
    "realised-error": "errors",
    "realised-loss": "estimates from few residuals, which no law binds",
    "realised-attack": "shares of people",
}


def test_every_lens_states_a_risk_or_says_why_not():
    assert sorted([*RISKS, *NO_RISK]) == sorted(lens.name for lens in LENSES)


@pytest.mark.parametrize("name", RISKS)
def test_a_risk_is_at_least_1_and_does_not_fall_when_the_budget_grows(name, budgets):
    risks = [RISKS[name](sections[name]) for sections in budgets]
    for smaller, larger in pairwise(risks):
        assert len(smaller) == len(larger)
        assert all(a <= b for a, b in zip(smaller, larger, strict=True)), name
    assert all(risk >= 1 for values in risks for risk in values), name
    assert risks[0] != risks[-1], "a number that never changes says nothing"


@pytest.mark.parametrize("prior", [0.02, 0.5, 0.9])
def test_the_risk_grows_with_the_budget_for_every_prior(prior):
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
