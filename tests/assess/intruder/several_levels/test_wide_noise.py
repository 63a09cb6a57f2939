"""Two levels with noise that is wide or heavy-tailed, or far from zero; thinned sums say so."""

import math

import numpy as np
import pytest

from countveil import DiscreteGaussian, DiscreteLaplace
from countveil.assess import Intruder, Level
from countveil.assess.intruder.several_levels import hierarchy, lowest_count, two_levels
from countveil.assess.intruder.several_levels.hierarchy_level import (
    Exactly,
    Pmf,
    SiblingsPoisson,
    UpTo,
)
from countveil.errors import InputError
from countveil.noise.summed_noise import SummedNoise

WHO = Intruder(prior=0.5)


def gaussian(rho: str, siblings: int = 0, **more: object) -> Level:
    return Level(DiscreteGaussian.from_rho(rho), siblings, **more)


@pytest.mark.parametrize("siblings", [1, 2, 5])
@pytest.mark.parametrize(("ties", "share"), [("split", 0.5), ("yes", 1.0), ("no", 0.0)])
def test_laplace_noise_ties_where_the_parent_reads_too_little(siblings, ties, share):
    """A parent that reads 0 or less says the least it can, whatever its siblings read."""
    noise = DiscreteLaplace(1)
    q = math.exp(-1)
    there, low = 1 / (1 + q), q / (1 + q)
    found = hierarchy.correct_decision(
        [Level(noise, siblings), Level(noise)], truth=[1, 1], intruder=WHO, ties=ties
    )
    assert found.value == pytest.approx(there * (1 - low * (1 - share)), abs=1e-13)


@pytest.mark.parametrize("noise", [DiscreteGaussian.from_rho("0.0002"), DiscreteLaplace(8)])
def test_a_thinned_table_is_as_far_off_as_it_says(noise, monkeypatch):
    two = [Level(noise, 2), Level(noise)]
    given = {"truth": [3, 4], "intruder": Intruder(prior=0.3, known=2)}
    right = hierarchy.correct_decision(two, **given)
    risk = hierarchy.marginal_risk(two, **given)
    assert right.error_bound is None
    monkeypatch.setattr(two_levels, "_MOST_CELLS", 20_000)
    rough_right = hierarchy.correct_decision(two, **given)
    rough_risk = hierarchy.marginal_risk(two, **given)
    assert abs(rough_right.value - right.value) <= rough_right.error_bound < 0.1
    assert abs(rough_risk.value - risk.value) <= 2 * rough_risk.error_bound + 1e-13


@pytest.mark.parametrize(
    "prior", [SiblingsPoisson(400.0), UpTo(700), Exactly(390), Pmf(np.arange(1.0, 600.0))]
)
def test_priors_far_from_what_is_seen_are_summed_whole(prior):
    """What the intruder believes may lie where neither count points."""
    low, high = gaussian("0.02", 3, prior=prior), gaussian("0.05")
    law = SummedNoise(low.noise, 3)
    parents, sums = np.array([0.0, 300.0, 395.0]), np.array([-20.0, 350.0, 380.0])
    found = two_levels.log_odds_above(low, high, parents, sums, WHO, "convolution")
    y = np.arange(0.0, 1500.0)
    for i, parent in enumerate(parents):
        for j, seen in enumerate(sums):
            logs = [
                np.logaddexp.reduce(
                    high.noise.log_pmf(parent - k - y)
                    + law.log_pmf(seen - y)
                    + prior.log_weight(k + y, np.full(len(y), k))
                )
                for k in (1.0, 0.0)
            ]
            assert found[i, j] == pytest.approx(logs[0] - logs[1], abs=1e-9)


def test_far_from_zero_the_size_of_counts_does_not_matter():
    two = [gaussian("0.1", 27), gaussian("0.25")]
    near, far = (
        (
            hierarchy.correct_decision(two, truth=[1, others], intruder=WHO).value,
            hierarchy.marginal_risk(two, truth=[1, others], intruder=WHO).value,
        )
        for others in (10_000, 10**9)
    )
    assert near == pytest.approx(far, rel=1e-9)


def test_wide_noise_takes_the_interior_limit_far_from_zero():
    """All levels together amount to one count with the interior rho."""
    two = [gaussian("1e-6", 27), gaussian("1e-6")]
    rho = hierarchy.interior_rho(two).value
    risk = hierarchy.marginal_risk(two, truth=[1, 10**9], intruder=Intruder(prior=0.1))
    # R is 1 + 2 (1 - p)² rho to first order.
    assert risk.value - 1 == pytest.approx(2 * 0.9**2 * rho, rel=1e-4)
    assert risk.error_bound < 1e-12


def test_noise_and_belief_too_far_apart_are_refused():
    low = gaussian("1e-12", 5, prior=Pmf(np.ones(1_000_000)))
    with pytest.raises(InputError, match=r"too far apart"):
        hierarchy.marginal_risk([low, gaussian("1e-12")], truth=[1, 3], intruder=WHO)


def test_posteriors_average_by_series_as_by_sums():
    losses, weights = DiscreteGaussian.from_rho("0.0005").privacy_loss()
    odds = np.linspace(-7, 4, 2_001)
    direct = np.array([weights @ (1 / (1 + np.exp(-(at + losses)))) for at in odds])
    assert len(losses) > 300
    assert np.abs(lowest_count.mean_posterior(odds, losses, weights) - direct).max() < 2e-13


@pytest.mark.parametrize(
    ("scale", "count", "at", "log_p"),
    [  # by the finite hypergeometric sum in 40 digits
        ("1000000", 10, 10**7, -18.748627964721713),
        ("1000000", 2, 10**7, -22.803909646285931),
        ("1000000", 261, 10**7, -17.958165436441256),
    ],
)
def test_sums_of_wide_laplace_noise(scale, count, at, log_p):
    found = SummedNoise(DiscreteLaplace(scale), count).log_pmf(np.array([at, -at]))
    assert found == pytest.approx([log_p, log_p], rel=3e-9)


@pytest.mark.parametrize("sigma2", ["1/20", "1/2", "2"])
def test_sums_of_narrow_gaussian_noise_far_out(sigma2):
    """Each piece is tilted towards where it is asked for: no digit is lost in the tail."""
    noise = DiscreteGaussian(sigma2)
    k = np.arange(-150, 151)
    logs = noise.log_pmf(k)
    direct = logs
    for _ in range(3):
        grid = np.add.outer(direct, logs)
        size = grid.shape[0] + len(logs) - 1
        summed = np.full(size, -np.inf)
        for shift in range(len(logs)):
            here = slice(shift, shift + grid.shape[0])
            summed[here] = np.logaddexp(summed[here], grid[:, shift])
        direct = summed
    at = np.arange(-60, 61)
    middle = len(direct) // 2
    found = SummedNoise(noise, 4).log_pmf(at)
    assert found == pytest.approx(direct[middle - 60 : middle + 61], rel=1e-12)
