"""Families of national size and families full of facts are solved to full precision."""

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

from countveil import Plan, Seeded, measure, open_engine, postprocess
from countveil.demo import starter
from countveil.postprocess import solve_family
from countveil.postprocess.family_information import Observations, right_sides
from countveil.postprocess.solver.family_problem import Squares
from countveil.postprocess.solver.multipliers import independent_rows

PLAN = """
release = { title = "states", preset = "pl94-2020" }
geography = { levels = ["nation", "state"] }
[budget.levels]
nation = "104/1544"
state = "1440/1544"
"""


def states(people: int, seed: int, children: int = 51):
    """Return measurements of states under pl94-2020, and their sums, for so many people."""
    plan = Plan.parse(PLAN)
    rng = np.random.default_rng(seed)
    cells = plan.schema.cells
    shares = rng.gamma(0.15, size=cells)
    national = rng.poisson(people * shares / shares.sum())
    weights = rng.gamma(0.8, size=children)
    counts = rng.multinomial(national, weights / weights.sum()).T
    items = plan.at("state")
    queries = [item.query for item in items]
    variances = [item.mechanism.variance for item in items]
    observed = Observations.of_queries(queries, variances)
    values = np.empty((children, sum(query.cells for query in queries)))
    for query, start, variance in zip(queries, observed.offsets, variances, strict=True):
        for child in range(children):
            exact = np.bincount(query.cell_of, counts[child], query.cells)
            noise = rng.normal(0.0, math.sqrt(variance), query.cells)
            values[child, start : start + query.cells] = np.rint(exact + noise)
    kept = np.flatnonzero(national)
    places = observed.scalars_of(kept)
    b = right_sides(places, observed.weights, values)
    return Squares(places, observed.weights), b, national[kept], counts.sum(axis=1)


@pytest.mark.parametrize(
    ("people", "fixed", "children"),
    [(211_000_000, True, 51), (10**9, True, 60), (10**9, False, 51)],
)
def test_states_of_a_nation_are_solved_to_the_last_person(people, fixed, children):
    squares, b, parent, totals = states(people, people % 97, children)
    h, certificate = solve_family(squares, b, parent, totals if fixed else None)
    assert certificate.holds, certificate
    assert certificate.fallbacks == 0
    assert (h >= 0).all()
    off = [math.fsum(column) - int(total) for column, total in zip(h.T, parent, strict=True)]
    if fixed:
        off += [math.fsum(row) - int(total) for row, total in zip(h, totals, strict=True)]
    assert np.abs(off).max() <= 1e-6
    # Optimal: on free entries the gradient is a number per cell and one per child, elsewhere above it.
    gradient = np.empty(b.shape)
    for child, row in enumerate(h):
        gradient[child] = -b[child]
        for place, weight in zip(squares.places, squares.weights, strict=True):
            gradient[child] += weight * np.bincount(place, row)[place]
    mu = np.zeros(children)
    lam = np.zeros(len(parent))
    free = h > 0
    for _ in range(200):  # alternate: the least squares fit of λ_j + μ_c to the free gradients
        lam = np.where(free, gradient - mu[:, None], 0).sum(0) / free.sum(0)
        if fixed:
            mu = np.where(free, gradient - lam, 0).sum(1) / np.maximum(free.sum(1), 1)
    steep = np.abs(b).max()
    reduced = gradient - lam - mu[:, None]
    assert np.abs(reduced[free]).max() <= 1e-9 * steep
    assert reduced[~free].min() >= -1e-9 * steep


def test_independent_rows_are_found_exactly():
    rng = np.random.default_rng(5)
    for _ in range(60):
        children, cells = rng.integers(1, 4), rng.integers(2, 6)
        inside = rng.random(children * cells) < 0.8
        if not inside.any():
            continue
        sums = np.tile(np.eye(cells), children)[:, inside]
        rows = []
        for child in range(children):
            for _ in range(rng.integers(0, 5)):
                row = np.zeros((children, cells))
                row[child, rng.random(cells) < 0.5] = 1
                rows.append(row.reshape(-1)[inside])
            row = np.zeros((children, cells))
            row[child] = 1
            rows.append(row.reshape(-1)[inside])
        rows = np.array(rows)
        keep = independent_rows(sp.csr_array(sums), sp.csr_array(rows))
        own = sums[sums.any(axis=1)]
        assert _rank(np.vstack([own, rows[keep]])) == len(own) + keep.sum()
        assert _rank(np.vstack([own, rows])) == len(own) + keep.sum()


def _rank(matrix) -> int:
    rows = [[Fraction(int(x)) for x in row] for row in matrix]
    rank = 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((i for i in range(rank, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for i in range(rank + 1, len(rows)):
            factor = rows[i][column] / rows[rank][column]
            rows[i] = [x - factor * y for x, y in zip(rows[i], rows[rank], strict=True)]
        rank += 1
    return rank


FACTS = [("block", "TOTAL"), ("block", "AGE*HISPANIC"), ("county", "RACE")]


def with_facts(folder):
    """Write the starter plan with three invariants that cross each other."""
    starter.write_start(folder, people=2_000, seed=7)
    path = folder / "plan.toml"
    text = path.read_text()
    extra = "".join(
        f'[[invariants]]\nlevel = "{level}"\nquery = "{query}"\nreason = "known"\n'
        for level, query in FACTS
    )
    text = text.replace("[postprocess]", extra + "[postprocess]", 1).replace("limit = 4.0", "")
    path.write_text(text)
    return path


def test_invariants_that_cross_are_met_in_every_draw(tmp_path):
    plan = Plan.load(with_facts(tmp_path / "place"))
    counts = open_engine("local").tabulate(plan)
    for seed in range(4):  # two of three draws could not be solved
        taken = measure.take(
            counts, plan, rng=Seeded(seed), ledger=None, to=tmp_path / f"out{seed}"
        )
        estimates = postprocess.top_down(taken, plan)
        assert all(item.holds for item in estimates.certificate)
        for level, query in FACTS:
            exact = taken.invariant(level, query)
            assert (estimates.counts(level, plan.schema.query(query)) == exact).all()
