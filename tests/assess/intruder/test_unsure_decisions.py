"""Decisions and risks of someone who is unsure about others, or sees several counts."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from countveil import DiscreteGaussian, DiscreteLaplace, Intruder, Seeded
from countveil.assess import Level, correct_decision, hierarchy
from countveil.errors import InputError

TIGHT = DiscreteGaussian("1/8")  # few values, so that everything above is listed
REACH = 8


def pmf(noise, e):
    return math.exp(float(noise.log_pmf(np.array([float(e)]))[0]))


def by_hand(levels, truth, intruder, score):
    """Average a score of the posterior over every release of two levels, one sibling."""
    low, high = levels
    total = 0.0
    errors = range(-REACH, REACH + 1)
    for e1, e2, es in itertools.product(errors, errors, errors):
        weight = pmf(low.noise, e1) * pmf(high.noise, e2) * pmf(low.noise, es)
        if weight < 1e-14:
            continue
        seen = truth[0] + e1, truth[1] + e2, truth[1] - truth[0] + es
        odds = [0.0, 0.0]
        for there in (True, False):
            prior = intruder.prior if there else 1 - intruder.prior
            counts = intruder.counts(there=there)
            for count, log_weight in zip(counts, intruder.log_weights(there=there), strict=True):
                fit = prior * math.exp(log_weight) * pmf(low.noise, seen[0] - count)
                above = sum(
                    pmf(low.noise, seen[2] - rest) * pmf(high.noise, seen[1] - count - rest)
                    for rest in range(20)
                )
                odds[there] += fit * above
        total += weight * score(odds[1] / (odds[0] + odds[1]))
    return total


@pytest.mark.parametrize("bounds", [{}, {"at_least": 2}, {"at_most": 3}])
@pytest.mark.parametrize("present", [True, False])
def test_two_levels_by_hand(bounds, present):
    levels = [Level(TIGHT, siblings=1), Level(TIGHT)]
    who = Intruder(prior=0.3, known=1, others=(0.5, 0.3, 0.2), **bounds)
    truth = [2, 4]

    def right(posterior):
        if math.isclose(posterior, 0.5, rel_tol=1e-12):
            return 0.5
        return float((posterior > 0.5) == present)

    found = hierarchy.correct_decision(levels, truth=truth, intruder=who, present=present)
    assert found.standard_error is None
    assert found.error_bound < 1e-9
    assert found.value == pytest.approx(by_hand(levels, truth, who, right), abs=1e-9)
    if present:
        risk = hierarchy.marginal_risk(levels, truth=truth, intruder=who, present=True)
        mean = by_hand(levels, truth, who, lambda posterior: posterior)
        assert risk.value == pytest.approx(mean / who.informed_prior, rel=1e-8)


def test_listing_three_levels_agrees_with_drawing_them():
    levels = [Level(TIGHT, siblings=1), Level(TIGHT), Level(TIGHT)]
    truth, who = [2, 3, 3], Intruder(prior=0.3, known=1)
    exact = hierarchy.correct_decision(levels, truth=truth, intruder=who)
    assert exact.standard_error is None
    drawn = hierarchy.correct_decision(
        levels, truth=truth, intruder=who, draws=20_000, rng=Seeded(1)
    )
    assert abs(drawn.value - exact.value) < 4 * drawn.standard_error


def test_a_wide_noise_is_drawn():
    levels = [Level(DiscreteGaussian("99"), siblings=3), Level(DiscreteGaussian("99"))]
    who = Intruder(prior=0.3, known=1, others=(0.5, 0.5))
    given = {"truth": [2, 9], "intruder": who, "present": True}
    with pytest.raises(InputError, match="rng: 2 levels are simulated"):
        hierarchy.correct_decision(levels, **given)
    drawn = hierarchy.correct_decision(levels, **given, draws=200, rng=Seeded(1))
    assert drawn.standard_error > 0


def test_the_truth_must_fit_what_they_know():
    levels = [Level(TIGHT)]
    who = Intruder(prior=0.3, known=1, others=(0.5, 0.5))
    with pytest.raises(InputError, match="present: missing; a count of 2 is possible with"):
        hierarchy.correct_decision(levels, truth=[2], intruder=who)
    with pytest.raises(InputError, match="the lowest count is 7; what they know allows 1, 2, 3"):
        hierarchy.correct_decision(levels, truth=[7], intruder=who)
    with pytest.raises(InputError, match="the lowest count is 3, present=False"):
        hierarchy.correct_decision(levels, truth=[3], intruder=who, present=False)
    assert hierarchy.correct_decision(levels, truth=[3], intruder=who).value > 0.5


@pytest.mark.parametrize("present", [True, False])
@pytest.mark.parametrize("prior", [0.5, 0.1])
def test_several_counts_are_summed(present, prior):
    """S1.3: two noisy counts of the same cell, against every pair of noises."""
    noises = [DiscreteGaussian("1"), DiscreteLaplace(epsilon=1)]
    e = np.arange(-60, 61, dtype=float)
    shift = 0 if present else 1
    p = [np.exp(noise.log_pmf(e)) for noise in noises]
    # e is the noise if the target is there; the count without them is e - 1 away.
    loss = [noise.log_pmf(e - shift) - noise.log_pmf(e - shift + 1) for noise in noises]
    odds = math.log(prior / (1 - prior)) + loss[0][:, None] + loss[1][None, :]
    tied = np.isclose(odds, 0.0, atol=1e-11)
    yes = (np.outer(*p) * np.where(tied, 0.5, odds > 0)).sum()
    found = correct_decision(noises, intruder=Intruder(prior=prior), present=present)
    assert found.value == pytest.approx(yes if present else 1 - yes, abs=1e-9)


def test_several_counts_of_one_noise_are_one_sharper_count():
    twice = correct_decision([DiscreteGaussian("8")] * 2, intruder=Intruder(prior=0.5))
    once = correct_decision(DiscreteGaussian("4"), intruder=Intruder(prior=0.5))
    assert twice.value == pytest.approx(once.value, abs=0.02)
    alone = correct_decision([], intruder=Intruder(prior=0.2), present=False)
    assert alone.value == 1.0
