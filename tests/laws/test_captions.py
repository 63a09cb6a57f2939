"""A caption says which attack its risks are about, and what its errors are of, and it is true."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from countveil import Release, Seeded, pipeline
from countveil.assess.intruder.ladder import risk_by_level
from countveil.assess.intruder.whole_release import about
from countveil.assess.pricing import price
from countveil.demo.starter import write_start
from countveil.estimate import expected_error
from countveil.explorer.chart_drawing import draw
from countveil.explorer.explorer_page import numbers
from countveil.explorer.settings import Settings
from countveil.plan.plans import Plan
from countveil.report.budget_steps import other_budgets
from countveil.report.report_page import public_report
from countveil.report.section_data import Subject
from countveil.report.sections import error_section, intruder_section
from countveil.report.terminal.price_tables import price_view
from tests.conftest import TINY_PLAN
from tests.explorer.whole_answer import answer
from tests.report.reading import Page

PUBLIC = '[[invariants]]\nlevel = "region"\nquery = "TOTAL"\nreason = "published already"\n'


@pytest.fixture(scope="module", params=["starter", "tiny", "tiny, with public totals"])
def plan(request, tmp_path_factory):
    if request.param == "starter":
        folder = tmp_path_factory.mktemp("place") / "place"
        write_start(folder, people=200, seed=1)
        return Plan.load(folder / "plan.toml")
    return Plan.parse(TINY_PLAN + (PUBLIC if "public" in request.param else ""))


def assert_named(chart, attacks):
    """The words of a chart name each attack, and presence only where it is one of them."""
    texts = (chart.caption, chart.alt)
    if attacks == {"presence"}:
        return
    assert "counted" not in " ".join(texts).replace("published counts", "")
    for attack in attacks:
        assert about(attack) in chart.caption


def test_charts_of_a_plan_name_the_attack_behind_their_values(plan):
    section = intruder_section.section(Subject(plan))
    by_attack = {chart.name: chart for chart in section.charts if "attack" in columns_of(chart)}
    assert {"risk-by-level", "risk-by-rho", "decision-by-rho"} <= by_attack.keys()
    for chart in by_attack.values():
        rows = chart.table.to_pylist()
        for row in rows:
            if "rho" in row and row["rho"] != float(plan.cost.rho):
                continue
            level = row.get("level", plan.judged_level)
            (alone,) = risk_by_level(
                plan, [row["prior"]], invariants=True, levels=(level,), attack=row["attack"]
            )
            value, expected = (
                (row["probability"], alone.correct_decision)
                if "probability" in row
                else (row["marginal_risk"], alone.marginal_risk)
            )
            assert value == pytest.approx(expected, rel=1e-9), (chart.name, row)
        if chart.name != "risk-by-level":  # each level has an attack of its own, in the table
            assert_named(chart, {row["attack"] for row in rows})


def test_charts_of_the_explorer_name_the_attack_that_was_chosen(plan):
    attribute = plan.schema.attributes[0].name
    for attack, name, of in (
        ("presence", "presence", None),
        ("unknown attribute", attribute, attribute),
        ("whole record", "the whole record", None),
    ):
        settings = replace(Settings.of(plan), attack=attack, attribute=of)
        chart = draw("risk-by-rho", plan, settings)
        assert {about(each) for each in chart.table["attack"].to_pylist()} == {name}
        assert_named(chart, set(chart.table["attack"].to_pylist()))
        dots = draw("intruders", plan, settings)
        assert ("counted" in dots.caption) == (name == "presence")
        assert name == "presence" or name in dots.caption


def columns_of(chart):
    return chart.table.column_names


BASES = {
    "tree": "the best unbiased estimate, from the measurements and invariants of all levels",
    "level": "the best unbiased estimate, from the measurements of its level alone",
}


def text_of(html):
    return " ".join(Page(html).words.split())


@pytest.mark.parametrize("basis", ["tree", "level"])
def test_what_errors_are_of_is_said_alike_wherever_they_are_shown(basis, tiny):
    """With its places, a count is estimated from the whole tree; without them, from its level."""
    plan = Plan.parse(TINY_PLAN, folder=tiny.parent if basis == "tree" else tiny.parent / "nowhere")
    (other,) = set(BASES) - {basis}
    assert {item.basis for item in expected_error(plan)} == {basis}
    section = error_section.section(Subject(plan))
    (chart,) = [item for item in section.charts if item.name == "expected-error"]
    settings = Settings.of(plan)
    rendered = Console(file=StringIO(), width=400)
    rendered.print(price_view(price(plan)))
    shown = {
        "chart": chart.caption,
        "chart of the explorer": draw("expected-error", plan, settings).caption,
        "lens": section.tables[0].caption,
        "explorer": text_of(numbers(answer(plan, settings), settings)["html"]),
        "price": " ".join(rendered.file.getvalue().split()),
        "other budgets": other_budgets(plan).error_basis,
    }
    for place, text in shown.items():
        assert BASES[basis] in text, place
        assert BASES[other] not in text, place
        assert "least squares" not in text, place


def test_a_report_says_of_all_its_errors_that_they_are_of_the_whole_tree(tiny):
    pipeline.release(Plan.load(tiny), to=tiny.parent / "out", rng=Seeded(2))
    text = text_of(public_report(Release.read(tiny.parent / "out")))
    tables = text.count("of one place, of its own noise and of " + BASES["tree"])
    slider = text.count("Errors are standard errors of " + BASES["tree"])
    assert (tables, slider) == (1, 2), "page one; the slider and the chart"
    assert "least squares over" not in text
