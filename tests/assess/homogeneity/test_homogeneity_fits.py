"""Priors and sizes fitted to a table against direct numerical maximisation; weights against mpmath."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize
from scipy.special import gammaln
from tests.assess.homogeneity.enumeration import random_cells

from countveil import Laplace
from countveil.assess import homogeneity
from countveil.assess.homogeneity import Dirichlet, Table, dirichlet
from countveil.assess.homogeneity.label_splits import log_negative_binomial, log_poisson
from countveil.assess.homogeneity.sizes import sizes_of
from countveil.errors import InputError


def drawn(alphas, cells, most, seed):
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(alphas, cells)
    return np.array([rng.multinomial(rng.integers(1, most), p) for p in shares])


def log_likelihood(counts, alphas):
    """The log probability of the labels, person by person."""
    each = gammaln(alphas + counts).sum(axis=1) - gammaln(alphas).sum()
    total = alphas.sum()
    return (each + gammaln(total) - gammaln(total + counts.sum(axis=1))).sum()


def by_direct_search(counts):
    """Maximise over log alpha, without derivatives of ours."""

    def minus(log_alphas):
        return -log_likelihood(counts, np.exp(log_alphas))

    options = {"xatol": 1e-9, "fatol": 1e-12, "maxiter": 20_000, "maxfev": 20_000}
    found = minimize(minus, np.zeros(counts.shape[1]), method="Nelder-Mead", options=options)
    return np.exp(found.x), -found.fun


@pytest.mark.parametrize("alphas", [(0.3, 0.7), (2.0, 5.0, 1.0), (0.05, 0.1, 0.02), (30.0, 50.0)])
def test_likelihood_is_maximised(alphas):
    counts = drawn(alphas, 400, 25, seed=len(alphas))
    fitted = dirichlet.by_likelihood(counts)
    alphas, best = by_direct_search(counts)
    assert fitted.alphas == pytest.approx(alphas, rel=1e-4)
    assert log_likelihood(counts, fitted.alphas) >= best - 1e-9
    assert fitted.score < 1e-9
    assert fitted.source == "likelihood"


def test_moments_come_near_and_are_the_formula():
    counts = drawn((0.6, 1.0, 0.4), 20_000, 12, seed=1)
    assert dirichlet.by_moments(counts).alphas == pytest.approx([0.6, 1.0, 0.4], rel=0.05)
    n, people = counts.sum(axis=1), counts.sum()
    p = counts.sum(axis=0) / people
    r = sum(((counts[:, k] - n * p[k]) ** 2).sum() for k in range(3)) / sum(p * (1 - p))
    concentration = ((n**2).sum() - r) / (r - people)
    assert dirichlet.by_moments(counts).alphas == pytest.approx(concentration * p, rel=1e-12)


def test_cells_more_alike_than_at_random_have_one_share_for_all():
    counts = np.tile([5, 3, 2], (10, 1))
    for fitted in (dirichlet.by_moments(counts), dirichlet.by_likelihood(counts)):
        assert fitted.concentration == math.inf
        assert fitted.shares == pytest.approx([0.5, 0.3, 0.2])
        assert np.isinf(fitted.alphas).all()


def test_homogeneous_cells_have_concentration_0():
    counts = np.array([[4, 0], [0, 3], [2, 0], [1, 0]])
    fitted = dirichlet.by_likelihood(counts)
    assert fitted.concentration == 0
    assert fitted.shares.tolist() == [0.75, 0.25]
    towards = [log_likelihood(counts, c * fitted.shares) for c in (1.0, 1e-2, 1e-4)]
    assert towards == sorted(towards)
    assert (
        0
        < homogeneity.shrinkage_risk(
            Table.from_counts(counts), mechanism=Laplace(1), prior="likelihood"
        ).value
        < 1
    )


def test_single_people_say_nothing_of_how_cells_differ():
    counts = np.array([[1, 0], [0, 1], [1, 0]])
    for fitted in (dirichlet.by_moments(counts), dirichlet.by_likelihood(counts)):
        assert fitted.concentration == math.inf
    for prior in ("moments", "likelihood"):
        table = Table.from_counts(counts)
        risk = homogeneity.marginal_shrinkage_risk(table, mechanism=Laplace(1), prior=prior)
        assert risk.value == pytest.approx(
            homogeneity.local_risk(table, mechanism=Laplace(1)).value
        )


def test_a_label_that_no_one_has_takes_no_part():
    counts = drawn((0.4, 0.8), 200, 10, seed=3)
    wider = np.column_stack([counts, np.zeros(len(counts), int)])
    for fit in (dirichlet.by_moments, dirichlet.by_likelihood):
        assert fit(wider).alphas == pytest.approx([*fit(counts).alphas, 0], rel=1e-9)
    narrow, wide = Table.from_counts(counts), Table.from_counts(wider)
    zero = float(Laplace(1).cdf(0.5))
    for measure in homogeneity.MEASURES:
        one, other = (
            homogeneity.risk_of(t, mechanism=Laplace(1), measure=measure) for t in (narrow, wide)
        )
        assert other.value == pytest.approx(one.value * zero, rel=1e-9)


def test_a_prior_says_how_likely_one_label_is():
    prior = Dirichlet.of([0.6, 1.0, 0.4])
    for n in range(1, 6):
        expected = sum(math.prod((a + j) / (2.0 + j) for j in range(n)) for a in (0.6, 1.0, 0.4))
        assert prior.one_label(8)[n] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("mean", [0.05, 0.9, 4.0, 60.0])
def test_truncated_poisson_is_fitted(mean):
    rng = np.random.default_rng(1)
    seen = rng.poisson(mean, 4000)
    seen = seen[seen > 0]
    fitted = homogeneity.fit_poisson(seen)
    rate = fitted.parameters["mean"]
    assert rate == pytest.approx(mean, rel=0.3)
    assert fitted.pmf @ np.arange(fitted.most + 1) == pytest.approx(seen.mean(), rel=1e-12)

    def log_likelihood(rate):
        return stats.poisson.logpmf(seen, rate).sum() - len(seen) * math.log(-math.expm1(-rate))

    assert log_likelihood(rate) >= max(log_likelihood(rate * f) for f in (0.999, 1.001))


@pytest.mark.parametrize(("r", "q"), [(0.3, 0.9), (2.0, 0.5), (15.0, 0.2)])
def test_truncated_negative_binomial_is_fitted(r, q):
    rng = np.random.default_rng(2)
    seen = rng.negative_binomial(r, 1 - q, 6000)
    seen = seen[seen > 0]

    def minus(given):
        r, q = math.exp(given[0]), 1 / (1 + math.exp(-given[1]))
        each = stats.nbinom.logpmf(seen, r, 1 - q)
        return -(each.sum() - len(seen) * math.log1p(-((1 - q) ** r)))

    options = {"xatol": 1e-9, "fatol": 1e-9, "maxiter": 5000}
    direct = minimize(
        minus, [math.log(r), math.log(q / (1 - q))], method="Nelder-Mead", options=options
    )
    fitted = homogeneity.fit_negative_binomial(seen)
    found = fitted.parameters["r"], fitted.parameters["q"]
    assert found[0] == pytest.approx(math.exp(direct.x[0]), rel=1e-4)
    assert found[1] == pytest.approx(1 / (1 + math.exp(-direct.x[1])), rel=1e-4)
    assert minus([math.log(found[0]), math.log(found[1] / (1 - found[1]))]) <= direct.fun + 1e-9
    truth = stats.nbinom.pmf(np.arange(1, fitted.most + 1), found[0], 1 - found[1])
    truth /= 1 - stats.nbinom.pmf(0, found[0], 1 - found[1])
    assert fitted.pmf[1:] == pytest.approx(truth, rel=1e-9, abs=1e-300)


def test_sizes_with_less_spread_than_poisson_are_poisson():
    for seen in ([2] * 10, [5, 5, 6, 6], [1, 2]):
        assert homogeneity.fit_negative_binomial(np.array(seen)).name == "poisson"


def test_sizes_with_the_most_spread_are_logarithmic():
    seen = np.array([1] * 100 + [1000])
    fitted = homogeneity.fit_negative_binomial(seen)
    n, q = np.arange(1, fitted.most + 1), fitted.parameters["q"]
    assert fitted.pmf[1:] == pytest.approx(q**n / n / -math.log1p(-q), rel=1e-6)


@pytest.mark.parametrize("name", ["poisson", "negative-binomial", "plain-poisson"])
def test_sizes_hold_all_but_1e_14(name):
    for seen in ([1, 2, 3, 9, 40], [1] * 50 + [2, 300], [7, 8, 9]):
        pmf = sizes_of(np.array(seen), name).pmf
        assert abs(1 - pmf.sum()) < 2e-14
        assert (pmf >= 0).all()


def test_cells_of_one_person_each_have_size_1():
    for name in ("poisson", "negative-binomial"):
        assert sizes_of(np.ones(5, int), name).pmf.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: homogeneity.plain_poisson(0.0),
            "mean: 0.0 is not allowed; it must be a number above 0",
        ),
        (lambda: homogeneity.truncated_poisson(math.nan), "mean: nan is not allowed"),
        (lambda: homogeneity.negative_binomial(-1.0, 0.5), "r: -1.0 is not allowed"),
        (lambda: homogeneity.Sizes("own", np.array([0.5, 0.9])), "0 or more with sum at most 1"),
        (lambda: homogeneity.Sizes("own", np.array([0.5, math.nan])), "sum at most 1, or a name"),
        (
            lambda: Dirichlet(np.array([0.5, 0.6]), 1.0),
            "0 or more with sum 1, and the concentration",
        ),
        (lambda: Dirichlet(np.array([0.5, 0.5]), -1.0), "the concentration 0 or more"),
        (
            lambda: homogeneity.negative_binomial(1.0, 1.0),
            "q: 1.0 is not allowed; it must be between",
        ),
        (
            lambda: homogeneity.negative_binomial(1.0, 0.99999),
            "exceeds 100,000 people per cell; use",
        ),
    ],
)
def test_impossible_sizes_and_priors_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_weights_have_thirteen_digits_far_out():
    mpmath.mp.dps = 40
    for mean in (0.3, 17.5, 1e4):
        for m in (0, 1, 15, 16, int(mean), int(1.2 * mean)):
            exact = m * mpmath.log(mpmath.mpf(mean)) - mean - mpmath.loggamma(m + 1)
            assert float(log_poisson(m, mean)) == pytest.approx(float(exact), rel=1e-13, abs=1e-13)
    for alpha, total, around in ((0.4, 2.0, 10_000), (99_800.0, 1e5, 4_000), (1e-7, 3e-7, 50)):
        found = log_negative_binomial(around, alpha, total, around)
        theta = mpmath.mpf(around) / (mpmath.mpf(total) + around)
        for m in (0, 1, 15, 16, around):
            exact = mpmath.loggamma(mpmath.mpf(alpha) + m) - mpmath.loggamma(mpmath.mpf(alpha))
            exact += m * mpmath.log(theta) + mpmath.mpf(alpha) * mpmath.log(1 - theta)
            exact -= mpmath.loggamma(m + 1)
            assert found[m] == pytest.approx(float(exact), rel=1e-13, abs=1e-13)


def test_random_tables_fit_without_complaint():
    rng = np.random.default_rng(9)
    for _ in range(40):
        counts = random_cells(rng, int(rng.integers(2, 12)), int(rng.integers(2, 5)), 9)
        for fitted in (dirichlet.by_moments(counts), dirichlet.by_likelihood(counts)):
            assert fitted.concentration >= 0
            assert fitted.shares.sum() == pytest.approx(1)
