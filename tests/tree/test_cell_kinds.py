"""Kinds of cells: counted without listing cells, and categories that structural zeros treat alike."""

import numpy as np
import pytest
from tests.conftest import TINY_PLAN

from countveil.plan.plans import Plan
from countveil.tree import observed_levels
from countveil.tree.observed_levels import Observed
from countveil.tree.subspaces import QueryDecomposition

RECODES = """
[recodes.F]
of = "SEX"
groups = { f = ["f"], rest = ["m", "x"] }
"""


@pytest.mark.parametrize("name", ["TOTAL", "AGE", "F", "SEX*AGE", "AGE*F"])
def test_cells_of_each_kind_are_counted_without_listing_them(name):
    plan = Plan.parse(TINY_PLAN.replace('"AGE*SEX"', '"AGE*F"') + RECODES)
    decomposition = QueryDecomposition.of(Observed.planned(plan), plan.schema.query(name))
    listed = np.bincount(decomposition.kind_of_cell, minlength=decomposition.number_of_kinds)
    assert decomposition.kinds.cells.tolist() == listed.tolist()
    assert listed.sum() == plan.schema.query(name).cells
    assert all(len(gram) == len(listed) for gram in decomposition.kinds.grams)


@pytest.mark.parametrize("seed", range(10))
def test_categories_alike_in_zeros_are_those_with_equal_rows(seed):
    grid = np.random.default_rng(seed).random((4, 3, 5)) < 0.6
    for axis in range(3):
        rows = np.moveaxis(grid, axis, 0).reshape(grid.shape[axis], -1)
        _, first, alike = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        found, kept = observed_levels._alike_in_zeros(grid, axis)
        assert found.tolist() == alike.reshape(-1).tolist()
        assert kept.tolist() == first.tolist()


def test_categories_of_many_columns_are_compared_in_little_memory():
    """A column of its own for each of a million cells would take gigabytes."""
    grid = np.ones((2, 1 << 20), bool)
    grid[1, 5] = False
    assert observed_levels._alike_in_zeros(grid, 0)[0].tolist() == [1, 0]
