"""Costs beside public information: recorded in their own currency, never added to privacy's."""

from fractions import Fraction

import pytest

from countveil.errors import InputError, LedgerError
from countveil.privacy.costs import ZCDP, BesidePublic
from countveil.privacy.ledger import Ledger


def book(path, **given):
    facts = {"dataset": "d", "unit": "person", "neighbors": "change-one"}
    return Ledger(path / "ledger.sqlite", **facts, **given)


def test_they_add_up_along_one_coupling_and_no_other_is_taken(tmp_path):
    ledger = book(tmp_path, total=None, beside_public=Fraction(1))
    assert ledger.charge("r1", BesidePublic("3/4", "a"))
    assert not ledger.charge("r1", BesidePublic("3/4", "a"))
    assert ledger.left_beside_public() == Fraction(1, 4)
    for refused in (ledger.check, lambda cost: ledger.charge("r2", cost)):
        with pytest.raises(LedgerError, match="only 1/4 is left"):
            refused(BesidePublic("1/2", "a"))
        with pytest.raises(LedgerError, match="couplings do not add up"):
            refused(BesidePublic("1/8", "b"))
    assert ledger.charge("r3", BesidePublic("1/4", "a"))
    assert [line.cost.epsilon for line in ledger.charges()] == [Fraction(3, 4), Fraction(1, 4)]


def test_they_leave_the_budget_of_differential_privacy_alone(tmp_path):
    public = book(tmp_path, total=None, beside_public=Fraction(2))
    public.charge("r1", BesidePublic(1, "a"))
    with pytest.raises(LedgerError, match="has no budget for differential privacy"):
        public.spent()
    private = book(tmp_path, total=ZCDP(1))
    assert private.charge("r2", ZCDP("1/2"))
    assert private.spent() == ZCDP("1/2")
    assert private.left() == ZCDP("1/2")
    assert public.charge("r3", BesidePublic(1, "a"))
    assert private.left() == ZCDP("1/2")
    assert Ledger.limits_of(public.path) == (ZCDP(1), None)
    assert Ledger.beside_public_of(public.path) == 2


def test_limits_are_set_once_in_either_currency(tmp_path):
    book(tmp_path, total=ZCDP(1)).charge("r1", ZCDP("1/2"))
    first = book(tmp_path, total=None, beside_public=Fraction(1))
    first.charge("r2", BesidePublic("1/2", "a"))
    with pytest.raises(LedgerError, match="limits set once"):
        book(tmp_path, total=None, beside_public=Fraction(2)).charges()
    with pytest.raises(LedgerError, match="limits set once"):
        book(tmp_path, total=ZCDP(2)).charges()
    with pytest.raises(LedgerError, match="has no limit for costs given public information"):
        book(tmp_path, total=ZCDP(1)).charge("r3", BesidePublic("1/2", "a"))


def test_a_refused_charge_leaves_no_ledger(tmp_path):
    ledger = book(tmp_path, total=None, beside_public=Fraction(1))
    with pytest.raises(LedgerError):
        ledger.charge("r1", BesidePublic(2, "a"))
    assert not ledger.path.exists()


@pytest.mark.parametrize(
    ("epsilon", "coupling", "message"),
    [("0", "a", "above 0"), ("-1", "a", "above 0"), ("1", "", "a name"), ("1", "a b", "a name")],
)
def test_bad_costs_are_refused(epsilon, coupling, message):
    with pytest.raises(InputError, match=message):
        BesidePublic(epsilon, coupling)
