"""A family's matrix in parts: the same matrix, the same solutions, whatever the queries."""

from __future__ import annotations

import numpy as np
import pytest
from tests.postprocess.truth import Family, interior_point

from countveil.errors import InputError
from countveil.postprocess import solve_family
from countveil.postprocess.solver import family_problem
from countveil.postprocess.solver.family_problem import (
    Squares,
    dense,
    diagonals,
    gram_in_blocks,
    largest_sum,
    multiply,
)

SHAPE = (3, 2, 4, 5)


def queries(rng, cells: np.ndarray, *, spread: float = 1.0, leave_out: bool = False) -> Squares:
    """Marginals of a table, the table itself among them, over some of its cells."""
    axes = np.array(np.unravel_index(cells, SHAPE))
    places, offset = [], 0
    chosen = [rng.random(len(SHAPE)) < 0.5 for _ in range(rng.integers(1, 9))]
    for within in [*chosen, np.ones(len(SHAPE), bool)]:
        sizes = np.where(within, SHAPE, 1)
        place = np.ravel_multi_index(axes * within[:, None], sizes) + offset
        if leave_out and not within.all() and rng.random() < 0.5:
            place[axes[rng.integers(len(SHAPE))] == 0] = -1
        places.append(place)
        offset += sizes.prod()
    return Squares(np.array(places), 10.0 ** rng.uniform(-spread, spread, len(places)))


def written_out(squares: Squares) -> np.ndarray:
    """Σ_k w_k Q_kᵀQ_k from the definition, shapes × cells × cells."""
    cells, atoms = squares.places.shape[1], squares.cell_atoms
    A = np.zeros((len(squares.matrices), cells, cells))
    for shape, matrices in enumerate(squares.matrices):
        for places, matrix in zip(squares.places, matrices, strict=True):
            for scalar in np.unique(places[places >= 0]):
                counted = (places == scalar).astype(float)
                A[shape] += np.outer(counted, counted) * matrix[np.ix_(atoms, atoms)]
    return A


def of_shapes(rng, squares: Squares, cells: np.ndarray, children: int) -> Squares:
    """The same terms, with weights that depend on the child and on atoms of the first attribute."""
    atoms = (np.array(np.unravel_index(cells, SHAPE))[0] > 0).astype(np.int64)
    shapes = int(rng.integers(1, children + 1))
    factors = rng.normal(size=(shapes, len(squares.weights), 2, 2))
    matrices = factors @ np.swapaxes(factors, 2, 3) + 0.1 * np.eye(2)
    # A term of every cell keeps each matrix positive; negative weights elsewhere are allowed.
    matrices *= squares.weights[:, None, None]
    weights = np.ascontiguousarray(matrices)
    return Squares(squares.places, weights, atoms, rng.integers(0, shapes, children))


@pytest.fixture
def always_parted(monkeypatch):
    monkeypatch.setattr(family_problem, "_WHOLE", 1)


@pytest.mark.parametrize("leave_out", [False, True])
def test_parts_make_up_the_matrix(always_parted, leave_out):
    parted = 0
    for seed in range(200):
        rng = np.random.default_rng([1, seed])
        cells = np.flatnonzero(rng.random(np.prod(SHAPE)) < rng.choice([0.1, 0.5, 1.0]))
        if len(cells) == 0:
            continue
        children = int(rng.integers(1, 10))
        squares = queries(rng, cells, leave_out=leave_out)
        if seed % 2:
            squares = of_shapes(rng, squares, cells, children)
        A = written_out(squares)
        parts = gram_in_blocks(squares, children)
        parted += len(parts.offsets) > 1 and parts.weights.size > 0
        near = {"rtol": 1e-12, "atol": 1e-12 * np.abs(A).max()}
        np.testing.assert_allclose(dense(parts), A, **near)
        np.testing.assert_allclose(diagonals(parts), np.diagonal(A, axis1=1, axis2=2), **near)
        h = rng.normal(size=(children, len(cells)))
        product = np.einsum("cij,cj->ci", A[parts.shape_of], h)
        np.testing.assert_allclose(multiply(parts, h), product, rtol=1e-10, atol=1e-10 * A.max())
        assert largest_sum(parts) >= np.linalg.eigvalsh(A).max() * (1 - 1e-12)
    assert parted > 50


@pytest.mark.parametrize("sums", ["parent", "totals", "both", "none"])
@pytest.mark.parametrize("children", [2, 5, 40])
def test_squares_are_solved_as_their_matrix_is(always_parted, sums, children):
    for seed in range(12):
        rng = np.random.default_rng([2, children, seed])
        cells = np.flatnonzero(rng.random(np.prod(SHAPE)) < rng.choice([0.2, 0.8]))
        squares = queries(rng, cells, leave_out=seed % 3 == 0, spread=2.0)
        if seed % 2:
            squares = of_shapes(rng, squares, cells, children)
        counts = rng.poisson(rng.choice([0.3, 3.0]) * rng.random((children, len(cells))))
        A = written_out(squares)[squares.child_shapes(children)]
        noisy = counts + rng.normal(size=counts.shape) * 3
        family = Family(
            A,
            np.einsum("cij,cj->ci", A, noisy),
            counts.sum(axis=0) if sums in ("parent", "both") else None,
            counts.sum(axis=1) if sums in ("totals", "both") else None,
        )
        h, certificate = solve_family(squares, family.b, family.parent, family.totals)
        assert certificate.holds
        assert family.gap(h) <= 1e-9 * family.scale
        same, _ = family.solve()
        np.testing.assert_allclose(h, same, rtol=1e-8, atol=1e-8 * family.scale)
        objective = family.objective(h)
        assert certificate.objective == pytest.approx(objective, rel=1e-11, abs=1e-9)
        if children == 2:
            truth = interior_point(family)[0]
            assert objective == pytest.approx(truth, rel=1e-9, abs=1e-9)


def test_weights_far_apart_are_solved_in_parts(always_parted):
    for seed in range(40):
        rng = np.random.default_rng([3, seed])
        cells = np.flatnonzero(rng.random(np.prod(SHAPE)) < 0.5)
        squares = queries(rng, cells, spread=6.0)
        counts = rng.poisson(2.0, (4, len(cells)))
        b = (counts + rng.normal(size=counts.shape)) @ written_out(squares)[0]
        h, certificate = solve_family(squares, b, counts.sum(axis=0))
        assert certificate.holds, (seed, certificate)
        np.testing.assert_allclose(
            h.sum(axis=0), counts.sum(axis=0), rtol=0, atol=1e-9 * counts.sum()
        )


@pytest.mark.parametrize(
    ("squares", "message"),
    [
        (
            Squares(np.zeros((1, 3), int), np.ones(1)),
            r"b has shape \(2, 2\) and the squares \(1, 3\)",
        ),
        (Squares(np.zeros((2, 2), int), np.ones(1)), "with 1 weights"),
        (
            Squares(np.zeros((1, 2), int), np.array([np.nan])),
            "the weights of the squares must be positive",
        ),
        (
            Squares(np.zeros((1, 2), int), np.zeros(1)),
            "the weights of the squares must be positive",
        ),
    ],
)
def test_bad_squares_are_refused(squares, message):
    with pytest.raises(InputError, match=message):
        solve_family(squares, np.ones((2, 2)), np.ones(2))
