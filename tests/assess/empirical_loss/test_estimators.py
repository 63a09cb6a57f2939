"""Estimators of the privacy loss against SciPy, closed forms, simulation and golden values."""

import json
import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import beta, binomtest, gaussian_kde
from tests.conftest import GOLDEN

from countveil import DiscreteGaussian, DiscreteLaplace, Seeded
from countveil.assess import empirical_loss
from countveil.errors import InputError
from countveil.papers import petti_flaxman
from countveil.papers.petti_flaxman.sa1_replicates import geometric_noise

TRUTH = {item["id"]: item for item in json.loads((GOLDEN / "empirical_loss.json").read_text())}


def paper_noise(epsilon: float, size: int, seed: int) -> np.ndarray:
    return geometric_noise(np.random.RandomState(seed), epsilon, size)


def by_scipy(residuals, *, bandwidth=0.1, percentile=95, step=1.0):
    """The recipe as the authors wrote it."""
    low, high = np.percentile(residuals, [100 - percentile, percentile])
    reach = max(abs(low), abs(high))
    edges = np.arange(-reach, reach, step)
    density = gaussian_kde(residuals, bw_method=bandwidth)((edges[:-1] + edges[1:]) / 2)
    return np.abs(np.log(density[:-1] / density[1:])).max()


@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.25])
@pytest.mark.parametrize("bandwidth", [0.05, 0.1, 1.0])
@pytest.mark.parametrize("percentile", [75, 95, 99])
def test_the_recipe_is_scipys(epsilon, bandwidth, percentile):
    residuals = paper_noise(epsilon, 1_500, 3)
    given = {"bandwidth": bandwidth, "percentile": percentile}
    found = empirical_loss.kde(residuals, **given)
    if np.isfinite(found.value):
        assert found.value == pytest.approx(by_scipy(residuals, **given), rel=1e-8)
    assert found.bandwidth == pytest.approx(bandwidth * residuals.std(ddof=1))
    curve = found.curve
    assert curve.column_names == ["x", "density", "loss"]
    assert np.abs(curve["loss"].to_numpy()).max() == found.value


def test_other_steps_ranges_and_fractions_equal_scipy_too():
    residuals = paper_noise(0.25, 1_000, 4) + np.random.default_rng(1).normal(size=1_000)
    assert empirical_loss.kde(residuals, step=0.5).value == pytest.approx(
        by_scipy(residuals, step=0.5), rel=1e-9
    )
    wide = empirical_loss.kde(residuals, span=(-10, 10), rule="absolute", bandwidth=2.0)
    density = gaussian_kde(residuals, bw_method=2.0 / residuals.std(ddof=1))(wide.x)
    assert wide.density == pytest.approx(density, rel=1e-9)
    for rule in ("scott", "silverman"):
        factor = gaussian_kde(residuals, bw_method=rule).factor
        assert empirical_loss.kde(residuals, rule=rule).bandwidth == pytest.approx(
            factor * residuals.std(ddof=1)
        )


def test_binning_and_transforming_change_little():
    residuals = paper_noise(0.001, 40_000, 5)  # a kernel of thousands of points
    exact = empirical_loss.kde(residuals)
    spread = np.random.default_rng(1).permutation(residuals)[:2_000]
    density = gaussian_kde(residuals, bw_method=0.1)(exact.x[::400])
    assert exact.density[::400] == pytest.approx(density, rel=1e-9)
    binned = empirical_loss.kde(residuals, method="binned")
    assert binned.method == "binned"
    assert binned.value == pytest.approx(exact.value, rel=3e-4)
    assert empirical_loss.kde(spread + 0.25).method == "exact"


@pytest.mark.parametrize("arguments", ["ignored", "applied"])
@pytest.mark.parametrize("panel", ["a", "b", "c"])
def test_table_sa1(panel, arguments):
    ending = {"ignored": ".as_printed", "applied": ".true"}[arguments]
    checked = 0
    for row in petti_flaxman.table_sa1(panel, arguments=arguments):
        key = {"a": f"SA1a.eps{row.parameter:g}", "b": f"SA1b.bw{row.parameter:g}{ending}"}
        key["c"] = f"SA1c.pct{row.parameter:g}{ending}"
        item = TRUTH[f"epl.{key[panel]}"]
        found = [row.mean, row.low, row.high]
        if item["exact"][0] is None:
            assert found == [None] * 3
        else:
            # Printed digits are those of the slip; true rows are known to four digits as well.
            assert found == pytest.approx(item["exact"], abs=0.6e-4)
        checked += 1
    assert checked == {"a": 13, "b": 8, "c": 5}[panel]


def test_single_runs_of_the_paper():
    for key, epsilon in (("epl.SA2.eps.25", 0.25), ("epl.text.eps.05", 0.05)):
        value = empirical_loss.kde(paper_noise(epsilon, 2_663, 12_345)).value
        assert value == pytest.approx(TRUTH[key]["exact"], rel=1e-9)


@pytest.mark.parametrize("count", [100, 500, 2_663, 10_000, 50_000, 200_000])
def test_the_bias_falls_with_the_number_of_residuals(count):
    """Of the authors' noise at 0.25, whose loss is .1335: means of runs, and the note's simulation."""
    expected = TRUTH[f"epl.C{count}.eps.25"]["exact"][0]
    drawn = [paper_noise(0.25, count, seed) for seed in range(40)]
    values = [empirical_loss.kde(item).value for item in drawn]
    error = np.std(values, ddof=1) / math.sqrt(len(values))
    assert abs(np.mean(values) - expected) < 4 * error + TRUTH[f"epl.C{count}.eps.25"]["tol"]
    noted = empirical_loss.bias(drawn[0], empirical_loss.kde(drawn[0]), replicates=60)
    assert noted.truth == pytest.approx(-math.log(1 - 0.125), rel=0.3)
    assert noted.mean == pytest.approx(expected, rel=0.35)
    assert f"With {count:,} residuals" in noted.note
    assert f"{noted.mean / noted.truth:.2f} times the truth" in noted.note


@pytest.mark.parametrize("epsilon", ["0.05", "0.1"])
def test_with_very_many_residuals_the_slope_is_found(epsilon):
    exact = TRUTH[f"epl.limit_C_inf.eps{epsilon}"]["exact"]
    assert exact == pytest.approx(-math.log(1 - float(epsilon) / 2))
    # In place of residuals, how many of each a billion would be: the estimator's own limit.
    a = 1 - float(epsilon) / 2
    k = np.arange(-600, 601)
    counts = np.rint(1e12 * (1 - a) / (1 + a) * a ** np.abs(k)).astype(np.int64)
    residuals = empirical_loss.Residuals(k[counts > 0].astype(float), counts[counts > 0], True)
    assert empirical_loss.kde(residuals, span=(5, 100), bandwidth=0.02).value == pytest.approx(
        exact, rel=1e-3
    )


@pytest.mark.parametrize("epsilon", ["0.05", "0.1", "0.5"])
def test_proper_geometric_noise(epsilon):
    noise, item = DiscreteLaplace(epsilon=epsilon), TRUTH[f"epl.explaplace.eps{epsilon}"]
    values = [empirical_loss.kde(noise.sample(2_663, rng=Seeded(s))).value for s in range(60)]
    error = np.std(values, ddof=1) / math.sqrt(60)
    assert abs(np.mean(values) - item["exact"][0]) < 4 * error + 0.1 * item["tol"]


@pytest.mark.parametrize("epsilon", ["0.05", "0.25", "0.5", "1.0"])
def test_better_estimators(epsilon):
    """Coverage, widths and means over 400 data sets of the authors' noise."""
    item = TRUTH[f"epl.better.eps{epsilon}"]["exact"]
    true = -math.log(1 - float(epsilon) / 2)
    assert item["true_slope"] == pytest.approx(true)
    drawn = [paper_noise(float(epsilon), 2_663, seed) for seed in range(400)]
    one_sided = [empirical_loss.tail_ratio(item, side="upper") for item in drawn]
    covered = sum(low <= true <= high for low, high in (found.interval for found in one_sided))
    assert binomtest(covered, 400, 0.95, alternative="less").pvalue > 1e-3
    width = np.mean([found.interval[1] - found.interval[0] for found in one_sided])
    assert width == pytest.approx(item["cp_width"], rel=0.05)
    fits = [empirical_loss.geometric(item) for item in drawn]
    values = np.array([fit.value for fit in fits])
    assert values.mean() == pytest.approx(item["mle_mean"], rel=0.01)
    assert values.std(ddof=1) == pytest.approx(item["mle_sd"], rel=0.15)
    assert fits[0].standard_error == pytest.approx(values.std(ddof=1), rel=0.15)


@pytest.mark.parametrize("selection", ["bonferroni", "split"])
@pytest.mark.parametrize("epsilon", ["0.25", "1.0"])
def test_the_audit_bound_of_tail_ratios(epsilon, selection):
    item = TRUTH[f"epl.audit_{selection}"]["exact"][epsilon]
    true = -math.log(1 - float(epsilon) / 2)
    bounds = [
        empirical_loss.tail_ratio(
            paper_noise(float(epsilon), 2_663, seed), selection=selection, seed=seed
        ).lower_bound
        for seed in range(400)
    ]
    assert np.mean(bounds) == pytest.approx(item["mean"], abs=0.02)
    above = sum(bound > true for bound in bounds)
    assert binomtest(above, 400, 0.05, alternative="greater").pvalue > 1e-3


def test_tail_ratios_by_hand():
    residuals = np.repeat([-3, -2, -1, 0, 1, 2, 3], [1, 4, 10, 20, 12, 5, 2])
    found = empirical_loss.tail_ratio(residuals, side="upper", thresholds=3)
    assert found.value == pytest.approx(math.log(19 / 7))
    low, high = beta.ppf([0.025, 0.975], [7, 8], [13, 12])
    assert found.interval == pytest.approx((-math.log(high), -math.log(low)))
    each = []
    for tails in ([39, 19, 7, 2], [35, 15, 5, 1]):
        for n, beyond in pairwise(tails):
            each.append(-math.log(beta.ppf(1 - 0.05 / 6, beyond + 1, n - beyond)))
    assert found.lower_bound == pytest.approx(max(each))
    both = empirical_loss.tail_ratio(residuals)
    assert both.value == pytest.approx(math.log(34 / 12))
    rows = both.curve.to_pylist()
    assert {row["side"] for row in rows} == {"upper", "lower", "both"}
    assert {"side": "lower", "threshold": 1, "residuals": 15, "beyond": 5} in [
        {key: row[key] for key in ("side", "threshold", "residuals", "beyond")} for row in rows
    ]


def test_the_geometric_fit_maximises_the_likelihood():
    residuals = DiscreteLaplace(3).sample(500, rng=Seeded(5))
    value = empirical_loss.geometric(residuals).value

    def likelihood(epsilon: float) -> float:
        return float(DiscreteLaplace(Fraction(1 / epsilon)).log_pmf(residuals).sum())

    assert likelihood(value) > likelihood(value * 1.001)
    assert likelihood(value) > likelihood(value * 0.999)


def test_one_law_is_exchangeable_and_two_are_not():
    rng = np.random.default_rng(2)
    groups = rng.integers(0, 4, 4_000)
    noise = DiscreteGaussian(9).sample(4_000, rng=Seeded(2))
    assert empirical_loss.exchangeability(noise, groups).p_value > 0.01
    cut = np.where(groups == 0, np.maximum(noise, 0), noise)  # zeros that cannot fall below 0
    assert empirical_loss.exchangeability(cut, groups).p_value == 1 / 1_000
    # Under one law p-values are uniform.
    small = [
        empirical_loss.exchangeability(
            DiscreteLaplace(2).sample(60, rng=Seeded(seed)), np.arange(60) % 3, tables=99, seed=seed
        ).p_value
        for seed in range(200)
    ]
    assert binomtest(sum(p <= 0.1 for p in small), 200, 0.1).pvalue > 1e-3


@pytest.mark.parametrize(
    ("residuals", "message"),
    [
        ([], "got 0; give two or more"),
        ([3, 3, 3], "all 3 are 3"),
        ([1.0, float("nan"), 2.0], "missing or infinite"),
        ([1.0, float("inf")], "missing or infinite"),
        ([["a"]], "give one list of numbers"),
    ],
)
def test_bad_residuals_are_named(residuals, message):
    with pytest.raises(InputError, match=message):
        empirical_loss.kde(residuals)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bandwidth": 0}, "bandwidth: 0 is not allowed"),
        ({"rule": "mine"}, "rule: unknown rule 'mine'"),
        ({"percentile": 50}, "percentile: 50 is not allowed"),
        ({"span": (3, 3)}, "span"),
        ({"span": (0, 1)}, "fewer than two bins"),
        ({"step": 0}, "step: 0 is not allowed"),
        ({"step": 1e-12}, "too many steps"),
        ({"method": "fast"}, "method: unknown method 'fast'"),
    ],
)
def test_bad_choices_are_named(given, message):
    with pytest.raises(InputError, match=message):
        empirical_loss.kde(np.arange(-20, 21), **given)


def test_tail_ratios_need_whole_numbers_and_tails():
    with pytest.raises(InputError, match="some are not whole numbers"):
        empirical_loss.tail_ratio([0.5, 1.0, 2.0])
    with pytest.raises(InputError, match="no residual is 9 or more from 0"):
        empirical_loss.tail_ratio([0, 1, 2], threshold=9)
    with pytest.raises(InputError, match="confidence"):
        empirical_loss.tail_ratio([0, 1, 2], confidence=95)
    lonely = empirical_loss.tail_ratio([0, 0, 1, -1])
    assert lonely.value == math.inf
    assert lonely.interval[0] < lonely.interval[1] == math.inf
    assert lonely.lower_bound >= 0


def test_a_density_that_vanishes_has_no_value():
    found = empirical_loss.kde(np.array([-50, -49, 0, 1, 50]), bandwidth=0.001)
    assert found.value == math.inf
    assert not np.isnan(found.curve["loss"].to_numpy()).any()


def test_binned_densities_are_summed_where_they_are_low():
    rng = np.random.default_rng(3)
    residuals = np.concatenate([rng.normal(0, 1, 20_000), 60 + rng.normal(0, 1, 60)])
    given = {"bandwidth": 0.6, "percentile": 99.9}
    exact = empirical_loss.kde(residuals, **given, method="exact")
    assert np.isfinite(exact.value)
    assert empirical_loss.kde(residuals, **given, method="binned").value == pytest.approx(
        exact.value, rel=1e-3
    )
