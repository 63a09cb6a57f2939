"""What projection does to small counts: definitions, exact shares, size classes."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from countveil.base.randomness import Seeded
from countveil.errors import InputError
from countveil.noise.discrete_laplace import DiscreteLaplace
from countveil.papers.seeman import contraction, projection

GOLDEN = json.loads(
    (Path(__file__).parents[2] / "golden" / "public_projection.json").read_text(encoding="utf-8")
)


def test_each_effect_is_separate():
    tables = np.array(
        [
            [[0.49, 0.3], [0.5, 0.01], [0.5, 0.0], [9.0, 8.6], [2.0, 0.5]],
            [[0.0, 0.0], [2.0, 1.5], [3.0, 2.51], [9.0, 8.4], [2.0, 1.5]],
        ]
    )
    result = contraction.contractions(tables)
    assert result.case_zeros.tolist() == [1, 0, 0, 0, 0]
    assert result.death_zeros.tolist() == [1, 0.5, 0.5, 0, 0]
    assert result.rates.tolist() == [0, 0.5, 0.5, 0.5, 0]
    assert result.of() == contraction.EffectShares(5, 0.2, 0.4, pytest.approx(0.3))
    assert result.of([3, 1]) == contraction.EffectShares(2, 0, 0.25, 0.5)
    one = contraction.contractions(tables[0])
    assert one.death_zeros.tolist() == [1, 1, 1, 0, 0]
    with pytest.raises(ValueError, match="read-only"):
        result.rates[0] = 1


def exact_shares(small, scale):
    """Sum over all noise of a small county beside one that takes up whatever the total leaves."""
    at = np.arange(-60, 61)
    p = np.exp(DiscreteLaplace(scale).log_pmf(at))
    other, cases, deaths = np.meshgrid(at, at, at, indexing="ij", sparse=True)
    weight = p[:, None, None] * p[None, :, None] * p[None, None, :]
    # The other's cases are the total less c: (c - x - n)² + (c - x + N)² + (d - b)², to be
    # least, is 2(c - half)² + (d - b)² and a constant.
    half, b = np.broadcast_arrays(small[0] + (cases - other) / 2, small[1] + deaths)
    c = np.where(b >= 0, np.where(half >= b, half, (2 * half + b) / 3), half)
    c = np.maximum(c, 0)
    d = np.where(b >= 0, np.minimum(b, c), 0)
    some = c >= 0.5
    return [
        float(weight[effect].sum()) for effect in (~some, d < 0.5, some & (np.abs(c - d) < 0.5))
    ]


@pytest.mark.parametrize("small", [(3, 0), (5, 4), (12, 1)])
def test_shares_are_those_of_all_noise(small):
    table = np.array([small, (10**6, 10**5)])
    noisy = projection.with_noise(table, epsilon="1", rng=Seeded(11), replicates=40_000)
    tables = projection.project(noisy, total=int(table[:, 0].sum()))
    result = contraction.contractions(tables).of([0])
    shares = (result.case_zeros, result.death_zeros, result.rates)
    for share, exact in zip(shares, exact_shares(small, 4), strict=True):
        assert abs(share - exact) < 4 * math.sqrt(exact * (1 - exact) / 40_000)


def test_a_county_without_deaths():
    """Far from its cases, 0 deaths stay 0 with the chance that discrete Laplace noise is 0 or below."""
    table = np.array([[10**5, 0], [10**6, 10**5]])
    noisy = projection.with_noise(table, epsilon="1/2", rng=Seeded(3), replicates=40_000)
    result = contraction.contractions(projection.project(noisy, total=1_100_000))
    probability = (1 + math.tanh(1 / 16)) / 2
    assert abs(result.death_zeros[0] - probability) < 4 * math.sqrt(
        probability * (1 - probability) / 40_000
    )
    assert result.death_zeros[1] == 0


@pytest.mark.parametrize("epsilon", ["0.01", "1.0"])
def test_the_golden_order(epsilon):
    """Golden counts are not recorded: on 67 like them, the same classes suffer the same effects."""
    people = np.exp(np.linspace(math.log(4_500), math.log(1.5e6), 67))
    cases = np.round(people / 80).astype(int)
    table = np.stack((cases, np.round(cases / 200).astype(int)), axis=1)
    noisy = projection.with_noise(table, epsilon=epsilon, rng=Seeded(1), replicates=400)
    result = contraction.contractions(projection.project(noisy, total=int(cases.sum())))
    golden = GOLDEN[f"ppd.contracted|eps={epsilon}"]
    ours = {"small": result.of([0]), "large": result.of([66]), "all": result.of()}
    for place, name in enumerate(("case_zeros", "death_zeros", "rates")):
        theirs = {key: golden[key][place] for key in golden}
        shares = {key: getattr(ours[key], name) for key in golden}
        assert shares["small"] >= shares["all"] >= shares["large"]
        assert theirs["small"] >= theirs["all"] >= theirs["large"]
        for key in golden:
            assert shares[key] == pytest.approx(theirs[key], abs=0.15)


def test_size_classes():
    result = contraction.contractions([[[0, 0], [5, 5], [9, 0], [40, 2]]])
    sizes = [900, 1_000, 2_500, 90_000]
    classes = result.by_size(sizes, [1_000, 50_000, 10**6])
    assert list(classes) == ["below 1,000", "1,000 to 50,000", "50,000 to 1,000,000"]
    assert classes["below 1,000"] == contraction.EffectShares(1, 1, 1, 0)
    assert classes["1,000 to 50,000"] == contraction.EffectShares(2, 0, 0.5, 0.5)
    assert classes["50,000 to 1,000,000"] == contraction.EffectShares(1, 0, 0, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: contraction.contractions([1.0, 2.0]), r"the shape is \(2,\)"),
        (lambda: contraction.contractions(np.ones((3, 4, 1))), r"the shape is \(3, 4, 1\)"),
        (
            lambda: contraction.contractions([[1, 0]]).of([]),
            r"\[\] is not allowed; give one row or more",
        ),
        (lambda: contraction.contractions([[1, 0]]).of([1]), "from 0 to 0"),
        (
            lambda: contraction.contractions([[1, 0]]).by_size([3, 4], [5]),
            "got 2; give one for each of 1",
        ),
        (lambda: contraction.size_classes([3, 4], []), r"limits: \[\] is not allowed"),
        (lambda: contraction.size_classes([3, 4], [5, 5]), "each above the one before"),
        (lambda: contraction.size_classes([3, np.inf], [5]), "one finite number"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
