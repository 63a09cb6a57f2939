"""What is public, in words, and which secrets remain, compared with a look at every database."""

import math
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest

from countveil.congenial import (
    AtMost,
    Dependence,
    FixedTotal,
    FixedTotals,
    JointLaw,
    KAnonymity,
    PreviousCounts,
    TCloseness,
)
from countveil.errors import InfeasibleError, InputError
from countveil.papers.seeman import ValueSecret, cell_pairs, delta_z, secret_pairs

EVERYTHING = {
    "the sum of all entries is exactly 3": (FixedTotal(3), lambda x: sum(x) == 3),
    "the sum of entries 0, 1 and 4 is exactly 2": (
        FixedTotal(2, (0, 1, 4)),
        lambda x: x[0] + x[1] + x[4] == 2,
    ),
    "the sum of entry 2 is exactly 1, the sum of all entries is exactly 4": (
        FixedTotals(FixedTotal(1, [2]), FixedTotal(4)),
        lambda x: x[2] == 1 and sum(x) == 4,
    ),
    "the 2 counts of the previous period are known exactly": (
        PreviousCounts([7, 0]),
        lambda x: True,
    ),
    "entries 1 and 2 are 0 or more and at most entries 3 and 4, one by one": (
        AtMost([1, 2], [3, 4]),
        lambda x: x[1] <= x[3] and x[2] <= x[4],
    ),
    "at least 2 people have the value 1, and at least 2 have 0": (
        KAnonymity(2),
        lambda x: 2 <= sum(x) <= len(x) - 2,
    ),
    "the share of people with the value 1 is within 1/5 of 3/10": (
        TCloseness("0.2", "0.3"),
        lambda x: abs(Fraction(sum(x), len(x)) - Fraction(3, 10)) <= Fraction(1, 5),
    ),
    "others have the value 1 with probability 0 given a person with 0 and 1/3 given a person "
    "with "
    "1, independently of each other": (
        Dependence("0", "1/3"),
        lambda x: x[0] == 1 or sum(x) == 0,
    ),
    "others have the value 1 with probability 1/2 given a person with 0 and 1 given a person "
    "with "
    "1, all the same": (
        Dependence("1/2", "1", "comonotone"),
        lambda x: len(set(x[1:])) == 1 and (x[0] == 0 or x[1] == 1),
    ),
    "2 databases are possible, each with a known probability": (
        JointLaw({(0, 0, 0, 0, 0): "1/4", (1, 1, 0, 0, 0): "3/4", (1, 1, 1, 1, 1): 0}),
        lambda x: x in ((0, 0, 0, 0, 0), (1, 1, 0, 0, 0)),
    ),
}


@pytest.mark.parametrize("sentence", EVERYTHING)
def test_facts_say_what_is_public_and_who_agrees(sentence):
    fact, agrees = EVERYTHING[sentence]
    assert fact.sentence == sentence
    for database in product((0, 1), repeat=5):
        assert fact.agrees(database) == agrees(database)


def remaining(facts, n):
    """People with both values among the databases that agree: every one of them is looked at."""
    agreeing = [x for x in product((0, 1), repeat=n) if all(f.agrees(x) for f in facts)]
    if not agreeing:
        return None
    return {i for i in range(n) if len({x[i] for x in agreeing}) == 2}


def random_facts(rng, n):
    """Nested totals, and sometimes bounds on the count."""
    cut = sorted(rng.integers(1, n, 2).tolist())
    parts = [range(cut[0]), range(cut[1]), range(cut[1], n)]
    facts = [
        FixedTotal(int(rng.integers(0, len(part) + 1)), part)
        for part in parts
        if len(part) and rng.random() < 0.6
    ]
    if rng.random() < 0.4:
        facts.append(FixedTotal(int(rng.integers(0, n + 1))))
    if rng.random() < 0.4:
        facts.append(KAnonymity(int(rng.integers(0, n // 2 + 1))))
    if rng.random() < 0.4:
        facts.append(TCloseness(f"{rng.integers(0, 5)}/10", f"{rng.integers(0, 11)}/10"))
    return facts


def test_closed_form_equals_a_look_at_every_database():
    rng = np.random.default_rng(3)
    kinds = set()
    for _ in range(300):
        n = int(rng.integers(2, 9))
        facts = random_facts(rng, n)
        expected = remaining(facts, n)
        if expected is None:
            with pytest.raises(InfeasibleError, match="no database of"):
                secret_pairs(*facts, people=n)
            kinds.add("none")
            continue
        result = secret_pairs(*facts, people=n)
        assert {first.person for first, _ in result.pairs} == expected
        assert result.remaining == len(expected)
        agreeing = [x for x in product((0, 1), repeat=n) if all(f.agrees(x) for f in facts)]
        for group in result.certain:
            assert {x[i] for x in agreeing for i in group.people} == {group.value}
            assert set(group.because) <= {fact.sentence for fact in facts}
        kinds.add("all" if len(expected) == n else "some" if expected else "gone")
    assert kinds == {"none", "all", "some", "gone"}


def test_totals_of_0_and_of_everyone_leave_no_pair():
    n = 100_000
    for total, left in ((0, 0), (n, 0), (1, n), (n - 1, n)):
        assert secret_pairs(FixedTotal(total), people=n).remaining == left
    gone = secret_pairs(FixedTotal(0), KAnonymity(0), people=20)
    assert gone.sentence == (
        "0 of 20 secret pairs remain; 20 people can only have the value 0, because the sum of all "
        "entries is exactly 0"
    )


def test_only_facts_that_give_a_value_away_are_named():
    facts = FixedTotals(FixedTotal(0, range(3)), FixedTotal(5)), KAnonymity(1)
    (group,) = secret_pairs(*facts, people=12).certain
    assert group.people == (0, 1, 2)
    assert group.because == ("the sum of entries 0, 1 and 2 is exactly 0",)


def test_facts_that_do_not_nest_are_enumerated():
    overlapping = FixedTotal(2, (0, 1)), FixedTotal(1, (1, 2))
    result = secret_pairs(*overlapping, people=4)
    assert [(g.people, g.value) for g in result.certain] == [((0,), 1), ((1,), 1), ((2,), 0)]
    # Person 2 has 0 because of both sums: 1 has the value 1 by the first.
    assert len(result.certain[2].because) == 2
    assert result.pairs == ((ValueSecret(3, 0), ValueSecret(3, 1)),)
    below = secret_pairs(AtMost([0, 1], [2, 3]), FixedTotal(0, (2,)), people=4)
    assert {first.person for first, _ in below.pairs} == {1, 3}
    with pytest.raises(InputError, match="at most 14 people are enumerated"):
        secret_pairs(AtMost([0], [1]), people=15)


def test_a_pair_must_be_possible_under_every_law():
    certain = JointLaw({(0, 0, 1): "1/2", (0, 1, 0): "1/2"})
    open_ = JointLaw(dict.fromkeys(product((0, 1), repeat=3), "1/8"))
    assert secret_pairs(laws=[open_]).remaining == 3
    result = secret_pairs(laws=[open_, certain])
    assert [group.people for group in result.certain] == [(0,)]
    assert secret_pairs(FixedTotal(1), laws=[open_, certain]).remaining == 2
    assert secret_pairs(FixedTotal(0), laws=[open_]).remaining == 0
    wide = JointLaw({(0,) * 40: "1/2", (0,) * 39 + (1,): "1/2"})
    assert secret_pairs(laws=[wide]).remaining == 1


def test_cells_of_a_small_table():
    # Two places, cases and deaths; the second place is known to have no case.
    facts = AtMost([2, 3], [0, 1]), FixedTotal(0, (1,)), FixedTotal(2, (0, 1))
    result = cell_pairs(*facts, cells=4, largest=2)
    assert result.possible == (0, 2)
    assert result.pairs == ((0, 2),)
    assert result.sentence.startswith("1 of 6 pairs of cells remain secret")
    # If as many died as fell ill, nobody is alive after it.
    assert cell_pairs(*facts, FixedTotal(2, (2, 3)), cells=4, largest=2).possible == (2,)
    with pytest.raises(InfeasibleError, match="no table agrees"):
        cell_pairs(*facts, FixedTotal(3, (2, 3)), cells=4, largest=2)
    with pytest.raises(InputError, match="1,000,000 tables"):
        cell_pairs(cells=20, largest=1)


def conditional_counts(n, z0, z1, low, high):
    """The laws of the count given a person's value and a count within bounds, by enumeration."""
    laws = []
    for value, z in enumerate((Fraction(z0), Fraction(z1))):
        law = {}
        for others in product((0, 1), repeat=n - 1):
            count = sum(others) + value
            if low <= count <= high:
                p = math.prod(z if bit else 1 - z for bit in others)
                law[count] = law.get(count, 0) + p
        whole = sum(law.values())
        laws.append({k: p / whole for k, p in law.items() if p})
    return laws


def farthest_quantiles(first, second):
    """W∞ by quantiles at the middle of every step of either distribution function."""
    edges = sorted(
        {sum(law[k] for k in law if k <= top) for law in (first, second) for top in law}
        | {Fraction(0)}
    )

    def quantile(law, u):
        return min(k for k in law if sum(p for j, p in law.items() if j <= k) > u)

    middles = [(a + b) / 2 for a, b in pairwise(edges)]
    return max(abs(quantile(first, u) - quantile(second, u)) for u in middles)


@pytest.mark.parametrize(
    "probabilities", [("1/10", "9/10"), ("1/3", "1/3"), ("3/5", "1/4"), ("0", "1/2")]
)
def test_disclosure_limits_change_delta_z(probabilities):
    """The paper says that they do not: they can only bring the laws nearer, or tear them apart."""
    n = 8
    for facts, window in (
        ([], (0, n)),
        ([KAnonymity(2)], (2, n - 2)),
        ([TCloseness("1/4", "1/4")], (0, 4)),
        ([KAnonymity(1), TCloseness("1/8", "3/8")], (2, 4)),
    ):
        low, high = window
        if probabilities[0] == "0" and low > 0:
            with pytest.raises(InfeasibleError, match="no one can have the value 0"):
                delta_z(n=n, z0=probabilities[0], z1=probabilities[1], public=facts)
            continue
        expected = farthest_quantiles(*conditional_counts(n, *probabilities, low, high))
        assert delta_z(n=n, z0=probabilities[0], z1=probabilities[1], public=facts) == expected


def test_disclosure_limits_shrink_it_here():
    assert delta_z(n=10, z0="1/10", z1="9/10") == 9
    assert delta_z(n=10, z0="1/10", z1="9/10", public=[KAnonymity(3)]) == 4


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: FixedTotal(-1), "total: -1 is not allowed"),
        (lambda: FixedTotal(1, []), "one position or more"),
        (lambda: FixedTotal(1, [4]).agrees((0, 1)), "position 4 does not exist"),
        (lambda: FixedTotals(), "one total or more"),
        (lambda: FixedTotals(FixedTotal(1, [0, 1]), FixedTotal(1, [1, 2])), "overlap without"),
        (lambda: AtMost([0], [1, 2]), "got 1 and 2 positions"),
        (lambda: KAnonymity(-1), "k: -1 is not allowed"),
        (lambda: TCloseness("2", "0"), "t: 2 is not allowed"),
        (lambda: Dependence("0", "1", "any"), "unknown kind 'any'"),
        (lambda: JointLaw({(0,): "1/2", (0, 1): "1/2"}), "all of one length"),
        (lambda: JointLaw({(0,): "1/2"}), "sum to 1/2"),
        (lambda: secret_pairs(FixedTotal(1)), "give people=20"),
        (lambda: secret_pairs(people=0), "people: 0 is not allowed"),
        (lambda: delta_z(n=5, z0="0", z1="1", public=[FixedTotal(1, [0])]), "not about the count"),
        (lambda: delta_z(n=5, z0="0", z1="1", public=[KAnonymity(3)]), "no count of 5 people"),
        (lambda: delta_z(n=5, z0="0"), "give all three"),
        (lambda: delta_z(n=2, dependence={(0, 0): 1}), "a joint law already contains them"),
        (lambda: delta_z(dependence={(0, 0): 1}), "no secret pair remains"),
        (lambda: delta_z(n=2, z0="0", z1="1", of="people"), "of: unknown measure 'people'"),
        (
            lambda: delta_z(dependence={(0, 0): 1}, public=[FixedTotal(1)]),
            "no database of the joint law",
        ),
    ],
)
def test_bad_input_is_named(build, message):
    with pytest.raises(InputError, match=message):
        build()
