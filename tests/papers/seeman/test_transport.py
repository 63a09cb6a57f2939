"""Distances of databases: joint laws against linear programs, and the closed form for people alike."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from tests.papers.seeman.test_delta_z import by_linear_programming, random_law

from countveil.congenial import FixedTotal, JointLaw, KAnonymity
from countveil.errors import InputError
from countveil.papers.seeman import delta_z
from countveil.papers.seeman.wasserstein_distance import bottleneck_distance, infinity_distance


def differing(x, y):
    return sum(a != b for a, b in zip(x, y, strict=True))


def parts(law, person):
    sides = [{x: p for x, p in law.items() if x[person] == value} for value in (0, 1)]
    return [{x: p / sum(side.values()) for x, p in side.items()} for side in sides]


def counts(law):
    return {k: sum(p for x, p in law.items() if sum(x) == k) for k in {sum(x) for x in law}}


@pytest.mark.parametrize("seed", range(8))
def test_joint_laws_equal_linear_programs(seed):
    rng = np.random.default_rng(seed)
    every = list(product((0, 1), repeat=4))
    some = [every[i] for i in sorted(rng.choice(16, 9, replace=False).tolist())]
    law = random_law(rng, sorted({*some, (0, 1, 0, 1), (1, 0, 1, 0)}))
    sides = [parts(law, person) for person in range(4)]
    assert delta_z(dependence=law, of="database") == max(
        by_linear_programming(*pair, differing) for pair in sides
    )
    assert delta_z(dependence=JointLaw(law)) == max(
        by_linear_programming(*(counts(side) for side in pair), lambda x, y: abs(x - y))
        for pair in sides
    )


def test_a_joint_law_is_conditioned_on_what_is_public():
    independent = {x: Fraction(1, 16) for x in product((0, 1), repeat=4)}
    assert delta_z(dependence=independent, of="database") == 1
    # With an exact total someone else must change too; the count does not move at all.
    assert delta_z(dependence=independent, of="database", public=[FixedTotal(2)]) == 2
    assert delta_z(dependence=independent, public=[FixedTotal(2)]) == 0
    # With a public parity, any change is a change of two.
    even = {x: Fraction(1, 8) for x in independent if sum(x) % 2 == 0}
    assert delta_z(dependence=even, of="database") == 2


@pytest.mark.parametrize("dependence", ["independent", "comonotone"])
@pytest.mark.parametrize(
    "probabilities", [("1/5", "4/5"), ("4/5", "1/5"), ("1/3", "1/3"), ("1/2", "2/5")]
)
@pytest.mark.parametrize("public", [(), (KAnonymity(1),)])
def test_people_alike_are_coupled_nested(dependence, probabilities, public):
    """The closed form for databases, against the flow between all of them."""
    n, sides = 6, []
    for value, z in enumerate(map(Fraction, probabilities)):
        law = {}
        for others in product((0, 1), repeat=n - 1):
            if dependence == "independent":
                p = z ** sum(others) * (1 - z) ** (n - 1 - sum(others))
            else:
                p = {0: 1 - z, n - 1: z}.get(sum(others), Fraction(0))
            if p and all(fact.agrees((value, *others)) for fact in public):
                law[value, *others] = p
        sides.append({x: p / sum(law.values()) for x, p in law.items()})
    inputs = {
        "n": n,
        "z0": probabilities[0],
        "z1": probabilities[1],
        "dependence": dependence,
        "public": public,
    }
    people = delta_z(**inputs, of="database")
    assert people == bottleneck_distance(*sides, differing)
    assert delta_z(**inputs) == infinity_distance(*(counts(side) for side in sides)) <= people


def test_counts_may_stand_still_where_databases_move():
    assert delta_z(n=2, z0="1", z1="0") == 0
    assert delta_z(n=2, z0="1", z1="0", of="database") == 2


def test_too_many_pairs_are_refused():
    many = {i: Fraction(1, 600) for i in range(600)}
    with pytest.raises(InputError, match="600 and 600 points are too many"):
        bottleneck_distance(many, many, lambda x, y: abs(x - y))
