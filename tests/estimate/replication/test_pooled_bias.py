"""Biases pooled over units: by hand, in their limits, and over simulated units."""

import numpy as np
import pytest
from scipy.integrate import quad

from countveil.base.intervals import count_interval
from countveil.estimate.replication.replicate_intervals import (
    ALIKE,
    _mean_variance,
    _shrunk,
    bias_correction,
)


def column(*numbers):
    return np.array(numbers, float)[:, None]


@pytest.mark.parametrize("likely", [1e-4, 0.02, 0.7, 30.0])
def test_the_mean_variance_is_its_integral(likely):
    for found in (-30.0, -4.0, -1.0, 0.0, 0.6, 3.0, 11.0):

        def density(t, found=found):  # half-Cauchy beforehand
            normal = np.exp(-((t * t - found) ** 2 - min(found, 0.0) ** 2) / 2)
            return normal / (1 + t * t / likely)

        middle, reach = max(found, 0.0) ** 0.5, (max(found, 0.0) + 12) ** 0.5
        points = sorted({middle, min(likely**0.5, reach / 2)})
        whole = quad(density, 0, reach, points=points, limit=400)[0]
        mean = quad(lambda t: t * t * density(t), 0, reach, points=points, limit=400)[0] / whole
        assert _mean_variance(np.array([found]), np.array([likely]))[0] == pytest.approx(
            mean, rel=2e-3
        )
    assert _mean_variance(np.array([40.0]), np.array([likely]))[0] == pytest.approx(40.0)


def test_few_units_stand_for_themselves():
    """Then replicates bring nothing: the interval is that of the unbiased estimate."""
    released = np.array([[120], [7], [0], [55]])
    value, error = column(111, 9.5, -3, 50), column(4, 5, 6, 7)
    assert len(released) < ALIKE
    found = bias_correction(released, 0 * value, column(1, 1, 1, 1), value, error, 50)
    assert np.allclose(found.bias, released - value)
    assert np.allclose(found.standard_error, error)


def test_what_is_public_is_exact_and_tells_nothing_of_others():
    rng = np.random.default_rng(1)
    released = rng.integers(100, 200, (30, 1))
    value, error = released + rng.normal(4, 2, (30, 1)), np.full((30, 1), 2.0)
    spread = np.full((30, 1), 1.0)
    alone = bias_correction(released, 0 * value, spread, value, error, 50)
    known = [np.concatenate([a, b]) for a, b in ((released, released), (spread, 0 * spread))]
    both = bias_correction(
        known[0],
        0.0 * known[1],
        known[1],
        np.concatenate([value, released]),
        np.concatenate([error, 0 * error]),
        50,
    )
    assert np.allclose(both.bias[:30], alone.bias)
    assert np.allclose(both.standard_error[:30], alone.standard_error)
    assert (both.bias[30:] == 0).all()
    assert (both.standard_error[30:] == 0).all()


def test_a_group_by_hand():
    """Six units of one size with the same noise: the textbook's formulas of random effects."""
    released = np.full((6, 1), 40)
    difference = np.array([3.0, 5.0, -1.0, 4.0, 8.0, 2.0])
    value, error, spread = (
        released - difference[:, None],
        np.full((6, 1), 3.0),
        np.full((6, 1), 1.0),
    )
    noise = 9.0 - 1.0
    excess = difference.var(ddof=1) - noise  # 9.1 - 8
    doubt = np.sqrt(2 / 5) * (noise + excess)
    drift = np.array([0.5, 1.5, -0.5, 1.0, 2.5, -0.5])
    likely = 3 * (drift.var(ddof=1) - 1.0 / 50)  # replicates vary by 1, and there are 50 of them
    between = doubt * _mean_variance(np.array([excess / doubt]), np.array([likely / doubt]))[0]
    own = between / (between + noise)
    bias = (1 - own) * 3.5 + own * difference
    left = own * noise + (1 - own) ** 2 * (between + noise) / 6
    found = bias_correction(released, drift[:, None], spread, value, error, 50)
    assert np.allclose(found.bias[:, 0], bias)
    assert np.allclose(found.standard_error[:, 0] ** 2, 1.0 + left)


def test_units_are_alike_by_cell_and_size():
    """Large units are biased down and small ones up; other cells otherwise."""
    rng = np.random.default_rng(2)
    size = np.repeat([5, 500], 300)
    truth = np.stack([size, size], axis=1)
    bias = np.stack([np.where(size > 100, -8.0, 6.0), np.where(size > 100, 2.0, 0.0)], axis=1)
    released = np.maximum(np.rint(truth + bias + rng.normal(0, 0.6, truth.shape)), 0).astype(int)
    error = np.full(truth.shape, 12.0)
    value = truth + rng.normal(0, 12, truth.shape)
    spread = np.full(truth.shape, 0.7)
    found = bias_correction(released, 0 * value, spread, value, error, 50)
    for large in (False, True):  # 300 units of noise 12: the mean is known to 0.7
        inside = (size > 100) == large
        assert (abs((found.bias - bias)[inside].mean(axis=0)) < 3 * 0.7).all()
    assert abs(found.bias - bias).mean() < 2 < abs(released - value - bias).mean()


@pytest.mark.parametrize("told", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("varies", [0.0, 3.0, 20.0])
def test_intervals_hold_for_any_biases(varies, told):
    """Biases that vary not at all, about as much as can be seen, and more than the noise does.

    Replicates tell nothing of them, or some of it, or all.
    """
    rng, held, width = np.random.default_rng(3), [], []
    for _ in range(150):
        truth = rng.integers(200, 290, (60, 1))
        bias = rng.normal(5, varies, truth.shape)
        spread, error = np.full(truth.shape, 3.0), np.full(truth.shape, 10.0)
        # The unbiased estimate is the released one with more noise, as Hausman has it.
        released_error = rng.normal(0, 3, truth.shape)
        released = np.rint(truth + bias + released_error).astype(int)
        value = truth + released_error + rng.normal(0, np.sqrt(91), truth.shape)
        drift = told * bias + rng.normal(0, 3 / np.sqrt(50), truth.shape)
        found = bias_correction(released, drift, spread, value, error, 50)
        lower, upper = count_interval(released - found.bias, found.standard_error, 0.9)
        held.append(((lower <= truth) & (truth <= upper)).mean())
        width.append((upper - lower).mean())
    share = np.mean(held)
    least = 0.8 if told == 0 and varies == 3 else 0.88  # nobody could know, then
    assert least < share < (0.96 if varies == 0 else 0.94)
    # Never longer than least squares alone, and far shorter where biases are alike.
    assert np.mean(width) < 2 * 1.645 * 10 * (0.65 if varies < 5 else 1.001)


def test_spreads_of_few_replicates_are_drawn_to_those_of_units_alike():
    """Where units spread alike their mean is known far better; where they do not, each keeps more."""
    rng, replicates, units = np.random.default_rng(4), 20, 400
    for varies, gain in ((0.0, 0.2), (0.9, 1.0)):
        true = 4.0 * np.exp(varies * rng.normal(size=units))
        found = true * rng.chisquare(replicates - 1, units) / (replicates - 1)
        steady = _shrunk(found, np.zeros(units, int), np.ones(units), replicates)
        before, after = (np.sqrt(np.mean((v - true) ** 2)) for v in (found, steady))
        assert after < gain * before
        assert steady.mean() == pytest.approx(found.mean())
    few = np.array([1.0, 9.0, 4.0])
    assert (_shrunk(few, np.zeros(3, int), np.ones(3), 20) == few).all()


def test_errors_are_never_above_those_of_the_unbiased_estimate():
    """Whose own spread is larger stands for itself, as nothing is gained by it."""
    rng = np.random.default_rng(5)
    released = rng.integers(100, 250, (40, 1))
    value, error = released + rng.normal(0, 4, (40, 1)), np.full((40, 1), 4.0)
    spread = np.full((40, 1), 1.0)
    spread[7] = 30.0
    found = bias_correction(released, 0 * value, spread, value, error, 400)
    assert (found.standard_error <= error + 1e-12).all()
    assert found.standard_error[7] == pytest.approx(4.0)
    assert found.bias[7] == pytest.approx((released - value)[7])


def test_what_is_published_as_0_is_not_pooled_with_what_is_not():
    rng = np.random.default_rng(6)
    released = np.repeat([[0], [1]], 200, axis=0)
    bias = np.repeat([[-4.0], [3.0]], 200, axis=0)
    value = released - bias + rng.normal(0, 2, released.shape)
    spread, error = np.full(released.shape, 0.3), np.full(released.shape, 2.0)
    found = bias_correction(released, 0 * value, spread, value, error, 50)
    assert abs(found.bias[:200].mean() + 4) < 0.5
    assert abs(found.bias[200:].mean() - 3) < 0.5
    assert (found.standard_error < 1.5).all()  # together they would vary by far more
