"""The risk of published tables: printed truths, all noise enumerated, and what it may not do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.published import PLANS, all_releases, enumerated, probability_of
from scipy.stats import poisson
from tests.conftest import TINY_PLAN
from tests.laws.test_one_verdict import PLANS as RANDOM_PLANS
from tests.laws.test_one_verdict import random_plan

from countveil import Plan, Seeded, assess, measure, open_engine
from countveil.assess import Intruder, attacks, hierarchy
from countveil.assess.intruder.ladder import risk_by_level
from countveil.assess.intruder.several_levels.hierarchy_level import Level, SiblingsPoisson
from countveil.assess.published import many_releases
from countveil.assess.published.many_releases import Place, SimulatedReleases
from countveil.assess.published.tables_risk import risk_of
from countveil.assess.published.two_databases import TwoDatabases
from countveil.assess.published.unknown_siblings import log_ratio
from countveil.errors import InputError
from countveil.postprocess.topdown import top_down
from countveil.report.sections.published_section import Person, own_intruder

TRUTHS = {
    item["id"]: item
    for item in json.loads(
        (Path(__file__).parents[2] / "golden" / "published_risk.json").read_text()
    )
}
TINY = {item.name: item for item in PLANS}
TWO_UNITS = TINY["two units"]


@pytest.mark.parametrize(
    ("name", "draws"),
    [
        ("published.rho2.c1.p.3", 20_000),
        ("published.rho2.c1.p.02", 20_000),
        ("published.rho.4.c1.p.02", 6_000),
    ],
)
def test_the_truth_is_inside(name, draws, tmp_path):
    """Enumerated for information = "level": each level is estimated from its own measurements."""
    truth = TRUTHS[name]
    tiny = replace(TWO_UNITS, rho=truth["rho"], postprocess='information = "level"')
    found = assess.published_risk(
        tiny.plan(tmp_path),
        counts=np.array(truth["counts"]),
        unit=0,
        cell=truth["cell"],
        prior=truth["prior"],
        siblings="known",
        draws=draws,
        rng=Seeded(1),
    )
    assert found.upper == pytest.approx(truth["measurements_R_all_known"], abs=0.005)
    assert 0.85 * truth["exact_R"] < found.lower < truth["exact_R"] + truth["tol"] < found.upper
    assert found.retained == (found.lower - 1) / (found.upper - 1) < 1


@pytest.mark.parametrize("name", ["published.tree.rho2.c1.p.3", "published.tree.rho2.c1.p.02"])
def test_the_truth_through_the_whole_tree_is_inside(name, tmp_path):
    """Enumerated through the default post-processing, which uses the whole tree."""
    truth = TRUTHS[name]
    plan = replace(TWO_UNITS, rho=truth["rho"], postprocess="").plan(tmp_path)
    assert plan.information == "tree"
    found = assess.published_risk(
        plan,
        counts=np.array(truth["counts"]),
        unit=0,
        cell=truth["cell"],
        prior=truth["prior"],
        siblings="known",
        draws=8_000,
        rng=Seeded(1),
    )
    assert 0.85 * truth["exact_R"] < found.lower < truth["exact_R"] + truth["tol"] < found.upper


@pytest.mark.parametrize(
    "name", ["one unit, cut off at 0", "one unit, a pair", "one unit, total and cells"]
)
def test_all_noise_through_the_solver_gives_a_risk_inside(name, tmp_path):
    tiny = TINY[name]
    plan, counts = tiny.plan(tmp_path), np.array(tiny.counts)
    exact = enumerated(TwoDatabases.of(plan, counts=counts, unit=0, cell=0), tiny.prior)
    found = assess.published_risk(
        plan, counts=counts, unit=0, cell=0, prior=tiny.prior, draws=4_000, rng=Seeded(2)
    )
    assert exact.left_out < 1e-6
    assert 0.95 * exact.risk < found.lower < exact.risk < found.upper


def test_the_lower_end_is_one_where_tables_are_all_alike(tmp_path):
    """A cell of many people with little noise elsewhere: nothing about one person is left."""
    plan = replace(TINY["one unit, a pair"], rho="1/100000").plan(tmp_path)
    found = assess.published_risk(
        plan, counts=np.array([[5, 0]]), unit=0, cell=0, prior=0.2, draws=1_000, rng=Seeded(1)
    )
    assert found.lower == pytest.approx(1.0, abs=1e-4)
    assert found.lower <= found.upper == pytest.approx(1.0, abs=1e-4)
    assert 0 <= found.retained <= 1


def test_what_is_published_exactly_reveals_the_target(tmp_path):
    tiny = TINY["state total published"]
    found = assess.published_risk(
        tiny.plan(tmp_path),
        counts=np.array(tiny.counts),
        unit=0,
        cell=0,
        prior=0.1,
        draws=1_000,
        rng=Seeded(1),
    )
    assert found.upper == 10
    assert 9 < found.lower <= 10


def test_a_plan_without_postprocessing_publishes_its_measurements(tmp_path):
    plan = replace(TWO_UNITS.plan(tmp_path), method="none")
    given = {"counts": np.array([[1, 0], [0, 2]]), "unit": 0, "cell": 0, "prior": 0.3}
    found = assess.published_risk(plan, **given, rng=Seeded(1))
    assert found.lower == found.upper
    assert found.retained == 1
    with pytest.raises(InputError, match="method 'none' publishes no tables"):
        assess.published_risk(plan, **given, siblings="prior", rng=Seeded(1))


def test_another_cell_is_the_attack_on_an_attribute(tmp_path):
    plan = TINY["one unit, a pair"].plan(tmp_path)
    found = assess.published_risk(
        plan,
        counts=np.array([[1, 1]]),
        unit=0,
        cell=0,
        other=1,
        prior=0.3,
        draws=1_000,
        rng=Seeded(1),
    )
    measured = attacks.marginal_risk(
        plan, attack="unknown attribute", attribute="A", prior=0.3, level="block"
    )
    assert found.upper == pytest.approx(measured.value, rel=1e-12)
    assert 1.1 < found.lower < found.upper


# Other units: known, or drawn from a prior.


def test_means_that_are_certain_are_knowledge(tmp_path):
    """Siblings whose mean is 0 are known to be empty, so both intruders are the same."""
    plan = TWO_UNITS.plan(tmp_path)
    given = {"counts": np.array([[1, 0], [0, 0]]), "unit": 0, "cell": 0, "prior": 0.3}
    ends = {}
    for siblings in ("known", "prior"):
        found = assess.published_risk(plan, **given, siblings=siblings, draws=2_000, rng=Seeded(1))
        ends[siblings] = found
    assert ends["prior"].upper == pytest.approx(ends["known"].upper, rel=0.05)
    assert ends["prior"].upper <= ends["known"].upper
    assert ends["prior"].lower <= ends["known"].lower


def test_less_knowledge_lowers_both_ends(tmp_path):
    plan = TWO_UNITS.plan(tmp_path)
    given = {"counts": np.array([[1, 0], [2.5, 1.5]]), "unit": 0, "cell": 0, "prior": 0.1}
    unsure = assess.published_risk(plan, **given, siblings="prior", draws=2_000, rng=Seeded(1))
    known = assess.published_risk(
        plan, **{**given, "counts": np.array([[1, 0], [2, 2]])}, draws=2_000, rng=Seeded(1)
    )
    assert 1 < unsure.lower < known.lower
    assert unsure.lower < unsure.upper < known.upper


def test_enumerated_siblings_and_noise_give_a_risk_inside(tmp_path):
    """One cell, two units, and every likely number of people in the other unit."""
    plan = replace(TWO_UNITS, rho="4", categories='"x"').plan(tmp_path)
    mean, prior, tables = 0.7, 0.1, {}
    for people in range(9):
        two = TwoDatabases.of(plan, counts=np.array([[1], [people]]), unit=0, cell=0)
        releases = all_releases(two)
        published = releases.published(two.places, rng=Seeded(1))
        law = [poisson.pmf(people, mean) * probability_of(two, releases, x) for x in (True, False)]
        for row, *weights in zip(map(tuple, published.tolist()), *law, strict=True):
            tables[row] = tables.get(row, 0) + np.array(weights)
    p, q = np.array(list(tables.values())).T
    exact = (p * p / (prior * p + (1 - prior) * q)).sum()
    assert p.sum() == pytest.approx(1, abs=1e-5)
    found = assess.published_risk(
        plan,
        counts=np.array([[1], [mean]]),
        unit=0,
        cell=0,
        prior=prior,
        siblings="prior",
        draws=10_000,
        rng=Seeded(1),
    )
    assert 0.9 * exact < found.lower < exact < found.upper


def test_unknown_siblings_are_summed_like_the_exact_intruder(tmp_path):
    plan = replace(TWO_UNITS, rho="1").plan(tmp_path)
    two = TwoDatabases.of(
        plan, counts=np.array([[2, 0], [1.3, 0.4]]), unit=0, cell=0, siblings="prior"
    )
    people = np.array([[[2, 0], [1, 0]], [[2, 0], [0, 2]], [[2, 0], [4, 1]]])
    releases = SimulatedReleases.draw(plan, two.geography, people, rng=Seeded(3))
    noise = {level: plan.at(level)[0].mechanism for level in plan.levels}
    levels = [Level(noise["block"], 1, prior=SiblingsPoisson(1.3)), Level(noise["state"])]
    for number, odds in enumerate(log_ratio(two, people, releases)):
        block = releases.values["block"][number, :, 0]
        state = int(releases.values["state"][number, 0, 0])
        exact = hierarchy.posterior(
            levels,
            observed=[int(block[0]), state],
            sibling_sums=[int(block[1])],
            intruder=Intruder(prior=0.5, known=1),
        )
        assert 1 / (1 + np.exp(-odds)) == pytest.approx(exact.value, rel=1e-9)


# The simulation is the real post-processing.


def test_units_under_other_tops_are_left_out(tiny):
    plan = Plan.load(tiny)
    counts = np.arange(30).reshape(5, 6)
    two = TwoDatabases.of(plan, counts=counts, unit=3, cell=2)
    assert two.counts.tolist() == counts[2:].tolist()
    assert two.unit == 1
    assert [codes.to_pylist() for codes in two.geography.codes] == [["R2"], ["A3", "A4", "A5"]]
    assert two.geography.parents[1].tolist() == [0, 0, 0]
    assert two.path == {"region": 0, "area": 1}


def test_releases_side_by_side_are_what_top_down_makes(tiny):
    more = '[postprocess]\nmethod = "top-down"\n'
    more += '[[invariants]]\nlevel = "region"\nquery = "TOTAL"\nreason = "law"\n'
    tiny.write_text(TINY_PLAN + more)
    plan = Plan.load(tiny)
    counts = open_engine("local").tabulate(plan)
    measured = measure.take(counts, plan, rng=Seeded(4), ledger=None, to=tiny.parent / "out")
    estimates, geography = top_down(measured, plan), plan.geography()
    values = {
        level: np.repeat(measured.units(level, 0, geography.units(level))[None].astype(int), 3, 0)
        for level in plan.measured_levels
    }
    lowest, full = plan.levels[-1], plan.schema.every_cell
    values[lowest][1, 0, -1] += 9  # another release, between two equal ones
    exact = {
        (item.level, item.query.name): np.repeat(
            measured.invariant(item.level, item.query.name)[None], 3, 0
        )
        for item in plan.invariants
    }
    releases = SimulatedReleases(plan, geography, values, exact)
    places = [
        Place(level, unit, full, cell)
        for level in plan.levels
        for unit in range(geography.units(level))
        for cell in range(full.cells)
    ]
    published = releases.published(places, rng=Seeded(1))
    made = [estimates.counts(item.level, full)[item.unit, item.cell] for item in places]
    assert published[0].tolist() == published[2].tolist() == made
    assert published[1].tolist() != made


THREE_LEVELS = (
    TINY_PLAN.replace('["region", "area"]', '["region", "area", "block"]')
    .replace('region = "1/2"', 'region = "1/4"')
    .replace('area = "1/2"', 'area = "1/4"\nblock = "1/2"')
    + '[postprocess]\nmethod = "top-down"\n'
)
THREE_PLACES = "region,area,block\n" + "".join(
    f"R{block // 6},A{block // 2},B{block}\n" for block in range(12)
)


@pytest.mark.parametrize(
    "more",
    [
        "",
        'information = "level"\n',
        '[[invariants]]\nlevel = "region"\nquery = "TOTAL"\nreason = "law"\n',
        '[[invariants]]\nlevel = "area"\nquery = "TOTAL"\nreason = "law"\n',
    ],
)
def test_what_is_asked_of_some_units_is_what_it_is_among_all(more, tmp_path, monkeypatch):
    """Families that no one asks about are left out, unless public facts may tie them to others."""
    from countveil.postprocess import topdown

    (tmp_path / "places.csv").write_text(THREE_PLACES)
    plan = Plan.parse(THREE_LEVELS + more, folder=tmp_path)
    geography, full = plan.geography(), plan.schema.every_cell
    counts = np.random.default_rng(1).poisson(0.6, (12, 6))
    many = np.broadcast_to(counts, (4, 12, 6))
    releases = SimulatedReleases.draw(plan, geography, many, rng=Seeded(2))
    families, real = [], topdown.solve

    def solve(family, *given, **named):
        families.append(family.name)
        return real(family, *given, **named)

    monkeypatch.setattr(topdown, "solve", solve)
    everything = [
        Place(level, unit, full, cell)
        for level in plan.levels
        for unit in range(geography.units(level))
        for cell in range(full.cells)
    ]
    published = releases.published(everything, rng=Seeded(1))
    assert len(families) == 4 * (2 + 2 + 6)
    for level, unit, solved in (("block", 7, 3), ("area", 5, 2), ("region", 0, 1)):
        families.clear()
        which = [n for n, item in enumerate(everything) if item[:2] == (level, unit)]
        some = releases.published([everything[n] for n in which], rng=Seeded(1))
        assert some.tolist() == published[:, which].tolist()
        alone = 'level = "area"' not in more
        assert len(families) == 4 * (solved if alone else 2 + 2 + 6)
    families.clear()
    areas = releases.tables("area", [full, plan.schema.query("SEX")], rng=Seeded(1))
    which = [n for n, item in enumerate(everything) if item.level == "area"]
    assert areas[:, :, :6].reshape(4, -1).tolist() == published[:, which].tolist()
    several = releases.several_tables([("block", full), ("area", full)], rng=Seeded(1))
    assert several[1].tolist() == areas[:, :, :6].tolist()
    first = [n for n, item in enumerate(everything) if item.level == "block"]
    assert several[0].reshape(4, -1).tolist() == published[:, first].tolist()
    families.clear()
    releases.tables("area", [full, plan.schema.query("SEX")], rng=Seeded(1))
    assert (areas[:, :, 6:] == areas[:, :, :6].reshape(4, 6, 2, 3).sum(axis=2)).all()
    assert len(families) == 4 * (2 + 2 if alone else 2 + 2 + 6)


@pytest.mark.parametrize("at_once", [1, 1_000_000])
def test_random_rounding_differs_between_releases(at_once, tmp_path, monkeypatch):
    """Rounded with bits of its own, however many releases are estimated together."""
    monkeypatch.setattr(many_releases, "_VALUES", at_once)
    unbiased = '[postprocess.levels.block]\nrounding = "unbiased"'
    plan = replace(TWO_UNITS, postprocess=unbiased).plan(tmp_path)
    values = {"state": np.array([[[3, 4]]]), "block": np.array([[[2, 1], [2, 4]]])}
    same = {level: np.repeat(value, 12, 0) for level, value in values.items()}
    releases = SimulatedReleases(plan, plan.geography(), same, {})
    places = [Place("block", 0, plan.schema.every_cell, 1)]
    rng = Seeded(1)
    rows = [releases.published(places, rng=rng)[:, 0] for _ in range(2)]
    assert {len(set(row.tolist())) for row in rows} == {2}
    assert rows[0].tolist() != rows[1].tolist()  # nor again in the next part of a simulation


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"counts": np.ones((2, 3), int)}, r"counts: shape \(2, 3\) is not allowed"),
        ({"counts": -np.ones((2, 2), int)}, "with no negative count"),
        ({"counts": np.ones((3, 2), int)}, "3 rows, but the crosswalk has 2 units of block"),
        ({"counts": np.ones((2, 2)) / 2}, "people whom the intruder knows must be whole numbers"),
        ({"counts": np.zeros((2, 2), int)}, "the target is not counted: cell 0 of unit 0 has 0"),
        ({"unit": 2}, "unit: 2 is not allowed; choose from 0 to 1"),
        ({"cell": -1}, "cell: -1 is not allowed"),
        ({"other": 0}, "choose two different cells"),
        ({"siblings": "unknown"}, "siblings: 'unknown' is not allowed"),
        ({"draws": 5}, "draws: 5 is not allowed; use at least 400"),
        ({"prior": 1.5}, "prior: 1.5 is not allowed"),
        ({"confidence": 1.0}, "confidence: 1.0 is not allowed"),
    ],
)
def test_bad_input_is_named_before_releases_are_simulated(change, message, tmp_path, monkeypatch):
    monkeypatch.setattr(many_releases, "descend", None)
    given = {"counts": np.ones((2, 2), int), "unit": 0, "cell": 0, "prior": 0.2, "rng": Seeded(1)}
    with pytest.raises(InputError, match=message):
        assess.published_risk(TWO_UNITS.plan(tmp_path), **{**given, **change})


# The intruder of plans, who knows nothing about people in other units.


def test_knowing_nothing_is_the_limit_of_wide_priors(tmp_path):
    """Summed over all counts of a sibling with 2,000 people: next to nothing is known about it."""
    plan = replace(TWO_UNITS, rho="2/5").plan(tmp_path)
    counts = np.array([[1, 0], [0, 2]])
    given = {"plan": plan, "unit": 0, "cell": 0, "prior": 0.1, "draws": 400}
    flat = assess.published_risk(**given, counts=counts, siblings="flat", rng=Seeded(1))
    wide = TwoDatabases.of(
        plan, counts=np.array([[1.0, 0.0], [2_000.0, 2_000.0]]), unit=0, cell=0, siblings="prior"
    )
    there = wide._people(4_000, np.random.default_rng(1))
    first = np.arange(4_000) < 2_000
    releases = SimulatedReleases.draw(
        plan, wide.geography, wide.released(there, first), rng=Seeded(2)
    )
    odds = np.exp(log_ratio(wide, there, releases)[:2_000]) / 9
    after = odds / (1 + odds)
    error = after.std() / np.sqrt(len(after))
    assert abs(after.mean() - 0.1 * flat.upper) < 4 * error
    whole = assess.whole_release_risk(plan, prior=0.1, geography=wide.geography)
    assert flat.upper == pytest.approx(whole.value, rel=1e-12)
    assert flat.siblings == "flat"


def test_knowing_nothing_leaves_the_tables_of_the_unit(tmp_path):
    """The lower end is close to the risk of the unit's tables, from how often each is published."""
    plan = replace(TWO_UNITS, rho="2").plan(tmp_path)
    given = {"counts": np.array([[1, 0], [0, 2]]), "unit": 0, "cell": 0, "siblings": "flat"}
    flat = assess.published_risk(plan, **given, prior=0.3, draws=4_000, rng=Seeded(1))
    two = TwoDatabases.of(plan, **given)
    assert {place.level for place in two.places} == {plan.levels[-1]}
    drawn = two.simulate(16_000, rng=Seeded(2)).published
    _, kind = np.unique(drawn.reshape(-1, drawn.shape[2]), axis=0, return_inverse=True)
    there, away = (
        np.bincount(half, minlength=kind.max() + 1) for half in np.split(kind.ravel(), 2)
    )
    shares = there / there.sum()
    published = (shares**2 / np.maximum(0.3 * shares + 0.7 * away / away.sum(), 1e-300)).sum()
    assert 0.9 * published < flat.lower < 1.01 * published < 1.01 * flat.upper


def test_how_many_people_are_elsewhere_makes_no_difference(tmp_path):
    plan = replace(TWO_UNITS, rho="2").plan(tmp_path)
    given = {"unit": 0, "cell": 0, "siblings": "flat"}
    one = TwoDatabases.of(plan, counts=np.array([[1, 0], [0, 2]]), **given)
    other = replace(one, counts=one.counts + np.array([[0, 0], [5_000, 700]]))
    first, second = (two.simulate(1_000, rng=Seeded(3)) for two in (one, other))
    # The same noise: all that differs is which of two equal fractions is rounded up.
    apart = first.published - second.published
    assert abs(apart).max() == 1
    assert (apart != 0).mean() < 0.25
    assert first.loss == pytest.approx(second.loss)
    ends = [risk_of(one, drawn, prior=0.1).lower for drawn in (first, second)]
    assert ends[0] == pytest.approx(ends[1], rel=0.03)


@pytest.mark.parametrize("number", RANDOM_PLANS)
def test_the_upper_end_is_within_what_the_plan_states(number, tmp_path):
    """The same intruder of random plans, about any person in any place."""
    text, crosswalk = random_plan(number)
    (tmp_path / "places.csv").write_text(crosswalk)
    plan = Plan.parse(text, folder=tmp_path)
    places, prior = plan.places(), min(plan.intruder.priors)
    stated = max(
        item.marginal_risk
        for item in risk_by_level(
            plan, [prior], invariants=True, levels=(plan.judged_level,), decisions=False
        )
    )
    draw = np.random.default_rng(number)
    for _ in range(4):
        unit = int(draw.integers(places.units(plan.levels[-1])))
        cell = int(draw.choice(np.flatnonzero(plan.possible)))
        counts = np.zeros((places.units(plan.levels[-1]), plan.schema.cells), np.int64)
        counts[unit, cell] = plan.rows_per_person
        two = own_intruder(plan, counts, Person(unit, cell), places)
        upper = risk_of(two, None, prior=prior).upper
        assert upper <= stated * (1 + 1e-9)


def test_bounds_on_named_places_are_something_to_know(tmp_path):
    plan = replace(TWO_UNITS, rho="2").plan(tmp_path)
    constraint = SimpleNamespace()
    with pytest.raises(InputError, match="constraints: they bound counts of named places"):
        TwoDatabases.of(
            replace(plan, constraints=(constraint,)),
            counts=np.array([[1, 0], [0, 2]]),
            unit=0,
            cell=0,
            siblings="flat",
        )
