"""Promises add up along one coupling; the paper's composition is false, and refused."""

from fractions import Fraction
from itertools import product

import pytest
from tests.congenial.laws import golden, response, uniform

from countveil.congenial import PartialPrivacy, PartialZCDP, Theta, compose
from countveil.errors import InputError
from countveil.papers.seeman import delta_z, realised_loss, secret_pairs

THETA = Theta(("the parity",), "uniform", "all")


def even(n):
    return uniform(x for x in product((0, 1), repeat=n) if sum(x) % 2 == 0)


@pytest.mark.parametrize(("case", "exact", "tol"), golden("lemma6_counter"))
def test_lemma_6_is_false(case, exact, tol):
    """Five bits with a public parity: each release tells nothing of anyone, both together do."""
    epsilon = float(case.removeprefix("RR eps="))
    law, pairs = even(5), secret_pairs(people=5).pairs
    bits = [lambda x: x[0] ^ x[1], lambda x: x[0] ^ x[1] ^ x[2]]
    for bit in bits:
        alone = realised_loss(response([bit], epsilon), law, pairs)
        assert alone == pytest.approx(exact[0], abs=1e-12)
    together = realised_loss(response(bits, epsilon), law, pairs)
    assert together == pytest.approx(exact[1], abs=tol)
    assert together > 0.1
    # What does hold: along a coupling of databases each release moves by epsilon at most.
    assert together <= 2 * epsilon


def test_lemma_7_is_false():
    """Two bits that are equal in public: a response of each, on its own part, tells the same twice."""
    law, pairs = even(2), secret_pairs(people=2).pairs
    bits = [lambda x: x[0], lambda x: x[1]]
    for bit in bits:
        assert realised_loss(response([bit], 1), law, pairs) == pytest.approx(1)
    assert realised_loss(response(bits, 1), law, pairs) == pytest.approx(2)


def test_the_papers_composition_is_refused():
    first = PartialPrivacy(0, THETA, "the first parity, moved by nothing")
    second = PartialPrivacy(0, THETA, "the second parity, moved by nothing")
    with pytest.raises(InputError, match=r"do not share one theta and one coupling.*are false"):
        compose(first, second)
    with pytest.raises(InputError, match=r"one has no coupling.*are false"):
        compose(first, PartialPrivacy(0, THETA))
    with pytest.raises(InputError, match="do not share one theta"):
        compose(first, PartialPrivacy(0, Theta((), "uniform", "all"), first.coupling))
    with pytest.raises(InputError, match="epsilon and rho cannot be mixed"):
        compose(first, PartialZCDP(0, THETA, first.coupling))
    with pytest.raises(InputError, match="none given"):
        compose()


def test_a_shared_coupling_adds_up():
    couple = "people whose value differs, nearest first"
    parts = [PartialPrivacy(e, THETA, couple) for e in ("1/3", "1/2", "1")]
    assert compose(*parts) == PartialPrivacy(Fraction(11, 6), THETA, couple)
    assert compose(parts[0]) == parts[0]
    assert compose(PartialPrivacy(1, THETA)).epsilon == 1  # alone it needs no coupling
    dense = [PartialZCDP(r, THETA, couple) for r in ("1/3", "1/2")]
    assert compose(*dense) == PartialZCDP(Fraction(5, 6), THETA, couple)


@pytest.mark.parametrize("n", [3, 4])
def test_what_adds_up_is_kept(n):
    """Releases bounded along the nearest databases, one after the other: never above the sum."""
    law, pairs = even(n), secret_pairs(people=n).pairs
    people = delta_z(dependence=law, of="database")
    assert people == 2
    bits = [lambda x: x[0], lambda x: x[1], lambda x: x[0] ^ x[2]]
    epsilons = [0.5, 0.5, 0.5]
    # A bit of the database moves by 1 when people change: epsilon each, whatever the coupling.
    for many in (1, 2, 3):
        result = realised_loss(response(bits[:many], 0.5), law, pairs)
        assert result <= sum(epsilons[:many]) + 1e-12
    both = realised_loss(response(bits[:2], 0.5), law, pairs)
    assert both > 0.5  # more than either alone
