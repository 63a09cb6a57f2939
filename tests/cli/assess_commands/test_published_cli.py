"""`countveil assess published`: both ends in one sentence, in JSON, in the report; what is refused."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.conftest import TINY_PLAN, run
from tests.report.numbers_in_words import ends_of

from countveil import Plan, Release, Seeded, pipeline
from countveil.assess import published_homogeneity, published_loss, published_risk
from countveil.assess.published import many_releases, simulation_cost
from countveil.assess.published.many_releases import one_family
from countveil.report.report_page import public_report
from countveil.report.section_data import Subject
from countveil.report.sections import published_homogeneity_section, published_section

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
    ends = text.split("raise it ")[1].split(" times on average")[0].split(" to ")
    low, _ = ends_of(document["lower"], document["upper"])
    assert tuple(map(float, ends)) == (low, float(f"{document['upper']:.2g}"))
    assert (document["unit"], document["cell"]) == ("A2", ["old", "x"])


@pytest.mark.usefixtures("few_simulations")
def test_the_report_says_it_from_released_estimates(out, tiny):
    release = Release.read(out)
    report = public_report(release)
    assert "What the published tables reveal" in report
    assert "would, if it is true, raise it " in report
    assert "Groups that the published tables show with one value" in report
    people = tiny.parent / "people.csv"
    people.write_text(people.read_text().splitlines()[0] + "\n")
    assert public_report(Release.read(out)) == report  # whatever the records are


def test_the_report_of_a_larger_release_simulates_the_tree_of_its_target(tiny):
    """One of twenty regions with three areas each: the others cannot change what it publishes."""
    places = [f"R{n // 3},A{n}" for n in range(60)]
    (tiny.parent / "places.csv").write_text("\n".join(["region,area", *places]) + "\n")
    rows = [
        f"A{n},{age},f" for n in range(60) for age in ("young", "old") for _ in range(1 + n % 3)
    ]
    (tiny.parent / "people.csv").write_text("\n".join(["area,AGE,SEX", *rows]) + "\n")
    tiny.write_text(TINY_PLAN + '[postprocess]\nmethod = "top-down"\n')
    pipeline.release(Plan.load(tiny), to=tiny.parent / "out", rng=Seeded(2))
    release = Release.read(tiny.parent / "out")
    found = published_section.section(Subject(release.plan, release))
    assert found.figures["draws"] == 1_000
    assert found.audience == "public"
    counts = release.estimates.counts("area", release.plan.schema.every_cell)
    where = place_of(release, found.figures)
    first = where["unit"] // 3 * 3
    alone = published_risk(
        release.plan,
        counts=counts[first : first + 3],
        unit=where["unit"] - first,
        cell=where["cell"],
        prior=min(release.plan.intruder.priors),
        siblings="flat",
        draws=1_000,
        rng=Seeded(1),
        geography=one_family(release.plan, 3),
    )
    assert (found.figures["lower"], found.figures["upper"]) == (alone.lower, alone.upper)


@pytest.mark.usefixtures("few_simulations")
def test_the_report_leaves_out_what_takes_too_long(out, monkeypatch):
    release = Release.read(out)
    subject = Subject(release.plan, release)
    assert published_section.section(subject) is not None
    assert published_homogeneity_section.section(subject) is not None
    with monkeypatch.context() as slower:
        slower.setattr(simulation_cost, "_FAMILY", 1.0)
        slower.setattr(published_section, "brackets", None)
        slower.setattr(published_homogeneity_section, "published_attacks", None)
        assert published_section.section(subject) is None
        assert published_homogeneity_section.section(subject) is None
    monkeypatch.setattr(published_section, "_NUMBERS", 29)  # five areas of six cells have 30
    monkeypatch.setattr(published_section, "estimated_counts", None)
    assert published_section.section(subject) is None


def test_records_make_it_internal(out, tiny):
    words = ("assess", "published", out, "--internal", "--plan", tiny, *FAST, "--json")
    document = run(*words).document()
    assert document["audience"] == "internal"
    kept = json.loads((out.parent / "out-internal" / "published.json").read_text())
    assert kept["lower"] == document["lower"]
    assert "notice" in kept


def test_the_epsilon_has_both_ends_too(out):
    words = ("assess", "published", out, "--delta", "0.05", *FAST)
    document = run(*words, "--json").document()
    loss = document["epsilon"]
    release = Release.read(out)
    expected = published_loss(
        release.plan,
        counts=release.estimates.counts("area", release.plan.schema.every_cell),
        **place_of(release, document),
        delta=0.05,
        siblings="flat",
        draws=400,
        rng=Seeded(1),
        geography=release.geography,
    )
    assert loss == {
        "lower": expected.lower,
        "upper": expected.upper,
        "delta": 0.05,
        "confidence": 0.975,
        "draws": 400,
    }
    assert 0 <= loss["lower"] < loss["upper"]
    text = " ".join(run(*words).out.split())
    low, high = text.split("at a delta of 0.05, is between ")[1].split(", with")[0].split(" and ")
    assert (float(low), float(high)) == ends_of(loss["lower"], loss["upper"])
    default = run("assess", "published", out, *FAST, "--json").document()
    assert default["epsilon"]["delta"] == 0.001
    unsure = run("assess", "published", out, "--siblings", "prior", *FAST, "--json").document()
    assert "epsilon" not in unsure


def place_of(release, document):
    cells = release.plan.schema.every_cell
    (cell,) = [n for n in range(cells.cells) if list(cells.labels_of(n)) == document["cell"]]
    return {
        "unit": release.geography.geocodes("area").to_pylist().index(document["unit"]),
        "cell": cell,
    }


@pytest.mark.usefixtures("few_simulations")
def test_the_intruder_is_that_of_the_plan(tiny):
    """Level, belief about other places and prior come from [intruder]; the upper end is within it."""
    tiny.write_text(TINY_PLAN + '[postprocess]\nmethod = "top-down"\n')
    pipeline.release(Plan.load(tiny), to=tiny.parent / "out", rng=Seeded(2))
    document = run("assess", "published", tiny.parent / "out", *FAST, "--json").document()
    assert (document["knows"], document["siblings"]) == ("area", "flat")
    stated = Release.read(tiny.parent / "out").plan.risk(prior=document["prior"])
    assert document["upper"] <= stated.value
    text = " ".join(run("assess", "published", tiny.parent / "out", *FAST).out.split())
    assert "knows everyone else in the area but nothing about people elsewhere" in text
    assert stated.upper_bound
    assert f"is at most {stated.value:.2g} times the prior, about" in text
    for more, expected in (
        ("knows = 'region'", ("region", "flat", "known")),
        ("siblings = 2.5", ("area", "prior", "prior")),
    ):
        tiny.write_text(TINY_PLAN + f'[postprocess]\nmethod = "top-down"\n[intruder]\n{more}\n')
        folder = tiny.parent / expected[0] / expected[1]
        pipeline.release(Plan.load(tiny), to=folder, rng=Seeded(2))
        own = run("assess", "published", folder, *FAST, "--json").document()
        assert own["knows"] == expected[0]
        assert own["siblings"] in expected[1:]
    report = public_report(Release.read(tiny.parent / "out"))
    assert "knows everyone else in the area but nothing about people elsewhere" in report
    assert "To the same intruder, the epsilon of the published tables" in report


def test_an_epsilon_without_a_limit_is_said_and_is_valid_json(out, tiny):
    fact = '[[invariants]]\nlevel = "region"\nquery = "AGE*SEX"\nreason = "law"\n'
    queries = '[budget.queries.region]\nTOTAL = "1"\n'
    tiny.write_text(TINY_PLAN + queries + '[postprocess]\nmethod = "top-down"\n' + fact)
    pipeline.release(Plan.load(tiny), to=tiny.parent / "exact", rng=Seeded(2))
    exact = tiny.parent / "exact"
    words = ("assess", "published", exact, "--knows", "region", "--delta", "0.05", *FAST)
    ran = run(*words)
    assert "has no upper limit: counts that are published exactly give them away" in " ".join(
        ran.out.split()
    )
    assert json.loads(run(*words, "--json").out)["epsilon"]["upper"] is None


def test_a_plan_has_a_made_up_example(tiny):
    tiny.write_text(TINY_PLAN + '[postprocess]\nmethod = "top-down"\n')
    for name in ("places.csv", "people.csv"):
        (tiny.parent / name).unlink()  # neither is read
    words = ("assess", "published", tiny, "--prior", "0.1", *FAST)
    document = run(*words, "--json").document()
    plan = Plan.load(tiny)
    counts = np.array([[1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
    expected = published_risk(
        plan,
        counts=counts,
        unit=0,
        cell=0,
        prior=0.1,
        siblings="flat",
        draws=400,
        rng=Seeded(1),
        geography=one_family(plan, 2),
    )
    assert (document["lower"], document["upper"]) == (expected.lower, expected.upper)
    assert document["audience"] == "public"
    text = " ".join(run(*words).out.split())
    assert "a person is alone in one area, and there is one other area" in text
    assert (
        "gives a 10 % probability that the person is counted there would, if it is true, raise it"
        in text
    )
    for option in (("--unit", "A1"), ("--siblings", "prior"), ("--knows", "area")):
        ran = run("assess", "published", tiny, *option)
        assert (ran.status, "has no effect with a plan file" in ran.err) == (2, True)


def test_an_example_asks_which_kind_where_exact_totals_reveal_presence(tiny):
    fact = '[[invariants]]\nlevel = "area"\nquery = "TOTAL"\nreason = "law"\n'
    tiny.write_text(TINY_PLAN + '[postprocess]\nmethod = "top-down"\n' + fact)
    document = run("assess", "published", tiny, "--prior", "0.1", *FAST, "--json").document()
    assert "either AGE = young, SEX = f or AGE = old, SEX = x" in document["sentences"][1]
    assert 1 <= document["lower"] < document["upper"] < 10


def test_an_example_with_a_prior_on_others_asks_about_presence(tiny):
    """An exact count of both places does not reveal it to someone who is unsure of the other."""
    fact = '[[invariants]]\nlevel = "region"\nquery = "TOTAL"\nreason = "law"\n'
    who = "[intruder]\nsiblings = 1.5\n"
    tiny.write_text(TINY_PLAN + '[postprocess]\nmethod = "top-down"\n' + fact + who)
    document = run("assess", "published", tiny, "--prior", "0.1", *FAST, "--json").document()
    assert "expects 1.5 people in each cell of the other area" in document["sentences"][1]
    assert "probability that the person is counted there" in document["sentences"][1]
    assert 1 <= document["lower"] < document["upper"] < 10


# The homogeneity attack.


def test_groups_with_one_value_have_both_ends_from_estimates(out):
    words = ("assess", "published-homogeneity", out, "--sensitive", "SEX", "--identifiers", "AGE")
    words = (*words, "--draws", 200, "--quiet")
    document = run(*words, "--json").document()
    release = Release.read(out)
    expected = published_homogeneity(
        release.plan,
        counts=release.estimates.counts("area", release.plan.schema.every_cell),
        level="area",
        sensitive="SEX",
        identifiers=["AGE"],
        draws=200,
        rng=Seeded(1),
        geography=release.geography,
    )
    (attack,) = document["attacks"]
    assert (attack["lower"], attack["upper"]) == (expected.lower, expected.upper)
    assert attack["misled"] == expected.misled._asdict()
    assert attack["before"] == expected.before
    assert (document["audience"], document["level"]) == ("public", "area")
    text = " ".join(run(*words).out.split())
    assert "Someone who knows a person's area and AGE, and believes the SEX of that group" in text
    low, high = text.split("would be right about ")[1].split(" % of the people")[0].split(" % to ")
    assert expected.lower - 0.01 < float(low) / 100 <= expected.lower
    assert expected.upper <= float(high) / 100 < expected.upper + 0.01


def test_every_attribute_is_attacked_by_default(out):
    words = ("assess", "published-homogeneity", out, "--draws", 100, "--quiet", "--level", "region")
    document = run(*words, "--json").document()
    found = [(item["sensitive"], item["identifiers"]) for item in document["attacks"]]
    assert found == [("AGE", ["SEX"]), ("SEX", ["AGE"])]
    assert document["level"] == "region"
    worst = max(document["attacks"], key=lambda item: item["upper"])
    assert f"believes the {worst['sensitive']} of that group" in document["sentences"][0]


def test_groups_of_records_are_internal(out, tiny):
    words = ("assess", "published-homogeneity", out, "--internal", "--plan", tiny, "--draws", 100)
    document = run(*words, "--quiet", "--json").document()
    assert document["audience"] == "internal"
    assert "as if the records were the truth" in document["sentences"][1]
    kept = json.loads((out.parent / "out-internal" / "published-homogeneity.json").read_text())
    assert kept["attacks"] == document["attacks"]
    assert "notice" in kept
    assert len(pq.read_table(out.parent / "out-internal" / "published-homogeneity.parquet")) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--sensitive", "INCOME"), "no attribute or recode 'INCOME'; choose from AGE, SEX"),
        (("--identifiers", "AGE"), "--sensitive: missing"),
        (("--level", "block"), "level: 'block' has no published tables; choose from region, area"),
        (("--draws", "5"), "draws: 5 is not allowed; use at least 50"),
        (("--plan", "plan.toml"), "--plan: has no effect without --internal"),
    ],
)
def test_bad_groups_are_named(out, words, message):
    ran = run("assess", "published-homogeneity", out, *words)
    assert ran.status == 2
    assert message in " ".join(ran.err.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--unit", "A9"), "--unit: unknown geocode 'A9' of area"),
        (("--cell", "AGE"), "--cell: 'AGE' is not allowed"),
        (("--cell", "AGE=old"), "name a category of each of AGE, SEX"),
        (("--cell", "AGE=big,SEX=f"), "unknown category 'big' of AGE; choose from young, old"),
        (("--delta", "2"), "delta: 2.0 is not allowed"),
        (("--prior", "2"), "prior: 2.0 is not allowed"),
        (("--delta", "0.1", "--siblings", "prior"), "--delta: epsilon is not computed where other"),
        (("--siblings", "some"), "--siblings: 'some' is not allowed; choose flat, prior or known"),
        (("--knows", "town"), "knows: unknown level 'town'; choose from region, area"),
        (("--draws", "900000000"), "simulated releases would take about"),
        (("--draws", "5"), "draws: 5 is not allowed; use at least 400"),
        (("--plan", "plan.toml"), "--plan: has no effect without --internal"),
    ],
)
def test_bad_input_is_named_before_releases_are_simulated(out, monkeypatch, words, message):
    monkeypatch.setattr(many_releases, "descend", None)
    ran = run("assess", "published", out, *words)
    assert ran.status == 2
    assert message in " ".join(ran.err.split())
