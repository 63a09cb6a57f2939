"""Families with rows, at the size of the presets: right, certified, and within a small memory."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import lstsq
from tests.postprocess.truth import Family, interior_point
from threadpoolctl import threadpool_limits

from countveil.postprocess import solve_family
from countveil.postprocess.facts.rows import Row, as_matrix
from countveil.postprocess.solver import multipliers
from countveil.postprocess.solver.family_problem import Squares

KINDS = 8  # of places to live: households and seven kinds of group quarters
MARGINS = 7


@pytest.fixture(autouse=True)
def _one_thread():
    """As the descent has it: the workers are many, and each has one."""
    with threadpool_limits(1):
        yield


def measured(rng, children: int, cells: int) -> tuple[Family, Squares, np.ndarray]:
    """A family measured by cells, kinds, a margin and totals; its squares, and its counts."""
    counts = rng.poisson(rng.gamma(0.3, 10.0, (children, cells))).astype(float)
    cell = np.arange(cells)
    places = np.array([cell, cell * KINDS // cells, cell % MARGINS, 0 * cell])
    weights = np.array([0.3, 1.0, 1.5, 2.0])
    A = sum(w * np.equal.outer(place, place) for w, place in zip(weights, places, strict=True))
    b = (counts + 4.0 * rng.normal(size=counts.shape)) @ A
    return Family(A, b), Squares(places, weights), counts


def facilities(rng, counts: np.ndarray) -> list[Row]:
    """Bound each kind of group quarters of each child, most of them from below alone."""
    kind = np.arange(counts.shape[1]) * KINDS // counts.shape[1]
    rows = []
    for child in range(len(counts)):
        for which in range(1, KINDS):
            those = np.flatnonzero(kind == which)
            around = counts[child, those].sum()
            room = np.inf if rng.random() < 0.8 else 2.0
            rows.append(Row(np.array([child]), those, max(around - 0.5, 0.0), around + room))
    return rows


def sibling_sums(counts: np.ndarray) -> list[Row]:
    """Bound sums over every fifth child, some of them to a number."""
    rows = []
    for group in range(5):
        some = np.arange(group, len(counts), 5)
        those = np.flatnonzero(np.arange(counts.shape[1]) % MARGINS == group)
        around = counts[np.ix_(some, those)].sum()
        rows.append(Row(some, those, around, around if group % 2 else np.inf))
    return rows


def sums_of(counts: np.ndarray, sums: str) -> dict[str, np.ndarray | None]:
    return {
        "parent": counts.sum(axis=0) if sums in ("parent", "both") else None,
        "totals": counts.sum(axis=1) if sums in ("totals", "both") else None,
    }


@pytest.mark.parametrize("rows", ["facilities", "siblings", "both"])
@pytest.mark.parametrize("sums", ["parent", "totals", "both", "none"])
def test_middling_families_equal_interior_point(sums, rows):
    rng = np.random.default_rng([1, len(sums), len(rows)])
    family, _, counts = measured(rng, 8, 24)
    counts += 1.0  # or the truth has no point inside
    family = replace(
        family,
        **sums_of(counts, sums),
        allowed=rng.random(counts.shape) < 0.9 if sums == "none" else None,
        rows=[
            *(facilities(rng, counts - 1.0) if rows != "siblings" else ()),
            *(sibling_sums(counts - 1.0)[::2] if rows != "facilities" else ()),
        ],
    )
    objective, error = interior_point(family)
    assert error < 1e-12, "the truth is not accurate"
    h, certificate = family.solve()
    assert certificate.holds, certificate
    assert family.gap(h) <= 1e-9 * family.scale
    assert abs(family.objective(h) - objective) <= 1e-9 * max(1.0, abs(objective))
    plain = replace(family, rows=()).solve()[0]
    assert family.gap(plain) > 1e-3, "no row matters"


def violation(family: Family, h: np.ndarray) -> float:
    """Return how far h is from optimal, with multipliers fitted where they must make up the gradient.

    Those are of the parent's cells and of the rows held; gradients are relative to their terms.
    """
    children, cells = h.shape
    pull = h @ family.A
    steep = max(np.abs(pull).max(), np.abs(family.b).max())
    gradient = (pull - family.b).reshape(-1) / steep
    matrix = as_matrix(family.rows, children, cells)
    together = matrix @ h.reshape(-1)
    lower = np.array([row.lower for row in family.rows])
    upper = np.array([row.upper for row in family.rows])
    near = 1e-7 * family.scale
    low, high = together <= lower + near, together >= upper - near
    held = np.flatnonzero(low | high)
    K = sp.csr_array(
        sp.vstack([sp.kron(np.ones((1, children)), sp.eye_array(cells)), matrix[held]])
    )
    positive = h.reshape(-1) > near
    inside = K[:, positive]
    normal, right = (inside @ inside.T).toarray(), inside @ gradient[positive]
    y = lstsq(normal, right, cond=1e-12, lapack_driver="gelsy")[0]
    reduced = gradient - K.T @ y
    along = y[cells:]
    return max(
        np.abs(reduced[positive]).max(),
        -reduced.min(),
        (-along[~high[held]]).max(initial=0.0),  # a lower bound may only push up
        along[~low[held]].max(initial=0.0),
    )


@pytest.mark.parametrize("shape", [(20, 400), (60, 250), (250, 60)], ids=str)
def test_families_of_preset_size_are_optimal(shape):
    rng = np.random.default_rng([2, *shape])
    family, squares, counts = measured(rng, *shape)
    rows = [*facilities(rng, counts), *sibling_sums(counts)]
    family = replace(family, parent=counts.sum(axis=0), rows=rows)
    h, certificate = solve_family(squares, family.b, family.parent, rows=rows)
    assert certificate.holds, certificate
    assert (h >= 0).all()
    assert np.abs(h.sum(axis=0) - family.parent).max() <= 1e-9 * family.scale
    assert max(row.gap(h) for row in rows) <= 1e-9 * family.scale
    assert violation(family, h) <= 1e-9
    assert certificate.objective == pytest.approx(family.objective(h), rel=1e-12)
    moved = h.copy()  # or the check could not fail
    moved[[0, 1], 0] += [0.01, -0.01] if h[1, 0] > 0.01 else [-0.01, 0.01]
    assert violation(family, moved) > 1e-8


def test_memory_goes_with_the_blocks_of_children():
    rng = np.random.default_rng(3)
    family, squares, counts = measured(rng, 150, 40)
    rows = [*facilities(rng, counts), *sibling_sums(counts)]
    tracemalloc.start()
    _, certificate = solve_family(squares, family.b, **sums_of(counts, "both"), rows=rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert certificate.holds
    # Rows outnumber entries of a child: all of them in one matrix would take more than this.
    assert peak < 6 * 8 * counts.size * counts.shape[1], peak / (8 * counts.size * counts.shape[1])


@pytest.mark.parametrize("sums", ["parent", "totals", "both", "none"])
def test_descent_ends_where_block_steps_end(sums, monkeypatch):
    rng = np.random.default_rng([4, len(sums)])
    family, _, counts = measured(rng, 6, 20)
    family = replace(family, **sums_of(counts, sums), rows=facilities(rng, counts))
    h, certificate = family.solve()
    assert certificate.holds
    monkeypatch.setattr(multipliers, "_PATIENCE", 0)
    again, certificate = family.solve()
    assert certificate.holds
    np.testing.assert_allclose(again, h, rtol=0, atol=1e-9 * family.scale)


def test_a_system_taken_apart_is_solved():
    rng = np.random.default_rng(5)
    inside = rng.random((5, 4)) < 0.8
    entries, slacks = int(inside.sum()), 3
    child, cell = np.nonzero(inside)
    A = np.eye(4) + rng.random((4, 1)) * np.ones(4)
    Q = multipliers.Blocks((A + A.T)[None], np.zeros(len(inside), int), inside, slacks)
    # Sums over children, over cells, over two children, over nothing; the last ones have slacks.
    sums = [cell == j for j in range(4)] + [child == c for c in range(5)]
    sums += [child < 0, (child < 2) & (cell > 0), child == 3, (child == 4) & (cell < 2)]
    M = np.zeros((len(sums), entries + slacks))
    M[:, :entries] = sums
    M[-slacks:, entries:] = np.diag([-1.0, 1.0, -1.0])
    program = multipliers.program_by_child(
        Q, np.zeros(entries + slacks), sp.csr_array(M), np.zeros(len(sums))
    )
    free = rng.random(entries + slacks) < 0.7
    free[:entries][child == 2] = False
    D, E = rng.random(entries + slacks), 1e-3
    slope, target = rng.normal(size=entries + slacks), rng.normal(size=len(sums))
    x, y = multipliers.solve_system(multipliers.factor_system(program, free, D, E), slope, target)
    assert not x[~free].any()
    np.testing.assert_allclose((Q @ x + D * x - M.T @ y)[free], slope[free], rtol=0, atol=1e-9)
    np.testing.assert_allclose(M @ x + E * y, target, rtol=0, atol=1e-9)
