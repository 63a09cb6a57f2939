"""Formulas of 004: what the printed ones give, and the upper bound that is one."""

import numpy as np
import pytest
from tests.assess.homogeneity.enumeration import LAWS, compositions, random_cells

from countveil import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from countveil.assess import homogeneity
from countveil.assess.homogeneity import Measure, Table
from countveil.assess.homogeneity.average_risk import with_labels
from countveil.assess.homogeneity.cell_risk import keeping
from countveil.errors import InputError

EPSILONS = ("0.001", "0.03", "0.3", "1", "3", "10")
PURE = [Laplace(float(e)) for e in EPSILONS] + [DiscreteLaplace(epsilon=e) for e in EPSILONS]


def partitions(n, labels, most=None):
    """Yield counts in falling order with sum n."""
    most = n if most is None else most
    if labels == 0:
        if n == 0:
            yield ()
        return
    for first in range(min(n, most), -1, -1):
        for rest in partitions(n - first, labels - 1, first):
            yield (first, *rest)


@pytest.mark.parametrize(("labels", "largest"), [(2, 40), (3, 24), (4, 16), (5, 13), (7, 11)])
def test_the_bound_is_never_passed_by_any_cell(labels, largest):
    cells = [c for n in range(1, largest + 1) for c in partitions(n, labels)]
    table = Table.from_counts(cells)
    for law in PURE:
        exact = homogeneity.local_risk(table, mechanism=law).cells
        bound = homogeneity.local_risk(table, mechanism=law, method="bound").cells
        assert (exact <= bound).all()
        # It is reached: one person for each label but one.
        few = np.sort(table.counts, axis=1)[:, :-1] <= 1
        assert exact[few.all(axis=1)] == pytest.approx(bound[few.all(axis=1)], rel=1e-12)


def test_the_formula_fails_for_gaussian_noise_and_is_refused():
    cell, law = (1, 1, 2, 2, 2, 2, 2), Gaussian(5)
    exact = homogeneity.local_risk(Table.from_counts([cell]), mechanism=law).value
    bound = with_labels(keeping([law], np.arange(13)), np.array([12]), 7, 7)[0, 0]
    assert exact == pytest.approx(0.01799, abs=5e-6)
    assert bound == pytest.approx(0.01727, abs=5e-6)
    for noise in (law, DiscreteGaussian("25")):
        with pytest.raises(
            InputError,
            match=r"valid only for Laplace and DiscreteLaplace noise, and this is .*; use",
        ):
            homogeneity.local_risk(Table.from_counts([cell]), mechanism=noise, method="bound")


@pytest.mark.parametrize("law", PURE[::3], ids=repr)
@pytest.mark.parametrize("name", ["expected", "shrinkage", "marginal", "marginal_shrinkage"])
def test_averages_have_upper_bounds_too(law, name):
    table = Table.from_counts(random_cells(np.random.default_rng(1), 60, 4, 20))
    exact, bound = (
        homogeneity.risk_of(table, mechanism=law, measure=Measure(name, method=method)).cells
        for method in ("exact", "bound")
    )
    assert (exact <= bound).all()


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_two_labels_make_the_corrected_formula_exact_where_one_person_differs(law):
    table = Table.from_counts([[n, 1] for n in range(1, 9)] + [[n, 0] for n in range(1, 9)])
    corrected = homogeneity.local_risk(table, mechanism=law, method="corrected")
    assert corrected.cells == pytest.approx(
        homogeneity.local_risk(table, mechanism=law).cells, rel=1e-12
    )


@pytest.mark.parametrize("method", ["printed", "corrected"])
def test_formulas_by_hand(method):
    """(13) to (17), written out with u(n) = 1 - exp(e/2 - n e)/2."""
    rng = np.random.default_rng(8)
    counts, e = random_cells(rng, 12, 3, 9), 0.8
    table, law, labels = Table.from_counts(counts), Laplace(e), 3
    n = table.sizes
    weights = n / n.sum()
    zero = 1 - np.exp(-e / 2) / 2

    def first(n):
        return zero ** (labels - 1) * (1 - np.exp((0.5 - n) * e) / 2)

    def second(n):
        inner = np.exp(-e / 2) + np.exp((1.5 - n) * e) - np.exp((1 - n) * e)
        return np.where(n >= 2, zero ** (labels - 2) * inner / 2, 0)

    def risk(name, **given):
        measure = Measure(name, weighted=True, method=method, **given)
        return homogeneity.risk_of(table, mechanism=law, measure=measure).value

    outer = zero ** (labels - 1) if method == "printed" else 1
    local = np.where(table.homogeneous, first(n), outer * second(n))
    assert risk("local") == pytest.approx(weights @ local, rel=1e-12)
    p = counts / n[:, None]
    one = (p ** n[:, None]).sum(axis=1)
    expected = one * first(n) + (1 - one) * second(n)
    assert risk("expected") == pytest.approx(weights @ expected, rel=1e-12)
    alphas = np.array([0.6, 1.0, 0.4])

    def single(n):
        j = np.arange(n)
        return np.prod((alphas[:, None] + j) / (2 + j), axis=1).sum()

    a = np.array([single(size) for size in n])
    shrunk = a * first(n) + (1 - a) * second(n)
    assert risk("shrinkage", prior=alphas) == pytest.approx(weights @ shrunk, rel=1e-12)
    sizes = homogeneity.plain_poisson(float(n.mean()))
    each = np.arange(1, sizes.most + 1)
    if method == "printed":
        marginal = sizes.pmf[n] * expected
    else:
        ones = (p[:, None, :] ** each[None, :, None]).sum(axis=2)
        marginal = (ones * first(each) + (1 - ones) * second(each)) @ sizes.pmf[1:]
    assert risk("marginal", sizes="plain-poisson") == pytest.approx(weights @ marginal, rel=1e-12)
    a = np.array([single(size) for size in each])
    both = (a * first(each) + (1 - a) * second(each)) @ sizes.pmf[1:]
    found = risk("marginal_shrinkage", prior=alphas, sizes=sizes)
    assert found == pytest.approx(both, rel=1e-12)


def test_all_counts_of_a_few_people_are_listed():
    assert len(list(compositions(4, 3))) == 15
    assert list(partitions(4, 3)) == [(4, 0, 0), (3, 1, 0), (2, 2, 0), (2, 1, 1)]
