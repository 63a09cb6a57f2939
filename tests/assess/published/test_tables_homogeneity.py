"""The homogeneity attack on published tables: both ends, against all noise enumerated."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.published import PLANS, all_releases, probability_of
from tests.conftest import TINY_PLAN

from countveil import Plan, Seeded, assess
from countveil.assess.published.many_releases import Place, SimulatedReleases
from countveil.assess.published.tables_homogeneity import Attack, published_attacks
from countveil.assess.published.two_databases import TwoDatabases
from countveil.errors import InputError

TINY = {item.name: item for item in PLANS}
TWO_UNITS = TINY["two units"]
PAIRS = """
release = { title = "Pairs", unit = "person", neighbors = "add-remove" }
geography = { levels = ["block"] }
[attributes]
AGE = ["young", "old"]
SEX = ["f", "m"]
[budget]
rho = "3"
levels = { block = "1" }
[budget.queries."*"]
"AGE*SEX" = "1"
[postprocess]
method = "top-down"
"""


def shares(exact, shown):
    """Return the shares of people told their own value and another, cell by cell; sensitive last."""
    right = wrong = 0
    for place, group in itertools.product(range(exact.shape[0]), range(exact.shape[1])):
        values = [value for value in range(exact.shape[2]) if shown[place, group, value] > 0]
        if len(values) == 1:
            right += exact[place, group, values[0]]
            wrong += exact[place, group].sum() - exact[place, group, values[0]]
    return np.array([right, wrong]) / exact.sum()


def enumerated(plan, counts, level, shape):
    """Send all noise through TopDown and sum the shares; `shape` is groups × values of a unit."""
    two = TwoDatabases.of(plan, counts=np.array(counts), unit=0, cell=0)
    releases, lowest = all_releases(two), plan.levels[-1]
    probability = probability_of(two, releases, True)
    units = two.geography.units(level)
    full = plan.schema.every_cell
    places = [Place(level, unit, full, c) for unit in range(units) for c in range(full.cells)]
    published = releases.published(places, rng=Seeded(1))
    people = np.zeros((units, full.cells), int)
    np.add.at(people, two.geography.ancestors(lowest, level), np.array(counts))
    total, known = np.zeros(2), {}
    for row, weight in zip(map(tuple, published.tolist()), probability, strict=True):
        known[row] = known.get(row, 0.0) + weight
    for row, weight in known.items():
        total += weight * shares(people.reshape(-1, *shape), np.reshape(row, (-1, *shape)))
    assert probability.sum() == pytest.approx(1, abs=1e-4)
    return total


def is_inside(found, exact, *, wide):
    (right, wrong) = exact
    assert found.lower - 1e-4 <= right <= found.upper + 1e-4
    assert found.misled.lower - 1e-4 <= wrong <= found.misled.upper + 1e-4
    assert found.upper - found.lower < wide
    assert found.misled.upper - found.misled.lower < wide


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("one unit, cut off at 0", "block"),
        ("one unit, three cells", "block"),
        ("one unit, total and cells", "block"),
        ("two units", "block"),
        ("two units", "state"),
        ("two units, own level", "block"),
        ("two units, change-one", "block"),
    ],
)
def test_the_enumerated_share_is_inside(name, level, tmp_path):
    tiny = TINY[name]
    plan = tiny.plan(tmp_path)
    exact = enumerated(plan, tiny.counts, level, (1, plan.schema.cells))
    found = assess.published_homogeneity(
        plan, counts=np.array(tiny.counts), level=level, sensitive="A", draws=3_000, rng=Seeded(1)
    )
    is_inside(found, exact, wide=0.08)
    assert (found.level, found.sensitive, found.identifiers) == (level, "A", ())
    assert (found.confidence, found.draws, found.audience) == (0.975, 3_000, "internal")


@pytest.mark.parametrize(
    ("sensitive", "identifiers", "counts", "before"),
    [
        ("SEX", ("AGE",), [2, 0, 1, 1], 2 / 4),
        ("AGE", ("SEX",), [2, 0, 1, 1], 1 / 4),
        ("SEX", (), [2, 0, 0, 0], 1.0),
    ],
)
def test_identifiers_are_what_cells_are_made_of(sensitive, identifiers, counts, before):
    plan = Plan.parse(PAIRS)
    assert isinstance(plan, Plan)
    # Enumerate with the sensitive attribute last: by hand for AGE, where SEX comes first.
    found = assess.published_homogeneity(
        plan,
        counts=np.array([counts]),
        level="block",
        sensitive=sensitive,
        identifiers=identifiers,
        draws=3_000,
        rng=Seeded(2),
    )
    assert found.before == before
    two = TwoDatabases.of(plan, counts=np.array([counts]), unit=0, cell=0)
    releases = all_releases(two)
    probability = probability_of(two, releases, True)
    full = plan.schema.every_cell
    published = releases.published(
        [Place("block", 0, full, cell) for cell in range(4)], rng=Seeded(1)
    )

    def cells(row):
        table = np.reshape(row, (2, 2))  # AGE × SEX
        if not identifiers:
            return table.sum(axis=0)[None, None]
        return (table if sensitive == "SEX" else table.T)[None]

    exact = sum(
        weight * shares(cells(counts), cells(row))
        for row, weight in zip(published, probability, strict=True)
    )
    is_inside(found, exact, wide=0.08)


def test_ends_hold_as_often_as_they_say(tmp_path):
    """Many brackets from few releases each: more than the stated share of them contain the truth."""
    tiny = TINY["one unit, cut off at 0"]
    plan, counts = tiny.plan(tmp_path), np.array(tiny.counts)
    exact, _ = enumerated(plan, tiny.counts, "block", (1, 2))
    missed = 0
    for seed in range(40):
        found = assess.published_homogeneity(
            plan,
            counts=counts,
            level="block",
            sensitive="A",
            draws=60,
            rng=Seeded(seed),
            confidence=0.8,
        )
        assert 0 <= found.lower <= found.upper <= 1
        missed += not found.lower <= exact <= found.upper
    assert missed <= 14  # 8 expected at most, with standard deviation 2.5


def test_with_hardly_any_noise_the_tables_reveal_what_exact_ones_do(tmp_path):
    plan = replace(TWO_UNITS, rho="400").plan(tmp_path)
    found = assess.published_homogeneity(
        plan,
        counts=np.array([[3, 0], [2, 2]]),
        level="block",
        sensitive="A",
        draws=400,
        rng=Seeded(1),
    )
    assert found.before == 3 / 7
    assert 3 / 7 - 0.02 < found.lower <= 3 / 7 <= found.upper < 3 / 7 + 0.02
    assert found.misled.lower == 0
    assert found.misled.upper < 0.02


def test_several_attacks_read_the_same_releases():
    plan = Plan.parse(PAIRS)
    attacks = [Attack("SEX", ("AGE",)), Attack("AGE", ("SEX",)), Attack("SEX")]
    given = {"counts": np.array([[2, 1, 0, 3]]), "level": "block", "draws": 200}
    together = published_attacks(plan, attacks, **given, rng=Seeded(4), audience="public")
    for attack, found in zip(attacks, together, strict=True):
        alone = assess.published_homogeneity(
            plan,
            **given,
            **attack._asdict(),
            rng=Seeded(4),
            confidence=1 - 0.025 / 3,
            audience="public",
        )
        assert replace(found, confidence=alone.confidence) == alone
        assert found.confidence == 0.975  # that all three hold
        assert found.audience == "public"
    assert len({item.before for item in together}) == 3


def test_releases_in_several_parts_are_all_counted(monkeypatch):
    """However few releases fit in memory at a time, each draw is a release of its own."""
    from countveil.assess.published import tables_homogeneity

    plan, sizes, steps = Plan.parse(PAIRS), [], []
    real = SimulatedReleases.draw

    def drawn(*given, **named):
        releases = real(*given, **named)
        sizes.append(releases.releases)
        return releases

    monkeypatch.setattr(SimulatedReleases, "draw", staticmethod(drawn))
    monkeypatch.setattr(tables_homogeneity, "_NUMBERS", 12 * 30)  # 8 counts and 4 values a release
    found = assess.published_homogeneity(
        plan,
        counts=np.array([[2, 1, 0, 3]]),
        level="block",
        sensitive="SEX",
        identifiers=["AGE"],
        draws=100,
        rng=Seeded(4),
        progress=lambda done, all_: steps.append((done, all_)),
    )
    assert sizes == [30, 30, 30, 10]
    assert steps == [(30, 100), (60, 100), (90, 100), (100, 100)]
    assert 0 < found.lower < found.upper < 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"counts": np.ones((2, 3), int)}, r"counts: shape \(2, 3\) is not allowed"),
        ({"counts": np.ones((3, 2), int)}, "3 rows, but the crosswalk has 2 units of block"),
        ({"counts": np.ones((2, 2)) / 2}, "counts: people must be whole numbers"),
        ({"counts": np.full((2, 2), np.inf)}, "counts: people must be whole numbers"),
        ({"counts": np.zeros((2, 2), int)}, "counts: every count is 0, so there is no target"),
        ({"level": "county"}, "level: 'county' has no published tables; choose from state, block"),
        ({"sensitive": "B"}, "no attribute or recode 'B'; choose from A"),
        ({"identifiers": ["A"]}, "sensitive: 'A' is also an identifier"),
        ({"draws": 5}, "draws: 5 is not allowed; use at least 50"),
        ({"confidence": 1.0}, "confidence: 1.0 is not allowed"),
    ],
)
def test_bad_input_is_named(change, message, tmp_path):
    given = {
        "counts": np.ones((2, 2), int),
        "level": "block",
        "sensitive": "A",
        "rng": Seeded(1),
    }
    with pytest.raises(InputError, match=message):
        assess.published_homogeneity(TWO_UNITS.plan(tmp_path), **{**given, **change})


def test_a_plan_without_postprocessing_is_refused():
    plan = Plan.parse(TINY_PLAN + '[postprocess]\nmethod = "none"\n')
    with pytest.raises(InputError, match="method 'none' publishes no tables"):
        assess.published_homogeneity(
            plan,
            counts=np.ones((5, 6), int),
            level="area",
            sensitive="SEX",
            rng=Seeded(1),
        )
