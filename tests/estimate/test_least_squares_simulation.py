"""Least squares over 2,000 simulated releases: unbiased, with the variances and coverage it states.

The top of a tree has no parent, so 2,000 copies of a tree side by side are 2,000 releases of it.
"""

import numpy as np
import pytest
from tests.estimate import released_trees
from tests.estimate.released_trees import plan_text

from countveil import estimate
from countveil.estimate import plan_error

COPIES = 2_000
KINDS = {"KIND": ["home", "jail", "ward", "college"], "AGE": ["y", "o"]}
INST = {"INST": ("KIND", {"h": ["home"], "i": ["jail", "ward"], "n": ["college"]})}
QUERIES = {
    "l0": {"TOTAL": 1, "INST": 1},
    "l1": {"AGE": 2, "KIND*AGE": 1},
    "l2": {"TOTAL": 1, "INST*AGE": 2, "KIND*AGE": 2},
}
SHAPE = ([2], [1, 3])  # below one top unit


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    plan = plan_text(KINDS, QUERIES, recodes=INST, invariants=[("l1", "TOTAL")], rho="1/2")
    places = released_trees.places([COPIES], COPIES * SHAPE[0], COPIES * SHAPE[1])
    rng = np.random.default_rng(5)
    one = rng.poisson(6.0, (sum(SHAPE[1]), 8))
    folder = tmp_path_factory.mktemp("simulated")
    # Codes are sorted as text: copies are the same people, so their order does not matter.
    truth = np.tile(one, (COPIES, 1))
    tree = released_trees.release(folder, plan, places, seed=11, truth=truth)
    return tree, estimate.least_squares(tree.measurements, tree.plan)


@pytest.mark.parametrize("query", ["TOTAL", "INST", "KIND*AGE"])
@pytest.mark.parametrize("level", ["l0", "l1", "l2"])
def test_estimates_are_unbiased_and_vary_as_stated(simulated, level, query):
    tree, estimates = simulated
    table = estimates.estimate(level, query)
    cells = tree.plan.schema.query(query).cells
    units = tree.geography.units(level) // COPIES
    truth = tree.counted(level, query).reshape(COPIES, units * cells)
    value, error, lower, upper = (
        table[name].to_numpy().reshape(COPIES, units * cells)
        for name in ("value", "standard_error", "lower", "upper")
    )
    assert (error == error[0]).all()  # all copies are alike
    stated = error[0]
    noise = value - truth
    if query == "TOTAL" and level != "l2":
        assert (noise == 0).all()  # an invariant, and the sum of invariants
        assert (stated == 0).all()
        return
    # A mean of 2,000 is normal, and so is their variance, about its value, with 2/2000 of its square.
    noisy = stated > 0
    assert noisy.any()
    score = noise[:, noisy].mean(axis=0) / (stated[noisy] / np.sqrt(COPIES))
    assert np.abs(score).max() < 4
    ratio = (noise[:, noisy] ** 2).mean(axis=0) / stated[noisy] ** 2
    assert np.abs(ratio - 1).max() < 4 * np.sqrt(2 / COPIES)
    inside = (lower <= truth) & (truth <= upper)
    assert inside[:, ~noisy].all()
    coverage = inside[:, noisy].mean(axis=0)
    assert np.abs(coverage - 0.9).max() < 4 * np.sqrt(0.09 / COPIES)


def test_areas_vary_together_as_stated(simulated):
    tree, estimates = simulated
    codes = np.array(tree.geography.geocodes("l2").to_pylist()).reshape(COPIES, sum(SHAPE[1]))
    # Both areas of one release, and the same of another, which shares no noise with it.
    areas = {
        "one": list(codes[0, [0, 2]]),
        "other": list(codes[0, [1, 2]]),
        "elsewhere": list(codes[1, [0, 2]]),
    }
    found = estimates.areas(areas, "AGE")
    assert np.abs(found.covariance[0, :, 2]).max() < 1e-9
    values = np.concatenate([part.value for part in estimates.batches("l2", "AGE")])
    values = values.reshape(COPIES, sum(SHAPE[1]), 2)
    np.testing.assert_allclose(found.value[0], values[0, [0, 2]].sum(axis=0), rtol=0, atol=1e-9)
    drawn = np.concatenate([values[:, [0, 2]].sum(axis=1), values[:, [1, 2]].sum(axis=1)], axis=1)
    stated = found.covariance[:2, :, :2].reshape(4, 4)
    # Var of a sample covariance: (s_ii s_jj + s_ij²)/n.
    spread = np.sqrt((np.outer(np.diag(stated), np.diag(stated)) + stated**2) / COPIES)
    assert (np.abs(np.cov(drawn.T) - stated) < 4 * spread + 1e-9).all()
    assert np.abs(stated[0, 2]) > 0.1  # they do share a block


def test_one_level_agrees_with_the_error_of_the_plan(tmp_path):
    queries = {"l0": {"TOTAL": 1, "INST": 3, "AGE": 1, "KIND*AGE": 2}}
    plan = plan_text(KINDS, queries, recodes=INST)
    tree = released_trees.release(tmp_path / "tree", plan, released_trees.places([2]))
    estimates = estimate.least_squares(tree.measurements, tree.plan)
    expected = plan_error.expected_error(tree.plan)
    assert {item.query for item in expected} == set(queries["l0"])
    for item in expected:
        found = estimates.estimate("l0", item.query)["standard_error"].to_numpy()
        assert found.max() == pytest.approx(item.standard_error, rel=1e-10)
        assert found.min() == pytest.approx(item.smallest_standard_error, rel=1e-10)
