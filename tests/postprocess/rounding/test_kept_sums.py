"""Rounding that keeps sums: within 1 wherever a table exists, checked by enumeration and by flows."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from countveil import Plan
from countveil.errors import InputError
from countveil.postprocess import round_family
from countveil.postprocess.facts.rows import Row
from countveil.postprocess.rounding import controlled_rounding
from countveil.postprocess.rounding.kept_sums import departures, keep_sums

CLOSE = 1e-7


def solved(rng, children: int, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """A table with integer sums over children, as a solved family has."""
    h = np.maximum(rng.gamma(0.7, 1.0, (children, cells)), 0.0)
    parent = np.maximum(np.rint(h.sum(axis=0)), 1)
    return h * (parent / h.sum(axis=0)), parent.astype(int)


def margins(rng, shape: tuple[int, ...], count: int) -> list[np.ndarray]:
    """Which sum of each of some random marginals every cell is in."""
    axes = np.indices(shape).reshape(len(shape), -1)
    result = []
    for _ in range(count):
        kept = np.flatnonzero(rng.random(len(shape)) < 0.5)
        place = np.zeros(axes.shape[1], int)
        for axis in kept:
            place = place * shape[axis] + axes[axis]
        result.append(place)
    return result


def largest(h, counts, keep) -> float:
    return max((float(d) for d in departures(h, counts, np.array(keep))), default=0.0)


def exists(h: np.ndarray, parent: np.ndarray | None, keep) -> bool:
    """Whether some rounding keeps every sum, by trying all of them."""
    whole = np.floor(h + CLOSE)
    part = h - whole
    open_ = np.argwhere(part > CLOSE)
    for ups in product((0, 1), repeat=len(open_)):
        z = whole.copy()
        z[tuple(open_.T)] += ups
        if parent is not None and (z.sum(axis=0) != parent).any():
            continue
        if largest(h, z.astype(int), keep) < 1 - CLOSE / 10:
            return True
    return False


@pytest.mark.parametrize("alone", [False, True], ids=["family", "root"])
def test_a_table_that_keeps_all_sums_is_found_wherever_there_is_one(alone):
    kept = left = 0
    for seed in range(150):
        rng = np.random.default_rng([11, seed])
        shape = [(2, 2), (2, 3), (2, 2, 2), (3, 3)][seed % 4]
        h, parent = solved(rng, 1 if alone else 2, int(np.prod(shape)))
        h = np.where(rng.random(h.shape) < 0.4, np.rint(h), h)
        above = None
        if not alone:
            h[1] = np.maximum(parent - h[0], 0.0)
            above = np.rint(h.sum(axis=0)).astype(int)
            h[1] = above - h[0]
            if (h < 0).any():
                continue
        keep = margins(rng, shape, int(rng.integers(1, 5)))
        counts = round_family(h, above, keep=keep)
        if above is not None:
            assert (counts.sum(axis=0) == above).all()
        assert (np.abs(counts - h) < 1).all()
        if largest(h, counts, keep) < 1:
            kept += 1
        else:
            assert not exists(h, above, keep), seed
            left += 1
    assert kept > 100


@pytest.mark.parametrize("seed", range(60))
def test_nested_sums_are_always_kept(seed):
    """Sums that nest are flows: some rounding keeps them all, and it is found."""
    rng = np.random.default_rng([12, seed])
    h, parent = solved(rng, int(rng.integers(2, 12)), 24)
    fine = np.arange(24) // 2
    keep = [np.zeros(24, int), fine // 6, fine // 3, fine]
    counts = round_family(h, parent, keep=keep)
    assert (counts.sum(axis=0) == parent).all()
    assert largest(h, counts, keep) < 1


def test_crossing_margins_of_a_health_table_are_kept():
    """Several margins of hundreds of cells, none of them measured in detail."""
    shape, naive = (4, 6, 2, 12), []
    axes = np.indices(shape).reshape(4, -1)
    for seed in range(40):
        rng = np.random.default_rng([13, seed])
        children = int(rng.integers(2, 8))
        h = np.outer(rng.gamma(2.0, 30.0, children), rng.dirichlet(np.full(axes.shape[1], 0.5)))
        parent = np.rint(h.sum(axis=0))
        h = h[:, parent > 0] * (parent / h.sum(axis=0))[parent > 0]
        inside = axes[:, parent > 0]
        keep = [np.zeros(inside.shape[1], int), inside[0], inside[1] * 2 + inside[2], inside[3]]
        counts = round_family(h, parent[parent > 0], keep=keep)
        assert largest(h, counts, keep) < 1
        naive.append(largest(h, round_family(h, parent[parent > 0], total_aware=True), keep))
    assert np.mean(naive) > 4


def test_totals_and_bounds_are_kept_too():
    for seed in range(40):
        rng = np.random.default_rng([14, seed])
        truth = rng.poisson(2.0, (5, 12))
        weights = rng.dirichlet(np.ones(4), 60)
        tables = np.stack([truth, *(rng.permuted(truth, axis=0) for _ in range(3))], axis=2)
        h = (tables.reshape(60, 4) * weights).sum(axis=1).reshape(5, 12)
        parent = np.rint(h.sum(axis=0)).astype(int)
        if np.abs(h.sum(axis=0) - parent).max() > 1e-9:
            continue
        keep = [np.arange(12) // 3, np.arange(12) % 4]
        rows = [
            Row(np.array([0]), np.array([0, 1, 2, 3]), 0.0, float(np.ceil(h[0, :4].sum()))),
            Row(np.array([1, 2]), np.array([5]), float(np.floor(h[1:3, 5].sum())), np.inf),
        ]
        counts = round_family(h, parent, keep=keep, rows=rows, total_aware=True)
        assert (counts.sum(axis=0) == parent).all()
        for row in rows:
            assert row.gap(counts) == 0
        totals = round_family(h, parent, total_aware=True).sum(axis=1)
        held = round_family(h, parent, totals, keep=keep)
        assert (held.sum(axis=1) == totals).all()


def fitted(h: np.ndarray, parent: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Scale a positive table until it has integer sums over children and integer totals."""
    for _ in range(2_000):
        h = h * (totals / h.sum(axis=1))[:, None]
        h = h * (parent / h.sum(axis=0))
        if np.abs(h.sum(axis=1) - totals).max() < 1e-10:
            break
    return h


@pytest.mark.parametrize("seed", range(6))
def test_crossing_margins_are_kept_where_totals_are_held(seed):
    """All pairs of three attributes: one exchange would always break two totals."""
    rng = np.random.default_rng([18, seed])
    axes = np.indices((8, 6, 12)).reshape(3, -1)
    truth = rng.poisson(rng.gamma(0.6, 2.0, (int(rng.integers(8, 26)), axes.shape[1])))
    truth = truth[:, truth.sum(axis=0) > 0]
    live = axes[:, : truth.shape[1]]
    parent, totals = truth.sum(axis=0), truth.sum(axis=1)
    h = fitted(truth + rng.gamma(1.0, 0.5, truth.shape), parent, totals)
    pairs = [live[0] * 6 + live[1], live[0] * 12 + live[2], live[1] * 12 + live[2]]
    keep = [live[0], live[1], live[2], *pairs]
    counts = round_family(h, parent, totals, keep=keep)
    assert (counts.sum(axis=0) == parent).all()
    assert (counts.sum(axis=1) == totals).all()
    assert largest(h, counts, keep) < 1


def test_matrices_and_queries_name_sums_as_numbers_do(tmp_path):
    text = """
[release]
title = "T"
unit = "person"
neighbors = "change-one"
[geography]
levels = ["top"]
[attributes]
A = ["a", "b"]
B = ["c", "d", "e"]
[budget]
rho = "1"
levels = { top = "1" }
[budget.queries.top]
A = "1/2"
B = "1/2"
"""
    plan = Plan.parse(text)
    A, B = plan.schema.query("A"), plan.schema.query("B")
    rng = np.random.default_rng(15)
    h, parent = solved(rng, 4, 6)
    numbers = round_family(h, parent, keep=[A.cell_of, B.cell_of])
    matrices = [np.eye(q.cells)[:, q.cell_of] for q in (A, B)]
    assert (round_family(h, parent, keep=matrices) == numbers).all()
    assert (round_family(h, parent, keep=[A, B]) == numbers).all()
    # Rows of one matrix may overlap; each is kept.
    counts = round_family(h, parent, keep=[np.vstack(matrices)])
    assert largest(h, counts, [A.cell_of, B.cell_of]) < 1
    with pytest.raises(InputError, match="one column per cell: 6"):
        round_family(h, parent, keep=[np.zeros(5)])


def test_small_families_get_a_second_try(monkeypatch):
    """Where the search gives up, an integer program may still find a table."""
    monkeypatch.setattr(
        controlled_rounding,
        "keep_sums",
        lambda part, up, groups, **rest: keep_sums(part, up, groups, **rest)._replace(
            up=up, broken=1
        ),
    )
    rng = np.random.default_rng(16)
    h, parent = solved(rng, 3, 12)
    keep = [np.arange(12) // 3, np.arange(12) % 4]
    assert largest(h, round_family(h, parent, keep=keep), keep) < 1
    monkeypatch.setattr(controlled_rounding, "_LARGEST_PROGRAM", 0)
    counts = round_family(h, parent, keep=keep)
    assert (counts == round_family(h, parent)).all()


def test_sums_come_closer_than_they_must():
    """Among the tables that keep every sum, one with small departures is chosen."""
    off, plain = [], []
    for seed in range(20):
        rng = np.random.default_rng([17, seed])
        h, parent = solved(rng, 6, 40)
        keep = [np.arange(40) // 10, np.arange(40) % 8]
        counts = round_family(h, parent, keep=keep)
        for group in keep:
            sums = np.array([np.bincount(group, row) for row in counts - h])
            off.append((sums**2).mean())
            plain.append(1 / 6)  # of sums rounded up or down by chance
    assert np.mean(off) < 0.9 * np.mean(plain)
