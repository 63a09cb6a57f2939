"""`assess homogeneity` and `choose --homogeneity` as a stranger uses them."""

import json
from fractions import Fraction

import numpy as np
import pytest
from tests.conftest import run
from tests.laws.documented_code import documented_mechanism

from countveil import DiscreteLaplace, Laplace, Seeded, pipeline
from countveil.assess import homogeneity
from countveil.noise.mechanisms import MECHANISMS
from countveil.plan.plans import Plan
from countveil.publish import Release

KNOWN = ("--identifiers", "area", "--identifiers", "AGE", "--sensitive", "SEX")


@pytest.fixture
def table(tiny):
    people = tiny.parent / "people.csv"
    return people, homogeneity.Table.from_records(
        people, identifiers=["area", "AGE"], sensitive="SEX"
    )


def test_records_under_some_noise(table):
    people, counted = table
    given = (*KNOWN, "--epsilon", "1", "--epsilon", "5")
    ran = run("assess", "homogeneity", people, *given)
    assert ran.status == 0, ran.err
    words = " ".join(ran.out.split())
    assert "INTERNAL" in words
    assert "8 people in 6 of 8 cells of area, AGE" in words
    document = run("assess", "homogeneity", people, *given, "--json").document()
    assert document["audience"] == "internal"
    for row, epsilon in zip(document["risks"], (1, 5), strict=True):
        noise = Laplace(epsilon=epsilon)
        # Both laws are summed in one matrix product here: processors differ in its last bit.
        assert row["local"] == pytest.approx(
            homogeneity.local_risk(counted, mechanism=noise).value, rel=1e-14
        )
        assert row["marginal_weighted"] == pytest.approx(
            homogeneity.marginal_risk(counted, mechanism=noise, weighted=True).value
        )


@pytest.mark.parametrize(
    "words",
    [
        ("--mechanism", "geometric", "--epsilon", "1"),
        ("--mechanism", "discrete-laplace", "--epsilon", "1"),
        ("--mechanism", "gaussian", "--epsilon", "0.5", "--delta", "0.001"),
        ("--mechanism", "gaussian-pdp", "--epsilon", "2", "--delta", "0.001"),
        ("--mechanism", "discrete-gaussian", "--rho", "1/2", "--sizes", "negative-binomial"),
        ("--mechanism", "laplace", "--epsilon", "1", "--fit", "likelihood"),
    ],
)
def test_every_noise_can_be_named(table, words):
    ran = run("assess", "homogeneity", table[0], *KNOWN, *words, "--json")
    assert ran.status == 0, ran.err
    assert 0 < ran.document()["risks"][0]["local"] < 1


def test_a_mechanism_that_is_registered_can_be_named(table, monkeypatch):
    huber = documented_mechanism()
    monkeypatch.setitem(MECHANISMS, huber.name, huber)
    people, counted = table
    ran = run(
        *("assess", "homogeneity", people, *KNOWN),
        *("--mechanism", huber.name, "--epsilon", "1", "--json"),
    )
    assert ran.status == 0, ran.err
    (row,) = ran.document()["risks"]
    # Its epsilon is 4 / spread.
    assert row["local"] == homogeneity.local_risk(counted, mechanism=huber("4")).value
    # Its table is as long as its noise is wide: no epsilon of 1e-4 here.
    epsilons = np.geomspace(0.1, 100, 13)
    chosen = homogeneity.largest_epsilon(counted, risk=0.3, mechanism=huber, epsilons=epsilons)
    risk = homogeneity.local_risk(counted, mechanism=huber(4 / chosen)).value
    assert risk <= 0.3 < homogeneity.local_risk(counted, mechanism=huber(4 / chosen / 2)).value


def test_a_release_and_simulated_ones(tiny):
    tiny.write_text(tiny.read_text() + '\n[postprocess]\nmethod = "top-down"\n')
    out = tiny.parent / "out"
    pipeline.release(Plan.load(tiny), to=out, rng=Seeded(2))
    given = ("--internal", "--identifiers", "AGE", "--sensitive", "SEX")
    ran = run("assess", "homogeneity", out, *given)
    assert ran.status == 0, ran.err
    words = " ".join(ran.out.split())
    assert "Someone who knows a person's area and AGE" in words
    assert "The homogeneity attack on this release" in words
    several = (*given, "--releases", "3", "--quiet")
    words = " ".join(run("assess", "homogeneity", out, *several).out.split())
    assert "On average over 3 simulated releases, someone who knows a person's area" in words
    document = run("assess", "homogeneity", out, *several, "--json").document()
    assert document["releases"] == 3
    assert len(document["errors"]) == 4
    written = out.parent / "out-internal" / "homogeneity.json"
    assert written.stat().st_mode & 0o077 == 0
    assert json.loads(written.read_text())["audience"] == "internal"


def test_the_command_and_the_lens_word_the_same_attack_alike(tiny):
    """Of an attribute with all others known, both show one sentence, from one function."""
    tiny.write_text(tiny.read_text() + '\n[postprocess]\nmethod = "top-down"\n')
    out = tiny.parent / "out"
    pipeline.release(Plan.load(tiny), to=out, rng=Seeded(2))
    lens = run("assess", "realised-attack", out, "--internal", "--quiet", "--json").document()
    worst = max(lens["attacks"], key=lambda item: item["disclosed"])
    given = ("--internal", "--sensitive", worst["sensitive"])
    given += tuple(word for name in worst["identifiers"] for word in ("--identifiers", name))
    document = run("assess", "homogeneity", out, *given, "--json").document()
    assert document["sentences"] == lens["sentences"]
    assert {key: document[key] for key in worst} == worst
    text = " ".join(run("assess", "homogeneity", out, *given).out.split())
    for sentence in lens["sentences"]:
        assert sentence in text


def test_a_budget_chosen_from_records_says_so(table, tiny):
    people, counted = table
    ran = run("choose", "--homogeneity", "0.4", "--records", people, *KNOWN, "--json")
    assert ran.status == 0, ran.err
    document = ran.document()
    assert document["audience"] == "internal"
    epsilon = Fraction(document["epsilon"])
    risk = homogeneity.local_risk(counted, mechanism=DiscreteLaplace(epsilon=epsilon)).value
    assert risk <= 0.4
    assert (
        homogeneity.local_risk(
            counted, mechanism=DiscreteLaplace(epsilon=epsilon * 1001 / 1000)
        ).value
        > 0.4
    )
    text = run("choose", "--homogeneity", "0.4", "--records", people, *KNOWN).out
    assert 'chosen_from = "records"' in text
    budget = tiny.read_text().replace("[budget]\n", '[budget]\nchosen_from = "records"\n', 1)
    tiny.write_text(budget)
    plan = Plan.load(tiny)
    pipeline.release(plan, to=tiny.parent / "out", rng=Seeded(1))
    assert Release.read(tiny.parent / "out").manifest["budget_chosen_from"] == "records"
    assert "chosen by looking at the records" in " ".join(run("price", tiny).out.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--epsilon", "1"), "name the attribute that the intruder wants to learn"),
        (
            ("--sensitive", "SEX", "--identifiers", "AGE"),
            "epsilon: missing; laplace noise is scaled by it",
        ),
        (
            (*KNOWN, "--mechanism", "gaussian", "--epsilon", "1"),
            "delta: missing; gaussian noise needs it",
        ),
        ((*KNOWN, "--mechanism", "discrete-gaussian"), "is scaled by rho; add --rho"),
        (
            (*KNOWN, "--mechanism", "uniform", "--epsilon", "1"),
            "mechanism: unknown mechanism 'uniform'",
        ),
        (("--sensitive", "AGE", "--identifiers", "AGE", "--epsilon", "1"), "AGE"),
        (("--sensitive", "HEIGHT", "--identifiers", "AGE", "--epsilon", "1"), "HEIGHT"),
    ],
)
def test_bad_input_has_status_2(table, words, message):
    ran = run("assess", "homogeneity", table[0], *words)
    assert ran.status == 2, ran.out
    assert message in " ".join(ran.err.split())


def test_bad_choices_have_status_2(table):
    for words, message in (
        (("--homogeneity", "0.4"), "needs --records"),
        (
            ("--homogeneity", "0.4", "--risk", "2", "--records", table[0], *KNOWN),
            "--homogeneity and another limit were given; give exactly one",
        ),
        (
            ("--homogeneity", "1e-9", "--records", table[0], *KNOWN),
            "below the smallest that can be reached",
        ),
    ):
        ran = run("choose", *words)
        assert ran.status == 2
        assert message in " ".join(ran.err.split())
