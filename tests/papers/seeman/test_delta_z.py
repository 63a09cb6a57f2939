"""How far one value moves a count: golden values, brute force over couplings, and bad input."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

from countveil.errors import InputError
from countveil.papers import seeman
from countveil.papers.seeman.wasserstein_distance import bottleneck_distance

GOLDEN = {  # n, z0, z1: W∞(Bin(n-1, z0), 1 + Bin(n-1, z1)) in exact integers
    (10, "49/100", "51/100"): 2,
    (10, "45/100", "55/100"): 2,
    (10, "4/10", "6/10"): 3,
    (10, "3/10", "7/10"): 5,
    (10, "2/10", "8/10"): 7,
    (10, "1/10", "9/10"): 9,
    (10, "5/100", "95/100"): 10,
    (10, "1/1000", "999/1000"): 10,
    (10, "1/10", "5/10"): 6,
    (100, "3/10", "3/10"): 1,
    (100, "49/100", "51/100"): 3,
    (100, "45/100", "55/100"): 11,
    (100, "2/10", "8/10"): 61,
    (100, "1/10", "9/10"): 81,
    (100, "5/100", "95/100"): 91,
    (100, "1/1000", "999/1000"): 100,
    (100, "0", "1"): 100,
    (100, "1/100", "2/100"): 11,
    (100, "1/10", "5/10"): 49,
    (1000, "1/2", "1/2"): 1,
    (1000, "3/10", "3/10"): 1,
    (1000, "49/100", "51/100"): 21,
    (1000, "45/100", "55/100"): 101,
    (1000, "1/10", "9/10"): 801,
    (1000, "1/100", "99/100"): 981,
    (1000, "1/1000", "999/1000"): 999,
    (1000, "1/100", "2/100"): 100,
    (1000, "1/10", "5/10"): 475,
}


@pytest.mark.parametrize("case", GOLDEN)
def test_golden_values(case):
    n, z0, z1 = case
    assert seeman.delta_z(n=n, z0=z0, z1=z1) == GOLDEN[case]


def by_linear_programming(first, second, distance):
    """The least radius within which all mass can be moved."""
    a, b = list(first), list(second)
    for radius in sorted({distance(x, y) for x, y in product(a, b)}):
        allowed = [distance(x, y) <= radius for x, y in product(a, b)]
        rows = [
            [float(i == k) for i, _ in product(range(len(a)), range(len(b)))] for k in range(len(a))
        ]
        rows += [
            [float(j == k) for _, j in product(range(len(a)), range(len(b)))] for k in range(len(b))
        ]
        sums = [float(p) for p in (*first.values(), *second.values())]
        result = linprog(
            np.zeros(len(allowed)),
            A_eq=np.array(rows),
            b_eq=sums,
            bounds=[(0, None if ok else 0) for ok in allowed],
        )
        if result.status == 0:
            return radius
    raise AssertionError


def random_law(rng, points):
    weights = [Fraction(int(w)) for w in rng.integers(1, 9, len(points))]
    return {point: w / sum(weights) for point, w in zip(points, weights, strict=True)}


@pytest.mark.parametrize("seed", range(12))
def test_distances_equal_linear_programs(seed):
    rng = np.random.default_rng(seed)
    on_line = [random_law(rng, sorted(rng.choice(15, 4, replace=False).tolist())) for _ in range(2)]
    expected = by_linear_programming(*on_line, lambda x, y: abs(x - y))
    assert seeman.infinity_distance(*on_line) == expected
    assert bottleneck_distance(*on_line, lambda x, y: abs(x - y)) == expected
    points = [tuple(p) for p in rng.integers(0, 4, (5, 3)).tolist()]
    laws = [random_law(rng, sorted(set(points[i : i + 4]))) for i in range(2)]

    def apart(x, y):
        return sum(abs(a - b) for a, b in zip(x, y, strict=True))

    assert bottleneck_distance(*laws, apart) == by_linear_programming(*laws, apart)


@pytest.mark.parametrize(
    ("z0", "z1", "expected"), [("1/3", "1/3", 1), ("1/3", "1/2", 7), ("1/2", "1/3", 5)]
)
def test_others_who_are_all_the_same(z0, z1, expected):
    """Some mass goes from 0 to 7, or from 6 to 1, unless the probabilities are equal."""
    assert seeman.delta_z(n=7, z0=z0, z1=z1, dependence="comonotone") == expected


def test_one_person_moves_a_count_by_one():
    assert seeman.delta_z(n=1, z0="1/4", z1="3/4") == 1
    assert seeman.delta_z(n=1, z0="1/4", z1="3/4", dependence="comonotone") == 1


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"n": 0, "z0": "0", "z1": "1"}, "n: 0 is not allowed"),
        ({"n": 10**6, "z0": "0", "z1": "1"}, "at most 20,000"),
        ({"n": 5, "z0": "-0.1", "z1": "1"}, "z0: -0.1 is not allowed"),
        ({"n": 5, "z0": "0", "z1": "3/2"}, "z1: 3/2 is not allowed"),
        ({"n": 5, "z0": "0", "z1": "1", "dependence": "any"}, "dependence: unknown kind 'any'"),
    ],
)
def test_bad_input_is_named(inputs, message):
    with pytest.raises(InputError, match=message):
        seeman.delta_z(**inputs)


def test_what_is_no_law_is_refused():
    for law in ({0: Fraction(1, 2)}, {0: Fraction(3, 2), 1: Fraction(-1, 2)}):
        with pytest.raises(InputError, match="sum to 1 exactly"):
            seeman.infinity_distance(law, {0: Fraction(1)})
