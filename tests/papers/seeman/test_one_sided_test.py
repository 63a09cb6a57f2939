"""Tests of a rate from release and public facts: plain sums, their level, and power beside Y*."""

from itertools import product

import numpy as np
import pytest
from scipy import optimize, stats

from countveil import congenial
from countveil.congenial import Wasserstein
from countveil.errors import InputError
from countveil.papers import seeman

MODEL = congenial.GammaPoisson(shape=1.5, rate=0.1)
ALONE = Wasserstein(loss="L1", epsilon="1", base="naive")
PAIR = Wasserstein(loss="L1", epsilon="1", total=8, base="naive")


def geometric(apart, rate):
    q = np.exp(-rate)
    return (1 - q) / (1 + q) * q ** np.abs(apart)


def test_one_count():
    """The release has a monotone likelihood ratio, so the p-value is P(Y >= y) at theta0."""
    result = seeman.test_at_most(model=MODEL, released=[14], mechanism=ALONE, theta0=5.0)
    k, y = np.arange(80), np.arange(14, 400)
    law = stats.poisson(5).pmf(k)
    expected = law @ geometric(y[None] - k[:, None], 0.25).sum(axis=1)
    assert result.p_value == pytest.approx(expected, rel=1e-9)
    assert result.monotone
    assert result.statistic == pytest.approx(
        (law * geometric(14 - k, 0.25)) @ k / (law @ geometric(14 - k, 0.25)), rel=1e-12
    )


def pair_by_plain_sums(theta):
    """P(x | total = 8) at theta, and releases on a wide square."""
    probabilities = np.array(
        [stats.poisson(theta).pmf(k) * stats.nbinom(1.5, 0.1 / 1.1).pmf(8 - k) for k in range(9)]
    )
    return probabilities / probabilities.sum()


def test_two_places_by_plain_sums():
    result = seeman.test_at_most(
        model=MODEL, released=[9, -3], mechanism=PAIR, public={"total": 8}, theta0=4.0
    )
    law, k = pair_by_plain_sums(4.0), np.arange(9)
    square = np.arange(-160, 170)
    first = geometric(square[None] - k[:, None], 0.25)  # (count, release)
    second = geometric(square[None] - (8 - k)[:, None], 0.25)
    joint = law[:, None, None] * first[:, :, None] * second[:, None, :]
    statistics = np.tensordot(k, joint, 1) / joint.sum(axis=0)
    observed = statistics[160 + 9, 160 - 3]
    assert result.statistic == pytest.approx(observed, rel=1e-10)
    expected = joint.sum(axis=0)[statistics >= observed - 1e-9].sum()
    assert result.p_value == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(
    ("model", "theta0"),
    [
        (MODEL, 4.0),
        (congenial.BetaBinomial(a=1.0, b=3.0, trials=[10, 30]), 0.3),
        (congenial.DirichletMultinomialShares(alpha=1.0), 0.4),
    ],
)
def test_power_beside_the_projected_release(model, theta0):
    result = seeman.test_at_most(model=model, released=[6, 1], mechanism=PAIR, theta0=theta0)
    at_null = result.power(theta0)
    assert at_null.released == pytest.approx(0.05, abs=1e-9)
    assert at_null.projected == pytest.approx(0.05, abs=1e-9)
    for factor in (1.2, 1.6, 2.0):
        power = result.power(factor * theta0)
        assert 1 > power.released > power.projected > 0.05  # strictly: Y says more than Y*


def test_p_values_hold_for_all_of_the_hypothesis():
    """At every theta up to theta0, P(p <= a) <= a; at theta0 for one count it is near."""
    mechanism = Wasserstein(loss="L1", epsilon="4", total=4)
    releases = [y for y in product(range(5), repeat=2) if sum(y) == 4]
    values = [
        seeman.test_at_most(model=MODEL, released=y, mechanism=mechanism, theta0=3.0).p_value
        for y in releases
    ]
    for theta in (0.5, 1.5, 3.0):
        law = np.array(
            [
                stats.poisson(theta).pmf(k) * stats.nbinom(1.5, 0.1 / 1.1).pmf(4 - k)
                for k in range(5)
            ]
        )
        law /= law.sum()
        densities = np.array(
            [[np.exp(mechanism.log_density(y, [k, 4 - k])) for y in releases] for k in range(5)]
        )
        probabilities = law @ densities
        for level in sorted(values):
            reached = probabilities[np.array(values) <= level + 1e-12].sum()
            assert reached <= level + 1e-10
            if theta == 3.0:
                assert reached == pytest.approx(level, rel=1e-9)


def test_the_most_powerful_test_of_one_count():
    """No test of the level has more power against one theta: by linear programming."""
    result = seeman.test_at_most(model=MODEL, released=[3], mechanism=ALONE, theta0=2.0)
    k, y = np.arange(60), np.arange(-130, 200)
    noise = geometric(y[None] - k[:, None], 0.25)
    null, other = (stats.poisson(theta).pmf(k) @ noise for theta in (2.0, 9.0))
    best = optimize.linprog(-other, A_ub=null[None], b_ub=[0.05], bounds=(0, 1))
    assert result.power(9.0).released == pytest.approx(-best.fun, abs=1e-7)


def test_theorem_15_is_not_always_strict():
    """For one count under L1, max(Y, 0) is sufficient: all releases below 0 say the same of it.

    So no test from Y has more power than one from Y*, at any level, though Y and Y* often differ.
    """
    counts = np.arange(30)[:, None, None]
    below = np.array([ALONE.log_densities([y], counts) for y in (-9, -3, 0)])
    assert np.ptp(below - below[:, :1], axis=0).max() < 1e-12  # equal but for a constant each
    above = np.array([ALONE.log_densities([y], counts) for y in (0, 3)])
    assert np.ptp(above - above[:, :1], axis=0).max() > 1  # and not above 0
    result = seeman.test_at_most(model=MODEL, released=[3], mechanism=ALONE, theta0=2.0)
    clipped = stats.poisson(2.0).pmf(np.arange(60)) @ geometric(
        np.arange(-200, 0)[None] - np.arange(60)[:, None], 0.25
    ).sum(axis=1)
    assert clipped > 0.2  # Y and Y* differ that often
    for level in (0.01, 0.05, 0.5, 0.9):
        power = result.power(5.0, level=level)
        assert power.released == pytest.approx(power.projected, rel=1e-9)


def test_congenial_releases_lose_nothing_by_projection():
    mechanism = Wasserstein(loss="L1", epsilon="1", total=8)
    result = seeman.test_at_most(model=MODEL, released=[5, 2, 1], mechanism=mechanism, theta0=4.0)
    power = result.power(8.0)
    assert power.released == pytest.approx(power.projected, rel=1e-12)
    assert 0.05 < power.released < 1


def test_bad_input():
    case = {"model": MODEL, "mechanism": PAIR, "theta0": 4.0}
    with pytest.raises(
        InputError, match="component: there is no place 2; places are numbered 0 to 1"
    ):
        seeman.test_at_most(**case, released=[6, 1], component=2)
    with pytest.raises(InputError, match="theta: -1 is not allowed"):
        seeman.test_at_most(**(case | {"theta0": -1}), released=[6, 1])
    shares = congenial.DirichletMultinomialShares(alpha=1.0)
    with pytest.raises(InputError, match="it must be between 0 and 1"):
        seeman.test_at_most(**(case | {"model": shares}), released=[6, 1])
    model = congenial.SmallAreaRates(exposure=1.0, mean=1.0)
    with pytest.raises(InputError, match="SmallAreaRates has no single rate to test"):
        seeman.test_at_most(**(case | {"model": model}), released=[6, 1])
    with pytest.raises(InputError, match="too many to list"):
        seeman.test_at_most(**case, released=[6, 1, 1, 0])
    with pytest.raises(InputError, match="give it alone"):
        seeman.test_at_most(model=MODEL, released=[6, 1], mechanism=ALONE, theta0=4.0)
    with pytest.raises(InputError, match="level: 2 is not allowed"):
        seeman.test_at_most(**case, released=[6, 1]).power(5.0, level=2)
