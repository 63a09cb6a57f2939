"""Numbers in sentences: two digits, never rounded to none or all, bounds that still hold."""

import pytest

from countveil.base import words


@pytest.mark.parametrize(
    ("word", "expected"),
    [("area", "an area"), ("region", "a region"), ("Unit", "a Unit"), ("Island", "an Island")],
)
def test_articles(word, expected):
    assert words.article(word) == expected
    assert words.article("") == "a "


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.0, "0 %"),
        (1e-9, "fewer than 1 in 1,000,000"),
        (0.6239, "62 %"),
        (0.99996, "more than 9,999 in 10,000"),
        (0.9991, "more than 999 in 1,000"),
        (1.0, "100 %"),
    ],
)
def test_a_share_is_not_rounded_to_none_or_all(share, expected):
    assert words.brief_percent(share) == expected


@pytest.mark.parametrize(
    ("share", "expected", "often"),
    [
        (0.0, "0 %", "never"),
        (1e-9, "fewer than 1 in 1,000,000", "fewer than 1 time in 1,000,000"),
        (1.606e-5, "fewer than 1 in 10,000", "fewer than 1 time in 10,000"),
        (0.0009, "fewer than 1 in 1,000", "fewer than 1 time in 1,000"),
        (0.0022, "0.22 %", "22 times out of 10,000"),
        (0.0221, "2.2 %", "22 times out of 1,000"),
        (0.6238, "62 %", "62 times out of 100"),
        (0.996, "99.6 %", "996 times out of 1,000"),
        (0.99995, "more than 9,999 in 10,000", "more than 9,999 times in 10,000"),
        (1.0, "100 %", "always"),
    ],
)
def test_a_share_in_a_sentence_is_brief_and_never_rounded_to_none_or_all(share, expected, often):
    assert words.brief_percent(share) == expected
    assert words.times_out_of(share) == often


def test_numbers_in_a_sentence_have_two_significant_digits():
    numbers = (1.102, 0.0221, 9.96, 49.3, 1234.6, 2.0, 0.0, -3.456)
    assert [words.brief(value) for value in numbers] == (
        ["1.1", "0.022", "10", "49", "1,235", "2", "0", "-3.5"]
    )
    ratios = (1.102, 1.94, 1.038, 1.0004, 1.0, 0.99, 50.0)
    assert [words.multiple(value) for value in ratios] == (
        ["1.1", "1.9", "1.04", "1.0004", "1", "0.99", "50"]
    )
    assert words.brief_percent(0.104, other=0.1) == "10.4 %"
    assert words.brief_percent(0.12, other=0.1) == "12 %"
    assert [words.prior_percent(value) for value in (0.07, 0.1000000001)] == [
        "7 %",
        "10.00000001 %",
    ]


def test_guarantees_are_rounded_up_and_priors_not_at_all():
    assert [words.upwards(value) for value in (10.034, 10.04, 0.001)] == ["10.04", "10.04", "0.01"]
    assert [words.prior(value) for value in (0.5, 0.1 + 0.2, 1e-9)] == ["0.5", "0.3", "1e-09"]
    assert words.prior(0.1000000001) != words.prior(0.1)
