"""Variances as functions of weights: values against the covariances, slopes against differences."""

import numpy as np
import pytest
from tests.estimate import random_trees

from countveil import Plan
from countveil.tree.observed_levels import Observed
from countveil.tree.query_errors import errors_of_queries
from countveil.tree.tree_shape import tree_of
from countveil.tree.variance_model import MeanVariance, VarianceModel


def drawn(seed, folder):
    """Return the model of a random plan on a random tree, its weights, and the variances expected."""
    text, places, _ = random_trees.draw(seed)
    (folder / "plan.toml").write_text(text)
    (folder / "places.csv").write_text(places)
    plan = Plan.load(folder / "plan.toml")
    tree, observed = tree_of(plan.geography()), Observed.planned(plan)
    queries = list(dict.fromkeys(item.query for item in plan.allocations))
    expected, aims = [], []
    for query, errors in errors_of_queries(observed, tree, queries).items():
        for level, name in enumerate(plan.levels):
            units = np.bincount(tree.positions[level].of_unit)
            by_kind = np.average(errors.levels[level] ** 2, axis=0, weights=units)
            if np.isfinite(by_kind).all() and by_kind.max() > 0:
                expected += [by_kind @ errors.cells / errors.cells.sum(), by_kind[-1]]
                last = len(by_kind) - 1
                aims += [[MeanVariance(name, query)], [MeanVariance(name, query, last)]]
    model = VarianceModel.of(observed, tree, aims)
    laws = {(item.level, item.query.name): item.mechanism for item in plan.allocations}
    weights = np.array([1 / laws[weight].variance for weight in model.weights])
    return model, weights, np.array(expected)


@pytest.mark.parametrize("seed", [300, 301, 302, 303, 304, 305, 307, 308, 310, 312])
def test_values_slopes_and_curvatures_are_right(seed, tmp_path):
    model, weights, expected = drawn(seed, tmp_path)
    assert model.aims > 1
    values, gradients = model.gradients(weights)
    assert values == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert model.values(weights) == pytest.approx(values, rel=1e-12)
    # Variances are homogeneous of degree -1 in the weights.
    assert gradients @ weights == pytest.approx(-values, rel=1e-9, abs=1e-12)
    importance = np.random.default_rng(seed).uniform(0.5, 2, len(values))
    curvature = model.curvature(weights, importance)
    assert curvature == pytest.approx(curvature.T, rel=1e-9, abs=1e-9 * np.abs(curvature).max())
    assert curvature @ weights == pytest.approx(-2 * importance @ gradients, rel=1e-8, abs=1e-12)
    for number in range(len(weights)):
        step = 1e-5 * weights * (np.arange(len(weights)) == number)
        up, down = model.gradients(weights + step), model.gradients(weights - step)
        size = 2 * step[number]
        scale = np.abs(values).max() / weights[number]
        assert (up[0] - down[0]) / size == pytest.approx(gradients[:, number], abs=1e-7 * scale)
        turned = importance @ (up[1] - down[1]) / size
        scale = np.abs(curvature).max() * 1e-6
        assert turned == pytest.approx(curvature[number], rel=1e-5, abs=scale)


def test_sums_of_aims_add_up(tmp_path):
    _, weights, _ = drawn(300, tmp_path)
    text = (tmp_path / "plan.toml").read_text()
    plan = Plan.parse(text, folder=tmp_path)
    tree, observed = tree_of(plan.geography()), Observed.planned(plan)
    queries = list(dict.fromkeys(item.query for item in plan.allocations))
    lowest = plan.measured_levels[-1]
    single = [[MeanVariance(lowest, query)] for query in plan_queries(plan, queries, lowest)]
    joint = [[MeanVariance(lowest, aim[0].query, None, 3.0) for aim in single]]
    apart = VarianceModel.of(observed, tree, single).values(weights)
    assert VarianceModel.of(observed, tree, joint).values(weights)[0] == pytest.approx(
        3 * apart.sum(), rel=1e-12
    )


def plan_queries(plan, queries, level):
    """Return the queries that a level measures itself."""
    return [query for query in queries if any(item.query == query for item in plan.at(level))]
