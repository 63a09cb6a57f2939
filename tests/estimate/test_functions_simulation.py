"""How often intervals of functions of areas hold the truth, over simulated_sets estimates."""

import numpy as np
import pytest
from scipy.stats import kstest
from tests.estimate import known_areas

from countveil import estimate
from countveil.estimate.contrasts import fieller_sets, quotient, simulated_sets
from countveil.estimate.joint_variance import Pairs

CONFIDENCE = 0.9
CELLS = 3000


def within_three(held, confidence=CONFIDENCE):
    """Whether a share of cases lies within three standard errors of the confidence."""
    return abs(held.mean() - confidence) <= 3 * (confidence * (1 - confidence) / held.size) ** 0.5


def holds(made, truth):
    """Where sets hold a truth: between their ends, and not in their gap."""
    inside = (made.lower <= truth) & (truth <= made.upper)
    return inside & ~((made.gap_lower < truth) & (truth < made.gap_upper))


def drawn(truth, covariance, size, seed):
    """Return estimates around a truth: as many cells of two areas, and as pairs."""
    rng = np.random.default_rng(seed)
    value = rng.multivariate_normal(truth, covariance, size).T
    rows = (np.full(size, number) for number in (covariance[0][0], covariance[1][1]))
    return value, Pairs(*value, *rows, np.full(size, covariance[0][1]))


@pytest.mark.parametrize("covariance", [[[16, 9], [9, 9]], [[16, -9], [-9, 9]], [[16, 0], [0, 0]]])
@pytest.mark.parametrize("truth", [(300, 200), (5, 4), (3, 0.5), (-20, 1)])
def test_fieller_holds_the_truth_as_often_as_it_says(truth, covariance):
    _, pairs = drawn(truth, covariance, 100_000, seed=1)
    made = fieller_sets(pairs, CONFIDENCE)
    assert within_three(holds(made, truth[0] / truth[1]))


def test_the_delta_method_and_draws_hold_it_where_the_denominator_is_far_from_0():
    covariance = [[16, 9], [9, 9]]
    _, pairs = drawn((300, 200), covariance, 20_000, seed=2)
    value, error = quotient(pairs)
    assert within_three(np.abs(value - 1.5) <= 1.6448536269514722 * error)
    _, pairs = drawn((300, 200), covariance, 2_000, seed=3)
    made = simulated_sets(pairs, CONFIDENCE, 20_000, 1)
    assert within_three(holds(made, 1.5))


def test_the_delta_method_fails_near_0_and_fieller_does_not():
    """Why Fieller's sets are what is given unless another method is asked for."""
    _, pairs = drawn((12, 3), [[1, -0.9], [-0.9, 1]], 100_000, seed=4)
    value, error = quotient(pairs)
    delta = np.abs(value - 4) <= 1.6448536269514722 * error
    assert not within_three(delta)
    assert within_three(holds(fieller_sets(pairs, CONFIDENCE), 4))


@pytest.mark.parametrize("covariance", [[[16, 10], [10, 9]], [[16, -10], [-10, 9]]])
def test_differences_ratios_and_shares_of_areas_hold_it(covariance):
    truth = (120, 160)
    value, _ = drawn(truth, covariance, CELLS, seed=5)
    found = known_areas.many_cells(value, covariance)
    less = estimate.difference(found, "d1", "d2")
    assert within_three(holds(less, -40))
    for made in (
        estimate.ratio(found, "d1", "d2"),
        estimate.ratio(found, "d1", "d2", method="delta"),
        estimate.share(found, "d1", of="d2"),
        estimate.share(found, "d1", of="d2", possible=True),
        estimate.share(found, "d1", of="d2", method="simulation", draws=20_000),
    ):
        assert within_three(holds(made, 0.75))


def test_shares_of_cells_hold_it():
    rng = np.random.default_rng(7)
    truth = np.array([40.0, 8.0, 100.0])
    covariance = np.array([[25, -12, 3], [-12, 16, 6], [3, 6, 36.0]])
    held, compared = [], []
    for value in rng.multivariate_normal(truth, covariance, 2500):
        found = known_areas.areas(value[None], covariance)
        made = estimate.share(found, "d1")
        shares = truth / truth.sum()
        held.append(holds(made, shares))
        cells = estimate.difference(found["d1"], "c0", "c1")
        compared.append(holds(cells, 32))
    for cell in range(3):
        assert within_three(np.array(held)[:, cell])
    assert within_three(np.array(compared))


def test_rates_hold_it():
    covariance = np.array([[16, 10], [10, 9.0]])
    truth = np.array([50, 70.0])
    value, _ = drawn(truth, covariance, CELLS, seed=8)
    found = known_areas.many_cells(value, covariance)
    made = estimate.rates(found, {"d1": 1_000, "d2": 3_500})
    expected = np.array([[5_000], [2_000]])
    held = (made.lower <= expected) & (expected <= made.upper)
    assert within_three(held[0])
    assert within_three(held[1])
    less = estimate.difference(made, "d1", "d2")
    assert within_three(holds(less, 3_000))


def ranks_held(truth, covariance, times, seed):
    """Return how often all true ranks lie in their intervals, and how wide those are."""
    truth = np.asarray(truth, float)
    first = 1 + (truth > truth[:, None]).sum(axis=1)
    last = len(truth) - (truth < truth[:, None]).sum(axis=1)
    rng = np.random.default_rng(seed)
    held, width = [], []
    for number, value in enumerate(rng.multivariate_normal(truth, covariance, times)):
        found = known_areas.areas(value, covariance)
        made = estimate.ranking(found, draws=1000, seed=number)
        held.append(((made.rank_lower <= first) & (last <= made.rank_upper)).all())
        width.append((made.rank_upper - made.rank_lower).mean())
    return np.array(held), np.mean(width)


def test_ranks_hold_for_all_areas_at_once():
    rng = np.random.default_rng(9)
    shared = known_areas.random_covariance(rng, 6)
    cases = [
        (np.zeros(6), np.eye(6), "exactly"),
        (np.zeros(6), shared, "exactly"),
        (np.zeros(6), np.diag([0.01, 0.1, 1, 4, 9, 25.0]), "exactly"),
        ([0, 0, 0, 9, 9, 9], np.eye(6), "at least"),
        ([0, 1, 2, 3, 4, 5], np.eye(6), "at least"),
        ([0, 1, 2, 3, 4, 5], 2 * shared, "at least"),
        ([0, 20, 40, 60, 80, 80], np.eye(6), "at least"),
    ]
    for number, (truth, covariance, how) in enumerate(cases):
        held, width = ranks_held(truth, covariance, 400, number)
        margin = 3 * (CONFIDENCE * (1 - CONFIDENCE) / held.size) ** 0.5
        assert held.mean() >= CONFIDENCE - margin, (truth, held.mean())
        if how == "exactly":  # all are equal: nothing is given away
            assert held.mean() <= CONFIDENCE + margin, (truth, held.mean())
        if number == 4:
            assert width < 4


def test_p_values_are_uniform_where_nothing_changed():
    truth = np.random.default_rng(10).uniform(0, 50, (2, CELLS))
    rng = np.random.default_rng(11)
    estimates = []
    for covariance in ([[16, 10], [10, 9.0]], [[2, 1], [1, 5.0]]):
        noise = rng.multivariate_normal([0, 0], covariance, CELLS).T
        estimates.append(known_areas.many_cells(truth + noise, covariance))
    made = estimate.change(*estimates)
    for p_values in made.p_value:
        assert kstest(p_values, "uniform").pvalue > 0.01
    held = (made.lower <= 0) & (made.upper >= 0)
    assert within_three(held[0])
    assert within_three(held[1])


def test_holm_calls_something_wrongly_as_rarely_as_it_says():
    rng = np.random.default_rng(12)
    shared = known_areas.random_covariance(rng, 12)
    changed = np.repeat([0.0, 30.0], [8, 4])
    wrong, right, alone = [], [], []
    for _ in range(1500):
        one, other = rng.multivariate_normal(np.zeros(12), shared, 2)
        made = estimate.change(
            known_areas.areas(one, shared), known_areas.areas(other + changed, shared)
        )
        called = made.adjusted_p_value[:, 0] <= 0.1
        wrong.append(called[:8].any())
        right.append(called[8:].all())
        alone.append((made.p_value[:8, 0] <= 0.1).any())
    assert np.mean(wrong) <= 0.1 + 3 * (0.1 * 0.9 / 1500) ** 0.5
    assert np.mean(wrong) > 0.03  # it is not so for calling nothing
    assert np.mean(right) > 0.99
    assert np.mean(alone) > 0.3  # what it protects from
