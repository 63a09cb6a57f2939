import math
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countveil.errors import InputError
from countveil.privacy.costs import ZCDP, ApproxDP, PureDP, total


def best_epsilon(rho: Fraction, delta: Fraction) -> mpmath.mpf:
    """Theorem 3 of 002 by independent means: 50 digits and a derivative's root."""
    with mpmath.workdps(50):
        r, d = (
            mpmath.mpf(rho.numerator) / rho.denominator,
            mpmath.mpf(delta.numerator) / delta.denominator,
        )

        def bound(t):
            a = 1 + mpmath.exp(t)
            return r * a + mpmath.log(1 - 1 / a) - mpmath.log(a * d) / (a - 1)

        start = float(mpmath.log(mpmath.sqrt(-mpmath.log(d) / r)))
        t = mpmath.findroot(lambda x: mpmath.diff(bound, x), start)
        return bound(t)


def test_epsilon_of_the_2020_production_run():
    assert ZCDP("293764/114921").epsilon("1e-10") == pytest.approx(17.1436, abs=5e-5)


@given(
    st.fractions(min_value=Fraction(1, 10**4), max_value=50, max_denominator=10**5),
    st.integers(2, 30),
)
@settings(max_examples=60, deadline=None)
def test_epsilon_is_the_infimum_rounded_up(rho, digits):
    delta = Fraction(1, 10**digits)
    true = best_epsilon(rho, delta)
    ours = ZCDP(rho).epsilon(delta)
    assert ours >= max(true, 0) - mpmath.mpf(10) ** -35
    assert ours <= max(true, 0) * (1 + mpmath.mpf(10) ** -12) + mpmath.mpf(10) ** -12


@pytest.mark.parametrize("rho", ["1e-12", "1e-6", "0.3", "17", "1e4"])
@pytest.mark.parametrize("delta", ["1e-300", "1e-10", "0.1"])
def test_delta_is_the_inverse_of_epsilon(rho, delta):
    cost = ZCDP(rho)
    epsilon = cost.epsilon(delta)
    assert math.isfinite(epsilon)
    assert epsilon >= 0
    if epsilon > 0:
        back = cost.delta(Fraction(epsilon))
        assert back == pytest.approx(float(delta), rel=1e-6)
        assert cost.epsilon(Fraction(back)) <= epsilon


@given(
    st.fractions(min_value=Fraction(1, 100), max_value=40, max_denominator=1000), st.integers(3, 20)
)
@settings(max_examples=40, deadline=None)
def test_calibrated_rho_keeps_the_guarantee_and_is_the_largest(epsilon, digits):
    target = ApproxDP(epsilon, Fraction(1, 10**digits))
    rho = target.zcdp.rho
    assert ZCDP(rho).epsilon(target.delta) <= float(epsilon) * (1 + 1e-15)
    assert ZCDP(rho * (1 + Fraction(1, 10**9))).epsilon(target.delta) > epsilon


def test_calibration_steps_down_where_its_search_was_a_hair_too_high():
    # The search ends a rounding error above a twelve-digit value that directed arithmetic refuses.
    target = ApproxDP("59/734", "1e-12")
    assert ZCDP(target.zcdp.rho).epsilon("1e-12") <= 59 / 734


def test_calibration_never_fails_its_own_check():
    for n in range(1, 120):
        target = ApproxDP(Fraction(n, 97), "1e-9")
        assert target.zcdp.epsilon("1e-9") <= float(target.epsilon)


def test_costs_add_up_exactly_and_multiply():
    third = ZCDP("1/3")
    assert third + third + third == ZCDP(1) == 3 * third
    assert PureDP("0.1") * 10 == PureDP(1)
    assert PureDP("1").rho == Fraction(1, 2)
    assert total([PureDP("1"), PureDP("2")]) == PureDP(3)
    assert total([PureDP("1"), ZCDP("1/2")]) == ZCDP(1)
    with pytest.raises(TypeError):
        PureDP("1") + ZCDP("1")


@pytest.mark.parametrize("bad", [0.5, "-1", "x", None])
def test_costs_refuse_floats_and_negative_amounts(bad):
    for kind in (PureDP, ZCDP):
        with pytest.raises(InputError):
            kind(bad)


@pytest.mark.parametrize("delta", ["0", "1", "-0.1", "2"])
def test_delta_is_a_probability(delta):
    with pytest.raises(InputError, match="delta"):
        ZCDP("1").epsilon(delta)


def test_a_delta_too_small_for_a_float_is_not_called_zero():
    assert ZCDP("0.001").delta("100") > 0


def test_nothing_spent_costs_nothing():
    assert ZCDP(0).epsilon("1e-10") == 0
    assert ApproxDP(0, "1e-10").zcdp == ZCDP(0)
    with pytest.raises(InputError, match="give a whole number"):
        ZCDP(1) * 1.5
