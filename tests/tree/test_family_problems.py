"""The family that whole-tree TopDown solves, against every active set of the dense problem."""

from itertools import product

import numpy as np
import pytest
from tests.estimate import released_trees

from countveil.postprocess.family_information import SubtreeInformation
from countveil.postprocess.solver.nonnegative import solve_family
from countveil.postprocess.topdown import SubtreesOfRelease


def precision_of(plan, geography, measurements, unit):
    """P and P x of a middle unit: the dense covariance of its histogram from all leaves and itself."""
    cells = plan.schema.cells
    leaves = np.flatnonzero(geography.ancestors("leaf", "middle") == unit)
    rows, values, weights = [], [], []
    adds = np.kron(np.ones((1, len(leaves))), np.eye(cells))
    for level, units in (("middle", [unit]), ("leaf", leaves)):
        for item in plan.at(level):
            found = measurements.read(level, item.query.name)
            matrix = np.zeros((item.query.cells, cells))
            matrix[item.query.cells_at(np.arange(cells)), np.arange(cells)] = 1
            for number, one in enumerate(units):
                place = np.zeros((1, len(leaves)))
                place[0, number] = 1
                rows.append(matrix @ adds if level == "middle" else np.kron(place, matrix))
                values.append(found.values[one])
                weights.append(np.full(item.query.cells, 1 / found.mechanism.variance))
    X, w = np.vstack(rows), np.concatenate(weights)
    covariance = np.linalg.inv(X.T @ (w[:, None] * X))
    estimate = adds @ covariance @ X.T @ (w * np.concatenate(values))
    precision = np.linalg.inv(adds @ covariance @ adds.T)
    return precision, precision @ estimate


def best_of_all_active_sets(precisions, pushes, parent):
    """Minimise ½ hᵀPh - yᵀh with h ≥ 0 and Σ_c h_c = parent: solve each set of zeros, keep the best."""
    children, cells = len(precisions), len(parent)
    Q, y = np.zeros((children * cells, children * cells)), np.concatenate(pushes)
    for number, precision in enumerate(precisions):
        at = slice(number * cells, (number + 1) * cells)
        Q[at, at] = precision
    adds = np.kron(np.ones((1, children)), np.eye(cells))
    best, chosen = np.inf, None
    for zeros in product((False, True), repeat=children * cells):
        free = ~np.array(zeros)
        A = adds[:, free]
        if (parent[A.sum(1) == 0] > 0).any():
            continue
        used = A[A.sum(1) > 0]
        system = np.block([[Q[np.ix_(free, free)], used.T], [used, np.zeros((len(used),) * 2)]])
        right = np.concatenate([y[free], parent[A.sum(1) > 0]])
        h = np.zeros(children * cells)
        h[free] = np.linalg.solve(system, right)[: free.sum()]
        if h.min() < -1e-12:
            continue
        value = h @ Q @ h / 2 - y @ h
        if value < best:
            best, chosen = value, h
    return chosen.reshape(children, cells)


@pytest.mark.parametrize("seed", range(20))
def test_a_family_of_subtrees_is_the_dense_problem(seed, tmp_path):
    rng = np.random.default_rng(seed)
    attributes = [{"A": ["a", "b"]}, {"A": ["a", "b", "c"]}, {"A": ["a", "b"], "B": ["x", "y"]}]
    chosen = attributes[seed % 3]
    detail = "*".join(chosen)
    queries = {
        "top": {"TOTAL": 1},
        "middle": {detail: int(rng.integers(1, 5)), "TOTAL": int(rng.integers(1, 5))},
        "leaf": {detail: int(rng.integers(1, 5)), "TOTAL": int(rng.integers(1, 5))},
    }
    if "B" in chosen:
        queries["leaf"]["B"] = 2
    children = 2 if "B" in chosen else 3
    places = "top,middle,leaf\n" + "".join(
        f"T,M{middle},L{middle}{leaf}\n"
        for middle in range(children)
        for leaf in range(int(rng.integers(1, 4)))
    )
    made = released_trees.release(
        tmp_path / "tree", released_trees.plan_text(chosen, queries), places, seed=seed
    )
    plan, geography = made.plan, made.geography
    subtrees = SubtreesOfRelease.of(made.measurements, plan, geography)
    dense = [precision_of(plan, geography, made.measurements, unit) for unit in range(children)]
    parent = rng.integers(0, 4, plan.schema.cells).astype(float)
    some = subtrees.subtrees.slice(1, 0, children)
    cells = np.arange(plan.schema.cells)
    equations = SubtreeInformation(subtrees.terms, some, cells).equations(parent, None)
    h, certificate = solve_family(equations.squares, equations.b, parent)
    assert certificate.holds
    expected = best_of_all_active_sets(*zip(*dense, strict=True), parent)
    np.testing.assert_allclose(h, expected, rtol=0, atol=1e-9 * max(1.0, parent.max()))
