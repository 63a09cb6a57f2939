"""The samplers against arbitrary precision, at ties, and where tables give way to rejection."""

from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx
from scipy import stats

from countveil.base.randomness import Secure, Seeded
from countveil.errors import InputError
from countveil.noise import rejection
from countveil.noise.continuous import Gaussian, Laplace
from countveil.noise.discrete_gaussian import DiscreteGaussian
from countveil.noise.discrete_gaussian import _tables as gaussian_tables
from countveil.noise.discrete_laplace import DiscreteLaplace
from countveil.noise.discrete_laplace import _tables as laplace_tables

SCALES = ["1/100", "3/10", "1", "500/99", "100", "5000"]


def true_cdf(weight, reach, bits=400):
    """Return F(k) for |k| <= reach as balls of arbitrary precision."""
    ctx.prec = bits
    weights = {k: weight(k) for k in range(reach + 1)}
    all_ = weights[0] + 2 * sum((weights[k] for k in range(1, reach + 1)), arb(0))
    below, cdf = arb(0), {}
    for k in range(-reach, reach + 1):
        below += weights[abs(k)]
        cdf[k] = below / all_
    return cdf


def gaussian_weight(sigma2):
    # Divided when called, at the precision of then.
    return lambda k: (-arb(k * k * sigma2.denominator) / (2 * sigma2.numerator)).exp()


def laplace_weight(scale):
    return lambda k: (-arb(k * scale.denominator) / scale.numerator).exp()


CASES = [
    *((gaussian_tables(Fraction(s)), gaussian_weight(Fraction(s))) for s in SCALES),
    *((laplace_tables(Fraction(s)), laplace_weight(Fraction(s))) for s in ("1/8", "2", "20")),
]


@pytest.mark.parametrize(("tables", "weight"), CASES)
def test_boundaries_equal_those_of_arbitrary_precision(tables, weight):
    count = len(tables.boundaries)
    # The sum to 3 times the table's reach leaves out less than 2**-180.
    cdf = true_cdf(weight, 3 * count + 20)
    for i, floor in enumerate(tables.boundaries):
        scaled = cdf[tables.lowest + i] * arb(2) ** 64
        exact = scaled.floor().unique_fmpz()
        assert exact is not None
        assert int(exact) == int(floor)
    assert tables.boundaries[0] == 0
    assert tables.boundaries[-1] == 2**64 - 1


@pytest.mark.parametrize(("tables", "weight"), CASES)
def test_the_table_agrees_with_the_search(tables, weight):
    del weight
    open_ = tables.table == np.iinfo(np.int64).min
    for ending in (0, 2**48 - 1):
        u = (np.arange(65536, dtype=np.uint64) << np.uint64(48)) | np.uint64(ending)
        found = tables.lowest + np.searchsorted(tables.boundaries, u)
        assert (found[~open_] == tables.table[~open_]).all()
    assert open_.sum() <= len(tables.boundaries)


class Forced:
    """A bit source that gives the bits it is told to."""

    reproducible = True
    description = "forced"

    def __init__(self, u: int, deeper: list[int]) -> None:
        self.u, self.deeper = u, deeper

    def begin(self, draws):
        assert draws == 1
        return np.array([self.u >> 48], np.uint16)

    def deepen(self, which, depth):
        assert len(which) == 1
        if depth == 0:
            return np.array([(self.u & (2**48 - 1)) << 16], np.uint64)
        return np.array([self.deeper[depth - 1]], np.uint64)


@pytest.mark.parametrize("sigma2", ["3/10", "500/99", "5000"])
def test_forced_ties_are_settled_as_arbitrary_precision_settles_them(sigma2):
    tables = gaussian_tables(Fraction(sigma2))
    noise = DiscreteGaussian(sigma2)
    cdf = true_cdf(gaussian_weight(Fraction(sigma2)), 3 * len(tables.boundaries) + 20, 700)
    ctx.prec = 700
    step = max(1, len(tables.boundaries) // 12)
    for i in range(1, len(tables.boundaries) - 1, step):
        k, floor = tables.lowest + i, int(tables.boundaries[i])
        # The next 64 bits of F(k) itself, and one below and one above it.
        further = int(((cdf[k] * arb(2) ** 64 - floor) * arb(2) ** 64).floor().unique_fmpz())
        assert noise.sample(1, rng=Forced(floor, [further - 1, 0]))[0] == k
        assert noise.sample(1, rng=Forced(floor, [further + 1, 0]))[0] == k + 1
        # A second tie, settled at 256 bits.
        scaled = cdf[k] * arb(2) ** 128
        second = int(((scaled - scaled.floor()) * arb(2) ** 64).floor().unique_fmpz())
        more = [further, second - 1, 0, 0]
        assert noise.sample(1, rng=Forced(floor, more))[0] == k
        more = [further, second + 1, 0, 0]
        assert noise.sample(1, rng=Forced(floor, more))[0] == k + 1


@pytest.mark.parametrize("build", [gaussian_tables, laplace_tables])
def test_tables_are_settled_in_one_round_on_hundreds_of_scales(build, monkeypatch):
    """A tail bound coarser than the rounding would leave some floors open for ever."""
    from countveil.noise import inversion

    rounds = []
    real = inversion.enclosed_distribution
    monkeypatch.setattr(inversion, "enclosed_distribution", lambda *a: rounds.append(a) or real(*a))
    scales = [Fraction(n, d) for n in range(1, 100) for d in (1, 3, 7)]
    for scale in scales:
        build.__wrapped__(scale)
        assert len(rounds) < 10 * len(scales), "a table is never finished"
    assert len(rounds) == len(scales)


def test_the_support_has_no_end():
    noise = DiscreteGaussian("500/99")
    lowest = gaussian_tables(Fraction(500, 99)).lowest
    # All bits zero down to 128, then one: far left of the table, and finite.
    far = noise.sample(1, rng=Forced(0, [0, 1, 0]))[0]
    assert far < lowest
    near = noise.sample(1, rng=Forced(0, [2**63, 0]))[0]
    assert far < near
    right = noise.sample(1, rng=Forced(2**64 - 1, [2**64 - 1, 2**64 - 2, 0]))[0]
    assert right > -lowest


def test_samples_on_other_scales_pass_chi_square():
    for noise in (DiscreteGaussian("3/10"), DiscreteGaussian("777/10"), DiscreteLaplace("7/3")):
        values = noise.sample(1_000_000, rng=Secure())
        k = np.arange(-40, 41)
        observed = np.array([(values == x).sum() for x in k])
        expected = 1e6 * np.exp(noise.log_pmf(k))
        keep = expected >= 25
        chi2 = ((observed - expected) ** 2 / np.maximum(expected, 1))[keep].sum()
        assert stats.chi2.sf(chi2, keep.sum()) > 1e-7


def test_huge_scales_are_drawn_by_rejection_and_follow_their_law():
    gaussian = DiscreteGaussian("1e9").sample(3000, rng=Secure())
    assert stats.kstest(gaussian, "norm", args=(0, 1e9**0.5)).pvalue > 1e-6
    laplace = DiscreteLaplace("1e5").sample(3000, rng=Secure())
    assert stats.kstest(laplace, "laplace", args=(0, 1e5)).pvalue > 1e-6


def test_rejection_draws_the_same_law_as_inversion_on_small_scales():
    draws = 12_000
    for noise, values in (
        (
            DiscreteGaussian("7/2"),
            rejection.draw_discrete_gaussian(Fraction(7, 2), draws, Secure()),
        ),
        (DiscreteLaplace("5/3"), rejection.draw_discrete_laplace(Fraction(5, 3), draws, Secure())),
    ):
        k = np.arange(-8, 9)
        observed = np.array([(values == x).sum() for x in k])
        expected = draws * np.exp(noise.log_pmf(k))
        keep = expected >= 25
        chi2 = ((observed - expected) ** 2 / np.maximum(expected, 1))[keep].sum()
        assert stats.chi2.sf(chi2, keep.sum()) > 1e-7


def test_rejection_is_reproducible_for_any_batching():
    noise = DiscreteGaussian("1e9")
    together = noise.sample(6, rng=Seeded(5).for_units("l", ["a", "b", "c"], "q"))
    alone = noise.sample(2, rng=Seeded(5).for_unit("l", "b", "q"))
    assert together[2:4].tolist() == alone.tolist()


def test_smooth_tails_meet_the_table_at_the_seam():
    below, above = DiscreteGaussian(10**8), DiscreteGaussian(10**8 + 1)
    at = np.array([-90_000, -5, 0, 1, 20_000, 90_000, 250_000])
    assert above.survival(at) == pytest.approx(below.survival(at), rel=2e-6)
    assert above.survival(0) == pytest.approx(0.5 - 0.5 * np.exp(above.log_pmf(0)), rel=1e-12)


def test_mechanisms_are_built_from_exact_parameters():
    assert DiscreteGaussian.from_rho("1666368/16793603").sigma2 == Fraction(16793603, 2 * 1666368)
    doubled = DiscreteGaussian.from_rho("1666368/16793603", sensitivity2=2)
    assert doubled.sigma2 == Fraction(16793603, 1666368)
    assert DiscreteLaplace(scale="20") == DiscreteLaplace(epsilon="0.05")
    for build in (
        lambda: DiscreteGaussian(5.05),
        lambda: DiscreteGaussian("0"),
        lambda: DiscreteGaussian.from_rho("-1"),
        lambda: DiscreteLaplace(),
        lambda: DiscreteLaplace("2", epsilon="1"),
        lambda: Laplace(0),
        lambda: Gaussian(float("nan")),
    ):
        with pytest.raises(InputError):
            build()
