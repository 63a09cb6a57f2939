"""Hard and soft thresholding against all noisy counts there may be, and simulation."""

from itertools import product

import numpy as np
import pytest

from countveil import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace, Seeded
from countveil.assess import homogeneity
from countveil.assess.homogeneity import Table
from countveil.errors import InputError
from countveil.papers import liu_zhao
from countveil.papers.liu_zhao.rounded_noise import round_noise

CELLS = [[3, 1, 0], [2, 2, 1], [0, 4, 0], [1, 0, 0], [5, 0, 1]]
NARROW = (DiscreteLaplace(epsilon="1.5"), DiscreteGaussian("0.8"), Gaussian(0.9), Laplace(2))
REACH = 22


def by_enumeration(counts, law):
    """Go through all rounded noise up to 22; the rest has less than 1e-13."""
    k = np.arange(-REACH, REACH + 1)
    probabilities = np.asarray(law.survival(k - 0.5) - law.survival(k + 0.5))
    near = k[probabilities > 1e-16]
    probabilities = probabilities[probabilities > 1e-16]
    hard = soft = 0.0
    shares = np.array(counts) / sum(counts)
    noise = np.array(list(product(near, repeat=len(counts))))
    weights = np.prod(np.array(list(product(probabilities, repeat=len(counts)))), axis=1)
    shown = np.maximum(noise + counts, 0)
    best = (shown == shown.max(axis=1, keepdims=True)) & (shown > 0)
    hard = weights @ ((best * shares).sum(axis=1) / np.maximum(best.sum(axis=1), 1))
    soft = weights @ ((shown * shares).sum(axis=1) / np.maximum(shown.sum(axis=1), 1))
    return hard, soft


@pytest.mark.parametrize("law", NARROW, ids=repr)
def test_both_are_the_average_over_all_noise(law):
    table = Table.from_counts(CELLS)
    each = np.array([by_enumeration(counts, law) for counts in CELLS])
    hard = liu_zhao.hard_thresholding(table, mechanism=law)
    soft = liu_zhao.soft_thresholding(table, mechanism=law)
    assert hard.cells == pytest.approx(each[:, 0], abs=1e-11)
    assert soft.cells == pytest.approx(each[:, 1], abs=1e-11)
    assert hard.value == pytest.approx(each[:, 0].mean(), abs=1e-11)
    weighted = liu_zhao.soft_thresholding(table, mechanism=law, weighted=True).value
    assert weighted == pytest.approx(np.average(each[:, 1], weights=table.sizes), abs=1e-11)


@pytest.mark.parametrize("law", [Laplace(0.05), Gaussian(25), DiscreteGaussian("400")], ids=repr)
@pytest.mark.parametrize("name", ["hard_thresholding", "soft_thresholding"])
def test_wide_noise_agrees_with_simulation(law, name):
    table = Table.from_counts([*CELLS, [120, 40, 3], [30, 30, 30]])
    measure = getattr(liu_zhao, name)
    exact = measure(table, mechanism=law)
    samples = measure(table, mechanism=law, draws=20_000, rng=Seeded(4))
    assert exact.standard_error is None
    assert samples.value == pytest.approx(exact.value, abs=4 * samples.standard_error)
    assert 0 < samples.standard_error < 0.005
    assert samples.audience == exact.audience == "internal"


def test_without_noise_the_largest_label_is_named():
    table, exact = Table.from_counts([[3, 1], [2, 2], [0, 4]]), Laplace(200)
    hard = liu_zhao.hard_thresholding(table, mechanism=exact).cells
    assert hard == pytest.approx([0.75, 0.5, 1.0])
    soft = liu_zhao.soft_thresholding(table, mechanism=exact).cells
    assert soft == pytest.approx([0.75**2 + 0.25**2, 0.5, 1.0])


def test_thresholding_tells_more_than_homogeneity_alone():
    table = Table.from_counts(CELLS)
    for law in NARROW:
        attack = homogeneity.local_risk(table, mechanism=law, method="share").cells
        assert (liu_zhao.hard_thresholding(table, mechanism=law).cells >= attack).all()


@pytest.mark.parametrize("law", NARROW, ids=repr)
def test_rounded_noise_is_a_law_and_is_drawn_from_it(law):
    noise = round_noise(law)
    assert noise.at.sum() == pytest.approx(1, abs=1e-14)
    k = np.arange(-noise.reach, noise.reach + 1)
    samples = noise.sample(50_000, rng=Seeded(1))
    for value in range(-3, 4):
        probability = noise.at[k == value][0]
        spread = np.sqrt(probability * (1 - probability) / 50_000)
        assert (samples == value).mean() == pytest.approx(probability, abs=5 * spread)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"draws": 100}, r"rng: a simulation needs random numbers; pass rng=Seeded\(1\)"),
        ({"draws": 1, "rng": Seeded(1)}, "draws: 1 is not allowed; give 2 or more"),
        ({"mechanism": Laplace(1e-7)}, "is too wide; at most 4,194,304 values"),
        ({"mechanism": "Laplace"}, "is not noise"),
    ],
)
def test_wrong_arguments_are_named(inputs, message):
    table = Table.from_counts(CELLS)
    with pytest.raises(InputError, match=message):
        liu_zhao.hard_thresholding(table, **{"mechanism": Laplace(1), **inputs})
