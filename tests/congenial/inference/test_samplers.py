"""Algorithms 1 and 2, corrected: golden values, agreement with the exact law, and proven envelopes."""

import json
import math

import numpy as np
import pytest
from scipy import stats
from tests.conftest import GOLDEN
from tests.congenial.inference.plain_sums import (
    DEATHS,
    MODELS,
    TOTAL,
    all_tables,
    density,
    mechanisms,
)

from countveil import congenial
from countveil.congenial import Wasserstein
from countveil.congenial.inference import rejection_sampler
from countveil.congenial.inference.posterior_problem import read_problem
from countveil.congenial.inference.rejection_sampler import least_loss, log_envelope
from countveil.errors import InputError

TRUTH = json.loads((GOLDEN / "public_inference.json").read_text())
MODEL = congenial.GammaPoisson(shape=1.5, rate=0.1)
NAIVE = Wasserstein(loss="L1", epsilon="1", total=20, base="naive")
CASE = {"model": MODEL, "released": [14, 3, -4], "mechanism": NAIVE, "public": {"total": 20}}


def agree(result, exact, size):
    """Whether means are within 4.5 standard errors of the exact ones, variances within 15 percent."""
    errors = (result.mean - exact.mean) / np.sqrt(exact.variance / size)
    assert np.abs(errors).max() < 4.5
    np.testing.assert_allclose(result.variance, exact.variance, rtol=0.15)
    assert np.abs(result.counts - exact.counts).max() < 0.5


def test_algorithm_1_corrected():
    result = congenial.posterior(**CASE, method="rejection", draws=20_000, seed=3)
    exact = congenial.posterior(**CASE)
    agree(result, exact, 20_000)
    assert result.mean[0] == pytest.approx(TRUTH["ppd.infer_alg.alg1"], abs=0.2)
    assert result.acceptance == pytest.approx(TRUTH["ppd.infer_alg.acc1_env"], abs=0.006)
    low, high = exact.interval(0.9)[0]
    assert ((result.draws[0, :, 0] > low) & (result.draws[0, :, 0] < high)).mean() == pytest.approx(
        0.9, abs=0.008
    )
    mixture = exact.mixtures[0]
    inside = np.array([mixture.cdf(value) for value in result.draws[0, :2000, 0]])
    assert stats.kstest(inside, "uniform").pvalue > 1e-3


def test_algorithm_2_corrected():
    result = congenial.posterior(**CASE, method="importance", draws=40_000, seed=3)
    exact = congenial.posterior(**CASE)
    agree(result, exact, result.effective_sample_size)
    assert result.mean[0] == pytest.approx(TRUTH["ppd.infer_alg.alg2"], abs=0.2)
    share = result.effective_sample_size / 40_000
    assert share == pytest.approx(TRUTH["ppd.infer_alg.ess_frac"], abs=0.006)
    np.testing.assert_allclose(result.interval(0.9), exact.interval(0.9), rtol=0.1)


@pytest.mark.parametrize(
    ("name", "proposal"),
    [
        ("rates", congenial.GammaPoisson(shape=[3.0, 2.0, 1.5], rate=0.5, exposure=7.0)),
        ("binomial", congenial.BetaBinomial(a=1.5, b=3.0, trials=99)),
        ("shares", congenial.DirichletMultinomialShares(alpha=1.5)),
    ],
)
def test_parameters_drawn_from_a_proposal(name, proposal):
    """g is another law of the parameters; what counts they have is the model's own."""
    case = {"model": MODELS[name], "released": [7, -2, 4], "mechanism": mechanisms()["L1 naive"]}
    result = congenial.posterior(
        **case, method="importance", draws=20_000, seed=5, proposal=proposal
    )
    agree(result, congenial.posterior(**case), result.effective_sample_size)


@pytest.mark.parametrize("kind", mechanisms())
@pytest.mark.parametrize("method", ["rejection", "importance"])
def test_every_mechanism(method, kind):
    mechanism = mechanisms()[kind]
    released = [7, -2, 4] if mechanism.base == "naive" else [5, 0, 3]
    case = {"model": MODELS["small areas"], "released": released, "mechanism": mechanism}
    result = congenial.posterior(**case, method=method, draws=6_000, seed=9)
    agree(result, congenial.posterior(**case), result.effective_sample_size)


@pytest.mark.parametrize("method", ["rejection", "importance"])
def test_death_rates(method):
    mechanism = mechanisms(deaths=True, total=5, places=2)["L1 congenial"]
    case = {"model": DEATHS, "released": [[4, 1], [1, 1]], "mechanism": mechanism}
    result = congenial.posterior(**case, method=method, draws=6_000, seed=9)
    agree(result, congenial.posterior(**case), result.effective_sample_size)


@pytest.mark.parametrize("kind", mechanisms())
def test_the_envelope_is_above_every_density(kind):
    mechanism = mechanisms()[kind]
    naive = mechanism.base == "naive"
    for released in ([7, -2, 4], [20, 1, 1], [-5, -3, -4]) if naive else ([5, 0, 3], [8, 0, 0]):
        problem = read_problem(MODELS["rates"], released, mechanism, None)
        release = np.array(released)[:, None]
        constant = mechanism.log_normalizer(np.zeros(3, int)) if naive else 0.0
        largest = max(
            math.log(density(mechanism, release, table)) - constant
            for table in all_tables(3, TOTAL)
        )
        bound = log_envelope(problem)
        assert bound >= largest - 1e-12
        if mechanism.loss != "L2" or not naive:
            assert bound == pytest.approx(largest, abs=1e-9)  # no acceptance is given away


def test_the_least_loss_is_below_every_loss():
    rng = np.random.default_rng(2)
    for _ in range(40):
        released = rng.integers(-6, 15, 3)
        upper = [6, 7, 8]
        for kind in ("L1 naive", "L2 naive"):
            mechanism = mechanisms()[kind]
            problem = read_problem(MODELS["rates"], released, mechanism, {"upper": upper})
            losses = [
                -mechanism.log_weight(released, table) / float(mechanism.rate)
                for table in all_tables(3, TOTAL, upper=upper)
            ]
            assert least_loss(problem) <= min(losses) + 1e-9
            if kind == "L1 naive":
                assert least_loss(problem) == pytest.approx(min(losses))


def test_a_release_that_no_proposal_reaches(monkeypatch):
    monkeypatch.setattr(rejection_sampler, "_MOST_PROPOSALS", 100_000)
    mechanism = Wasserstein(loss="L1", epsilon="400", total=60, base="naive")
    model = congenial.GammaPoisson(shape=50.0, rate=[50.0, 5.0, 0.5])
    with pytest.raises(InputError, match='use method="augmented"'):
        congenial.posterior(
            model=model, released=[59, 1, 0], mechanism=mechanism, method="rejection", draws=10
        )
