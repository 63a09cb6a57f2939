"""All queries at once: brute force over noise, the levels above, and what invariants add."""

import math
from itertools import product

import numpy as np
import pytest

from countveil import DiscreteGaussian, Seeded
from countveil.assess import Intruder
from countveil.assess.intruder import attacks, one_level
from countveil.assess.intruder.combined_loss import lattice_loss
from countveil.errors import InputError
from countveil.plan.plans import Plan

# As in the papers, which round the preset's rho of (542/339)².
PRESET = (
    'invariants = []\n[release]\ntitle = "R"\npreset = "pl94-2020"\nneighbors = "add-remove"\n'
    '[budget]\nrho = "2.56"\n'
)

SMALL = """
[release]
title = "Small"
unit = "person"
neighbors = "change-one"
[geography]
levels = ["state", "block"]
[attributes]
AGE = ["child", "adult"]
KIND = ["home", "prison", "nursing"]
[recodes.SHARED]
of = "KIND"
groups = { home = ["home"], shared = ["prison", "nursing"] }
[budget]
rho = "2"
[budget.levels]
state = "1/2"
block = "1/2"
[budget.queries."*"]
TOTAL = "1/4"
SHARED = "1/4"
"AGE*KIND" = "1/2"
"""


@pytest.fixture(scope="module")
def preset() -> Plan:
    return Plan.parse(PRESET)


@pytest.fixture(scope="module")
def small() -> Plan:
    return Plan.parse(SMALL)


PRESET_ATTACKS = {
    "mq_presence/absence": {"attack": "presence"},
    "mq_differs HISPANIC only": {"attack": "unknown attribute", "attribute": "HISPANIC"},
    "mq_differs VOTINGAGE only": {"attack": "unknown attribute", "attribute": "VOTINGAGE"},
    "mq_differs HHGQ(inst level)": {"attack": "unknown attribute", "attribute": "HHGQ"},
    "mq_differs all": {"attack": "whole record"},
}


@pytest.mark.parametrize(("key", "attack"), PRESET_ATTACKS.items())
def test_risks_of_the_preset(truth, preset, key, attack):
    note = truth[key]["note"]
    for prior, name in ((0.5, "R(p=.5)="), (0.02, "R(.02)=")):
        stated = float(note.split(name)[1].split(",")[0].split(";")[0])
        risk = attacks.marginal_risk(preset, level="block", prior=prior, **attack)
        assert risk.value == pytest.approx(stated, abs=6e-6)


def test_the_unknown_attribute_needs_both_cells():
    """One query alone: two cells inform, and P(correct) is computed on the lattice."""
    noise = DiscreteGaussian.from_rho("1666368/16793603")
    loss = lattice_loss(((noise, 2),))
    yes = loss.weights @ np.where(loss.points > 1e-9, 1.0, np.where(loss.points < -1e-9, 0, 0.5))
    assert yes == pytest.approx(0.6226, abs=5e-5)
    for prior in (0.5, 0.2, 0.1, 0.02):
        after = loss.weights @ (1 / (1 + (1 - prior) / prior * np.exp(-loss.points)))
        both = one_level.marginal_risk([noise, noise], intruder=Intruder(prior=prior)).posterior
        assert after == pytest.approx(both, abs=1e-10)
    one = lattice_loss(((noise, 1),))
    alone = one_level.correct_decision(noise, intruder=Intruder(prior=0.5)).value
    assert one.weights @ (one.points > 0) == pytest.approx(alone, abs=1e-12)


def brute_force(plan, cells, prior, rows=1):
    """Sum over all noise near zero of every informative cell: exact for a few narrow noises."""
    laws = []
    for item in plan.at("block"):
        own, other = (item.query.cell_of[c] if c is not None else -1 for c in cells)
        if own != other:
            laws += [item.mechanism] * (1 if other < 0 else 2)
    posterior = right = 0.0
    grids = [np.arange(-8, 9) for _ in laws]
    for noise in product(*grids):
        weight = math.exp(sum(float(law.log_pmf(e)) for law, e in zip(laws, noise, strict=True)))
        if weight < 1e-13:
            continue
        loss = sum(float(law.loss_at(e, rows)) for law, e in zip(laws, noise, strict=True))
        odds = math.log(prior / (1 - prior)) + loss
        posterior += weight / (1 + math.exp(-odds))
        right += weight * (0.5 if abs(odds) < 1e-12 else float(odds > 0))
    return posterior, right


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("budget", ["rho", "epsilon"])
def test_attacks_equal_brute_force(rows, budget):
    """Noise as narrow for a target of several rows as for one of a single row."""
    amount = 12 * rows**2 if budget == "rho" else 48 * rows
    text = SMALL.replace('rho = "2"', f'{budget} = "{amount}"')
    plan = Plan.parse(f'{text}[records]\npath = "p.csv"\nperson_id = "id"\nmax_rows = {rows}\n')
    given = {"attack": "presence", "prior": 0.3, "level": "block"}
    posterior, right = brute_force(plan, (0, None), 0.3, rows)
    risk = attacks.marginal_risk(plan, **given)
    assert risk.posterior == pytest.approx(posterior, abs=1e-9)
    assert attacks.correct_decision(plan, **given).value == pytest.approx(right, abs=1e-9)


def test_among_cells_equals_two_cells_and_prefers_the_truth(small):
    after, right = attacks.among(small, cells=[0, 1], prior=[1, 1], draws=20_000, rng=Seeded(2))
    exact = attacks.marginal_risk(
        small,
        attack="unknown attribute",
        attribute="KIND",
        categories=("home", "prison"),
        prior=0.5,
    )
    assert abs(after.value - exact.posterior) < 4 * after.standard_error
    chance = attacks.correct_decision(
        small,
        attack="unknown attribute",
        attribute="KIND",
        categories=("home", "prison"),
        prior=0.5,
    ).value
    assert abs(right.value - chance) < 4 * right.standard_error
    three, _ = attacks.among(small, cells=[0, 1, 2], prior=[1, 1, 1], rng=Seeded(3))
    assert 1 / 3 < three.value < 1


def test_a_published_count_of_the_unit_itself_settles_presence(small):
    fixed = Plan.parse(
        SMALL + '[[invariants]]\nlevel = "block"\nquery = "TOTAL"\nreason = "known"\n'
    )
    given = {"attack": "presence", "prior": 0.02, "level": "block"}
    assert attacks.marginal_risk(fixed, **given).value == pytest.approx(50)
    assert attacks.correct_decision(fixed, **given).value == 1.0
    alone = attacks.marginal_risk(fixed, invariants=False, **given).value
    assert alone == attacks.marginal_risk(small, **given).value < 3
    # A total says nothing of an attribute.
    other = {**given, "attack": "unknown attribute", "attribute": "AGE"}
    assert attacks.marginal_risk(fixed, **other).value < 5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"attack": "theft"},
            "attack: unknown attack 'theft'; choose presence, response, honesty, unknown attribute or "
            "whole record",
        ),
        (
            {"attack": "presence", "attribute": "AGE"},
            "attribute: got 'AGE', but the attack 'presence' concerns no attribute; leave it out",
        ),
        ({"attack": "unknown attribute"}, "attribute: is missing; choose from AGE, KIND"),
        (
            {"attack": "unknown attribute", "attribute": "SEX"},
            "attribute: unknown attribute 'SEX'; choose from AGE, KIND",
        ),
        (
            {"attack": "unknown attribute", "attribute": "AGE", "categories": ("child", "old")},
            "categories: unknown category 'old' of AGE; choose from child, adult",
        ),
        (
            {"attack": "unknown attribute", "attribute": "AGE", "categories": ("child", "child")},
            "categories: 'child' is named twice; name two different ones",
        ),
        ({"attack": "presence", "level": "blok"}, "unknown level 'blok'; choose from state, block"),
    ],
)
def test_bad_attacks_are_named(small, given, message):
    with pytest.raises(InputError) as caught:
        attacks.effective_rho(small, **given)
    assert str(caught.value) == message


@pytest.mark.parametrize("measure", [attacks.marginal_risk, attacks.correct_decision])
def test_an_unknown_level_is_named_by_every_measure(small, measure):
    with pytest.raises(InputError, match="unknown level 'blok'; choose from state, block"):
        measure(small, attack="presence", prior=0.1, level="blok")
