"""What holds for every protection that a plan may be compared with."""

import numpy as np
import pytest

from countveil.assess.protection_comparison import compare_protections
from countveil.assess.protections.known_others import targets_in
from countveil.assess.protections.registry import PROTECTIONS, read_protection
from countveil.errors import InputError
from tests.assess.protections.small_places import PLAN, tables

NUMBERS = {
    "suppression": "4",
    "rounding": "5",
    "random-rounding": "3",
    "swapping": "0.2",
    "household-swapping": "0.2",
}
PEOPLE = np.random.default_rng(4).integers(0, 9, (4, 4))
EXACT = PLAN + '[[invariants]]\nlevel = "region"\nquery = "TOTAL"\nreason = "known"\n'

every_protection = pytest.mark.parametrize("name", PROTECTIONS)


def made(name, exact):
    return read_protection(f"{name}:{NUMBERS[name]}", exact.plan)


@every_protection
def test_ends_are_in_order_and_no_posterior_is_below_the_prior_or_above_one(name):
    exact, rng = tables(PEOPLE), np.random.default_rng(0)
    protection = made(name, exact)
    published = protection.protect(exact, rng)
    for targets in targets_in(exact, rng):
        found = protection.disclosure(exact, published, targets, [0.5, 0.1], rng)
        for prior, low, high in zip((0.5, 0.1), found.lower, found.upper, strict=True):
            assert (low >= prior - 1e-12).all()
            assert (low <= high + 1e-12).all()
            assert (high <= 1 + 1e-12).all()
        assert (found.certain_lower <= found.certain_upper + 1e-12).all()
        assert (found.certain_upper <= 1 + 1e-12).all()


@every_protection
def test_what_the_plan_publishes_exactly_stays_exact(name):
    exact = tables(PEOPLE, plan=EXACT)
    published = made(name, exact).protect(exact, np.random.default_rng(0))
    table = published["region", "TOTAL"]
    assert (table.values == exact.counts["region", "TOTAL"]).all()
    assert table.hidden is None or not table.hidden.any()
    assert list(published) == list(exact.counts)


@every_protection
def test_the_same_seed_gives_the_same_figures_and_records_make_them_internal(name):
    exact = tables(PEOPLE)
    text = f"{name}:{NUMBERS[name]}"
    one, two = (compare_protections(exact.plan, exact, [text], seed=3) for _ in range(2))
    assert one == two
    assert one.audience == "internal"
    shown = tables(PEOPLE, basis="published estimates")
    assert compare_protections(exact.plan, shown, [text]).audience == "public"


@every_protection
@pytest.mark.parametrize("value", ["", "x", "-1", "0", "1e9", "nan", "5,colour=red", "5,within"])
def test_bad_settings_are_refused_with_what_is_allowed(name, value):
    plan = tables(PEOPLE).plan
    with pytest.raises(InputError, match=name) as caught:
        read_protection(f"{name}:{value}", plan)
    assert any(word in str(caught.value) for word in ("give", "write", "choose"))


def test_an_unknown_protection_is_refused_with_those_there_are():
    with pytest.raises(InputError, match="choose from suppression, rounding"):
        read_protection("masking:5", tables(PEOPLE).plan)
