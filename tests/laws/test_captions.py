"""A chart of risks says which attack its numbers are about, and they are about that attack."""

from dataclasses import replace

import pytest

from countveil.assess.intruder.ladder import risk_by_level
from countveil.assess.intruder.whole_release import about
from countveil.demo.starter import write_start
from countveil.explorer.chart_drawing import draw
from countveil.explorer.settings import Settings
from countveil.plan.plans import Plan
from countveil.report.section_data import Subject
from countveil.report.sections import intruder_section
from tests.conftest import TINY_PLAN

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
