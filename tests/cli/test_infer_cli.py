"""`countveil infer` as a stranger uses it: models, files, bad input."""

import json

import numpy as np
import pandas as pd
import pytest
from tests.conftest import run

from countveil import congenial, open_release, pipeline
from countveil.base.randomness import Seeded
from countveil.plan.plans import Plan

PLAN = """
[release]
title = "Cases"
unit = "person"
neighbors = "change-one"
[records]
path = "cases.csv"
counts = "n"
one_row_per_person = true
[geography]
path = "counties.csv"
levels = ["state", "county"]
[attributes]
OUTCOME = ["alive", "died"]
[budget]
epsilon = "2"
[[invariants]]
level = "state"
query = "TOTAL"
reason = "published"
[postprocess]
method = "congenial"
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "counties.csv").write_text("state,county\nS,A\nS,B\nS,C\n")
    (tmp_path / "cases.csv").write_text(
        "county,OUTCOME,n\nA,alive,9\nA,died,1\nB,alive,4\nC,alive,1\n"
    )
    (tmp_path / "population.csv").write_text("county,exposure\nB,400\nA,900\nC,50\n")
    (tmp_path / "plan.toml").write_text(PLAN)
    pipeline.release(Plan.load(tmp_path / "plan.toml"), to=tmp_path / "out", rng=Seeded(3))
    return tmp_path


def _both(folder):
    (folder / "plan.toml").write_text(PLAN + '[congenial]\npart = { OUTCOME = ["died"] }\n')
    pipeline.release(Plan.load(folder / "plan.toml"), to=folder / "both", rng=Seeded(3))


def test_rates_are_those_of_the_library(folder):
    given = ("--method", "exact", "--shape", "2", "--rate", "100", "--above", "0.01", "--json")
    ran = run("infer", folder / "out", "--exposure", folder / "population.csv", *given)
    assert ran.status == 0, ran.err
    document = ran.document()
    release = open_release(folder / "out")
    found = congenial.posterior(
        model=congenial.GammaPoisson(2, 100, [900, 400, 50]),
        released=release.counts,
        mechanism=release.mechanism,
    )
    rows = document["places"]
    assert [row["geocode"] for row in rows] == ["A", "B", "C"]
    assert [row["mean"] for row in rows] == pytest.approx(found.mean)
    assert [row["lower"] for row in rows] == pytest.approx(found.interval(0.9)[:, 0])
    assert [row["above"] for row in rows] == pytest.approx(found.above(0.01))
    assert [row["released"] for row in rows] == release.counts.tolist()


def test_augmented_is_the_default_and_says_how_chains_agree(folder):
    ran = run("infer", folder / "out", "--draws", "300", "--quiet")
    assert ran.status == 0, ran.err
    assert "R-hat" in ran.out
    assert "90% from" in ran.out


@pytest.mark.parametrize("model", ["gamma-poisson", "shares", "small-areas", "beta-binomial"])
def test_every_model_of_one_count_fits_and_writes_files(folder, model):
    for name in ("rates.csv", "rates.parquet"):
        ran = run(
            *("infer", folder / "out", "--model", model, "--method", "exact", "--quiet"),
            *("--exposure", folder / "population.csv", "--to", folder / name),
        )
        assert ran.status == 0, ran.err
    from_csv = pd.read_csv(folder / "rates.csv")
    from_parquet = pd.read_parquet(folder / "rates.parquet")
    assert np.allclose(from_csv["mean"], from_parquet["mean"])
    assert (from_csv["lower"] < from_csv["mean"]).all()
    assert (from_csv["mean"] < from_csv["upper"]).all()


@pytest.mark.parametrize("model", ["gamma-poisson", "shares", "death-rates"])
def test_models_of_cases_and_deaths(folder, model):
    _both(folder)
    ran = run(
        *("infer", folder / "both", "--model", model, "--method", "exact", "--b", "9"),
        *("--quiet", "--json"),
    )
    assert ran.status == 0, ran.err
    assert set(ran.document()["places"][0]) >= {"released", "released_part", "mean", "upper"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--model", "magic"), "model: unknown model 'magic'"),
        (("--method", "magic"), "method: unknown method 'magic'"),
        (("--model", "beta-binomial"), "needs the number of people in each place"),
        (("--model", "death-rates"), "needs a release with a part"),
        (("--exposure", "missing.csv"), "missing.csv: "),
        (("--to", "rates.xlsx"), ".csv or .parquet"),
        (("--confidence", "2"), "confidence: 2.0 is not allowed"),
        (("--shape", "-1"), "shape"),
    ],
)
def test_bad_input_is_refused(folder, options, message):
    ran = run("infer", folder / "out", *options, "--quiet", cwd=folder)
    assert ran.status == 2, ran.err
    assert message in ran.err
    assert not (folder / "rates.xlsx").exists()


def test_small_areas_are_for_one_count(folder):
    _both(folder)
    ran = run("infer", folder / "both", "--model", "small-areas", "--quiet")
    assert ran.status == 2
    assert "this release has two" in ran.err


def test_a_release_of_measurements_is_refused(folder):
    text = PLAN.replace('epsilon = "2"', 'epsilon = "2"\nlevels = { state = "0", county = "1" }\n')
    text = text.replace('method = "congenial"', 'method = "none"')
    text = text.replace("[[invariants]]", '[budget.queries.county]\nTOTAL = "1"\n[[invariants]]')
    (folder / "plan.toml").write_text(text)
    pipeline.release(Plan.load(folder / "plan.toml"), to=folder / "dp", rng=Seeded(3))
    ran = run("infer", folder / "dp", "--quiet")
    assert ran.status == 2
    assert "is a release of counts, not of one table" in ran.err


def test_a_missing_denominator_is_named(folder):
    (folder / "population.csv").write_text("county,exposure\nA,900\n")
    ran = run("infer", folder / "out", "--exposure", folder / "population.csv", "--quiet")
    assert ran.status == 2
    assert "exposure is missing for 2 of 3 units of county, such as 'B'" in ran.err


def test_json_errors_are_json(folder):
    ran = run("infer", folder / "out", "--model", "magic", "--json")
    assert json.loads(ran.err)["exit"] == 2


@pytest.mark.parametrize("values", [(0, 0, 0), (1e308, 1e308, 50)])
def test_denominators_that_no_rate_can_have_are_refused(folder, values):
    lines = [f"{code},{value}\n" for code, value in zip("BAC", values, strict=True)]
    (folder / "population.csv").write_text("county,exposure\n" + "".join(lines))
    ran = run("infer", folder / "out", "--exposure", folder / "population.csv", "--quiet")
    assert ran.status == 2
    assert "population.csv: " in ran.err
    assert "more than 0" in ran.err
