"""A risk is worded in one place: a bound says that it is one, and no rounding crosses the limit."""

from __future__ import annotations

import ast
import html
import json
import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import countveil
from countveil import Plan, Release, Seeded, pipeline
from countveil.assess.choose.plan_budget import ChosenPlan
from countveil.assess.comparison import compare
from countveil.assess.intruder.ladder import judged, risk_by_level
from countveil.assess.intruder.whole_release import name_of
from countveil.assess.pricing import price
from countveil.assess.verdict import judge
from countveil.base import words
from countveil.explorer.explorer_page import numbers
from countveil.explorer.settings import opening
from countveil.report.charts import risk_by_level as chart_by_level
from countveil.report.decision_sheets import decision_sheet
from countveil.report.report_page import public_report
from countveil.report.section_data import Subject
from countveil.report.sections import intruder_section
from countveil.report.terminal.compare_terminal import comparison_view
from countveil.report.terminal.price_tables import price_view
from countveil.report.terminal.risk_terminal import chosen_view
from tests.conftest import TINY_PLAN
from tests.explorer.whole_answer import answer
from tests.laws.test_one_verdict import PLANS, random_plan, released
from tests.report.reading import Page

SOURCE = Path(countveil.__file__).parent


def worded(risk, limit):
    """Return a risk by the definition: "at most" before a bound, enough digits for the limit."""
    shown = words.multiple(risk.marginal_risk, limit=limit)
    assert limit is None or (float(shown.replace(",", "")) > limit) == (risk.marginal_risk > limit)
    return f"at most {shown}" if risk.upper_bound else shown


def in_table(risk, limit):
    return "certain" if risk.settled else worded(risk, limit)


def rows_of(view):
    """Return the rows of terminal tables as lists of cells."""
    console = Console(file=StringIO(), width=400)
    console.print(view)
    lines = console.file.getvalue().replace("→", " ").splitlines()
    return [re.split(r"\s{2,}", line.strip()) for line in lines]


@pytest.fixture(params=PLANS)
def plan(request, tmp_path):
    text, places = random_plan(request.param)
    (tmp_path / "places.csv").write_text(places)
    return Plan.parse(text, folder=tmp_path)


def test_tables_of_the_command_line_show_it(plan):
    limit, priors = plan.intruder.limit, plan.intruder.priors
    ladder = risk_by_level(plan, invariants=True, decisions=False)
    priced, verdict = rows_of(price_view(price(plan))), judge(plan)
    own = tuple(judged(plan, ladder))
    chosen = rows_of(chosen_view(ChosenPlan(plan, {}, own, tuple(ladder)), "", verdict))
    for level in plan.estimated_levels:
        risks = [risk for risk in ladder if risk.level == level]
        worst = max(risks, key=lambda risk: risk.marginal_risk)
        cells = [in_table(risk, limit) for risk in risks]
        assert [level, *cells, worst.about] in priced
        assert [level, "0", in_table(worst, limit), worst.about] in chosen
    compared = rows_of(comparison_view(compare(plan, plan)))
    for risk in own:
        row = next(row for row in compared if row[0] == words.prior(risk.prior))
        assert row[1].startswith(f"{worded(risk, limit)} (")
        assert row[1] == row[2]
    worst = max(own, key=lambda risk: risk.marginal_risk)
    told = f"the risk with prior {words.prior(worst.prior)} is {worded(worst, limit)} in both"
    assert told in " ".join(" ".join(row) for row in compared)
    assert len(priors) == len(own)


def test_the_lens_and_its_charts_show_it(plan):
    limit = plan.intruder.limit
    section = intruder_section.section(Subject(plan))
    priors = list(dict.fromkeys(plan.intruder.priors))
    for row in section.tables[0].rows:
        attack, *cells = row[: 1 + len(priors)]
        risks = risk_by_level(
            plan, priors, invariants=True, levels=(plan.judged_level,), attack=attack
        )
        for risk, cell in zip(risks, cells, strict=True):
            share = words.brief_percent(risk.posterior, other=risk.prior)
            times = words.multiple(risk.marginal_risk, limit=limit)
            text = f"{share}, ×\u00a0{times}"
            assert cell.startswith(f"at most {text}" if risk.upper_bound else text)
            assert ("revealed by public counts" in cell) == risk.settled
    rungs = risk_by_level(plan, priors, invariants=True)
    noisy = [risk for risk in rungs if not risk.settled]
    if noisy:
        worst = max(noisy, key=lambda risk: risk.marginal_risk)
        caption = chart_by_level(rungs, limit=limit).caption
        assert f"is {worded(worst, limit)}, at level {worst.level}" in caption
    if plan.cost.currency == "rho":
        (swept,) = [chart for chart in section.charts if chart.name == "risk-by-rho"]
        for risk in judged(plan, rungs):
            assert f"{worded(risk, limit)} with prior {words.prior(risk.prior)}" in swept.caption


def test_the_explorer_shows_it(plan):
    limit, settings = plan.intruder.limit, opening(plan)
    found = answer(plan, settings)
    page = numbers(found, settings)["html"]
    cells = re.findall(r'<td class="number[^"]*">([^<]*)</td>', page)
    attack = name_of(settings.attack, settings.attribute)
    of_levels = [
        in_table(risk, limit)
        for risk in risk_by_level(plan, found.priors, attack=attack, invariants=True)
    ]
    assert cells[: len(of_levels)] == of_levels
    beliefs = cells[len(of_levels) :]
    noisy = risk_by_level(
        plan,
        found.priors,
        levels=(plan.judged_level,),
        attack=attack,
        invariants=not found.settled,
    )
    for number, risk in enumerate(noisy):
        share = words.brief_percent(risk.posterior, other=risk.prior)
        reached = f"at most {share}" if risk.upper_bound else share
        assert beliefs[3 * number : 3 * number + 2] == [reached, worded(risk, limit)]


def test_page_one_and_the_verdict_show_it(plan):
    limit, verdict, sheet = plan.intruder.limit, judge(plan), decision_sheet(released(plan))
    worst = sheet.worst
    shown = worst.noisy if worst.released.settled else worst.released
    assert f"on average, {worded(shown, limit)} times their prior" in sheet.sentence
    assert f"the largest risk is {worded(verdict.worst, limit)} times the prior" in sheet.verdict
    if "From noisy counts alone" in verdict.sentence:
        assert f"the risk would be {worded(verdict.noisy, limit)} times" in verdict.sentence
    for rung in verdict.ladder:
        assert worded(rung, limit) in verdict.knowledge


def test_a_report_shows_bounds_as_bounds(tiny):
    """Noise this small counts as if everyone around were known; so does noise that is not Gaussian."""
    text = TINY_PLAN.replace('rho = "2"', 'rho = "40"')
    tiny.write_text(f"{text}[intruder]\npriors = [0.3, 0.1]\nlimit = 20.0\n")
    pipeline.release(Plan.load(tiny), to=tiny.parent / "out", rng=Seeded(1))
    release = Release.read(tiny.parent / "out")
    risks = judged(release.plan, risk_by_level(release.plan, invariants=True))
    assert all(risk.upper_bound for risk in risks)
    page = public_report(release)
    for risk in risks:
        share = words.brief_percent(risk.posterior, other=risk.prior)
        row = f'<td class="number">at most {share}</td><td class="number">{worded(risk, 20.0)}</td>'
        assert row in page
    (data,) = Page(page).parts["script", "application/json"]
    steps = json.loads(html.unescape(data))["steps"]
    (own,) = [step for step in steps if step["chosen"]]
    assert own["risks"] == [worded(risk, 20.0) for risk in risks]


def test_the_plans_have_bounds_above_and_within_limits_and_certainties(tmp_path):
    """Of what these laws are about, there is something in the plans."""
    kinds = set()
    for number in PLANS:
        text, places = random_plan(number)
        (tmp_path / "places.csv").write_text(places)
        plan = Plan.parse(text, folder=tmp_path)
        for risk in risk_by_level(plan, invariants=True, decisions=False):
            limit = plan.intruder.limit
            above = None if limit is None else risk.marginal_risk > limit
            kinds.add((risk.upper_bound, risk.settled, above))
    assert kinds >= {(bound, False, above) for bound in (True, False) for above in (True, False)}
    assert (False, True, True) in kinds


def test_no_other_module_words_the_figure():
    """Pages, tables and charts ask the record; only it rounds `marginal_risk`."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            of = {item.attr for item in ast.walk(node) if isinstance(item, ast.Attribute)}
            if called == "multiple" and "marginal_risk" in of:
                assert path.name == "ladder.py", f"{path}:{node.lineno}"
    for path in SOURCE.rglob("*.html"):
        assert "marginal_risk" not in path.read_text("utf-8"), path
