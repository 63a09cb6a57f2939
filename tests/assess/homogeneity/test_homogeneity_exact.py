"""Exact measures against enumeration, simulation and each other; far out they stay probabilities."""

import dataclasses

import numpy as np
import pytest
from tests.assess.homogeneity import enumeration
from tests.assess.homogeneity.enumeration import LAWS, average, dirichlet_multinomial, random_cells

from countveil import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from countveil.assess import homogeneity
from countveil.assess.homogeneity import MEASURES, Dirichlet, Measure, Table, average_risk
from countveil.errors import InputError

SMALL = [[3, 1, 0], [2, 2, 1], [0, 4, 0], [1, 0, 0], [1, 1, 1], [0, 2, 3]]
ALPHAS = [0.6, 1.0, 0.4]


def near(value):
    return pytest.approx(value, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize("share", [False, True])
class TestAgainstEnumeration:
    def test_local(self, law, share):
        table = Table.from_counts(SMALL)
        risk = homogeneity.local_risk(table, mechanism=law, method="share" if share else "exact")
        each = [enumeration.local(counts, law, share) for counts in SMALL]
        assert risk.cells == near(each)
        assert risk.value == near(np.mean(each))

    def test_expected(self, law, share):
        table = Table.from_counts(SMALL)
        risk = homogeneity.expected_risk(table, mechanism=law, method="share" if share else "exact")
        each = [
            average(sum(counts), np.array(counts) / sum(counts), law, share=share)
            for counts in SMALL
        ]
        assert risk.cells == near(each)

    def test_shrinkage(self, law, share):
        table = Table.from_counts(SMALL)
        risk = homogeneity.shrinkage_risk(
            table, mechanism=law, prior=ALPHAS, method="share" if share else "exact"
        )
        each = [average(sum(c), ALPHAS, law, dirichlet_multinomial, share) for c in SMALL]
        assert risk.cells == near(each)

    def test_marginals(self, law, share):
        # Few sizes, so that all may be enumerated; no shortcut for Poisson sizes applies.
        sizes = homogeneity.Sizes("given", np.array([0.0, 0.3, 0.25, 0.2, 0.15, 0.1]))
        method = "share" if share else "exact"
        given = {"mechanism": law, "sizes": sizes, "method": method}
        table = Table.from_counts(SMALL)
        marginal = homogeneity.marginal_risk(table, **given).cells
        for found, counts in zip(marginal, SMALL, strict=True):
            shares = np.array(counts) / sum(counts)
            each = [average(n, shares, law, share=share) for n in range(1, 6)]
            assert found == near(sizes.pmf[1:] @ each)
        each = [average(n, ALPHAS, law, dirichlet_multinomial, share) for n in range(1, 6)]
        found = homogeneity.marginal_shrinkage_risk(table, prior=ALPHAS, **given).value
        assert found == near(sizes.pmf[1:] @ each)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_scenarios_are_those_of_the_patterns(law):
    table = Table.from_counts(SMALL)
    found = homogeneity.scenarios(table, mechanism=law)
    assert found.probabilities.sum(axis=1) == near(np.ones(len(SMALL)))
    for counts, chances, mistaken in zip(
        SMALL, found.probabilities, found.misattributed, strict=True
    ):
        each, wrong = np.zeros(8), 0.0
        same = sum(n > 0 for n in counts) == 1
        for kept, chance in enumeration.outcomes(counts, law):
            shown = [n for n, k in zip(counts, kept, strict=True) if k]
            if len(shown) == 1:
                number = (0 if same else 7) if shown[0] else (1 if same else 6)
                wrong += chance * (1 - shown[0] / sum(counts))
            else:
                number = (2 if same else 4) if shown else (3 if same else 5)
            each[number] += chance
        assert chances == near(each)
        assert mistaken == near(wrong)
    assert found.wrong == near(found.probabilities[:, [1, 6]].sum(axis=1))
    local = homogeneity.local_risk(table, mechanism=law).cells
    assert found.probabilities[:, [0, 7]].sum(axis=1) == near(local)


def test_weights_are_cells_or_people():
    table, law = Table.from_counts(SMALL), Laplace(0.7)
    for name in MEASURES:
        plain, weighted = (
            homogeneity.risk_of(table, mechanism=law, measure=Measure(name, w))
            for w in (False, True)
        )
        assert plain.cells.tolist() == weighted.cells.tolist()
        assert plain.value == near(plain.cells.mean())
        assert weighted.value == near(np.average(plain.cells, weights=table.sizes))
        assert plain.audience == "internal"
    assert not hasattr(homogeneity.marginal_shrinkage_risk, "weighted")


def test_order_of_labels_and_cells_does_not_matter():
    law = Gaussian(2)
    one = Table.from_counts(SMALL)
    other = Table.from_counts([row[::-1] for row in SMALL[::-1]])
    for name in ("local", "expected", "marginal"):
        first, second = (homogeneity.risk_of(t, mechanism=law, measure=name) for t in (one, other))
        assert first.cells == near(second.cells[::-1])


@pytest.mark.parametrize("law", [Laplace(0.3), DiscreteGaussian("9")], ids=repr)
def test_large_cells_agree_with_simulation(law):
    """Draw the labels anew, then the noise by what is kept."""
    rng = np.random.default_rng(5)
    shares, size, draws = np.array([0.75, 0.2, 0.04, 0.01]), 60, 200_000
    cell = Table.from_counts([[size, 0, 0, 0]])
    kept = np.array([enumeration.keeps(law, n) for n in range(size + 1)])
    for exact, drawn in (
        (
            homogeneity.expected_risk(cell, mechanism=law, shares=shares),
            rng.multinomial(size, shares, draws),
        ),
        (
            homogeneity.shrinkage_risk(cell, mechanism=law, prior=4 * shares),
            np.array([rng.multinomial(size, p) for p in rng.dirichlet(4 * shares, draws)]),
        ),
    ):
        shown = rng.random(drawn.shape) < kept[drawn]
        hit = (shown.sum(axis=1) == 1) & ((shown & (drawn > 0)).sum(axis=1) == 1)
        assert exact.value == pytest.approx(hit.mean(), abs=4 * hit.std() / np.sqrt(draws))


def test_poisson_sizes_make_labels_independent():
    """The shortcut is the sum over sizes."""
    table = Table.from_counts(random_cells(np.random.default_rng(2), 30, 3, 12))
    sizes = homogeneity.fit_poisson(table.sizes)
    plain = dataclasses.replace(sizes, poisson_mean=None)
    for law in LAWS:
        short = homogeneity.marginal_risk(table, mechanism=law, sizes=sizes).cells
        assert short == near(homogeneity.marginal_risk(table, mechanism=law, sizes=plain).cells)


def test_a_concentrated_prior_is_a_multinomial_and_a_thin_one_a_single_label():
    table, law = Table.from_counts(SMALL), Laplace(0.7)
    shares = np.array([0.5, 0.3, 0.2])

    def risk(concentration):
        prior = Dirichlet(shares, concentration)
        return homogeneity.shrinkage_risk(table, mechanism=law, prior=prior).cells

    alike = homogeneity.expected_risk(table, mechanism=law, shares=shares).cells
    single = homogeneity.local_risk(
        Table.from_counts([[n, 0, 0] for n in table.sizes]), mechanism=law
    )
    assert risk(np.inf) == near(alike)
    assert risk(1e10) == pytest.approx(alike, rel=1e-8)
    assert risk(0.0) == near(single.cells)
    assert risk(1e-10) == pytest.approx(single.cells, rel=1e-8)


@pytest.mark.parametrize("labels", [2, 3, 50])
@pytest.mark.parametrize("law", [Laplace(1e-3), DiscreteLaplace(epsilon=5), Gaussian(30)], ids=repr)
def test_large_cells_and_many_labels_stay_probabilities(labels, law):
    sizes = np.array([1, 2, 30, 700, 10_000])
    shares = np.arange(1.0, labels + 1) / np.arange(1.0, labels + 1).sum()
    counts = np.floor(sizes[:, None] * shares).astype(int)
    counts[:, 0] += sizes - counts.sum(axis=1)
    table = Table.from_counts(counts)
    for risk in (
        homogeneity.local_risk(table, mechanism=law),
        homogeneity.expected_risk(table, mechanism=law),
        homogeneity.marginal_risk(table, mechanism=law),
    ):
        assert np.isfinite(risk.cells).all()
        assert ((risk.cells >= 0) & (risk.cells <= 1)).all()
        assert 0 < risk.value < 1


@pytest.mark.parametrize(("labels", "most"), [(3, 10_000), (50, 10_000)])
def test_a_prior_of_large_cells_and_many_labels_stays_a_probability(labels, most):
    counts = np.zeros((3, labels), int)
    counts[:, 0] = 1, most // 10, most
    table = Table.from_counts(counts)
    for alpha in (1e-6, 0.3, 1e5):
        prior = np.full(labels, alpha)
        each = homogeneity.shrinkage_risk(table, mechanism=Laplace(1e-3), prior=prior).cells
        assert ((each > 0) & (each < 1)).all()
        if alpha == 1e-6:
            single = homogeneity.local_risk(table, mechanism=Laplace(1e-3)).cells
            assert each == pytest.approx(single, rel=1e-3)


def test_passes_over_sizes_join_without_a_seam():
    """Sizes up to 4,000 under a concentrated prior need several passes; each is right by itself."""
    sizes = np.array([1, 5, 60, 400, 1_100, 2_500, 4_000])
    table = Table.from_counts(np.column_stack([sizes, 0 * sizes]))
    prior, law = np.array([99_800.0, 200.0]), Laplace(0.5)
    together = homogeneity.shrinkage_risk(table, mechanism=law, prior=prior).cells
    for number, size in enumerate(sizes):
        alone = Table.from_counts([[size, 0]])
        risk = homogeneity.shrinkage_risk(alone, mechanism=law, prior=prior).value
        assert together[number] == pytest.approx(risk, rel=1e-11)


def test_risks_far_below_rounding_keep_their_digits():
    """Two labels of 40 people each: both would have to be dropped but one."""
    table = Table.from_counts([[40, 40]])
    value = homogeneity.local_risk(table, mechanism=Laplace(2)).value
    assert value == pytest.approx(np.exp(-2 * 39.5), rel=1e-12)


def test_too_large_cells_are_refused_where_they_must_be_gone_through():
    table = Table.from_counts([[200_000, 1]])
    assert 0 < homogeneity.local_risk(table, mechanism=Laplace(1)).value < 1
    with pytest.raises(
        InputError, match=r"cell has 200,001 people, .* up to 100,000; use the local"
    ):
        homogeneity.expected_risk(table, mechanism=Laplace(1))


def test_curve_agrees_with_single_calls():
    table = Table.from_counts(random_cells(np.random.default_rng(3), 40, 3, 15))
    found = homogeneity.curve(table, mechanisms=LAWS).to_pydict()
    assert found.pop("mechanism") == [repr(law) for law in LAWS]
    assert len(found) == 10
    for name, values in found.items():
        measure = Measure(name.removesuffix("_weighted"), name.endswith("_weighted"))
        for law, value in zip(LAWS, values, strict=True):
            single = homogeneity.risk_of(table, mechanism=law, measure=measure)
            assert value == near(single.value)


def test_mechanisms_are_taken_a_few_at_a_time(monkeypatch):
    table = Table.from_counts(SMALL)
    whole = homogeneity.curve(table, mechanisms=LAWS).to_pydict()
    monkeypatch.setattr(average_risk, "_AT_ONCE", 40)
    parts = homogeneity.curve(table, mechanisms=LAWS).to_pydict()
    assert parts.pop("mechanism") == whole.pop("mechanism")
    for name, values in parts.items():
        assert values == near(whole[name])


@pytest.mark.parametrize("sizes", ["poisson", "negative-binomial", "plain-poisson"])
@pytest.mark.parametrize("prior", ["moments", "likelihood"])
def test_call_sites_as_documented(prior, sizes):
    table = Table.from_counts(random_cells(np.random.default_rng(4), 40, 3, 15))
    law = Laplace(epsilon=1)
    risk = homogeneity.marginal_shrinkage_risk(table, mechanism=law, prior=prior, sizes=sizes)
    assert 0 < risk.value < 1
    assert risk.prior.source == prior
    assert risk.sizes.name == sizes
    assert repr(risk).startswith("<internal: marginal shrinkage homogeneity risk = 0.")
    assert (
        0 < homogeneity.shrinkage_risk(table, mechanism=law, prior=prior, weighted=True).value < 1
    )
    assert 0 < homogeneity.marginal_risk(table, mechanism=law, sizes=sizes, weighted=True).value < 1


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda t: homogeneity.local_risk(t, mechanism=Laplace), "is not noise; give a law"),
        (lambda t: homogeneity.local_risk(t, mechanism=1.0), r"mechanism: 1.0 is not noise"),
        (lambda t: homogeneity.curve(t, mechanisms=[]), "mechanisms: the list is empty"),
        (lambda t: homogeneity.curve(t, mechanisms=LAWS, measures=[]), "choose from local"),
        (
            lambda t: homogeneity.curve(t, mechanisms=LAWS, measures=["l"]),
            "measure: unknown measure 'l'",
        ),
        (
            lambda t: homogeneity.local_risk(t, mechanism=LAWS[0], method="upper"),
            "method: unknown method 'upper'; choose from exact, share, printed, corrected, bound",
        ),
        (
            lambda t: homogeneity.shrinkage_risk(t, mechanism=LAWS[0], prior="flat"),
            "'flat' is not allowed; choose \"moments\"",
        ),
        (
            lambda t: homogeneity.shrinkage_risk(t, mechanism=LAWS[0], prior=[1, 0, 2]),
            "prior: give one alpha per label, each from 1e-100 to 1e100, or",
        ),
        (
            lambda t: homogeneity.shrinkage_risk(t, mechanism=LAWS[0], prior=[1, float("nan"), 2]),
            "give one alpha per label",
        ),
        (
            lambda t: homogeneity.shrinkage_risk(t, mechanism=LAWS[0], prior=[1, 1]),
            "got 2 alphas for 3 labels; give one per label",
        ),
        (
            lambda t: homogeneity.marginal_risk(t, mechanism=LAWS[0], sizes="normal"),
            "sizes: 'normal' is not allowed; choose from poisson, negative-binomial",
        ),
        (
            lambda t: homogeneity.expected_risk(t, mechanism=LAWS[0], shares=[0.5, 0.6, 0.1]),
            "3 numbers, 0 or more with sum 1",
        ),
        (
            lambda t: homogeneity.expected_risk(t, mechanism=LAWS[0], shares=[0.5, 0.5]),
            "3 numbers, 0 or more with sum 1",
        ),
    ],
)
def test_wrong_arguments_are_named(ask, message):
    with pytest.raises(InputError, match=message):
        ask(Table.from_counts(SMALL))
