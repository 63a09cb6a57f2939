"""Distances of noisy marginals, the frontier of risk and cost, and the largest epsilon for a risk."""

from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import pytest
from tests.assess.homogeneity.enumeration import random_cells

from countveil import DiscreteLaplace, Gaussian, Laplace, Seeded
from countveil.assess import homogeneity
from countveil.assess.homogeneity import Measure, Table
from countveil.errors import InputError
from countveil.papers import liu_zhao
from countveil.papers.liu_zhao import marginal_distances
from countveil.papers.liu_zhao.rounded_noise import round_noise


@pytest.fixture
def table():
    rng = np.random.default_rng(1)
    columns = {name: rng.integers(0, 3, 120).astype(str) for name in ("A", "B", "C")}
    people = pd.DataFrame({**columns, "Y": rng.integers(0, 2, 120)})
    return Table.from_records(people, identifiers=["A", "B", "C"], sensitive="Y")


def test_marginals_are_of_all_cells(table):
    result = liu_zhao.distances(table, mechanism=Laplace(1), draws=5, rng=Seeded(1))
    assert len(result.marginals) == 4 + 6 + 4
    assert result.marginals[0] == ("A",)
    assert ("A", "B", "Y") in result.marginals
    assert result.each.shape == (5, 14)
    assert ((result.each >= 0) & (result.each <= 1)).all()
    assert result.mean(1) == pytest.approx(result.each[:, :4].mean())
    errors = result.each[:, :4].mean(axis=1).std(ddof=1) / np.sqrt(5)
    assert result.error(1) == pytest.approx(errors)


def test_expected_distance_of_a_small_table():
    """One identifier of two values: four cells, whose noise may be enumerated."""
    table = Table.from_records(
        pd.DataFrame({"A": list("xxxy"), "Y": list("ppqp")}), identifiers=["A"], sensitive="Y"
    )
    exact, law = np.array([[2, 1], [1, 0]]), DiscreteLaplace(epsilon=2)
    k = np.arange(-6, 7)
    probabilities = np.exp(law.log_pmf(k))
    noise = np.array(list(product(k, repeat=4))).reshape(-1, 2, 2)
    weights = np.prod(np.array(list(product(probabilities, repeat=4))), axis=1)
    shown = np.maximum(exact + noise, 0).astype(float)
    totals = shown.sum(axis=(1, 2), keepdims=True)
    shares = np.where(totals > 0, shown / np.maximum(totals, 1), 0.25)
    rows = np.abs(shares.sum(axis=2) - exact.sum(axis=1) / 4).sum(axis=1) / 2
    cells = np.abs(shares - exact / 4).sum(axis=(1, 2)) / 2
    result = liu_zhao.distances(table, mechanism=law, draws=4000, rng=Seeded(2), ways=(1, 2))
    assert result.marginals == (("A",), ("Y",), ("A", "Y"))
    samples = result.each.mean(axis=0)
    errors = result.each.std(axis=0) / np.sqrt(4000)
    assert samples[0] == pytest.approx(weights @ rows, abs=4 * errors[0])
    assert samples[2] == pytest.approx(weights @ cells, abs=4 * errors[2])


def test_blocks_change_nothing_but_the_noise(table, monkeypatch):
    def exact_sums(size):
        monkeypatch.setattr(marginal_distances, "_AT_ONCE", size)
        cross = marginal_distances._CrossClassification.of(table)
        return [sums.tolist() for sums in cross.sums([(0,), (1, 3), (0, 1, 2)])]

    whole = exact_sums(10_000)
    assert exact_sums(7) == whole
    assert sum(whole[0]) == 120
    assert liu_zhao.distances(table, mechanism=Laplace(50), draws=3, rng=Seeded(1)).mean(3) < 1e-9


def test_noise_falls_on_empty_cells_too(table):
    """Of 54 cells some are empty; what they gain is 0.5 on average for each, by noise of scale 1."""
    law = Laplace(1.0)
    cross = marginal_distances._CrossClassification.of(table)
    noise = round_noise(law)
    sums = [cross.sums([(3,)], noise, Seeded(seed))[0].sum() for seed in range(200)]
    expected = 0.0
    for count in [*table.counts.ravel(), *[0] * (54 - table.counts.size)]:
        k = np.arange(-noise.reach, noise.reach + 1)
        expected += noise.at @ np.maximum(count + k, 0)
    assert np.mean(sums) == pytest.approx(expected, abs=4 * np.std(sums) / np.sqrt(200))
    assert expected > 120


def test_frontier_has_a_row_for_each_loss(table):
    dp = partial(Gaussian.calibrated, kind="DP")
    for mechanism, deltas in ((Laplace, [None]), (Gaussian, [1e-3, 0.1]), (dp, [0.01])):
        result = liu_zhao.frontier(
            table,
            mechanism=mechanism,
            epsilons=[0.1, 0.9],
            deltas=deltas,
            draws=4,
            rng=Seeded(1),
            ways=(1, 2),
        )
        assert result.num_rows == 2 * len(deltas)
        assert result.column_names[:4] == ["epsilon", "delta", "local", "local_weighted"]
        assert result.column_names[-2:] == ["distance_2_way", "distance_2_way_error"]
        assert result["distance_1_way"][0].as_py() > result["distance_1_way"][1].as_py()
        assert result["delta"].to_pylist() == [delta for delta in deltas for _ in range(2)]
    risk = homogeneity.expected_risk(table, mechanism=dp(epsilon=0.9, delta=0.01), weighted=True)
    assert result["expected_weighted"][1].as_py() == pytest.approx(risk.value, rel=1e-12)


@pytest.mark.parametrize("mechanism", [Laplace, DiscreteLaplace])
@pytest.mark.parametrize(
    "measure", ["local", Measure("expected", weighted=True), Measure("marginal_shrinkage")]
)
def test_the_largest_epsilon_keeps_the_limit_and_a_little_more_does_not(mechanism, measure):
    table = Table.from_counts(random_cells(np.random.default_rng(2), 60, 2, 8))
    chosen = homogeneity.largest_epsilon(table, risk=0.5, measure=measure, mechanism=mechanism)

    def risk(epsilon):
        law = mechanism(epsilon=epsilon if mechanism is DiscreteLaplace else float(epsilon))
        return homogeneity.risk_of(table, mechanism=law, measure=measure).value

    assert risk(chosen) <= 0.5 < risk(chosen * (1 + chosen / 10**9))


def test_the_largest_epsilon_with_delta():
    table = Table.from_counts([[3, 0], [0, 2], [4, 1]])
    chosen = homogeneity.largest_epsilon(table, risk=0.4, mechanism=Gaussian, delta=1e-3)
    law = Gaussian.calibrated(epsilon=float(chosen), delta=1e-3, kind="pDP")
    assert homogeneity.local_risk(table, mechanism=law).value == pytest.approx(0.4, abs=1e-8)


def test_risk_that_falls_before_it_rises_is_scanned():
    """Heterogeneous cells look homogeneous by noise: more of it may tell more."""
    table = Table.from_counts([[3, 3]] * 9 + [[6, 0]])

    def risk(epsilon):
        return homogeneity.local_risk(table, mechanism=Laplace(epsilon)).value

    assert risk(0.01) > 0.4 > risk(2)
    chosen = homogeneity.largest_epsilon(table, risk=0.4)
    assert float(chosen) == pytest.approx(100)
    few = homogeneity.largest_epsilon(table, risk=0.095)
    assert risk(float(few)) <= 0.095
    assert min(risk(e) for e in np.geomspace(float(few) * 1.001, 90, 50)) > 0.095
    with pytest.raises(
        InputError, match=r"0.01 is below the smallest that can be reached, 0\.\d+ at epsilon ="
    ):
        homogeneity.largest_epsilon(table, risk=0.01)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda t: homogeneity.largest_epsilon(t, risk=0.0), "risk: 0.0 is not allowed"),
        (lambda t: homogeneity.largest_epsilon(t, risk=0.5, epsilons=[]), "give at least one"),
        (
            lambda t: liu_zhao.distances(t, mechanism=Laplace(1), draws=1, rng=Seeded(1)),
            "draws: 1 is not allowed",
        ),
        (
            lambda t: liu_zhao.distances(
                t, mechanism=Laplace(1), draws=2, rng=Seeded(1), ways=(5,)
            ),
            "ways: 5 is not allowed; a marginal has from 1 to 4 attributes",
        ),
        (
            lambda t: liu_zhao.frontier(t, mechanism=Laplace, epsilons=[], draws=2, rng=Seeded(1)),
            "epsilons, deltas: give at least one",
        ),
        (
            lambda t: liu_zhao.distances(t, mechanism=Laplace(1), draws=2, rng=Seeded(1)).mean(4),
            "ways: no marginal of 4 attributes was drawn",
        ),
    ],
)
def test_wrong_arguments_are_named(table, ask, message):
    with pytest.raises(InputError, match=message):
        ask(table)


def test_too_many_cells_are_refused():
    people = {f"A{i}": [str(k) for k in range(20)] for i in range(6)}
    table = Table.from_records(
        pd.DataFrame({**people, "Y": ["a", "b"] * 10}), identifiers=list(people), sensitive="Y"
    )
    assert table.possible == 20**6
    with pytest.raises(InputError, match="128,000,000 cells, more than the 50,000,000 supported"):
        liu_zhao.distances(table, mechanism=Laplace(1), draws=2, rng=Seeded(1))


def test_noise_goes_on_cells_that_are_given_empty():
    """A thousand empty cells take noise as well, so the noisy shares move away from the exact ones."""
    occupied = [[3, 0], [1, 2], [4, 4]]
    few = homogeneity.Table.from_counts(occupied)
    many = homogeneity.Table.from_counts(occupied + [[0, 0]] * 1_000)
    assert (few.possible, many.possible) == (3, 1_003)
    inputs = {"mechanism": DiscreteLaplace(1), "draws": 20, "ways": [2]}
    near, far = (
        liu_zhao.distances(table, rng=Seeded(1), **inputs).mean(2) for table in (few, many)
    )
    assert near < 0.3 < 0.9 < far


def test_combinations_that_are_not_given_are_refused():
    table = homogeneity.Table.from_counts([[3, 0], [1, 2]], possible=10)
    with pytest.raises(InputError, match="10 combinations are possible"):
        liu_zhao.distances(table, mechanism=DiscreteLaplace(1), draws=2, rng=Seeded(1))
