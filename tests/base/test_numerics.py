from decimal import Decimal
from fractions import Fraction

import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

from countveil.base.numerics import enclose_exp_minus, exact, positive
from countveil.errors import InputError


@pytest.mark.parametrize(
    ("text", "fraction"),
    [
        ("2.56", Fraction(64, 25)),
        ("104/4099", Fraction(104, 4099)),
        ("1e-10", Fraction(1, 10**10)),
        (".5", Fraction(1, 2)),
        (3, Fraction(3)),
        (Decimal("0.1"), Fraction(1, 10)),
    ],
)
def test_text_becomes_the_fraction_it_says(text, fraction):
    assert exact(text) == fraction


@pytest.mark.parametrize("bad", [2.56, True, None, [1]])
def test_what_is_not_exact_is_refused_with_the_remedy(bad):
    with pytest.raises(InputError, match='write it as text, such as "2.56"'):
        exact(bad, "rho")


@pytest.mark.parametrize(
    "bad",
    ["", "abc", "1/0", "nan", "inf", "1e99999", "1" * 500, "1//2", "--1", "2,56", "1,440", "1_0"],
)
def test_text_that_is_no_number_is_refused(bad):
    with pytest.raises(InputError, match="rho"):
        exact(bad, "rho")


def test_zero_is_not_positive():
    with pytest.raises(InputError, match="sigma2: 0 is not allowed; it must be above 0"):
        positive("0", "sigma2")


@given(st.fractions(min_value=0, max_value=2000), st.integers(8, 400))
@settings(max_examples=200, deadline=None)
def test_enclosures_hold_the_exponential_and_are_tight(q, bits):
    low, high = enclose_exp_minus(q, bits)
    ctx.prec = bits + 3200
    true = (-arb(q.numerator) / q.denominator).exp() * arb(2) ** bits
    assert arb(low) <= true <= arb(high)
    assert high - low <= 3
