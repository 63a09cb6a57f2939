"""Data augmentation: agreement with the exact law, the normalizer it tracks, and its diagnostics."""

import numpy as np
import pytest
from tests.congenial.inference.plain_sums import DEATHS, MODELS, mechanisms
from tests.congenial.inference.test_samplers import agree

from countveil import Seeded, congenial
from countveil.congenial import DirichletMultinomial, Wasserstein
from countveil.congenial.inference import augmented_chain, posterior_result
from countveil.congenial.inference.augmented_chain import TrackedNormalizer
from countveil.congenial.mechanism.product_law import Group
from countveil.errors import InputError

ARVIZ = (1.1874548978260413, 11.851320676152174, 27.005576764604037)
KINDS = [kind for kind in mechanisms() if kind != "L2 congenial"]


def run(case, draws=1_000, **options):
    result = congenial.posterior(
        **case, method="augmented", draws=draws, warmup=50, chains=2, seed=4, **options
    )
    assert result.r_hat.max() < 1.02
    exact = congenial.posterior(**case)
    agree(result, exact, result.bulk_size)
    np.testing.assert_allclose(result.interval(0.8), exact.interval(0.8), rtol=0.25, atol=0.02)
    return result


@pytest.mark.parametrize("kind", KINDS)
def test_every_mechanism(kind):
    mechanism = mechanisms()[kind]
    released = [7, -2, 4] if mechanism.base == "naive" else [5, 0, 3]
    result = run({"model": MODELS["rates"], "released": released, "mechanism": mechanism})
    assert (result.acceptance == 1) == (mechanism.base == "naive")


@pytest.mark.parametrize("name", MODELS)
def test_every_model(name):
    case = {"model": MODELS[name], "released": [5, 0, 3], "mechanism": mechanisms()["L1 prior"]}
    result = run(case)
    exact = congenial.posterior(**case)
    np.testing.assert_allclose(result.points, exact.points, atol=0.06)


@pytest.mark.parametrize("kind", ["L1 naive", "L2 naive", "L1 congenial", "squared L2 prior"])
def test_death_rates(kind):
    mechanism = mechanisms(deaths=True, total=5, places=2)[kind]
    released = [[6, -1], [0, 2]] if mechanism.base == "naive" else [[4, 1], [1, 1]]
    run({"model": DEATHS, "released": released, "mechanism": mechanism})


@pytest.mark.parametrize("base", ["naive", "congenial"])
def test_subtotals_and_upper_bounds(base):
    subtotals = [((0, 2), 7)]
    mechanism = Wasserstein(loss="L1", epsilon="1", total=9, subtotals=subtotals, base=base)
    case = {
        "model": congenial.GammaPoisson(shape=1.5, rate=[0.1, 0.2, 0.3, 0.4]),
        "released": [5, 2, 2, 0],
        "mechanism": mechanism,
        "public": {"total": 9, "subtotals": subtotals, "upper": [4, 3, 6, 9]},
    }
    result = run(case)
    assert (result.tables.sum(axis=2) == 9).all()
    assert (result.tables[:, :, [0, 2]].sum(axis=2) == 7).all()
    assert (result.tables <= [4, 3, 6, 9]).all()
    assert (result.tables >= 0).all()


def test_counts_without_a_total():
    mechanism = Wasserstein(loss="L1", epsilon="1", base="naive")
    model = congenial.GammaPoisson(shape=[1.5, 0.4], rate=[0.1, 0.02])
    run({"model": model, "released": [14, -3], "mechanism": mechanism}, draws=2_000)


def test_windows_of_a_wide_range(monkeypatch):
    """Where a range is too wide to draw from at once, windows leave the law as it is."""
    monkeypatch.setattr(augmented_chain, "_WIDEST", 6)
    case = {
        "model": congenial.GammaPoisson(shape=1.5, rate=0.1),
        "released": [14, 3, -4],
        "mechanism": Wasserstein(loss="L1", epsilon="1", total=20, base="naive"),
    }
    run(case, draws=3_000)


@pytest.mark.parametrize("deaths", [False, True])
@pytest.mark.parametrize("loss", ["L1", "squared L2"])
@pytest.mark.parametrize("with_prior", [False, True])
def test_the_tracked_normalizer_is_the_mechanisms(loss, with_prior, deaths):
    rng = np.random.default_rng(8)
    previous = [0, 40, 3, 1, 90]
    prior = DirichletMultinomial(previous, alpha="1/2", pseudo_count="1/3") if with_prior else None
    mechanism = Wasserstein(loss=loss, epsilon="20", total=150, prior=prior, deaths=deaths)
    table = np.zeros((5, 2 if deaths else 1), dtype=np.int64)
    table[:, 0] = [100, 0, 20, 30, 0]
    tracked = TrackedNormalizer(mechanism, Group((0, 1, 2, 3, 4), 150), table)
    for _ in range(12):
        order = rng.permutation(5)
        moves = [(int(order[0]), int(order[1])), (int(order[2]), int(order[3]))]
        tracked.begin(moves)
        for first, second in moves:
            proposed = table.copy()
            together = table[first, 0] + table[second, 0]
            proposed[first, 0] = rng.integers(0, together + 1)
            proposed[second, 0] = together - proposed[first, 0]
            if deaths:
                for place in (first, second):
                    proposed[place, 1] = rng.integers(0, proposed[place, 0] + 1)
            ratio, factors = tracked.propose({p: proposed[p] for p in (first, second)})
            exact = mechanism.log_normalizer(proposed) - mechanism.log_normalizer(table)
            assert ratio == pytest.approx(exact, abs=1e-10)
            accepted = rng.random() < 0.6
            tracked.settle((first, second), factors if accepted else None)
            table = proposed if accepted else table


def test_a_large_congenial_table():
    """67 places, 2,000 cases: chains agree with each other, and intervals cover the shares."""
    rng = np.random.default_rng(6)
    shares = rng.dirichlet(np.full(67, 0.8))
    counts = rng.multinomial(2000, shares)
    mechanism = Wasserstein(loss="L1", epsilon="2", total=2000)
    released = mechanism.sample(counts, rng=Seeded(5))
    result = congenial.posterior(
        model=congenial.DirichletMultinomialShares(alpha=0.8),
        released=released,
        mechanism=mechanism,
        method="augmented",
        draws=150,
        warmup=30,
        chains=2,
        seed=1,
    )
    assert (result.tables.sum(axis=2) == 2000).all()
    assert result.r_hat.max() < 1.15
    low, high = result.interval(0.9).T
    assert ((low <= shares) & (shares <= high)).mean() > 0.75
    assert result.effective_sample_size > 40


def test_loss_l2_is_refused_with_a_congenial_base():
    with pytest.raises(InputError, match='too slow to update along a chain; use method="exact"'):
        congenial.posterior(
            model=MODELS["rates"],
            released=[5, 0, 3],
            mechanism=mechanisms()["L2 congenial"],
            method="augmented",
        )


def test_r_hat_sees_chains_that_disagree():
    rng = np.random.default_rng(1)
    same = rng.normal(size=(4, 1000))
    assert posterior_result.r_hat(same) == pytest.approx(1, abs=0.01)
    assert posterior_result.r_hat(same + np.array([0, 0, 0, 2])[:, None]) > 1.2
    assert (
        posterior_result.r_hat(same * np.array([1, 1, 1, 5])[:, None]) > 1.1
    )  # only the spread differs
    assert posterior_result.r_hat(same + np.linspace(0, 3, 1000)) > 1.2  # halves differ


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9, -0.4])
def test_effective_size_of_autoregressive_chains(correlation):
    """n (1 - r)/(1 + r) is the limit for a chain with correlation r."""
    rng = np.random.default_rng(2)
    chains = np.zeros((4, 20_000))
    noise = rng.normal(size=chains.shape)
    chains[:, 0] = noise[:, 0] / np.sqrt(1 - correlation**2)
    for step in range(1, chains.shape[1]):
        chains[:, step] = correlation * chains[:, step - 1] + noise[:, step]
    expected = chains.size * (1 - correlation) / (1 + correlation)
    assert posterior_result.effective_size(chains) == pytest.approx(expected, rel=0.1)
    assert posterior_result.bulk_size(chains) == pytest.approx(expected, rel=0.12)
    assert posterior_result.tail_size(chains) > 0.5 * min(expected, chains.size)


def test_figures_that_arviz_gives():
    """ArviZ 0.21 on the same numbers, computed once: rhat, ess bulk, ess tail."""
    rng = np.random.default_rng(3)
    chains = np.cumsum(rng.normal(size=(3, 101)), axis=1) * 0.1 + rng.normal(size=(3, 101))
    result = (
        posterior_result.r_hat(chains),
        posterior_result.bulk_size(chains),
        posterior_result.tail_size(chains),
    )
    assert result == pytest.approx(ARVIZ, rel=1e-10)


def test_the_form_that_arviz_reads():
    case = {"model": MODELS["rates"], "released": [5, 0, 3], "mechanism": mechanisms()["L1 naive"]}
    result = congenial.posterior(**case, method="augmented", draws=20, warmup=5, chains=3, seed=0)
    data = result.to_dict()
    assert set(data) == {"posterior", "sample_stats"}
    assert data["posterior"]["rate"].shape == (3, 20, 3)
    assert data["posterior"]["counts"].shape == (3, 20, 3)
    weighted = congenial.posterior(**case, method="importance", draws=20).to_dict()
    assert weighted["posterior"]["rate"].shape == (1, 20, 3)
    assert np.exp(weighted["sample_stats"]["log_weight"]).sum() == pytest.approx(1)
    with pytest.raises(InputError, match="an exact posterior has none"):
        congenial.posterior(**case).to_dict()
    with pytest.raises(InputError, match='"exact" runs no chains'):
        _ = congenial.posterior(**case).r_hat


def test_draws_repeat_with_their_seed():
    case = {
        "model": MODELS["rates"],
        "released": [5, 0, 3],
        "mechanism": mechanisms()["L1 congenial"],
    }
    for method in ("rejection", "importance", "augmented"):
        options = {"method": method, "draws": 50, "warmup": 5, "chains": 2}
        first, again, other = (
            congenial.posterior(**case, **options, seed=s).draws for s in (1, 1, 2)
        )
        assert np.array_equal(first, again)
        assert not np.array_equal(first, other)
