"""The sum over all tables with one total: brute force, arbitrary precision, extremes."""

import math
from itertools import product

import flint
import numpy as np
import pytest
from scipy.special import gammaln

from countveil.congenial.mechanism import normalizer
from countveil.congenial.mechanism.normalizer import log_sum
from countveil.errors import CertificateError, InputError


def by_listing(rows, total):
    terms = [
        sum(float(row[k]) for row, k in zip(rows, table, strict=True))
        for table in product(*(range(len(row)) for row in rows))
        if sum(table) == total
    ]
    return float(np.logaddexp.reduce(terms)) if terms else -math.inf


def by_polynomials(rows, total):
    """One coefficient of a product of polynomials, with 400 bits."""
    before, flint.ctx.prec = flint.ctx.prec, 400
    try:
        joint = flint.arb_poly([1])
        for row in rows:
            weights = [
                flint.arb(0) if value == -math.inf else flint.arb(float(value)).exp()
                for value in row[: total + 1]
            ]
            joint = flint.arb_poly((joint * flint.arb_poly(weights)).coeffs()[: total + 1])
        result = joint[total].log()
        assert result.rad() < 1e-20
        return float(result)
    finally:
        flint.ctx.prec = before


@pytest.mark.parametrize("seed", range(8))
def test_small_sums_by_listing_all_tables(seed):
    rng = np.random.default_rng(seed)
    rows = [rng.normal(0, 3, rng.integers(1, 7)) for _ in range(rng.integers(1, 5))]
    for row in rows[1:]:
        row[rng.random(len(row)) < 0.2] = -math.inf
    for total in range(sum(len(row) - 1 for row in rows) + 2):
        assert log_sum(rows, total) == pytest.approx(by_listing(rows, total), abs=1e-12)


def targets(places, total):
    return np.random.default_rng(3).multinomial(
        total, np.random.default_rng(4).dirichlet(np.full(places, 0.3))
    )


@pytest.mark.parametrize(
    ("places", "total", "rate", "strength"),
    [
        (10, 500, 0.25, None),
        (67, 1500, 0.25, None),
        (67, 1500, 0.0025, None),
        (67, 1500, 0.25, 0.3),
        (30, 1500, 0.01, 0.01),  # a prior that is far from normal
        (8, 2000, 5.0, 0.5),
        (40, 300, 50.0, None),
    ],
)
def test_large_sums_in_arbitrary_precision(places, total, rate, strength):
    k = np.arange(total + 1)
    rows = [-rate * np.abs(k - x) for x in targets(places, total)]
    if strength is not None:
        rows = [
            row + gammaln(k + strength * (1 + place % 3)) - gammaln(k + 1)
            for place, row in enumerate(rows)
        ]
    assert log_sum(rows, total) == pytest.approx(by_polynomials(rows, total), abs=1e-11)


LONG = np.arange(3001)


@pytest.mark.parametrize(
    ("rows", "total"),
    [
        ([-500.0 * LONG, -499.0 * LONG, -501.0 * LONG, -500.0 * LONG], 2000),
        (
            [-100.0 * np.abs(LONG - x) for x in (3.0, 100.0, 2.0)],
            1500,
        ),  # 1e5 below the largest weight
        ([np.where(LONG % 2 == 0, 0.0, -400.0)] * 3, 1001),  # an odd sum has to pay once
        ([np.where((LONG < 5) | (LONG > 950), 0.0, -800.0)] * 3, 300),  # between two peaks
        ([5.0 * LONG - LONG**2.0] * 4, 900),
        ([np.where((k := LONG[:401]) % 2 == 0, 0.0, -400.0)] * 3, 101),
    ],
)
def test_extremes_in_arbitrary_precision(rows, total):
    assert log_sum(rows, total) == pytest.approx(by_polynomials(rows, total), rel=1e-14, abs=1e-11)


def test_a_flat_sum_counts_tables():
    # C(total + places - 1, places - 1) tables; no listing reaches these.
    for places, total in ((67, 100_000), (100, 20_000), (5, 300_000)):
        exact = math.log(math.comb(total + places - 1, places - 1))
        assert log_sum([np.zeros(total + 1)] * places, total) == pytest.approx(exact, abs=1e-11)


def test_the_ends_and_the_impossible():
    row = np.array([0.5, 1.0, 2.0])
    assert log_sum([row] * 4, 0) == pytest.approx(2.0)
    assert log_sum([row] * 4, 8) == pytest.approx(8.0)
    assert log_sum([row] * 4, 9) == -math.inf
    assert log_sum([row, np.full(3, -math.inf)], 1) == -math.inf
    assert log_sum([np.array([-math.inf, 0.0])] * 3, 2) == -math.inf
    even = np.where(LONG % 2 == 0, 0.0, -math.inf)
    assert log_sum([even] * 3, 1001) == -math.inf
    assert log_sum([], 0) == 0
    assert log_sum([], 1) == -math.inf
    with pytest.raises(InputError, match="total: -1 is not allowed"):
        log_sum([row], -1)


def test_what_is_not_certain_is_refused(monkeypatch):
    monkeypatch.setattr(normalizer, "_LARGE", 1_000)
    with pytest.raises(CertificateError, match="cannot be certified to 1e-11"):
        log_sum([np.where(LONG % 2 == 0, 0.0, -400.0)] * 3, 1001)


@pytest.mark.parametrize("rate", [0.25, 0.004])
def test_folding_is_seen(rate):
    # A transform far too short is not believed: P(sum = total) alone would be wrong by far.
    k = np.arange(401)
    laws = [np.exp(-rate * np.abs(k - x)) for x in (100, 150, 150)]
    laws = [law / law.sum() for law in laws]
    exact = math.exp(by_polynomials([np.log(law) for law in laws], 400))
    short, _ = normalizer._coefficient(laws, 400, 16)
    assert short > 1.2 * exact
    deviation = math.sqrt(sum(normalizer._variance(law) for law in laws))
    below = math.log(1e-11 * exact)
    assert not normalizer._folding_is_below(below, laws, 400, 16, deviation)
    long, _ = normalizer._coefficient(laws, 400, 2048)
    assert long == pytest.approx(exact, rel=1e-12)


def test_the_tilt_levels_the_mean():
    k = np.arange(301)
    rows = [-0.2 * np.abs(k - x) for x in (10.0, 200.0, 5.0)]
    for total in (0, 1, 40, 215, 700, 899, 900):
        tilt = normalizer.levelling_tilt(rows, total)
        laws = [np.exp(row + tilt * k - (row + tilt * k).max()) for row in rows]
        laws = [law / law.sum() for law in laws]
        mean = sum(float(law @ k) for law in laws)
        deviation = math.sqrt(sum(normalizer._variance(law) for law in laws))
        assert abs(mean - total) <= 0.25 + 0.5 * deviation
