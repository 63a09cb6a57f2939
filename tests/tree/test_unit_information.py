"""What the rest of a tree says about a unit, against dense least squares over everyone else."""

import numpy as np
import pyarrow as pa
import pytest
from tests.conftest import TINY_PLAN

from countveil import Plan, Seeded
from countveil.assess.published.many_releases import SimulatedReleases, answers_of, side_by_side
from countveil.plan.geography import Geography
from countveil.tree.unit_information import said_around

PLAN = (
    TINY_PLAN.replace('["region", "area"]', '["region", "town", "area"]')
    .replace('area = "1/2"', 'town = "1/4"\narea = "1/4"', 1)
    .replace("[budget.levels]", "[budget.levels]", 1)
)
PARENTS = (np.zeros(1, int), np.array([0, 0, 0]), np.array([0, 0, 0, 1, 2, 2]))


@pytest.mark.parametrize(("level", "unit"), [("area", 1), ("area", 4), ("town", 0), ("town", 2)])
@pytest.mark.parametrize("other", [None, 4])
@pytest.mark.parametrize(
    "exact", ["", '[[invariants]]\nlevel = "region"\nquery = "TOTAL"\nreason = "law"\n']
)
def test_it_is_that_of_dense_least_squares(level, unit, other, exact):
    plan = Plan.parse(PLAN + '[postprocess]\nmethod = "top-down"\n' + exact)
    codes = tuple(pa.array([str(n) for n in range(len(own))]) for own in PARENTS)
    places = Geography(plan.levels, codes, PARENTS)
    cells = plan.schema.cells
    nothing = np.zeros((5, 6, cells), np.int64)
    noise = SimulatedReleases.draw(plan, places, nothing, rng=Seeded(1))
    said = said_around(
        noise.as_one, side_by_side(places, 5), places, level=level, unit=unit, cell=1, other=other
    )

    # Every measured value outside, as a sum over the unit's own people and everyone else's cells.
    inside = places.ancestors("area", level) == unit
    others = np.flatnonzero(~inside)
    move = np.eye(cells)[1] - (0 if other is None else np.eye(cells)[other])
    rows, moved, weights, values = [], [], [], []
    for name in plan.levels:
        offset = 0
        facts = [(item.query, 1e7, None) for item in plan.invariants if item.level == name]
        for query, weight, first in [
            *((item.query, 1 / item.mechanism.variance, item) for item in plan.at(name)),
            *facts,
        ]:
            for place in range(places.units(name)):
                members = places.ancestors("area", name) == place
                if not (members & ~inside).any():
                    continue  # of the unit alone
                matrix = answers_of(query, np.eye(cells, dtype=int)).T
                row = np.zeros((query.cells, len(others), cells))
                row[:, members[others]] = matrix[:, None]
                rows.append(row.reshape(query.cells, -1))
                moved.append(matrix @ move if (members & inside).any() else np.zeros(query.cells))
                weights.append(np.full(query.cells, weight))
                if first is None:
                    values.append(np.zeros((5, query.cells)))
                else:
                    values.append(noise.values[name][:, place, offset : offset + query.cells])
            offset += query.cells
    a, b, w = np.concatenate(rows), np.concatenate(moved), np.concatenate(weights)
    root = np.sqrt(w)[:, None]
    kept = b * root[:, 0] - root * a @ np.linalg.lstsq(root * a, b * root[:, 0], rcond=1e-10)[0]
    expected = np.concatenate(values, axis=1) @ (root[:, 0] * kept)
    assert np.abs(expected).max() > 0.01
    assert said == pytest.approx(expected, rel=1e-4, abs=1e-6)
