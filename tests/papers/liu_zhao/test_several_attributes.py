"""Several attributes, repeated publication and growing data."""

import itertools
import math
from functools import partial

import mpmath
import numpy as np
import pandas as pd
import pytest

from countveil import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
from countveil.assess import homogeneity
from countveil.assess.homogeneity import Measure, Table
from countveil.assess.homogeneity.noise_families import law_at
from countveil.errors import InputError
from countveil.papers import liu_zhao
from countveil.papers.liu_zhao import EpsilonDelta, Publication
from countveil.privacy.costs import ZCDP, ApproxDP


@pytest.fixture
def people():
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            name: rng.integers(0, 3, 80).astype(str)
            for name in ("A", "B", "C", "condition", "smokes", "income")
        }
    )


@pytest.fixture
def tables(people):
    return Table.from_records(
        people, identifiers=["A", "B"], sensitive=["condition", "smokes", "income"]
    )


def local(table, law, weighted=False):
    return homogeneity.local_risk(table, mechanism=law, weighted=weighted)


@pytest.mark.parametrize("weighted", [False, True])
def test_overall_takes_the_largest_or_the_sum_of_each_cell(tables, weighted):
    law, measure = Laplace(1), Measure("local", weighted)
    cells = np.array([local(table, law).cells for table in tables])
    weights = tables[0].sizes if weighted else np.ones(len(tables[0].sizes))
    most = liu_zhao.overall(tables, mechanism=law, measure=measure)
    assert most.cells == pytest.approx(cells.max(axis=0))
    assert most.value == pytest.approx(np.average(cells.max(axis=0), weights=weights))
    total = liu_zhao.overall(tables, mechanism=law, measure=measure, how="sum")
    assert total.value == pytest.approx(np.average(cells.sum(axis=0), weights=weights))
    assert total.audience == "internal"
    with pytest.raises(InputError, match="how: unknown way 'mean'; choose"):
        liu_zhao.overall(tables, mechanism=law, how="mean")


def test_releases_in_sequence_have_two_losses_each(tables):
    losses = [EpsilonDelta(0.5), EpsilonDelta(0.25), EpsilonDelta(0.5), EpsilonDelta(1.0)]
    result = liu_zhao.sequential(tables, losses=losses, mechanism=Laplace)
    assert [release.attribute for release in result] == ["condition", "smokes", "income"]
    assert [release.smaller_loss.epsilon for release in result] == [0.75, 1.0, 1.5]
    assert [release.larger_loss.epsilon for release in result] == [0.75, 1.25, 2.25]
    assert result[2].risk_at_smaller_loss.value == local(tables[2], Laplace(1.5)).value
    assert result[2].risk_at_larger_loss.value == local(tables[2], Laplace(2.25)).value
    each = [local(tables[0], Laplace(0.75)), local(tables[1], Laplace(1.25))]
    largest = np.max([risk.cells for risk in each], axis=0)
    assert result[1].overall_at_larger_loss.value == pytest.approx(largest.mean())
    for how in ("max", "sum"):
        rising = liu_zhao.sequential(tables, losses=losses, mechanism=Laplace, how=how)
        overall = [release.overall_at_larger_loss.value for release in rising]
        assert overall == sorted(overall)
    with pytest.raises(InputError, match="got 2 for 3 attributes; give one for the identifiers"):
        liu_zhao.sequential(tables, losses=losses[:2], mechanism=Laplace)


def test_the_composition_is_an_argument(tables):
    losses = [EpsilonDelta(0.01)] * 4
    inputs = {"losses": losses, "mechanism": Laplace}
    added = liu_zhao.sequential(tables, **inputs)[-1].larger_loss
    assert added == EpsilonDelta(0.04)
    many = [EpsilonDelta(0.01)] * 1000
    advanced = liu_zhao.advanced(slack=1e-6)(many)
    drift = 1000 * 0.01 * (math.exp(0.01) - 1) / (math.exp(0.01) + 1)
    tail = math.log(math.e + math.sqrt(1000 * 1e-4) / 1e-6)  # below log(1e6): losses are small
    assert advanced.epsilon == pytest.approx(drift + math.sqrt(2 * tail * 1000 * 1e-4))
    assert advanced.delta == pytest.approx(1e-6)
    concentrated = liu_zhao.concentrated(delta=1e-6)(many)
    assert concentrated == EpsilonDelta(ZCDP("0.05").epsilon("1e-6"), 1e-6)
    assert concentrated.epsilon < advanced.epsilon < liu_zhao.basic(many).epsilon
    assert liu_zhao.advanced(slack=1e-6)(losses) == liu_zhao.concentrated(delta=1e-6)(losses)


def tight_delta(kinds: dict[str, int], epsilon: float) -> mpmath.mpf:
    """Return the smallest delta of so many releases of each epsilon, exactly (their Theorem 3.3).

    The worst releases are randomized responses, each true with odds e^ε: delta is the sum over how many
    of each kind are true of what passes e^epsilon times the probability under the other answer.
    """
    total = mpmath.mpf(0)
    for trues in itertools.product(*(range(times + 1) for times in kinds.values())):
        ways = math.prod(
            math.comb(times, true) for times, true in zip(kinds.values(), trues, strict=True)
        )
        lead = sum(
            (2 * true - times) * mpmath.mpf(one)
            for (one, times), true in zip(kinds.items(), trues, strict=True)
        )
        total += ways * max(mpmath.exp(lead / 2) - mpmath.exp(epsilon - lead / 2), 0)
    halves = [(2 * mpmath.cosh(mpmath.mpf(one) / 2)) ** times for one, times in kinds.items()]
    return total / math.prod(halves)


@pytest.mark.parametrize(
    ("kinds", "slack", "epsilon"),
    [
        ({"0.05": 200}, "1e-5", "3.591"),
        ({"0.01": 1000}, "1e-6", "1.6415"),
        ({"0.1": 30, "0.2": 10}, "1e-4", "3.9052"),
        ({"0.5": 100}, "1e-5", None),
        ({"2": 40, "0.3": 3}, "1e-3", None),
    ],
)
def test_advanced_composition_is_the_theorem_s_and_holds(kinds, slack, epsilon):
    """All three terms, to many digits; and the promise against the exact composition."""
    losses = [EpsilonDelta(float(one)) for one, times in kinds.items() for _ in range(times)]
    result = liu_zhao.advanced(slack=float(slack))(losses)
    with mpmath.workdps(60):
        each = [(mpmath.mpf(one), times) for one, times in kinds.items()]
        squares = sum(times * one**2 for one, times in each)
        drift = sum(times * one * mpmath.expm1(one) / (mpmath.exp(one) + 1) for one, times in each)
        tails = (mpmath.e + mpmath.sqrt(squares) / mpmath.mpf(slack), 1 / mpmath.mpf(slack))
        terms = [drift + mpmath.sqrt(2 * squares * mpmath.log(tail)) for tail in tails]
        terms.append(sum(times * one for one, times in each))
        assert result.epsilon == pytest.approx(float(min(terms)), rel=1e-12)
        assert tight_delta(kinds, result.epsilon * (1 + 1e-12)) <= mpmath.mpf(slack)
    if epsilon is not None:
        assert terms[0] < min(terms[1:])  # the middle term is the smallest of them
        assert result.epsilon == pytest.approx(float(epsilon), abs=6e-4)


def test_composition_of_gaussian_losses():
    losses = [EpsilonDelta(0.5, 1e-6), EpsilonDelta(0.5, 1e-6)]
    assert liu_zhao.basic(losses) == EpsilonDelta(1.0, 2e-6)
    rho = 2 * ApproxDP("0.5", "1e-6").zcdp.rho
    assert liu_zhao.concentrated(delta=1e-6)(losses) == EpsilonDelta(
        ZCDP(rho).epsilon("1e-6"), 1e-6
    )
    many = [EpsilonDelta(0.01, 1e-9)] * 1000
    assert liu_zhao.advanced(slack=1e-7)(many).delta == pytest.approx(1.1e-6, rel=1e-5)


def test_new_cohorts_keep_their_own_loss(tables):
    cohorts = {
        "2020": Publication(tables[0], EpsilonDelta(1.0)),
        "2021": Publication(tables[1], EpsilonDelta(2.0)),
    }
    grown = liu_zhao.vertical(cohorts, mechanism=Laplace)
    assert {name: item.loss.epsilon for name, item in grown.items()} == {"2020": 1.0, "2021": 2.0}
    assert grown["2021"].risk.value == local(tables[1], Laplace(2)).value


def test_new_identifiers_make_finer_cells_at_a_larger_loss(people, tables):
    finer = Table.from_records(people, identifiers=["A", "B", "C"], sensitive="condition")
    history = [Publication(tables[0], EpsilonDelta(1.0)), Publication(finer, EpsilonDelta(0.5))]
    first, second = liu_zhao.horizontal(history, mechanism=Laplace)
    assert (first.loss.epsilon, second.loss.epsilon) == (1.0, 1.5)
    assert second.risk.value == local(finer, Laplace(1.5)).value
    assert second.risk.value > first.risk.value


def test_old_and_new_people_grow_apart(people, tables):
    finer = Table.from_records(people[:40], identifiers=["A", "B", "C"], sensitive="condition")
    cohorts = {
        "old": [Publication(tables[0], EpsilonDelta(1.0)), Publication(finer, EpsilonDelta(0.5))],
        "new": [Publication(tables[1], EpsilonDelta(0.5))],
    }
    grown = liu_zhao.mixed(cohorts, mechanism=Laplace, measure="expected")
    assert [item.loss.epsilon for item in grown["old"]] == [1.0, 1.5]
    assert [item.loss.epsilon for item in grown["new"]] == [0.5]
    value = homogeneity.expected_risk(tables[1], mechanism=Laplace(0.5)).value
    assert grown["new"][0].risk.value == value
    with pytest.raises(InputError, match="one has no publication"):
        liu_zhao.mixed({"old": []}, mechanism=Laplace)


def test_laws_at_a_loss():
    assert law_at(Laplace, 0.5) == Laplace(0.5)
    assert law_at(Laplace, 0.5, 1e-6) == Laplace(0.5)
    assert law_at(DiscreteLaplace, 0.1) == DiscreteLaplace(epsilon="0.1")
    pdp = Gaussian.calibrated(epsilon=0.5, delta=1e-3, kind="pDP")
    assert law_at(Gaussian, 0.5, 1e-3) == pdp
    dp = partial(Gaussian.calibrated, kind="DP")
    assert law_at(dp, 0.5, 1e-3).sigma > pdp.sigma
    exact = law_at(DiscreteGaussian, 0.5, 1e-3)
    assert exact == DiscreteGaussian.from_rho(ApproxDP("0.5", "0.001").zcdp.rho)
    for mechanism, epsilon, delta, message in (
        (Gaussian, 0.5, None, "delta: None is not allowed with Gaussian noise; give one between"),
        (DiscreteGaussian, 0.5, None, "delta: None is not allowed with noise priced in rho; give"),
        (Laplace, -1.0, None, "epsilon: -1.0 is not allowed"),
        (Laplace(1), 1.0, None, "is not a kind of noise; give Laplace"),
    ):
        with pytest.raises(InputError, match=message):
            law_at(mechanism, epsilon, delta)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EpsilonDelta(0.0), "epsilon: 0.0 is not allowed; it must be above 0"),
        (lambda: EpsilonDelta(1.0, 1.0), "delta: 1.0 is not allowed; it must be from 0 to below 1"),
        (lambda: liu_zhao.advanced(slack=0.0), "slack: 0.0 is not allowed"),
        (lambda: liu_zhao.concentrated(delta=1.0), "delta: 1.0 is not allowed"),
    ],
)
def test_impossible_losses_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
