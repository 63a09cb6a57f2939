"""Intervals for counts: their definition, exact coverage of every count, and whole numbers."""

import numpy as np
import pytest
from scipy.stats import norm

from countveil.base.intervals import _ends, count_interval


def accepted(mean, confidence, grid):
    """By the definition: take estimates by their likelihood ratio until there is enough."""
    ratio = norm.logpdf(grid - mean) - norm.logpdf(grid - np.maximum(grid, 0.0))
    order = np.argsort(-ratio, kind="stable")
    chance = np.cumsum(norm.pdf(grid[order] - mean)) * (grid[1] - grid[0])
    taken = grid[order[: np.searchsorted(chance, confidence) + 1]]
    return taken.min(), taken.max()


@pytest.mark.parametrize("confidence", [0.6, 0.9, 0.99])
def test_ends_are_those_of_estimates_taken_by_their_likelihood_ratio(confidence):
    grid = np.linspace(-30, 20, 200_001)
    for mean in (0.12, 0.2, 0.5, 1.0, 1.5, 2.5, 4.0):
        first, last = accepted(mean, confidence, grid)
        # The mean is the upper end of the first estimate that it takes, and the lower of the last.
        assert _ends(np.array([first]), confidence)[1][0] == pytest.approx(mean, abs=2e-3)
        assert _ends(np.array([last]), confidence)[0][0] == pytest.approx(mean, abs=2e-3)


@pytest.mark.parametrize("confidence", [0.5, 0.68, 0.9, 0.99])
def test_every_mean_is_held_with_just_the_confidence(confidence):
    """By the normal law itself: add up the chances of all estimates whose interval holds the mean."""
    grid = np.linspace(-12, 14, 520_001)
    low, high = _ends(grid, confidence)
    assert (np.diff(low) >= 0).all()
    assert (np.diff(high) >= 0).all()
    for mean in (0.0, 0.01, 0.2, 0.7, 1.3, 2.0, 3.1, 6.0):
        inside = (low <= mean) & (mean <= high)
        chance = (norm.pdf(grid - mean) * inside).sum() * (grid[1] - grid[0])
        assert chance == pytest.approx(confidence, abs=3e-4), mean


def test_whole_numbers_inside_are_those_between_the_ends():
    rng = np.random.default_rng(1)
    value, error = rng.normal(3, 8, 2_000), rng.exponential(3, 2_000)
    low, high = count_interval(value, error, 0.9)
    ends = _ends(value / error, 0.9)
    for v, e, first, last, lower, upper in zip(value, error, low, high, *ends, strict=True):
        inside = {x for x in range(80) if lower * e <= x <= upper * e}
        if not inside:  # no count fits: the nearest that can be stands
            inside = {max(0, round(v))}
        assert inside == set(range(int(first), int(last) + 1))


def test_what_is_exact_is_itself_and_what_fell_far_below_leaves_room():
    low, high = count_interval(np.array([7.0, 0.0, -90.0]), np.array([0.0, 0.0, 30.0]), 0.9)
    assert low.tolist() == [7, 0, 0]
    assert high.tolist() == [7, 0, 7]  # 0.26 · 30
