"""What subtrees say: the same in subspaces, in terms over cells, and written out."""

import numpy as np
import pytest
from scipy.linalg import block_diag
from tests.estimate import random_trees, released_trees

from countveil import estimate
from countveil.errors import InputError
from countveil.postprocess.family_information import SubtreeInformation
from countveil.postprocess.solver.family_problem import multiplied_out
from countveil.postprocess.topdown import SubtreesOfRelease, lowest_slice
from countveil.tree.observed_levels import Observed
from countveil.tree.subtrees import CellTerms, Subtrees
from countveil.tree.tree_shape import Tree
from countveil.tree.tree_values import UpwardFit

SEEDS = range(200, 230)


@pytest.mark.parametrize("seed", SEEDS)
def test_terms_over_cells_are_the_weights_in_subspaces(seed, tmp_path):
    plan, places, _ = random_trees.draw(seed)
    made = released_trees.release(tmp_path / "tree", plan, places, seed=seed)
    plan, rng = made.plan, np.random.default_rng(seed)
    observed = Observed.of(made.measurements, plan)
    query = plan.schema.every_cell
    up = UpwardFit.of(made.measurements, observed, Tree.of(made.geography), query)
    subtrees, terms = Subtrees(up), CellTerms.of(observed, up.passes.decomposition)
    possible = np.flatnonzero(plan.possible)
    cells = np.sort(rng.choice(possible, int(rng.integers(1, len(possible) + 1)), replace=False))
    decomposition = up.passes.decomposition
    rows = [decomposition.rows(space)[cells] for space in decomposition.subspaces]
    for level in range(len(plan.levels) - 1):
        units = made.geography.units(plan.levels[level])
        start = int(rng.integers(units))
        some = subtrees.slice(level, start, units)
        about = terms.about(some, cells)
        assert terms.about(some.part(0, units - start), cells).matrices is about.matrices
        found = multiplied_out(about.places, about.atoms, about.matrices)
        expected = sum(
            np.einsum("idc,sde,jec->sij", row, weight, row)
            for row, weight in zip(rows, some.precisions, strict=True)
        )
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * np.abs(expected).max())
        assert np.linalg.eigvalsh(expected).min() > 0
        sides = sum(
            np.einsum("idc,udc->ui", row, push) for row, push in zip(rows, some.pushes, strict=True)
        )
        np.testing.assert_allclose(
            terms.right_sides(some, cells), sides, atol=1e-10 * max(1.0, np.abs(sides).max())
        )


def solved(equations, shape_of, parent, exact) -> np.ndarray:
    """The children of a family by one dense system: no sign, no rounding, exact sums held."""
    A = multiplied_out(
        equations.squares.places, equations.squares.cell_atoms, equations.squares.matrices
    )
    children, cells = equations.b.shape
    rows, sides = exact
    if parent is not None:
        rows = np.vstack([rows, np.kron(np.ones((1, children)), np.eye(cells))])
        sides = np.concatenate([sides, parent])
    # Sums that follow from others are left out; what they say agrees.
    u, s, vt = np.linalg.svd(rows, full_matrices=False)
    keep = s > 1e-9
    rows, sides = vt[keep], (u.T @ sides)[keep] / s[keep]
    Q = block_diag(*A[shape_of])
    system = np.block([[Q, rows.T], [rows, np.zeros((len(rows), len(rows)))]])
    answer = np.linalg.solve(system, np.concatenate([equations.b.reshape(-1), sides]))
    return answer[: children * cells].reshape(children, cells)


def exact_sums(some, rows) -> tuple[np.ndarray, np.ndarray]:
    """What is known exactly about some units: rows over units × cells, and values."""
    units, cells = len(some.shape_of), rows[0].shape[0]
    parts, values = [np.zeros((0, units * cells))], [np.zeros(0)]
    for row, space in zip(rows, some.spaces, strict=True):
        functions = np.einsum("jdc,dk->kcj", row, space.known).reshape(-1, cells)
        parts.append(np.kron(np.eye(units), functions))
        values.append(space.exact.reshape(units, -1).reshape(-1))
    return np.vstack(parts), np.concatenate(values)


@pytest.mark.parametrize("seed", range(300, 340))
def test_families_solved_from_the_top_are_least_squares(seed, tmp_path):
    """In one pass, without signs and rounding, whole-tree TopDown is the best unbiased estimate."""
    plan, places, _ = random_trees.draw(seed)
    made = released_trees.release(tmp_path / "tree", plan, places, seed=seed)
    plan, geography = made.plan, made.geography
    subtrees = SubtreesOfRelease.of(made.measurements, plan, geography)
    unbiased = estimate.least_squares(made.measurements, plan, geography=geography)
    cells = np.flatnonzero(plan.possible)
    decomposition = subtrees.terms.decomposition
    rows = [decomposition.rows(space)[cells] for space in decomposition.subspaces]
    above, compared = None, 0
    for level in plan.measured_levels:
        units, depth = geography.units(level), geography.index(level)
        if depth < len(plan.levels) - 1:
            below = subtrees.subtrees.slice(depth, 0, units)
        else:
            run = subtrees.subtrees.up.passes.unit_run(depth, None, None, 0, units)
            below = lowest_slice(subtrees.lowest, run)
        h = np.empty((units, len(cells)))
        parents = np.arange(units) if above is None else geography.ancestors(level, above[0])
        for parent in np.unique(parents):
            inside = np.flatnonzero(parents == parent)
            some = below.part(inside[0], inside[-1] + 1)
            total = None if above is None else above[1][parent]
            equations = SubtreeInformation(subtrees.terms, some, cells).equations(total, None)
            h[inside] = solved(equations, some.shape_of, total, exact_sums(some, rows))
        above = level, h
        for query in dict.fromkeys(item.query for item in plan.allocations):
            try:
                expected = unbiased.estimate(level, query.name)
            except InputError:
                continue  # not determined
            group = query.cells_at(cells)
            found = np.zeros((units, query.cells))
            np.add.at(found.T, group[group >= 0], h.T[group >= 0])
            known = np.isfinite(expected["standard_error"].to_numpy())
            value = expected["value"].to_numpy()[known]
            np.testing.assert_allclose(found.reshape(-1)[known], value, rtol=1e-9, atol=1e-9)
            compared += int(known.sum())
    assert compared
