"""Attributes taken apart: every view is block ⊗ identity on each part, and parts are few and small."""

import numpy as np
import pytest

from countveil.tree import attribute_parts
from countveil.tree.attribute_parts import AttributeView, block_diagonalise, split_attribute
from countveil.tree.subspaces import contract, merged


def _recode(*group: int) -> AttributeView:
    return AttributeView(np.array(group), max(group) + 1)


def _views(*recodes: AttributeView) -> list[AttributeView]:
    categories = len(recodes[0].group)
    return [AttributeView.whole(categories), AttributeView.each(categories), *recodes]


# Name, views, and (size, copies) of every part.
ATTRIBUTES = [
    ("no recode", [AttributeView.whole(63), AttributeView.each(63)], [(1, 1), (1, 62)]),
    ("one category", [AttributeView.whole(1), AttributeView.each(1)], [(1, 1)]),
    ("unequal groups", _views(_recode(0, 1, 1, 1, 1, 2, 2, 2)), [(3, 1), (1, 5)]),
    ("equal groups", _views(_recode(0, 0, 1, 1, 2, 2)), [(1, 1), (1, 2), (1, 3)]),
    (
        "two recodes that are rows and columns",
        _views(_recode(0, 0, 0, 1, 1, 1), _recode(0, 1, 2, 0, 1, 2)),
        [(1, 1), (1, 1), (1, 2), (1, 2)],
    ),
    (
        "recodes that turn against each other",
        _views(_recode(0, 0, 1, 1, 2, 2), _recode(0, 1, 1, 2, 2, 0)),
        [(1, 1), (1, 1), (2, 2)],
    ),
    ("some left out", _views(_recode(0, 0, 1, 1, -1, -1)), [(1, 1), (1, 3), (2, 1)]),
    (
        "each of some",
        _views(AttributeView.only(np.array([0, 1, 2]), 7)),
        [(1, 2), (1, 3), (2, 1)],
    ),
]


@pytest.mark.parametrize(("views", "expected"), [item[1:] for item in ATTRIBUTES])
def test_parts_are_as_small_as_the_views_allow(views, expected):
    found = sorted((part.size, part.basis.shape[2]) for part in split_attribute(views))
    assert found == sorted(expected)


@pytest.mark.parametrize("views", [item[1] for item in ATTRIBUTES])
def test_every_view_is_a_block_on_every_part(views):
    categories = len(views[0].group)
    parts = split_attribute(views)
    basis = np.concatenate([part.basis.reshape(categories, -1) for part in parts], axis=1)
    np.testing.assert_allclose(basis.T @ basis, np.eye(categories), rtol=0, atol=1e-12)
    for number, view in enumerate(views):
        matrix = view.sums(np.eye(categories))
        for part in parts:
            image = np.tensordot(matrix.T @ matrix, part.basis, axes=1)
            fitted = np.einsum("rjc,ji->ric", part.basis, part.blocks[number])
            np.testing.assert_allclose(image, fitted, rtol=0, atol=1e-12)


def test_matrices_with_nothing_in_common_stay_whole():
    rng = np.random.default_rng(3)
    matrices = [root @ root.T for root in rng.normal(size=(2, 5, 5))]
    (basis,) = block_diagonalise(matrices)
    assert basis.shape == (5, 5, 1)


@pytest.mark.parametrize("mixed", [np.eye(3), np.diag([1.0, 1.0, 2.0])], ids=["one", "unlike"])
def test_a_reduction_that_does_not_prove_itself_stays_whole(mixed, monkeypatch):
    # Eigenspaces of something that is not generic: all in one, or of different sizes.
    monkeypatch.setattr(attribute_parts, "_generic", lambda matrices: mixed)
    matrices = [np.ones((3, 3)), np.diag([1.0, 2.0, 4.0])]
    (basis,) = block_diagonalise(matrices)
    np.testing.assert_array_equal(basis[:, :, 0], np.eye(3))


def test_blocks_hidden_by_a_rotation_are_found():
    rng = np.random.default_rng(4)
    blocks = [root @ root.T for root in rng.normal(size=(3, 2, 2))]
    turn, _ = np.linalg.qr(rng.normal(size=(7, 7)))
    matrices = []
    for number, block in enumerate(blocks):
        whole = np.zeros((7, 7))
        whole[:6, :6] = np.kron(block, np.eye(3))  # three copies of a 2 × 2 block
        whole[6, 6] = 0.3 + number
        matrices.append(turn @ whole @ turn.T)
    found = sorted(basis.shape[1:] for basis in block_diagonalise(matrices))
    assert found == [(1, 1), (2, 3)]


def test_a_contraction_is_a_product_along_every_axis():
    rng = np.random.default_rng(5)
    table = rng.normal(size=(4, 3, 5, 2))
    matrices = [rng.normal(size=shape) for shape in ((3, 6), (5, 1), (2, 4))]
    expected = np.einsum("uabc,ai,bj,ck->uijk", table, *matrices).reshape(4, -1)
    np.testing.assert_allclose(contract(table, matrices), expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(contract(table, merged(matrices)), expected, rtol=0, atol=1e-12)
    assert len(merged(matrices)) == 1
