"""What measurements determine, against the rank of the written-out queries."""

import numpy as np
import pytest
from tests.estimate import random_trees

from countveil.plan.plans import Plan
from countveil.tree.determination import Determination
from countveil.tree.observed_levels import Observed


def matrix(query, possible) -> np.ndarray:
    """A query over the cells that may hold people: its cells × those."""
    where = query.cells_at(np.flatnonzero(possible))
    rows = np.zeros((query.cells, int(possible.sum())))
    rows[where[where >= 0], np.flatnonzero(where >= 0)] = 1
    return rows


def inside(rows, of) -> np.ndarray:
    """Whether each row lies in the span of the rows `of`."""
    if not len(of):
        return ~rows.any(1)
    return np.array(
        [np.linalg.matrix_rank(np.vstack([of, row])) == np.linalg.matrix_rank(of) for row in rows]
    )


@pytest.mark.parametrize("seed", range(40))
def test_it_is_the_rank_of_what_is_observed_at_a_level_and_below(seed):
    text, *_ = random_trees.draw(seed)
    plan = Plan.parse(text)
    rng = np.random.default_rng(seed)
    names = [item.name for item in plan.schema.attributes]
    asked = [plan.schema.every_cell]
    asked += [plan.schema.query(name) for name in names]
    asked += [item.query for item in plan.allocations[:2]]
    for query in dict.fromkeys(asked):
        found = Determination.of(Observed.planned(plan), query)
        members = [
            rng.choice(query.cells, int(rng.integers(1, query.cells + 1)), replace=False)
            for _ in range(5)
        ]
        rows = matrix(query, plan.possible)
        sums = np.array([rows[cells].sum(0) for cells in members])
        for depth in range(len(plan.levels)):
            below = plan.levels[depth:]
            of = [matrix(item.query, plan.possible) for level in below for item in plan.at(level)]
            of += [
                matrix(item.query, plan.possible) for item in plan.invariants if item.level in below
            ]
            of = np.vstack(of) if of else np.zeros((0, rows.shape[1]))
            assert (found.cells(depth) == inside(rows, of)).all()
            assert (found.sums(depth, members) == inside(sums, of)).all()
