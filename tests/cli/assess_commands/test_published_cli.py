"""`countveil assess published`: both ends in one sentence, in JSON, in the report; what is refused."""

import json

import pytest
from tests.conftest import TINY_PLAN, run

from countveil import Plan, Release, Seeded, pipeline
from countveil.report.report_page import public_report

FAST = ("--draws", 400, "--quiet")


@pytest.fixture
def out(tiny):
    tiny.write_text(TINY_PLAN + '[postprocess]\nmethod = "top-down"\n')
    pipeline.release(Plan.load(tiny), to=tiny.parent / "out", rng=Seeded(2))
    return tiny.parent / "out"


def test_both_ends_are_in_one_sentence(out):
    ran = run("assess", "published", out, "--unit", "A2", "--cell", "AGE=old,SEX=x", *FAST)
    text = " ".join(ran.out.split())
    assert "a person with AGE = old, SEX = x is counted in area A2" in text
    words = ("assess", "published", out, "--unit", "A2", "--cell", "SEX=x,AGE=old", *FAST)
    document = run(*words, "--json").document()
    assert document["audience"] == "public"
    assert 1 <= document["lower"] < document["upper"]
    assert 0 <= document["retained"] < 1
    low, high = (
        float(x) for x in text.split("on average between ")[1].split(" times")[0].split(" and ")
    )
    assert document["lower"] - 0.01 < low <= document["lower"]
    assert document["upper"] <= high < document["upper"] + 0.01
    assert (document["unit"], document["cell"]) == ("A2", ["old", "x"])


def test_the_report_says_it_from_released_estimates(out, tiny):
    release = Release.read(out)
    report = public_report(release)
    assert "What the published tables reveal" in report
    assert "the published tables raise this probability on average between" in report
    people = tiny.parent / "people.csv"
    people.write_text(people.read_text().splitlines()[0] + "\n")
    assert public_report(Release.read(out)) == report  # whatever the records are


def test_records_make_it_internal(out, tiny):
    words = ("assess", "published", out, "--internal", "--plan", tiny, *FAST, "--json")
    document = run(*words).document()
    assert document["audience"] == "internal"
    kept = json.loads((out.parent / "out-internal" / "published.json").read_text())
    assert kept["lower"] == document["lower"]
    assert "notice" in kept


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--unit", "A9"), "--unit: unknown geocode 'A9' of area"),
        (("--cell", "AGE"), "--cell: 'AGE' is not allowed"),
        (("--cell", "AGE=old"), "name a category of each of AGE, SEX"),
        (("--cell", "AGE=big,SEX=f"), "unknown category 'big' of AGE; choose from young, old"),
        (("--siblings", "some"), "--siblings: 'some' is not allowed; choose known or prior"),
        (("--draws", "5"), "draws: 5 is not allowed; use at least 400"),
        (("--plan", "plan.toml"), "--plan: has no effect without --internal"),
    ],
)
def test_bad_input_is_named(out, words, message):
    ran = run("assess", "published", out, *words)
    assert ran.status == 2
    assert message in " ".join(ran.err.split())
