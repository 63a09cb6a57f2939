"""Exact posteriors: plain loops over all tables, golden values, and the algorithm as printed."""

import json
import math
from itertools import product

import flint
import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln
from tests.conftest import GOLDEN
from tests.congenial.inference import plain_sums
from tests.congenial.inference.plain_sums import (
    CASES,
    DEATHS,
    MODELS,
    TOTAL,
    all_tables,
    mechanisms,
)

from countveil import congenial
from countveil.congenial import Wasserstein

TRUTH = json.loads((GOLDEN / "public_inference.json").read_text())
MODEL = congenial.GammaPoisson(shape=1.5, rate=0.1)
NAIVE = Wasserstein(loss="L1", epsilon="1", total=20, base="naive")
CONGENIAL = Wasserstein(loss="L1", epsilon="1", total=20)
RELEASED = {"naive": [7, -2, 4], "congenial": [5, 0, 3]}


@pytest.mark.parametrize("kind", mechanisms())
@pytest.mark.parametrize("name", MODELS)
def test_every_model_under_every_mechanism(name, kind):
    mechanism, model = mechanisms()[kind], MODELS[name]
    released = RELEASED["naive" if mechanism.base == "naive" else "congenial"]
    result = congenial.posterior(
        model=model, released=released, mechanism=mechanism, public={"total": TOTAL}
    )
    mean, variance, counts = plain_sums.posterior(model, released, mechanism, all_tables(3, TOTAL))
    assert result.exact
    np.testing.assert_allclose(result.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(result.variance, variance, rtol=1e-8)
    np.testing.assert_allclose(result.counts, counts[:, 0], rtol=1e-9)
    assert result.counts.sum() == pytest.approx(TOTAL)


@pytest.mark.parametrize("model", [DEATHS, CASES])
@pytest.mark.parametrize("kind", mechanisms(deaths=True, total=5, places=2))
def test_cases_and_deaths(kind, model):
    mechanism = mechanisms(deaths=True, total=5, places=2)[kind]
    released = [[6, -1], [0, 2]] if mechanism.base == "naive" else [[4, 1], [1, 1]]
    result = congenial.posterior(model=model, released=released, mechanism=mechanism)
    tables = all_tables(2, 5, deaths=True)
    mean, variance, counts = plain_sums.posterior(model, released, mechanism, tables)
    np.testing.assert_allclose(result.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(result.variance, variance, rtol=1e-8)
    np.testing.assert_allclose(result.counts, counts, rtol=1e-9)


@pytest.mark.parametrize("base", ["naive", "congenial"])
def test_subtotals_and_upper_bounds(base):
    subtotals = [((0, 2), 7)]
    mechanism = Wasserstein(loss="L1", epsilon="1", total=9, subtotals=subtotals, base=base)
    released = [5, 2, 2, 0]
    upper = [4, 3, 6, 9]
    public = {"total": 9, "subtotals": subtotals, "upper": upper}
    model = congenial.GammaPoisson(shape=1.5, rate=[0.1, 0.2, 0.3, 0.4])
    result = congenial.posterior(model=model, released=released, mechanism=mechanism, public=public)
    tables = all_tables(4, 9, upper=upper, subtotals=subtotals)
    mean, variance, _ = plain_sums.posterior(model, released, mechanism, tables)
    np.testing.assert_allclose(result.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(result.variance, variance, rtol=1e-8)


def test_subtotals_known_to_the_analyst_only():
    mechanism = Wasserstein(loss="L1", epsilon="1", total=9)
    public = {"total": 9, "subtotals": [((0, 2), 7)]}
    model = congenial.GammaPoisson(shape=1.5, rate=0.2)
    result = congenial.posterior(
        model=model, released=[5, 2, 2], mechanism=mechanism, public=public
    )
    tables = all_tables(3, 9, subtotals=public["subtotals"])
    mean, variance, _ = plain_sums.posterior(model, [5, 2, 2], mechanism, tables)
    np.testing.assert_allclose(result.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(result.variance, variance, rtol=1e-8)


def test_counts_without_a_total():
    mechanism = Wasserstein(loss="L1", epsilon="1", base="naive")
    model = congenial.GammaPoisson(shape=[1.5, 0.4], rate=[0.1, 0.02])
    result = congenial.posterior(model=model, released=[14, -3], mechanism=mechanism)
    for place, (released, shape, rate) in enumerate(((14, 1.5, 0.1), (-3, 0.4, 0.02))):
        k = np.arange(20_000)
        weights = stats.nbinom(shape, rate / (1 + rate)).pmf(k) * np.exp(
            -float(mechanism.rate) * np.abs(released - k)
        )
        weights /= weights.sum()
        assert result.mean[place] == pytest.approx((shape + weights @ k) / (1 + rate), rel=1e-11)


def test_quantiles_solve_the_mixture():
    result = congenial.posterior(model=MODEL, released=[14, 3, -4], mechanism=NAIVE)
    mixture = result.mixtures[0]
    low, high = result.interval(0.9)[0]
    laws = stats.gamma(mixture.first, scale=1 / mixture.second)
    assert mixture.weights @ laws.cdf(low) == pytest.approx(0.05, abs=1e-10)
    assert mixture.weights @ laws.cdf(high) == pytest.approx(0.95, abs=1e-10)
    assert mixture.quantile(1e-9) < low


def test_the_probability_of_being_above_a_value():
    case = {"model": MODEL, "released": [14, 3, -4], "mechanism": NAIVE}
    result = congenial.posterior(**case)
    mixture = result.mixtures[0]
    tail = mixture.weights @ stats.gamma(mixture.first, scale=1 / mixture.second).sf(12.0)
    assert result.above(12.0)[0] == pytest.approx(tail, rel=1e-10)
    for method in ("rejection", "importance", "augmented"):
        samples = congenial.posterior(**case, method=method, draws=8_000, chains=1, seed=2)
        assert samples.above(12.0)[0] == pytest.approx(tail, abs=0.05)


def test_golden_mean():
    result = congenial.posterior(
        model=MODEL,
        released=[14, 3, -4],
        mechanism=NAIVE,
        public={"total": 20},
        method="exact",
    )
    assert NAIVE.rate == pytest.approx(0.25)
    assert result.mean[0] == pytest.approx(13.19666, abs=5e-6)


def tables_and_priors():
    tables = [t for t in product(range(21), repeat=3) if sum(t) == 20]
    priors = np.array([np.prod(stats.nbinom(1.5, 0.1 / 1.1).pmf(t)) for t in tables])
    return np.array(tables), priors / priors.sum()


def test_the_printed_algorithm_is_wrong():
    """As printed, it accepts a table with 1 - f(y | x)/sup f(· | x): its law, summed exactly."""
    tables, priors = tables_and_priors()
    rates = (1.5 + tables[:, 0]) / 1.1
    assert priors @ rates == pytest.approx(TRUTH["ppd.infer_alg.prior"], rel=1e-12)
    ratio = np.exp(-0.25 * np.abs(tables - [14, 3, -4]).sum(axis=1))
    printed = priors * (1 - ratio)
    printed_mean = printed @ rates / printed.sum()
    assert printed_mean == pytest.approx(TRUTH["ppd.infer_alg.alg1_printed"], abs=0.03)
    right = priors * ratio
    assert right @ rates / right.sum() == pytest.approx(13.19666, abs=5e-6)


def test_a_denominator_of_its_own_for_each_table_is_wrong():
    """With U at most the ratio, but sup f(· | x) below: the normalizer C(x) is lost."""
    truth = TRUTH["ppd.infer_alg.congenial"]
    tables, priors = tables_and_priors()
    rates = (1.5 + tables[:, 0]) / 1.1
    literal = priors * np.exp(-0.25 * np.abs(tables - truth["y"]).sum(axis=1))
    literal_mean = literal @ rates / literal.sum()
    assert literal_mean == pytest.approx(truth["literal_alg1"], rel=1e-10)
    normalizers = np.exp([CONGENIAL.log_normalizer(table) for table in tables])
    assert [normalizers.min(), normalizers.max()] == pytest.approx(truth["Cx"], rel=1e-10)
    right = literal / normalizers
    distance = np.abs(right / right.sum() - literal / literal.sum()).sum() / 2
    assert distance == pytest.approx(truth["tv"], rel=1e-9)
    result = congenial.posterior(model=MODEL, released=truth["y"], mechanism=CONGENIAL)
    assert result.mean[0] == pytest.approx(truth["exact"], rel=1e-10)


def test_the_evidence_is_a_probability():
    """Summed over all releases, P(release | facts) is one."""
    mechanism = Wasserstein(loss="L1", epsilon="2", total=4)
    logs = [
        congenial.posterior(model=MODEL, released=table[:, 0], mechanism=mechanism).log_evidence
        for table in all_tables(3, 4)
    ]
    assert math.fsum(np.exp(logs)) == pytest.approx(1, abs=1e-10)
    naive = Wasserstein(loss="L1", epsilon="12", total=4, base="naive")
    logs = [
        congenial.posterior(model=MODEL, released=y, mechanism=naive).log_evidence
        for y in product(range(-6, 11), repeat=2)
    ]
    assert math.fsum(np.exp(logs)) == pytest.approx(1, abs=1e-5)


def test_large_tables_by_polynomials():
    """67 places and 1,000 cases: the law of one count from products of polynomials with 300 bits."""
    rng = np.random.default_rng(1)
    counts = rng.multinomial(1000, rng.dirichlet(np.full(67, 0.8)))
    mechanism = Wasserstein(loss="L1", epsilon="1", total=1000, base="naive")
    released = counts + rng.geometric(0.25, 67) - rng.geometric(0.25, 67)
    result = congenial.posterior(
        model=congenial.DirichletMultinomialShares(alpha=0.8),
        released=released,
        mechanism=mechanism,
    )
    k = np.arange(1001)
    rows = [gammaln(k + 0.8) - gammaln(k + 1) - 0.25 * np.abs(k - y) for y in released]
    before, flint.ctx.prec = flint.ctx.prec, 300
    try:
        polynomials = [flint.arb_poly([flint.arb(v).exp() for v in row.tolist()]) for row in rows]
        others = flint.arb_poly([1])
        for polynomial in polynomials[1:]:
            others = flint.arb_poly((others * polynomial).coeffs()[:1001])
        law = [polynomials[0][n] * others[1000 - n] for n in range(1001)]
        mean = float(sum(n * p for n, p in enumerate(law)) / sum(law))
    finally:
        flint.ctx.prec = before
    assert result.counts[0] == pytest.approx(mean, rel=1e-10)
    assert result.mean[0] == pytest.approx((0.8 + mean) / (67 * 0.8 + 1000), rel=1e-10)
    assert result.counts.sum() == pytest.approx(1000, rel=1e-10)
    assert result.mean.sum() == pytest.approx(1, rel=1e-10)
