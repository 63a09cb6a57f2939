"""Audits of our own mechanisms and of TopDown, planted faults, and the truth by brute force."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from countveil import DiscreteGaussian, DiscreteLaplace, Seeded
from countveil.assess import empirical_loss
from countveil.errors import InputError
from countveil.plan.plans import Plan
from countveil.postprocess.family import Family, Limits, solve
from countveil.postprocess.family_information import LevelInformation, Observations

TRUE = 1.0
NOISE = DiscreteLaplace(epsilon="1")


def test_the_bound_is_rarely_above_the_truth():
    """500 audits of noise with epsilon 1: no more than 5 % say more, and all say something."""
    bounds = [
        empirical_loss.audit_noise(NOISE, runs=1_000, rng=Seeded(seed)).lower_bound
        for seed in range(500)
    ]
    above = sum(bound > TRUE for bound in bounds)
    assert binomtest(above, 500, 0.05, alternative="greater").pvalue > 1e-3
    assert np.mean(bounds) > 0.6


def test_a_scale_that_is_5_percent_too_small_is_caught():
    short = DiscreteLaplace("0.95")  # claimed: 1
    found = empirical_loss.audit_noise(short, runs=400_000, rng=Seeded(1))
    assert found.refutes(TRUE)
    assert found.lower_bound < 1 / 0.95
    assert not empirical_loss.audit_noise(NOISE, runs=400_000, rng=Seeded(1)).refutes(TRUE)


def test_a_biased_coin_is_caught():
    """The sign of the noise comes up plus in 55 of 100 cases."""
    coins = np.random.default_rng(3)

    def biased(count, size, rng):
        size_of = np.abs(NOISE.sample(size, rng=rng))
        sign = np.where(coins.random(size) < 0.55, 1, -1)
        return count + sign * size_of

    for pair in ((1, 0), (0, 1)):
        found = empirical_loss.audit(biased, *pair, runs=400_000, rng=Seeded(2))
        assert found.refutes(TRUE)
        assert 0 < found.rarer < found.likelier < 1
    assert "output" in str(found.event)


def test_gaussian_noise_keeps_its_epsilon_at_delta():
    noise, delta = DiscreteGaussian(4), 1e-3
    epsilon = 1.6  # above the tight one, below the bound at delta = 0 far out
    tight = noise.hockey_stick(np.array([epsilon]))[0]
    assert tight < delta
    found = empirical_loss.audit_noise(noise, runs=200_000, delta=delta, rng=Seeded(3))
    assert 0.2 < found.lower_bound < epsilon
    free = empirical_loss.audit_noise(noise, runs=200_000, rng=Seeded(3))
    assert free.lower_bound > found.lower_bound


TINY = """
[release]
title = "Tiny"
unit = "person"
neighbors = "add-remove"
[geography]
levels = ["top"]
[attributes]
KIND = ["a", "b"]
[budget]
epsilon = "1"
[budget.levels]
top = "1"
[budget.queries."*"]
KIND = "1/2"
TOTAL = "1/2"
"""


def top_down(counts, size, rng):
    """Release one unit so many times; return the estimate of its first cell."""
    plan = Plan.parse(TINY)
    items = plan.at("top")
    observed = Observations.of_queries(
        [item.query for item in items], [item.mechanism.variance for item in items]
    )
    cells, exact = np.arange(2), np.array(counts)
    noise = [
        item.mechanism.sample(size * item.query.cells, rng=rng).reshape(size, -1) for item in items
    ]
    answers = [np.bincount(item.query.cell_of, exact, item.query.cells) for item in items]
    values = np.concatenate([a + e for a, e in zip(answers, noise, strict=True)], axis=1)
    first = np.empty(size)
    for number, row in enumerate(values.astype(np.int64)):
        family = Family(
            name="top",
            children=["unit"],
            cells=cells,
            parent=None,
            information=LevelInformation.of(observed, cells, row[None]),
            limits=Limits(),
            label=str,
        )
        first[number] = solve(family, plan.passes["top"]).counts[0, 0]
    return first


def test_top_down_keeps_the_epsilon_of_its_measurements():
    found = empirical_loss.audit(top_down, (3, 1), (2, 1), runs=2_000, rng=Seeded(4))
    assert 0.1 < found.lower_bound < 1.0


def geometric_law(database, *, scale=1.0, reach=60):
    """The law of one count with two-sided geometric noise, its far tails put at the ends."""
    a = math.exp(-1 / scale)
    low, high = -reach, reach
    law = {k: (1 - a) / (1 + a) * a ** abs(k - database[0]) for k in range(low + 1, high)}
    law[low] = a ** (database[0] - low) / (1 + a)
    law[high] = a ** (high - database[0]) / (1 + a)
    return law


@pytest.mark.parametrize("scale", [0.5, 1.0, 4.0])
def test_brute_force_finds_the_epsilon_of_geometric_noise(scale):
    found = empirical_loss.brute_force(
        lambda database: geometric_law(database, scale=scale), cells=1, most=4
    )
    assert found.epsilon == pytest.approx(1 / scale, rel=1e-9)
    assert abs(sum(found.database) - sum(found.neighbour)) == 1


def test_brute_force_finds_what_clipping_and_invariants_do():
    """Cutting off at zero costs nothing; publishing the total beside noise costs everything."""

    def clipped(database):
        law: dict[int, float] = {}
        for output, p in geometric_law(database).items():
            law[max(output, 0)] = law.get(max(output, 0), 0.0) + p
        return law

    assert empirical_loss.brute_force(clipped, cells=1, most=4).epsilon == pytest.approx(1.0)

    def with_total(database):
        law = geometric_law(database)
        return {(output, sum(database)): p for output, p in law.items()}

    assert math.isinf(empirical_loss.brute_force(with_total, cells=2, most=3).epsilon)
    fixed = empirical_loss.brute_force(with_total, cells=2, most=3, neighbors="change-one")
    assert fixed.epsilon == pytest.approx(1.0)


def test_brute_force_at_a_delta_is_the_hockey_stick():
    p = 0.7  # randomised response

    def answer(database):
        truth = database[0] > 0
        return {truth: p, not truth: 1 - p}

    for delta in (0.0, 0.1, 0.3):
        found = empirical_loss.brute_force(answer, cells=1, most=1, delta=delta)
        assert found.epsilon == pytest.approx(max(0.0, math.log((p - delta) / (1 - p))))


def test_estimators_are_judged_by_brute_force():
    """Of noise alone the estimators find the truth; the audit stays below it."""
    true = empirical_loss.brute_force(geometric_law, cells=1, most=3).epsilon
    residuals = NOISE.sample(200_000, rng=Seeded(5))
    ratio = empirical_loss.tail_ratio(residuals)
    assert ratio.interval[0] < true < ratio.interval[1]
    assert ratio.lower_bound < true
    fit = empirical_loss.geometric(residuals)
    assert fit.interval[0] < true < fit.interval[1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"runs": 10}, "runs: 10 is not allowed"),
        ({"delta": 1.0}, "delta: 1.0 is not allowed"),
        ({"confidence": 0}, "confidence: 0 is not allowed"),
    ],
)
def test_bad_audits_are_named(given, message):
    with pytest.raises(InputError, match=message):
        empirical_loss.audit_noise(NOISE, **{"runs": 1_000, "rng": Seeded(1), **given})


def test_an_algorithm_that_returns_something_else_is_named():
    with pytest.raises(InputError, match="one for each run"):
        empirical_loss.audit(lambda d, size, rng: [1.0], 1, 0, runs=200, rng=Seeded(1))
    with pytest.raises(InputError, match="sum to 0.5"):
        empirical_loss.brute_force(lambda d: {0: 0.5}, cells=1, most=1)
    with pytest.raises(InputError, match="more databases than can be searched"):
        empirical_loss.brute_force(geometric_law, cells=20, most=20)


def test_brute_force_refuses_nonsense_and_reaches_many_cells():
    for law in ({0: math.nan, 1: 0.5}, {0: 1.5, 1: -0.5}):
        with pytest.raises(InputError, match="negative or not finite"):
            empirical_loss.brute_force(lambda d, law=law: law, cells=1, most=1)
    with pytest.raises(InputError, match="no two databases"):
        empirical_loss.brute_force(lambda d: {0: 1.0}, cells=1, most=1, neighbors="change-one")
    with pytest.raises(InputError, match="neighbors: unknown relation 'other'"):
        empirical_loss.brute_force(lambda d: {0: 1.0}, cells=1, most=1, neighbors="other")
    assert empirical_loss.brute_force(lambda d: {0: 1.0}, cells=40, most=1).epsilon == 0

    def far(database):
        return {0: 0.5, 1: 0.5} if database[0] else {0: 1 - 1e-320, 1: 1e-320}

    found = empirical_loss.brute_force(far, cells=1, most=1, delta=1e-3)
    assert found.epsilon == pytest.approx(math.log(0.499) - math.log(1e-320), rel=1e-3)


def test_brute_force_at_a_delta_is_that_of_clipped_noise():
    """Many outputs: the hockey stick of geometric noise, summed output by output."""
    delta, epsilon = (
        0.05,
        empirical_loss.brute_force(geometric_law, cells=1, most=2, delta=0.05).epsilon,
    )
    first, second = geometric_law((1,)), geometric_law((0,))
    excess = sum(max(0.0, first[k] - math.exp(epsilon) * second[k]) for k in first)
    assert excess == pytest.approx(delta, rel=1e-6)
