"""Example 1: golden values, and the conditional normal law of random people by linear algebra."""

import numpy as np
import pytest
from tests.congenial.laws import TRUTH

from countveil.errors import InputError
from countveil.papers.seeman import gaussian_mean

SETTINGS = {
    "ppd.example1|Z indep": {},
    "ppd.example1|Z=Xbar+N(0,.1)": {
        "mean_with_public": "0.1",
        "person_with_public": "0.1",
        "public_variance": "0.2",
    },
}


@pytest.mark.parametrize("name", SETTINGS)
def test_golden_values(name):
    expected, tol = TRUTH[name]["exact"], TRUTH[name]["tol"]
    result = gaussian_mean(n=10, variance=1, **SETTINGS[name])
    assert float(result.coefficient_value) == pytest.approx(expected["coef_v"], abs=tol)
    assert float(result.coefficient_public) == pytest.approx(expected["coef_z"], abs=tol)
    assert float(result.sensitivity) == pytest.approx(expected["right_sens_over_Delta"], abs=tol)
    printed = [float(result.printed(away)) for away in (0, 1, 3)]
    assert printed == pytest.approx(expected["printed_at_z_minus_mu"], abs=tol)


@pytest.mark.parametrize("seed", range(5))
def test_conditional_means_of_random_people(seed):
    """Z is a random sum of n independent people and noise; the others are conditioned one by one."""
    rng = np.random.default_rng(seed)
    n, variance = 6, 3
    weights, noise = rng.integers(-3, 4, n), int(rng.integers(1, 5))
    spread = int(variance * (weights @ weights) + noise)
    joint = np.diag([float(variance)] * n + [float(spread)])
    joint[:n, n] = joint[n, :n] = variance * weights
    known, others = [0, n], list(range(1, n))
    moved = joint[np.ix_(others, known)] @ np.linalg.inv(joint[np.ix_(known, known)])
    expected = (moved.sum(axis=0) + np.array([1, 0])) / n
    result = gaussian_mean(
        n=n,
        variance=variance,
        width=2,
        mean_with_public=f"{variance * weights.sum()}/{n}",
        person_with_public=int(variance * weights[0]),
        public_variance=spread,
    )
    coefficients = [float(result.coefficient_value), float(result.coefficient_public)]
    assert coefficients == pytest.approx(expected, abs=1e-12)
    assert float(result.sensitivity) == pytest.approx(2 * abs(expected[0]), abs=1e-12)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"n": 0}, "n: 0 is not allowed"),
        ({"variance": "0"}, "variance: 0 is not allowed"),
        ({"person_with_public": 1}, "no secret pair remains"),
        ({"mean_with_public": 5}, "no mean of 10 people"),
        ({"width": "-1"}, "width: -1 is not allowed"),
    ],
)
def test_bad_input_is_named(inputs, message):
    with pytest.raises(InputError, match=message):
        gaussian_mean(**{"n": 10, "variance": 1} | inputs)
