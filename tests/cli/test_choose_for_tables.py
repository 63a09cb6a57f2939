"""`countveil choose PLAN --for …`: what it prints, writes and refuses."""

import json
import tomllib

import pytest
from tests.conftest import run

from countveil import Plan
from countveil.estimate.plan_error import expected_error

FOR = ("--for", "block TOTAL within 5", "--for", "county TOTAL")


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """The plan that `init` writes."""
    folder = tmp_path_factory.mktemp("best") / "place"
    assert run("init", folder).status == 0
    return folder / "plan.toml"


def test_it_prints_errors_shares_the_proof_and_the_verdict(plan):
    done = run("choose", plan, *FOR)
    assert done.status == 0, done.err
    for text in (
        "the weighted mean squared error falls to",
        "no other split of these queries lowers the error by more than 0.",
        "proved by convex duality",
        "Within the plan's limit of 4 times the prior",
        "What each query gets, in rho",
        "[budget.queries.block]",
    ):
        assert text in done.out


def test_the_written_plan_is_the_one_that_was_chosen(plan, tmp_path):
    new = plan.parent / "best.toml"
    done = run("choose", plan, *FOR, "--write", new, "--json")
    assert done.status == 0, done.err
    document = json.loads(done.out)
    written = Plan.load(new)
    assert tomllib.loads(new.read_text())["budget"]["levels"] == document["budget"]["levels"]
    assert "# write numbers as text, so that they stay exact" in new.read_text()
    assert written.cost == Plan.load(plan).cost
    forecast = {(item.level, item.query): item for item in expected_error(written)}
    for row in document["targets"]:
        item = forecast[row["level"], row["query"]]
        assert row["standard_error_after"] == pytest.approx(item.overall_standard_error, rel=1e-9)
        assert row["standard_error_after"] < row["standard_error_before"]
    assert 0 <= document["gap"] < 1e-6
    assert document["rounding_loss"] < 0.005
    assert run("check", new).status == 0
    again = run("choose", plan, *FOR, "--write", new)
    assert (again.status, new.read_text()) == (2, new.read_text())
    assert "the file exists; name a new one" in again.err


def test_the_least_budget_for_margins(plan):
    margins = ("--for", "block TOTAL within 5", "--for", "county TOTAL within 8")
    done = run("choose", plan, *margins, "--minimise", "rho", "--json")
    document = json.loads(done.out)
    assert document["after"] < 0.3 < 1 < document["before"]
    assert [row["reached"] for row in document["targets"]] == [True, True]
    assert document["budget"]["rho"] == f"{document['after']:g}"


def test_a_table_without_a_margin_keeps_its_error(plan):
    done = run("choose", plan, *FOR, "--minimise", "rho", "--json")
    assert done.status == 0, done.err
    document = json.loads(done.out)
    block, county = document["targets"]
    assert block["reached"] is True
    assert county["reached"] is None
    assert county["margin_after"] <= county["margin_before"] * (1 + 1e-6)
    assert document["after"] < document["before"]
    shown = run("choose", plan, *FOR, "--minimise", "rho").out
    assert "Every margin is reached, or today's error kept, with rho =" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--for", "block TOTAL", "--posterior", "0.2"), "another way to choose were given"),
        (("--minimise", "rho"), "name tables that matter with --for or in budget.targets, or give"),
        (("--for", "block TOTAL", "--minimise", "size"), "choose error, worst, rho or risk"),
        (
            ("--for", "block TOTAL within 5", "--minimise", "risk", "--risk", "2"),
            "give no limit on it",
        ),
        (("--for", "block TOTAL", "--others", "0.5"), "give a number above 1"),
        (("--for", "blok TOTAL"), "unknown level 'blok'; choose from state, county, tract, block"),
        (("--for", "block within 5"), "is not understood; write it like"),
        (("--for", "state TOTAL"), "is published exactly, so no budget changes it"),
    ],
)
def test_what_makes_no_sense_is_refused(plan, options, message):
    done = run("choose", plan, *options)
    assert done.status == 2
    assert message in " ".join(done.err.split())


def test_the_targets_of_the_plan_need_no_option(plan):
    own = plan.parent / "targets.toml"
    stated = 'targets = ["block TOTAL within 5", "county TOTAL"]'
    own.write_text(plan.read_text().replace("[budget]\n", f"[budget]\n{stated}\n"))
    done = run("choose", own, "--json")
    assert done.status == 0, done.err
    document = json.loads(done.out)
    assert document["budget"].pop("targets") == ["block TOTAL within 5", "county TOTAL"]
    assert document == json.loads(run("choose", plan, *FOR, "--json").out)
    for wrong, message in (
        ("nowhere TOTAL", "unknown level 'nowhere'"),
        ("block HEIGHT", "HEIGHT"),
    ):
        own.write_text(plan.read_text().replace("[budget]\n", f'[budget]\ntargets = ["{wrong}"]\n'))
        refused = run("choose", own)
        assert refused.status == 2
        assert "budget.targets: " in refused.err
        assert message in " ".join(refused.err.split())


def test_without_a_plan_it_says_what_is_missing():
    done = run("choose", "--for", "block TOTAL")
    assert done.status == 2
    assert "--for needs a plan" in done.err


def test_a_table_that_today_is_unknown(plan, tmp_path):
    """JSON has no infinity, and a margin that is infinite today is a word."""
    less = plan.parent / "less.toml"
    text = plan.read_text().replace('"AGE*HISPANIC*RACE" = "1/2"', '"AGE*HISPANIC" = "1/2"')
    text = text.replace('"AGE*HISPANIC*RACE" = "3/4"', '"AGE*HISPANIC" = "3/4"')
    less.write_text(text.replace('tables = ["AGE*MINORITY", "RACE"]', 'tables = ["AGE*MINORITY"]'))
    options = ("--for", "tract RACE", "--for", "block TOTAL", "--propose")
    refused = run("choose", less, *options[:-1])
    assert refused.status == 2
    assert "does not measure enough to determine it; add RACE" in " ".join(refused.err.split())
    done = run("choose", less, *options, "--json")
    assert done.status == 0, done.err
    document = json.loads(done.out, parse_constant=pytest.fail)
    assert document["before"] is document["targets"][0]["margin_before"] is None
    shown = run("choose", less, *options).out
    assert "unknown" in shown
    assert "inf" not in shown.split("Put these lines")[0].replace("informs", "")


def test_a_split_above_the_limit_is_printed_and_ends_with_status_1(plan):
    """Who knows everyone else in the state reads the answer in its exact total: no split helps."""
    certain = plan.parent / "certain.toml"
    text = plan.read_text()
    assert 'knows = "block"' in text
    certain.write_text(text.replace('knows = "block"', 'knows = "state"'))
    done = run("choose", certain, *FOR)
    assert done.status == 1, done.err
    assert "the weighted mean squared error falls to" in done.out
    assert "Above the plan's limit of 4 times the prior" in done.out
