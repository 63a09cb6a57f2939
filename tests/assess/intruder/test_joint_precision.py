"""The precision of one unit given the levels above: against all cells of all units in one matrix."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from tests.estimate.released_trees import plan_text

from countveil.assess.intruder import joint_precision
from countveil.assess.intruder.joint_precision import rho_with_levels_above
from countveil.assess.intruder.targets import Target
from countveil.plan.plans import Plan

BLOCKS, TOWNS = 3, 2
SIBLINGS = {"town": TOWNS - 1, "block": BLOCKS - 1}
RECODES = {"R0": ("A0", {"x": ["0", "1"], "y": ["2"]}), "R1": ("A1", {"x": ["0"], "y": ["1", "2"]})}
CASES = {
    "one": ([3], [], ["TOTAL", "A0"], []),
    "two": ([2, 3], [], ["TOTAL", "A0", "A0*A1"], [("town", "A1")]),
    "three": ([2, 2, 3], [], ["A0*A2", "A1", "A0*A1*A2"], [("state", "TOTAL")]),
    "one category": ([1, 2, 3], [], ["A0", "A1*A2", "A2"], []),
    "a recode": ([3, 2], ["R0"], ["R0", "A1", "A0*A1"], [("town", "R0")]),
    "two recodes": ([3, 3], ["R0", "R1"], ["R0*A1", "A0*R1", "TOTAL"], []),
    "one of three": ([2, 3, 2], ["R1"], ["A0*R1", "A1*A2", "R1*A2"], [("state", "A0*R1")]),
    "left out": ([4, 2], ["R0"], ["R0*A1", "TOTAL", "A0"], []),
}


def plan_of(name: str, *, invariants: bool) -> Plan:
    """Queries of three levels, with other weights at each; A0 has the categories 0, 1, …."""
    sizes, recodes, queries, known = CASES[name]
    attributes = {f"A{a}": [str(k) for k in range(size)] for a, size in enumerate(sizes)}
    weights = {
        level: {query: 1 + (3 * number + turn) % 5 for number, query in enumerate(queries)}
        for turn, level in enumerate(("state", "town", "block"))
    }
    omit = {"R0": ["3"]} if sizes[0] == 4 else {}
    chosen = {recode: RECODES[recode] for recode in recodes}
    fixed = known if invariants else []
    return Plan.parse(plan_text(attributes, weights, recodes=chosen, omit=omit, invariants=fixed))


def whole_matrix(plan: Plan, counted: float) -> np.ndarray:
    """Return the precision of a block's cells, when those of its siblings are summed out.

    The unknowns are the cells of the blocks of its town, and of the other towns of its state; what is
    published as counted weighs `counted`.
    """
    cells, others = plan.schema.cells, TOWNS - 1

    def information(level: str) -> np.ndarray:
        rates = [(item.query, float(1 / (2 * item.mechanism.sigma2))) for item in plan.at(level)]
        rates += [(item.query, counted) for item in plan.invariants if item.level == level]
        total = np.zeros((cells, cells))
        for query, rate in rates:
            kept = np.flatnonzero(query.cell_of >= 0)
            rows = np.zeros((query.cells, cells))
            rows[query.cell_of[kept], kept] = 1
            total += rate * rows.T @ rows
        return total

    inside = np.array([1.0] * BLOCKS + [0.0] * others)
    everywhere = np.ones(BLOCKS + others)
    whole = np.kron(np.diag(inside), information("block"))
    whole += np.kron(np.outer(inside, inside) + np.diag(1 - inside), information("town"))
    whole += np.kron(np.outer(everywhere, everywhere), information("state"))
    own, mixed, rest = whole[:cells, :cells], whole[:cells, cells:], whole[cells:, cells:]
    return own - mixed @ np.linalg.pinv(rest, hermitian=True, rcond=1e-13) @ mixed.T


@pytest.mark.parametrize("held", [1, 1 << 22])
@pytest.mark.parametrize("name", CASES)
def test_every_cell_and_pair_is_that_of_the_whole_matrix(name, held, monkeypatch):
    monkeypatch.setattr(joint_precision, "_HELD", held)
    plan = plan_of(name, invariants=False)
    precision = whole_matrix(plan, 0.0)
    for one, other in product(range(plan.schema.cells), repeat=2):
        v = np.eye(plan.schema.cells)[one]
        target = Target(one)
        if one != other:
            v, target = v - np.eye(plan.schema.cells)[other], Target(one, other)
        found = rho_with_levels_above(plan, "block", target, SIBLINGS, True)
        assert found == pytest.approx(float(v @ precision @ v), rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[3]])
def test_what_is_published_as_counted_weighs_without_limit(name):
    plan = plan_of(name, invariants=True)
    largest = max(float(1 / (2 * item.mechanism.sigma2)) for item in plan.allocations)
    precision, noisy = whole_matrix(plan, 1e4 * largest), whole_matrix(plan, 0.0)
    more = 0.0
    for cell in range(plan.schema.cells):
        found = rho_with_levels_above(plan, "block", Target(cell), SIBLINGS, True)
        assert found == pytest.approx(float(precision[cell, cell]), rel=1e-4)
        alone = rho_with_levels_above(plan, "block", Target(cell), SIBLINGS, False)
        assert alone == pytest.approx(float(noisy[cell, cell]), rel=1e-8)
        more = max(more, found - alone)
    assert more > 0


def test_sixteen_attributes_are_no_matrix_of_all_their_cells():
    """One query of all: each cell is told by its own count, its town's and those beside it."""
    attributes = {f"A{number}": ["0", "1"] for number in range(16)}
    cells = "*".join(attributes)
    weights = {"state": {"TOTAL": 1}, "town": {cells: 1}, "block": {cells: 1}}
    plan = Plan.parse(plan_text(attributes, weights))
    town, block = (
        float(1 / (2 * plan.at(level)[0].mechanism.sigma2)) for level in ("town", "block")
    )
    found = rho_with_levels_above(plan, "block", Target(77), {"town": 10**9, "block": 1}, True)
    assert found == pytest.approx(block + 1 / (1 / town + 1 / block), rel=1e-6)
