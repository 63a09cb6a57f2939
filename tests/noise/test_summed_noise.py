"""What a sum of draws answers about itself, and its law against plain convolution."""

import numpy as np
import pytest
from tests.laws.documented_code import documented_mechanism

from countveil.errors import InputError
from countveil.noise.discrete_gaussian import DiscreteGaussian
from countveil.noise.discrete_laplace import DiscreteLaplace
from countveil.noise.summed_noise import SummedNoise, half_width

Huber = documented_mechanism()


@pytest.mark.parametrize(
    "noise", [DiscreteGaussian("1/5"), DiscreteLaplace("3"), Huber("8")], ids=str
)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_law_is_that_of_plain_convolution(noise, count):
    k = np.arange(-200, 201)
    draws = one = np.exp(noise.log_pmf(k))
    for _ in range(count - 1):
        draws = np.convolve(draws, one)
    centre = len(draws) // 2
    at = np.arange(-20, 21)
    direct = draws[centre - 20 : centre + 21]
    summed = SummedNoise(noise, count)
    assert np.exp(summed.log_pmf(at)) == pytest.approx(direct, rel=1e-9, abs=1e-15)
    assert summed.variance == pytest.approx(count * noise.variance)
    assert summed.lattice


def test_a_sum_of_wide_gaussians_is_one_to_double_precision():
    wide, narrow = DiscreteGaussian("10"), DiscreteGaussian("1/5")
    assert SummedNoise(wide, 7).gaussian_variance == 70
    assert SummedNoise(narrow, 7).gaussian_variance is None
    assert SummedNoise(narrow, 1).gaussian_variance == pytest.approx(0.2)
    assert SummedNoise(narrow, 7, "gaussian").gaussian_variance == pytest.approx(1.4)
    assert SummedNoise(wide, 7).bounded_loss is None


def test_a_sum_of_bounded_losses_is_as_bounded():
    noise = DiscreteLaplace("4")
    summed = SummedNoise(noise, 5)
    assert (summed.bounded_loss, summed.laplace_scale) == (0.25, None)
    assert SummedNoise(noise, 1).laplace_scale == 4
    log_p = summed.log_pmf(np.arange(400))
    losses = log_p[:-1] - log_p[1:]
    assert losses.max() < 0.25
    assert losses[-1] == pytest.approx(0.25, abs=0.01)
    assert SummedNoise(Huber("8"), 3).bounded_loss == 0.5


def test_half_widths_leave_out_next_to_nothing():
    for noise in (DiscreteGaussian("10"), DiscreteLaplace("4"), Huber("8")):
        assert 2 * float(noise.survival(half_width(noise))) < 1e-17


def test_ways_to_add_that_do_not_fit_are_refused():
    with pytest.raises(
        InputError, match='"gaussian" adds up discrete Gaussian noise, not discrete-h'
    ):
        SummedNoise(Huber("8"), 3, "gaussian")
    with pytest.raises(
        InputError, match="siblings: 'sum' is not allowed; choose \"convolution\" or"
    ):
        SummedNoise(Huber("8"), 3, "sum")
