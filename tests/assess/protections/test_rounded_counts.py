"""Rounding: its laws, and what it reveals, against enumeration of every rounded table."""

import math
from itertools import product

import numpy as np
import pytest
from tests.assess.protections.small_places import PLAN, tables

from countveil.assess.protections.known_others import separations, targets_in
from countveil.assess.protections.rounded_counts import (
    ConventionalRounding,
    RandomRounding,
    at_random,
    expected_posteriors,
    nearest,
)

PEOPLE = np.array([[3, 1, 0, 7], [2, 5, 1, 4], [0, 0, 6, 1]])
PRIORS = (0.5, 0.1)


@pytest.mark.parametrize("base", [3, 5, 10])
def test_rounding_goes_to_the_nearest_multiple_halves_up(base):
    for count in range(60):
        lower = count - count % base
        expected = lower if 2 * (count - lower) < base else lower + base
        assert nearest(np.array([count]), base)[0] == expected


@pytest.mark.parametrize("base", [3, 5, 10])
def test_random_rounding_is_unbiased_and_moves_by_less_than_the_base(base):
    rng = np.random.default_rng(1)
    for count in range(2 * base + 1):
        draws = at_random(np.full(40_000, count), base, rng)
        assert set(np.unique(draws)) <= {count - count % base, count - count % base + base}
        error = base / 2 / math.sqrt(len(draws))
        assert abs(draws.mean() - count) <= 4 * error
        if count % base == 0:
            assert (draws == count).all()


def law(count, base):
    """Return the probability of each rounded value."""
    lower, rest = count - count % base, count % base
    return {lower: 1 - rest / base} | ({lower + base: rest / base} if rest else {})


def enumerated(pairs, base, prior):
    """Return certainty and the expected posterior: (true, alternative) counts, every outcome."""
    posterior = certain = 0.0
    for outcome in product(*(law(true, base).items() for true, _ in pairs)):
        one = math.prod(p for _, p in outcome)
        other = math.prod(
            law(alternative, base).get(value, 0.0)
            for (value, _), (_, alternative) in zip(outcome, pairs, strict=True)
        )
        after = prior * one / (prior * one + (1 - prior) * other)
        posterior += one * after
        certain += one * (other == 0)
    return certain, posterior


@pytest.mark.parametrize("base", [3, 5, 10])
def test_expected_posteriors_by_enumeration(base):
    rng = np.random.default_rng(base)
    for _ in range(20):
        remainders = rng.integers(0, base, 5)
        kinds = np.append(np.bincount(remainders, minlength=base), 0)
        found = expected_posteriors(base, tuple(map(int, kinds)), PRIORS)
        pairs = [(int(r) + 1, int(r)) for r in remainders]
        for number, prior in enumerate(PRIORS):
            certain, posterior = enumerated(pairs, base, prior)
            assert found[0] == pytest.approx(certain, abs=1e-12)
            assert found[1 + number] == pytest.approx(posterior, abs=1e-9)


def test_many_counts_are_merged_without_harm():
    base, number = 10, 24
    kinds = (0, 3, 3, 3, 3, 3, 3, 3, 3, 0, 0)
    assert sum(kinds) == number
    (found,) = expected_posteriors(base, kinds, (0.1,))[1:]
    up = np.array([(k + 1) / base for k, n in enumerate(kinds[:base]) for _ in range(n)])
    rng = np.random.default_rng(2)
    draws = rng.random((200_000, number)) < up
    before = up - 1 / base
    loss = np.where(draws, np.log(up / before), np.log((1 - up) / (1 - before))).sum(axis=1)
    after = 1 / (1 + 9 * np.exp(-loss))
    assert abs(found - after.mean()) < 4 * after.std() / math.sqrt(len(after))


@pytest.mark.parametrize("base", [3, 5])
@pytest.mark.parametrize("known", ["area", "region"])
def test_what_random_rounding_reveals_by_enumeration(base, known):
    exact = tables(PEOPLE, plan=PLAN.replace('knows = "area"', f'knows = "{known}"'))
    rng = np.random.default_rng(0)
    for targets in targets_in(exact, rng):
        if targets.attack == "whole record":
            continue
        protection = RandomRounding(base)
        found = protection.disclosure(exact, {}, targets, PRIORS, rng)
        expected = np.zeros((2, len(targets.entry)))
        for number, (entry, other) in enumerate(zip(targets.entry, targets.other, strict=True)):
            changed = PEOPLE.copy()
            changed[targets.unit[entry], targets.cell[entry]] -= 1
            if other >= 0:
                changed[targets.unit[entry], other] += 1
            after = tables(changed)
            for row, levels in enumerate((("area",), ("area", "region"))):
                pairs = [
                    (int(one), int(two))
                    for key in exact.counts
                    if key.level in levels
                    for one, two in zip(
                        exact.counts[key].ravel(), after.counts[key].ravel(), strict=True
                    )
                    if one != two
                ]
                expected[row, number] = enumerated(pairs, base, 0.1)[1]
        near, far = (targets.worst(row) for row in expected)
        assert found.upper[1] == pytest.approx(far)
        assert found.lower[1] == pytest.approx(near if known == "area" else far)


@pytest.mark.parametrize("base", [3, 5, 10])
def test_conventional_rounding_reveals_what_changes_a_rounded_table(base):
    exact = tables(PEOPLE)
    rng = np.random.default_rng(0)
    protection = ConventionalRounding(base)
    published = protection.protect(exact, rng)
    for targets in targets_in(exact, rng):
        found = protection.disclosure(exact, published, targets, PRIORS, rng)
        least, most = np.zeros((2, len(targets.entry)))
        for number, (entry, other) in enumerate(zip(targets.entry, targets.other, strict=True)):
            changed = PEOPLE.copy()
            changed[targets.unit[entry], targets.cell[entry]] -= 1
            if other >= 0:
                changed[targets.unit[entry], other] += 1
            after = protection.protect(tables(changed), rng)
            differ = {
                key.level
                for key, table in published.items()
                if (table.values != after[key].values).any()
            }
            least[number], most[number] = "area" in differ, bool(differ)
        assert (found.certain_lower == targets.worst(least)).all()
        assert (found.certain_upper == targets.worst(most)).all()
        assert found.worst[1].upper in (0.1, 1.0)


def test_tables_of_a_unit_that_is_all_of_its_parent_are_known_too():
    exact = tables(PEOPLE[:1], parents=[[0]])
    (targets, *_) = targets_in(exact, np.random.default_rng(0))
    assert all(item.known.all() for item in separations(exact, targets))
    wider = tables(PEOPLE)
    (targets, *_) = targets_in(wider, np.random.default_rng(0))
    assert {item.key.level for item in separations(wider, targets) if item.known.all()} == {"area"}
