"""Corollary 13: exact errors against simulation, and how they really grow."""

import numpy as np
import pytest

from countveil.errors import InputError
from countveil.papers.seeman import subspace_error


@pytest.mark.parametrize(("whole", "subspace"), [(1, 1), (5, 2), (40, 10), (67, 66)])
def test_simulations_meet_the_exact_errors(whole, subspace):
    basis = np.random.default_rng(whole).normal(size=(whole, subspace))
    result = subspace_error.simulated_errors(basis, scale=3, draws=40_000, seed=subspace)
    exact = subspace_error.expected_errors(whole, subspace, scale=3)
    assert abs(result.projected - exact.projected) < 4 * result.projected_error
    assert abs(result.inside - exact.inside) < 4 * result.inside_error
    assert result.projected_error < 0.03 * exact.projected
    assert result.inside_error < 0.03 * exact.inside


def test_the_absolute_norm_where_it_is_known():
    """Of (u, v/3 nine times) the L1 norm is |u| + 3|v|: two Laplace laws, of mean squares 2 and 2/9."""
    plane = np.zeros((10, 2))
    plane[0, 0] = 1
    plane[1:, 1] = 1
    result = subspace_error.simulated_errors(plane, norm="L1", draws=200_000, seed=1)
    assert abs(result.inside - 20 / 9) < 4 * result.inside_error
    assert result.inside_error < 0.02
    # Each count has variance 2, and two dimensions are kept.
    assert abs(result.projected - 4) < 4 * result.projected_error


def test_errors_do_not_grow_as_printed():
    """With d2 fixed, d1² would quadruple what doubles, and d1·d2 would double what stays."""
    one, two = (subspace_error.expected_errors(d1, 10) for d1 in (100, 200))
    assert two.projected / one.projected == pytest.approx(201 / 101)
    assert two.inside == one.inside
    assert subspace_error.expected_errors(67, 66).gain == pytest.approx(68 / 67)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: subspace_error.expected_errors(3, 4), "4 of 3 dimensions is not possible"),
        (lambda: subspace_error.expected_errors(3, 2, scale=0), "scale: 0 is not allowed"),
        (
            lambda: subspace_error.simulated_errors(np.ones((4, 2)), seed=1),
            r"the shape is \(4, 2\); give one independent column",
        ),
        (
            lambda: subspace_error.simulated_errors(np.eye(3), norm="L3", seed=1),
            "norm: unknown norm 'L3'",
        ),
        (lambda: subspace_error.simulated_errors(np.eye(3), draws=1, seed=1), "draws: 1"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
