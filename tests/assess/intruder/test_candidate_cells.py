"""Which of several cells: exact sums against pairs, brute force over noise, and simulation."""

from itertools import product

import numpy as np
import pytest
from tests.assess.intruder.test_attacks import SMALL

from countveil import Seeded
from countveil.assess.intruder import attacks, targets
from countveil.assess.intruder.targets import targets_of
from countveil.errors import InputError
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


@pytest.mark.parametrize("chunk", [1, 5, 1000])
def test_kinds_of_cells_are_found_some_cells_at_a_time(monkeypatch, chunk):
    recode = Recode("R", "A", (("p", ("a", "b")), ("q", ("c",))))
    attributes = Attribute("A", ("a", "b", "c")), Attribute("B", ("x", "y"))
    zeros = StructuralZeros((3, 2), (((0,), (0,)), ((2,), (1,))))
    monkeypatch.setattr(targets, "_CHUNK", chunk)
    targets._one_of_each.cache_clear()
    assert targets._one_of_each(Schema(attributes, (recode,)), zeros) == (1, 4)
    assert targets._one_of_each(Schema(attributes), zeros) == (1,)
    targets._one_of_each.cache_clear()
