"""`countveil compare --protection`: internal unless made from what is public, and marked so."""

import json
import os
import stat

import pytest
from tests.conftest import TINY_PEOPLE, TINY_PLAN, run

from countveil import Plan, Secure, Seeded, pipeline
from countveil.assess.intruder.ladder import judged, risk_by_level
from countveil.base import words
from countveil.estimate.release_error import WATERMARK
from countveil.publish.release_folder import Release

WIDE = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
SOME = ("--protection", "suppression:3", "--protection", "rounding:5")


def test_records_make_an_internal_comparison_that_says_so(tiny):
    ran = run("compare", tiny, *SOME, "--internal", env=WIDE)
    assert ran.status == 0, ran.err
    assert ran.out.splitlines()[0].strip() == WATERMARK
    assert "suppression of counts below 3" in ran.out
    assert "rounding to base 5" in ran.out
    document = run("compare", tiny, *SOME, "--internal", "--json").document()
    assert next(iter(document.items())) == ("notice", WATERMARK)
    assert document["audience"] == "internal"
    assert document["basis"] == "records"
    plan = Plan.load(tiny)
    risks = judged(plan, risk_by_level(plan, invariants=True))
    assert [item["marginal_risk"] for item in document["risks"]] == [
        risk.marginal_risk for risk in risks
    ]
    own = next(line for line in ran.out.splitlines() if line.startswith("this plan"))
    for risk in risks:
        assert f" {words.multiple(risk.marginal_risk)} " in f"{own} "


def test_an_internal_result_is_written_for_its_owner_only(tiny):
    to = tiny.parent / "compared.json"
    assert run("compare", tiny, *SOME, "--internal", "--to", to).status == 0
    assert stat.S_IMODE(to.stat().st_mode) == 0o600
    assert json.loads(to.read_text())["notice"] == WATERMARK
    assert run("compare", tiny, *SOME, "--internal", "--to", tiny.parent).status == 2


def test_public_records_are_attested_and_the_result_says_so(tiny):
    ran = run("compare", tiny, *SOME, "--public-records", env=WIDE)
    assert ran.status == 0, ran.err
    assert WATERMARK not in ran.out
    assert "made from records that the user attests to be public" in " ".join(ran.out.split())
    document = run("compare", tiny, *SOME, "--public-records", "--json").document()
    assert "notice" not in document
    assert (document["audience"], document["basis"]) == ("public", "public records")


def test_a_release_is_compared_by_its_estimates_without_records(tiny):
    out = tiny.parent / "out"
    tiny.write_text(tiny.read_text() + '[postprocess]\nmethod = "top-down"\n')
    pipeline.release(Plan.load(tiny), to=out, rng=Secure(), ledger=tiny.parent / "l.sqlite")
    (tiny.parent / "people.csv").unlink()
    ran = run("compare", out, *SOME, env=WIDE)
    assert ran.status == 0, ran.err
    assert "made from published estimates" in " ".join(ran.out.split())
    document = run("compare", out, *SOME, "--json").document()
    assert document["audience"] == "public"
    refused = run("compare", out, *SOME, "--internal")
    assert refused.status == 2
    assert "has no effect for a release folder" in refused.err


def test_a_simulated_release_is_not_for_publication_and_neither_is_this(tiny):
    out = tiny.parent / "out"
    tiny.write_text(tiny.read_text() + '[postprocess]\nmethod = "top-down"\n')
    pipeline.release(Plan.load(tiny), to=out, rng=Seeded(1))
    document = run("compare", out, *SOME, "--json").document()
    assert document["audience"] == "internal"
    assert document["notice"] == WATERMARK


def test_the_error_of_the_plan_is_that_of_a_seeded_run(tiny):
    tiny.write_text(tiny.read_text() + '[postprocess]\nmethod = "top-down"\n')
    out = tiny.parent / "out"
    pipeline.release(Plan.load(tiny), to=out, rng=Seeded(7))
    estimates = Release.read(out).estimates
    document = run("compare", tiny, *SOME, "--internal", "--json", "--seed", 7).document()
    found = {(item["level"], item["query"]): item for item in document["run_errors"]}
    total = estimates.counts("area", estimates.plan.schema.query("TOTAL")).ravel()
    exact = [sum(area == f"A{number}" for area, *_ in TINY_PEOPLE) for number in range(1, 6)]
    expected = sum(abs(a - b) for a, b in zip(total, exact, strict=True)) / 5
    assert found["area", "TOTAL"]["absolute_error"] == pytest.approx(expected)
    assert expected > 0
    before = run("compare", tiny, *SOME, "--internal", env=WIDE)
    assert "plan, forecast" in before.out


def test_a_release_without_estimates_says_what_to_do(tiny):
    out = tiny.parent / "out"
    pipeline.release(Plan.load(tiny), to=out, rng=Seeded(1))
    ran = run("compare", out, *SOME)
    assert ran.status == 2
    assert "has no estimates" in ran.err


def test_the_seed_decides(tiny):
    def errors(seed):
        ran = run(
            "compare",
            tiny,
            "--protection",
            "random-rounding:5",
            "--internal",
            "--json",
            "--seed",
            seed,
        )
        return ran.document()["sides"][0]["errors"]

    assert errors(1) == errors(1)
    assert errors(1) != errors(2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (SOME, "add --internal"),
        ((*SOME, "--internal", "--public-records"), "give one"),
        (("--protection", "masking:3", "--internal"), "choose from suppression"),
        (("--protection", "rounding", "--internal"), "has no number"),
        (("--protection", "rounding:1", "--internal"), "from 2 to 1,000"),
        (("--protection", "suppression:1", "--internal"), "from 2 to 1,000"),
        (("--protection", "swapping:2", "--internal"), "above 0 and at most 1"),
        (("--protection", "swapping:0.1,within=area", "--internal"), "choose from region"),
        (("--protection", "swapping:0.1,match=AGE+RACE", "--internal"), "choose from AGE, SEX"),
        (("--protection", "household-swapping:0.1,match=AGE", "--internal"), "choose from size"),
        ((), "B is missing"),
        (("--internal",), "B is missing"),
    ],
)
def test_bad_input_ends_with_status_2_and_what_to_do(tiny, arguments, message):
    ran = run("compare", tiny, *arguments)
    assert ran.status == 2
    assert message in ran.err
    assert not ran.out


def test_options_of_protections_are_refused_between_two_plans(tiny):
    other = tiny.parent / "other.toml"
    other.write_text(TINY_PLAN)
    ran = run("compare", tiny, other, "--internal")
    assert ran.status == 2
    assert "--internal: has no effect" in ran.err
    ran = run("compare", tiny, other, *SOME, "--internal")
    assert ran.status == 2
    assert "leave one of them out" in ran.err


def test_too_large_tables_are_refused(tiny, monkeypatch):
    monkeypatch.setattr("countveil.assess.protections.exact_tables.MOST_COUNTS", 10)
    ran = run("compare", tiny, *SOME, "--internal")
    assert ran.status == 2
    assert "up to 10" in ran.err


def test_the_help_has_an_example():
    text = " ".join(run("compare", "--help", env=WIDE).out.split())
    assert "--protection suppression:10" in text
