"""The bound on a mean holds as often as it says, and is not much wider than it must be."""

import numpy as np
import pytest

from countveil.assess.published.bounded_mean import best_rate, mean_at_most, mean_between


@pytest.mark.parametrize("share", [0.5, 0.02, 0.001])
def test_it_holds_with_the_stated_confidence(share):
    """Draws that are 0 or 1: the hardest law of a given mean."""
    rng = np.random.default_rng(1)
    missed = 0
    for _ in range(400):
        pilot, draws = (rng.random((2, 600)) < share).astype(float)
        rate, _ = best_rate(pilot, largest=1.0, size=600, confidence=0.9)
        missed += mean_at_most(draws, rate, confidence=0.9) < share
    assert missed <= 52  # 40 expected at most, with standard deviation 6


def test_it_is_about_as_narrow_as_the_normal_law():
    rng = np.random.default_rng(2)
    pilot, draws = rng.beta(2, 5, (2, 20_000))
    rate, _ = best_rate(pilot, largest=1.0, size=20_000, confidence=0.975)
    reach = mean_at_most(draws, rate, confidence=0.975) - draws.mean()
    normal = draws.std() / np.sqrt(20_000)
    assert 1.96 * normal < reach < 3.0 * normal


def test_two_laws_in_equal_numbers_are_bounded_by_their_mean():
    rng, missed = np.random.default_rng(3), 0
    for _ in range(300):
        draws = np.concatenate([rng.random(300) < 0.1, rng.random(300) < 0.5]).astype(float)
        missed += mean_at_most(draws, 0.2, confidence=0.9) < 0.3
    assert missed <= 42


def test_no_draw_above_zero_still_leaves_room():
    """The rule of three: nothing seen in n draws bounds a probability by about log(1/a)/n."""
    assert mean_at_most(np.zeros(1_000), 0.99, confidence=0.95) == pytest.approx(3.0e-3, rel=0.02)


@pytest.mark.parametrize("share", [0.5, 0.03])
def test_two_ends_contain_the_mean_as_often_as_they_say(share):
    rng, missed, width = np.random.default_rng(5), 0, 0.0
    for _ in range(300):
        low, high = mean_between((rng.random(500) < share).astype(float), confidence=0.9)
        missed += not low <= share <= high
        width += (high - low) / 300
    assert missed <= 45  # 30 expected at most, with standard deviation 5
    normal = np.sqrt(share * (1 - share) / 500)
    assert 3.3 * normal < width < 8 * normal


@pytest.mark.parametrize("value", [0.0, 0.4, 1.0])
def test_two_ends_of_draws_that_are_all_alike(value):
    low, high = mean_between(np.full(1_000, value), confidence=0.95)
    assert 0 <= low <= value <= high <= 1
    assert high - low < 0.02
