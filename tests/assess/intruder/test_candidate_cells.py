"""Which of several cells: exact sums against pairs, brute force over noise, and simulation."""

from itertools import product

import numpy as np
import pytest
from tests.assess.intruder.test_attacks import SMALL

from countveil import Seeded
from countveil.assess.intruder import attacks, targets, whole_release
from countveil.assess.intruder.targets import targets_of
from countveil.errors import InputError, PlanError
from countveil.plan.attributes import Attribute, Recode
from countveil.plan.plans import Plan
from countveil.plan.public_facts import StructuralZeros
from countveil.plan.workload import Schema

PLAN = SMALL.replace('rho = "2"', 'rho = "RHO"').replace(
    'SHARED = "1/4"\n"AGE*KIND" = "1/2"', '"AGE*KIND" = "3/4"'
)


def plan(rho: str = "2") -> Plan:
    return Plan.parse(PLAN.replace("RHO", rho))


@pytest.mark.parametrize("rho", ["0.01", "2", "50"])
@pytest.mark.parametrize("prior", [(1, 1), (1, 3)])
def test_two_cells_are_the_attack_on_an_attribute(rho, prior):
    given = {"attack": "unknown attribute", "attribute": "KIND", "categories": ("home", "prison")}
    after, right = attacks.among(plan(rho), cells=[0, 1], prior=prior)
    share = prior[0] / sum(prior)
    pair = attacks.marginal_risk(plan(rho), prior=share, **given)
    chance = attacks.correct_decision(plan(rho), prior=share, **given)
    assert after.value == pytest.approx(pair.posterior, abs=1e-12)
    assert right.value == pytest.approx(chance.value, abs=1e-12)


@pytest.mark.parametrize("truth", [0, 2])
def test_three_cells_equal_a_sum_over_all_noise(truth):
    belief = np.array([5.0, 1.0, 1.0]) / 7
    found = plan("8")
    noise = next(item for item in found.at("block") if item.query.cells > 1).mechanism
    seen = np.arange(-12, 14)
    after = right = 0.0
    for noisy in product(seen, repeat=3):
        chance = np.exp(sum(noise.log_pmf(x - (j == truth)) for j, x in enumerate(noisy)))
        weights = belief * np.exp([noise.log_pmf(x - 1) - noise.log_pmf(x) for x in noisy])
        after += chance * weights[truth] / weights.sum()
        best = np.isclose(weights, weights.max(), rtol=1e-12)
        right += chance * best[truth] / best.sum()
    risks = attacks.among(found, cells=[0, 1, 2], prior=belief, truth=truth)
    assert [risk.value for risk in risks] == pytest.approx([after, right], abs=1e-11)
    assert all(risk.standard_error is None for risk in risks)


def test_queries_that_put_some_together_are_simulated():
    shared = Plan.parse(PLAN.replace("RHO", "2").replace('"AGE*KIND" = "3/4"', 'SHARED = "3/4"'))
    with pytest.raises(InputError, match="simulated; pass rng"):
        attacks.among(shared, cells=[0, 1, 2], prior=[1, 1, 1])
    after, right = attacks.among(shared, cells=[0, 1, 2], prior=[1, 1, 1], truth=1, rng=Seeded(1))
    # Two of the three look alike: no one can do better than half of what they learn of both.
    pair, _ = attacks.among(shared, cells=[1, 0], prior=[2, 1])
    given = {"attack": "unknown attribute", "attribute": "KIND", "categories": ("prison", "home")}
    no, yes = (
        attacks.correct_decision(shared, prior=0.5, ties=ties, **given).value
        for ties in ("no", "yes")
    )
    assert abs(after.value - pair.value / 2) < 4 * after.standard_error
    assert abs(right.value - no / 2 - (yes - no) / 3) < 4 * right.standard_error


def test_simulation_agrees_where_both_are_possible():
    exact = attacks.among(plan(), cells=[0, 1, 2, 4], prior=[1, 2, 3, 4])
    drawn = attacks.among(
        plan(), cells=[0, 1, 2, 4], prior=[1, 2, 3, 4], draws=40_000, rng=Seeded(2)
    )
    for one, other in zip(exact, drawn, strict=True):
        assert abs(one.value - other.value) < 4 * other.standard_error < 0.05


def test_structural_zeros_leave_only_possible_targets():
    """Children in prison cannot be: no one confuses such a cell with another."""
    finer = '"AGE*KIND" = "1/4"\nSHARED = "1/4"\nKIND = "1/4"'
    text = PLAN.replace("RHO", "2").replace('"AGE*KIND" = "3/4"', finer)
    zeros = '[[structural_zeros]]\ncells = { AGE = ["child"], KIND = ["nursing", "prison"] }\n'
    zeros += 'reason = "too young"\n'
    homes = '[[structural_zeros]]\ncells = { AGE = ["adult"], KIND = ["home"] }\nreason = "none"\n'
    free, bound = Plan.parse(text), Plan.parse(text + zeros)
    for attack, attribute in (
        ("presence", None),
        ("unknown attribute", "KIND"),
        ("whole record", None),
    ):
        for found in targets_of(bound, attack, attribute, None):
            cells = [cell for cell in (found.cell, found.other) if cell is not None]
            assert bound.possible[cells].all()
    assert not all(bound.possible[item.cell] for item in targets_of(free, "presence", None, None))
    with pytest.raises(InputError, match="structural zeros leave none"):
        targets_of(
            Plan.parse(text + zeros + homes),
            "unknown attribute",
            "AGE",
            None,
        )


def by_definition(schema, zeros, changed=None, fixed=None):
    """Return the first cell, or pair of cells, of each kind, by going through all of them."""
    cells = np.flatnonzero(zeros.possible).tolist()
    at = {cell: tuple(map(int, np.unravel_index(cell, schema.shape))) for cell in cells}
    kind = {
        cell: tuple(
            targets.signatures(schema, attribute.name)[number]
            for attribute, number in zip(schema.attributes, at[cell], strict=True)
        )
        for cell in cells
    }
    first = {}
    if changed is None:
        for cell in cells:
            first.setdefault(kind[cell], targets.AttackTarget(cell))
        return set(first.values())
    differ = {axis for axis in changed if schema.shape[axis] > 1}
    for one, other in product(cells, repeat=2):
        apart = {axis for axis, (x, y) in enumerate(zip(at[one], at[other], strict=True)) if x != y}
        if apart != differ:
            continue
        if fixed is None or (at[one][changed[0]], at[other][changed[0]]) == fixed:
            first.setdefault((kind[one], kind[other]), targets.AttackTarget(one, other))
    return set(first.values())


@pytest.mark.parametrize("seed", range(40))
def test_kinds_of_cells_and_pairs_are_those_of_the_definition(seed):
    rng = np.random.default_rng(seed)
    attributes, recodes = [], []
    for number in range(rng.integers(1, 4)):
        name, labels = f"A{number}", tuple(f"c{label}" for label in range(rng.integers(1, 5)))
        attributes.append(Attribute(name, labels))
        for again in range(rng.integers(0, 3)):
            group = rng.integers(0, 3, len(labels))
            groups = [tuple(np.array(labels)[group == g].tolist()) for g in range(3)]
            pairs = (("p", groups[0]), ("q", groups[1]))
            recodes.append(Recode(f"R{number}_{again}", name, pairs, groups[2]))
    schema = Schema(tuple(attributes), tuple(recodes))
    blocks = tuple(
        tuple(
            None
            if rng.random() < 0.4
            else tuple(sorted(rng.choice(size, rng.integers(0, size + 1), replace=False).tolist()))
            for size in schema.shape
        )
        for _ in range(rng.integers(0, 4))
    )
    zeros = StructuralZeros(schema.shape, blocks)
    assert set(targets._one_of_each(schema, zeros)) == by_definition(schema, zeros)
    axes = range(len(schema.shape))
    for changed in [tuple(axes), *((axis,) for axis in axes)]:
        found = targets._pairs(schema, zeros, changed, None)
        assert len(set(found)) == len(found)
        assert set(found) == by_definition(schema, zeros, changed)
        differ = [axis for axis in changed if schema.shape[axis] > 1]
        kinds = targets._kinds(schema)
        refined = zeros.refined(kinds)
        assert targets._searched_pairs(schema, zeros, kinds, refined, differ) == found
    if schema.shape[0] > 1:
        found = targets._pairs(schema, zeros, (0,), (1, 0))
        assert set(found) == by_definition(schema, zeros, (0,), (1, 0))


def test_zeros_that_tell_all_cells_apart_do_not_make_more_kinds_of_people():
    attributes = [Attribute(name, tuple(f"c{n}" for n in range(40))) for name in "AB"]
    zeros = StructuralZeros((40, 40), tuple(((n,), (n, (n + 1) % 40)) for n in range(40)))
    schema = Schema(tuple(attributes))
    assert (
        targets._pairs_along(zeros.refined(targets._kinds(schema)), (0, 1)) > targets.MOST_TARGETS
    )
    # Cells 0 and 1 are excluded; the first two that differ on both axes are (0, 2) and (1, 0).
    assert targets._pairs(schema, zeros, (0, 1), None) == (targets.AttackTarget(2, 40),)


def test_more_kinds_than_can_be_tried_are_refused_before_they_are_listed(monkeypatch):
    small = plan()
    targets._one_of_each.cache_clear()
    targets._pairs.cache_clear()
    monkeypatch.setattr(targets, "MOST_TARGETS", 3)
    with pytest.raises(PlanError, match="pairs of kinds of people .*; the limit is 3: remove"):
        whole_release.attacks_on(small)  # not taken for an attack that is impossible
    monkeypatch.setattr(targets, "MOST_TARGETS", 1_000)
    monkeypatch.setattr(targets, "_MOST_PATTERNS", 1)
    with pytest.raises(PlanError, match="2 queries separate .* the limit is 1 for queries times"):
        whole_release.evidence(small, small.judged_level, attack="whole record")
