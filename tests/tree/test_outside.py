"""What the rest of a tree says about a unit, against the dense normal equations of the whole tree."""

import numpy as np
import pytest
from tests.estimate import random_trees

from countveil.plan.geography import read_crosswalk
from countveil.plan.plans import Plan
from countveil.tree.observed_levels import Observed
from countveil.tree.outside import OutsideInformation
from countveil.tree.tree_shape import Tree

EXACT = 1e7  # the weight of an exact count in the dense equations


def matrix(query, possible) -> np.ndarray:
    where = query.cells_at(np.flatnonzero(possible))
    rows = np.zeros((query.cells, int(possible.sum())))
    rows[where[where >= 0], np.flatnonzero(where >= 0)] = 1
    return rows


def dense_precision(plan, geography, level, unit, move) -> float:
    """The precision of t, if a unit's histogram is known up to t times a move and the rest is free.

    Measurements of the unit and below are left out: only what is around it speaks.
    """
    lowest, cells = plan.levels[-1], int(plan.possible.sum())
    units = geography.units(lowest)
    inside = geography.ancestors(lowest, level) == unit
    rows, weights = [], []
    for at in plan.levels:
        above = geography.ancestors(lowest, at)
        queries = [(item.query, 1 / item.mechanism.variance) for item in plan.at(at)]
        queries += [(item.query, EXACT) for item in plan.invariants if item.level == at]
        below = plan.levels.index(at) >= plan.levels.index(level)
        for one in range(geography.units(at)):
            member = above == one
            if below and inside[member].any():
                continue
            for query, weight in queries:
                whole = matrix(query, plan.possible)
                free = np.kron((member & ~inside)[None].astype(float), whole)
                moved = whole @ move if inside[member].any() else np.zeros(query.cells)
                rows.append(np.column_stack([free, moved]))
                weights.append(np.full(query.cells, weight))
    if not rows:
        return 0.0
    X, w = np.vstack(rows), np.sqrt(np.concatenate(weights))
    nuisance, signal = w[:, None] * X[:, : units * cells], w * X[:, -1]
    left = signal - nuisance @ np.linalg.lstsq(nuisance, signal, rcond=1e-11)[0]
    return float(left @ left)


@pytest.mark.parametrize("seed", range(60, 90))
def test_it_is_what_the_dense_equations_leave_for_one_direction(seed, tmp_path):
    text, places, _ = random_trees.draw(seed)
    (tmp_path / "places.csv").write_text(places)
    plan = Plan.parse(text, folder=tmp_path)
    geography = read_crosswalk(tmp_path / "places.csv", plan.levels)
    query, rng = plan.schema.every_cell, np.random.default_rng(seed)
    outside = OutsideInformation.of(Observed.planned(plan), Tree.of(geography), query)
    possible = np.flatnonzero(plan.possible)
    compared = 0
    for depth, level in enumerate(plan.levels):
        positions = outside.tree.positions[depth]
        one, other = rng.choice(possible, 2, replace=len(possible) < 2)
        for cells in ([one], [one, other]):
            moves = [
                part[0] - part[1] if len(cells) > 1 else part[0]
                for part in outside.decomposition.coordinates(np.array(cells))
            ]
            found = outside.about(depth, [move[None] for move in moves])[:, 0]
            move = (possible == cells[0]).astype(float)
            move -= (possible == cells[-1]) if len(cells) > 1 else 0
            below = plan.levels[depth:]
            exact = [item.query for item in plan.invariants if item.level in below]
            if any((matrix(item, plan.possible) @ move).any() for item in exact):
                continue  # settled: someone who knows the rest of the unit is certain
            for unit in range(min(3, geography.units(level))):
                at = positions.of_unit[unit]
                if positions.only_child[at]:
                    continue
                expected = dense_precision(plan, geography, level, unit, move)
                assert found[at] == pytest.approx(expected, rel=1e-5, abs=1e-7)
                compared += 1
    assert compared or plan.invariants or outside.tree.positions[-1].only_child.all()
