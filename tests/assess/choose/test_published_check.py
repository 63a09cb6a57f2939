"""Published errors next to forecasts: alike where counts are large, and said to differ elsewhere."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from tests.conftest import TINY_PLAN, run, write_people

from countveil import Plan, Release, Secure, Seeded, pipeline
from countveil.assess.choose.optimal_split import best_split
from countveil.assess.choose.published_check import SimulatedPeople, check_forecasts
from countveil.errors import InputError
from countveil.plan.accuracy_target import Target

TEXT = TINY_PLAN + '[postprocess]\nmethod = "top-down"\n'
TARGETS = [Target("AGE*SEX", "area"), Target("TOTAL", "region")]


@pytest.fixture
def plan(tiny):
    tiny.write_text(TEXT)
    return Plan.load(tiny)


def checked(plan, population, releases=60):
    best = best_split(plan, TARGETS)
    return check_forecasts(plan, best, TARGETS, population, rng=Seeded(1), releases=releases)


def test_large_counts_are_as_far_off_as_forecast(plan):
    """60 releases of 5 areas of 6 cells: 1,800 errors, of which 2 % is one standard error."""
    wide = plan.with_budget(Fraction(1, 50))  # next to which rounding is small
    check = checked(wide, SimulatedPeople.even(plan, 60_000))
    for row in check.table.to_pylist():
        tolerance = 0.08 if row["query"] == "AGE*SEX" else 0.25  # two regions
        for when in ("before", "after"):
            assert row[f"published_{when}"] == pytest.approx(row[f"forecast_{when}"], rel=tolerance)
    assert check.releases == 60
    assert check.people == pytest.approx(5 * 60_000, rel=0.01)


def test_sparse_tables_are_better_than_forecast_and_it_is_said(plan):
    check = checked(plan, SimulatedPeople.even(plan, 1))
    detail = check.table.to_pylist()[0]
    assert detail["published_after"] < 0.8 * detail["forecast_after"]
    assert any("Better than forecast when published: area AGE*SEX" in s for s in check.sentences)


def test_people_are_those_that_a_release_estimated(plan, tiny):
    write_people(tiny.parent / "people.csv")
    pipeline.release(plan, to=tiny.parent / "out", rng=Secure())
    release = Release.read(tiny.parent / "out")
    population = SimulatedPeople.of_release(release, plan)
    full = plan.schema.every_cell
    assert population.people.tolist() == release.estimates.counts("area", full).tolist()
    other = plan.with_document(
        {**plan.document, "attributes": {"AGE": ["young", "old"], "SEX": ["f", "m", "y"]}}
    )
    with pytest.raises(InputError, match="its levels or attributes differ from those of"):
        SimulatedPeople.of_release(release, other)


def test_a_seeded_release_is_confidential(plan, tiny):
    write_people(tiny.parent / "people.csv")
    pipeline.release(plan, to=tiny.parent / "out", rng=Seeded(1))
    with pytest.raises(InputError, match="was drawn from a seed"):
        SimulatedPeople.of_release(Release.read(tiny.parent / "out"), plan)


def test_even_people_are_nowhere_that_no_one_can_be(tiny):
    zeros = '[[structural_zeros]]\ncells = { AGE = ["young"], SEX = ["x"] }\nreason = "no one"\n'
    tiny.write_text(TEXT + zeros)
    plan = Plan.load(tiny)
    people = SimulatedPeople.even(plan, 500).people
    assert (people[:, ~plan.possible] == 0).all()
    assert people.sum(axis=1) == pytest.approx(np.full(5, 500), rel=0.3)


def test_what_cannot_be_simulated_is_refused(plan):
    with pytest.raises(InputError, match="0 people per place is not possible"):
        SimulatedPeople.even(plan, 0)
    bare = replace(plan, method="none")
    with pytest.raises(InputError, match="method 'none' publishes no tables"):
        checked(bare, SimulatedPeople.even(plan, 5))


def test_on_the_command_line(plan, tiny):
    asked = ("choose", tiny, "--for", "area AGE*SEX", "--population")
    shown = run(*asked, "30")
    assert shown.status == 0, shown.err
    said = " ".join(shown.out.split())
    assert "30 people per area, spread evenly over the cells" in said
    document = json.loads(run(*asked, "30", "--json").out)["published"]
    assert document["releases"] == 20
    assert document["targets"][0]["published_after"] > 0
    refused = run(*asked, "nowhere")
    assert refused.status == 2
    assert "is no folder and no number" in refused.err
