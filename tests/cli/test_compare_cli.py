"""`countveil compare`: what differs between two plans is what pricing each of them says."""

import os

import pytest
from tests.conftest import TINY_PLAN, run

from countveil import Plan, Seeded, pipeline
from countveil.assess.comparison import compare
from countveil.assess.intruder.ladder import judged, risk_by_level
from countveil.base import words
from countveil.estimate.plan_error import expected_error

MORE = TINY_PLAN.replace('rho = "2"', 'rho = "8"').replace('title = "Tiny"', 'title = "Larger"')
OTHER = TINY_PLAN.replace('TOTAL = "1/4"\n"AGE*SEX" = "3/4"', '"AGE" = "1/2"\n"AGE*SEX" = "1/2"')


@pytest.fixture
def files(tiny):
    for name, text in (("more.toml", MORE), ("other.toml", OTHER)):
        (tiny.parent / name).write_text(text)
    return tiny.parent


def test_each_side_is_what_its_plan_says():
    plans = [Plan.parse(TINY_PLAN), Plan.parse(MORE)]
    found = compare(*plans)
    for side, plan in zip((found.first, found.second), plans, strict=True):
        assert side.cost == str(plan.cost)
        assert side.epsilon == plan.cost.epsilon(plan.delta)
        assert list(side.risks) == judged(plan, risk_by_level(plan))
        assert side.errors == expected_error(plan)
    assert {(c.key, c.first, c.second) for c in found.changes} == {
        ("release.title", "Tiny", "Larger"),
        ("budget.rho", "2", "8"),
    }


def test_what_only_one_side_has_is_shown_with_none():
    found = compare(Plan.parse(TINY_PLAN), Plan.parse(OTHER))
    pairs = {(level, query): (a, b) for level, query, a, b in found.errors}
    assert pairs["area", "AGE"][0] is None
    assert pairs["area", "TOTAL"][1] is not None  # not measured, and determined all the same
    changed = {c.key: (c.first, c.second) for c in found.changes}
    assert changed["budget.queries.*.TOTAL"] == ("1/4", None)
    assert changed["budget.queries.*.AGE"] == (None, "1/2")


def test_a_plan_differs_from_itself_in_nothing():
    plan = Plan.parse(TINY_PLAN)
    found = compare(plan, plan)
    assert found.changes == ()
    assert all(a == b for _, a, b in found.risks)


def test_the_command_shows_both_plans(files):
    ran = run(
        "compare", files / "plan.toml", files / "more.toml", env={**os.environ, "COLUMNS": "160"}
    )
    assert ran.status == 0, ran.err
    text = " ".join(ran.out.split())
    assert "The cost goes from rho = 2 (epsilon" in text
    assert ") to rho = 8 (epsilon" in text
    assert "standard errors are 0.4" in text or "standard errors are 0.5" in text
    for name in ("plan.toml", "more.toml"):
        plan = Plan.load(files / name)
        for item in judged(plan, risk_by_level(plan)):
            right = words.brief_percent(item.correct_decision)
            assert item.decision_upper_bound
            assert f"{item.times()} (at most {right})" in text
    document = run("compare", files / "plan.toml", files / "more.toml", "--json").document()
    assert document["second"]["cost"] == "rho = 8"


def test_releases_are_compared_by_their_plans(files):
    outs = []
    for number, name in enumerate(("plan.toml", "more.toml")):
        outs.append(files / f"out{number}")
        pipeline.release(Plan.load(files / name), to=outs[-1], rng=Seeded(1))
    document = run("compare", *outs, "--json").document()
    assert [change["key"] for change in document["changes"]] == ["release.title", "budget.rho"]


def test_what_cannot_be_compared_says_why(files):
    assert run("compare", files / "plan.toml", files / "nothing.toml").status == 2
    (files / "empty").mkdir()
    assert "not a finished release" in run("compare", files / "plan.toml", files / "empty").err
    (files / "table.toml").write_text(
        TINY_PLAN.split("[budget]")[0]
        + '[budget]\nepsilon = "1"\n[[invariants]]\nlevel = "region"\nquery = "TOTAL"\n'
        'reason = "known"\n[postprocess]\nmethod = "congenial"\n'
    )
    ran = run("compare", files / "plan.toml", files / "table.toml")
    assert ran.status == 2
    assert "a comparison needs a plan of counts" in ran.err


def test_names_are_shown_as_they_are_and_what_is_the_same_is_said_so(files):
    (files / "a[").mkdir()
    (files / "a[" / "places.csv").write_text((files / "places.csv").read_text())
    names = [files / "a[" / "b].toml", files / "p[red].toml"]
    for name in names:
        name.write_text((files / "plan.toml").read_text())
    found = run("compare", *names, env={**os.environ, "COLUMNS": "400"})
    assert found.status == 0
    text = " ".join(found.out.split())
    assert "b].toml" in text
    assert "p[red].toml" in text
    assert " in both; standard errors are the same." in text
