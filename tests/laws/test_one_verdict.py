"""Random plans: the command line, JSON, report and explorer show one verdict and one number."""

from __future__ import annotations

import random
import re
from fractions import Fraction

import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
import pytest

from countveil import Plan, Release
from countveil.assess.choose import plan_budget
from countveil.assess.published.tables_risk import PublishedRisk
from countveil.assess.verdict import judge
from countveil.base import words
from countveil.explorer.answers import answer_at_judged_level
from countveil.explorer.explorer_page import numbers
from countveil.explorer.settings import opening
from countveil.plan.plan_basis import GEOGRAPHY
from countveil.report.decision_sheets import decision_sheet
from countveil.report.section_data import Subject
from countveil.report.sections import published_section
from countveil.report.sections.intruder_section import summary_sentences
from tests.conftest import run

# Seeds that between them have everything that the first twenty do: levels, queries and priors, exact
# totals above and at the level that is known, both currencies and neighbours, bounds, every status.
PLANS = (0, 1, 2, 4, 7, 9, 10, 14)


def released(plan):
    """Return a release as a reader opens it, as far as page one needs it: with the published plan."""
    places = plan.geography()
    pq.write_table(
        pv.read_csv(
            plan.crosswalk,
            convert_options=pv.ConvertOptions(column_types=dict.fromkeys(plan.levels, pa.string())),
        ),
        plan.crosswalk.with_name(GEOGRAPHY),
    )
    folder = plan.crosswalk.parent
    manifest = {"release": "r", "randomness": "secure", "plan_sha256": "0", "versions": {}}
    manifest["levels"] = [{"level": name, "units": places.units(name)} for name in plan.levels]
    return Release(folder, manifest, Plan.of(plan.public_document, folder=folder))


def shares(draw, names):
    weights = [draw.randint(1, 9) for _ in names]
    return "".join(
        f'"{n}" = "{Fraction(w, sum(weights))}"\n' for n, w in zip(names, weights, strict=True)
    )


def random_plan(number):
    """Return the text of a plan and of its crosswalk: some with only children, exact totals, limits."""
    draw = random.Random(number)
    levels = ["nation", "state", "county", "block"][draw.randint(0, 2) :]
    rows = [[]]
    for level in levels:
        children = range(1, draw.randint(2, 4)) if level != levels[0] else range(1, 2)
        rows = [[*row, f"{''.join(row[-1:])}{level[0]}{n}"] for row in rows for n in children]
    queries = ["TOTAL", "AGE", "AGE*SEX"][: draw.randint(1, 3)]
    currency = draw.choice(["rho", "rho", "rho", "epsilon"])
    neighbors = draw.choice(["change-one", "add-remove"])
    text = (
        f'[release]\ntitle = "Plan {number}"\nunit = "person"\nneighbors = "{neighbors}"\n'
        f'[geography]\npath = "places.csv"\nlevels = {levels}\n'
        '[attributes]\nAGE = ["young", "old"]\nSEX = ["f", "m", "x"]\n'
        f'[budget]\n{currency} = "{draw.choice(["0.1", "0.7", "2", "6"])}"\n'
        f'[budget.levels]\n{shares(draw, levels)}[budget.queries."*"]\n{shares(draw, queries)}'
    )
    if neighbors == "change-one" and draw.random() < 0.5:
        level = draw.choice(levels)
        text += f'[[invariants]]\nlevel = "{level}"\nquery = "TOTAL"\nreason = "public"\n'
    text += f'[postprocess]\nmethod = "none"\n[intruder]\nknows = "{draw.choice(levels)}"\n'
    text += f"priors = {draw.sample([0.5, 0.3, 0.1, 0.02], draw.randint(1, 3))}\n"
    if draw.random() < 0.8:
        text += f"limit = {draw.choice([1.05, 1.2, 1.5, 2.5, 4.0])}\n"
    return text, "\n".join(",".join(row) for row in [levels, *rows]) + "\n"


def risk_in(sentence):
    """Return the number that a sentence gives as a multiple of the prior, and whether as a bound."""
    found = re.search(r"(at most )?([\d.,]*\d) times (?:the|their) prior(?!:)", sentence)
    assert found, sentence
    return found.groups()


@pytest.mark.parametrize("number", PLANS)
def test_there_is_one_verdict_and_one_number(number, tmp_path):
    text, places = random_plan(number)
    (tmp_path / "places.csv").write_text(places)
    path = tmp_path / "plan.toml"
    path.write_text(text)
    plan = Plan.load(path)
    expected = judge(plan)
    worst = expected.worst
    value = plan.risk().value
    assert value == worst.marginal_risk
    above = plan.intruder.limit is not None and value > plan.intruder.limit

    ran = run("price", path)
    shown = " ".join(ran.out.split())
    assert ran.status == above
    assert expected.sentence in shown

    document = run("price", path, "--json").document()
    assert (document["verdict"], document["ladder"]) == (expected.sentence, expected.knowledge)
    assert document["within_limit"] == (not above)
    assert document["risk"]["marginal_risk"] == value
    assert document["risk"]["attack"] == worst.attack

    sheet = decision_sheet(released(plan))
    assert (sheet.verdict, sheet.ladder) == (expected.sentence, expected.knowledge)
    assert sheet.worst.released.marginal_risk == value

    settings = opening(plan)
    page = numbers(answer_at_judged_level(plan, settings), settings)
    assert page["verdict"] == {"status": expected.status, "text": expected.sentence}
    assert page["ladder"] == expected.knowledge
    assert page["short"].startswith(expected.shown)

    same = PublishedRisk(1.0, 1.0, 0.975, worst.prior, "flat", 400, plan.judged_level)
    stated = f"{expected.shown} times the prior, about {worst.about}, in {worst.unit_kind}."
    assert published_section.stated_by_plan(plan, same, made_up=False).endswith(stated)

    lens = summary_sentences(Subject(plan).summary)
    if worst.settled:  # pages then say what noisy counts alone would give
        assert expected.shown == words.multiple(1 / worst.prior, limit=expected.limit)
        assert risk_in(expected.sentence) == (None, expected.shown)
    else:
        texts = (expected.sentence, sheet.sentence, page["sentence"], lens[0])
        assert len({risk_in(text) for text in texts}) == 1
        assert (risk_in(lens[0])[0] is not None) == worst.upper_bound


@pytest.mark.parametrize("number", PLANS)
def test_choose_says_of_its_plan_what_price_says(number, tmp_path, monkeypatch):
    """A short search will do: the verdict is about whichever plan it ends with."""
    monkeypatch.setattr(plan_budget, "_HALVINGS", 3)
    text, places = random_plan(number)
    (tmp_path / "places.csv").write_text(places)
    path = tmp_path / "plan.toml"
    path.write_text(text)
    plan = Plan.load(path)
    chosen = run("choose", path, "--risk", (1 + 1 / max(plan.intruder.priors)) / 2, "--json")
    document = chosen.document()
    amount = document[plan.cost.currency]
    stated = plan.document["budget"][plan.cost.currency]
    other = text.replace(f'"{stated}"', f'"{amount}"')
    if document["shares"]:
        lines = "".join(f'"{level}" = "{own}"\n' for level, own in document["shares"].items())
        start, end = other.index("[budget.levels]\n"), other.index("[budget.queries")
        other = f"{other[:start]}[budget.levels]\n{lines}{other[end:]}"
    path.write_text(other)
    priced = run("price", path, "--json")
    assert priced.document()[plan.cost.currency] == amount
    assert document["verdict"] == priced.document()["verdict"]
    assert document["above_limit"] == (not priced.document()["within_limit"])
    assert chosen.status == priced.status
    path.write_text(text)
    shown = run("choose", path, "--risk", (1 + 1 / max(plan.intruder.priors)) / 2)
    assert document["verdict"] in " ".join(shown.out.split())
    assert shown.status == chosen.status


def test_the_plans_are_of_every_kind(tmp_path):
    """The plans include both neighbours, both currencies and every status."""
    kinds = set()
    for number in PLANS:
        text, places = random_plan(number)
        (tmp_path / "places.csv").write_text(places)
        plan = Plan.parse(text, folder=tmp_path)
        verdict = judge(plan)
        kinds |= {plan.neighbors, type(plan.cost).__name__, verdict.status}
        kinds |= {f"settled {verdict.worst.settled}", f"bound {verdict.worst.upper_bound}"}
        kinds.add(verdict.worst.attack.partition(":")[0])
    assert kinds >= {"change-one", "add-remove", "ZCDP", "PureDP", "within", "above", "no limit"}
    assert kinds >= {"settled True", "settled False", "bound True", "bound False"}
    assert kinds >= {"presence", "unknown attribute"}
