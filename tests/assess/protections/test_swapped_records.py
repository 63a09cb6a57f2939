"""Swapping: what it keeps, and what it reveals, against enumeration."""

import math
from itertools import combinations, permutations, product

import numpy as np
import pytest
from tests.assess.protections.small_places import PLAN, THREE_LEVELS, tables

from countveil.assess.protections.known_others import targets_in
from countveil.assess.protections.registry import read_protection
from countveil.assess.protections.swapped_records import (
    HOUSEHOLD_SIZES,
    CountLaw,
    Swapping,
    exchanged,
    records_of,
    replaced,
)

PARENTS = [[0, 0], [0, 0, 0, 1, 1, 1]]


def town(seed=0):
    """Return six areas in two regions, with a few hundred people."""
    histogram = np.random.default_rng(seed).integers(0, 40, (6, 4))
    return tables(histogram, plan=THREE_LEVELS, parents=PARENTS)


@pytest.mark.parametrize("match", [(), ("AGE",), ("AGE", "SEX")])
def test_people_exchanged_one_for_one_keep_what_is_matched_and_all_larger_units(match):
    exact = town()
    how = Swapping(0.5, "region", match)
    after = how.protect(exact, np.random.default_rng(1))
    changed = {key: (after[key].values != counts).any() for key, counts in exact.counts.items()}
    for (level, query), differs in changed.items():
        kept = level != "area" or set(query.split("*")) <= {*match, "TOTAL"}
        assert differs == (not kept), (level, query)


def test_households_of_one_size_keep_totals_and_others_do_not():
    exact = town()
    total = ("area", "TOTAL")
    rng = np.random.default_rng(1)
    alike = Swapping(0.5, "region", ("size",), households=True).protect(exact, rng)
    assert (alike[total].values == exact.counts[total]).all()
    assert (alike["area", "AGE"].values != exact.counts["area", "AGE"]).any()
    free = Swapping(0.5, "region", (), households=True).protect(exact, rng)
    assert (free[total].values != exact.counts[total]).any()
    for key, counts in exact.counts.items():
        if key.level != "area":
            assert (free[key].values == counts).all()


def test_households_hold_everyone_once_in_their_own_place():
    exact = town()
    how = Swapping(0.1, "region", households=True)
    records = records_of(exact, how, np.random.default_rng(2))
    unit = records.unit[records.household]
    code, people = np.unique(unit * 4 + records.cell, return_counts=True)
    assert (code == exact.unit * 4 + exact.cell).all()
    assert (people == exact.people).all()
    sizes = np.bincount(records.household)
    assert 1 <= sizes.min() <= sizes.max() <= len(HOUSEHOLD_SIZES)
    mean = sum((k + 1) * share for k, share in enumerate(HOUSEHOLD_SIZES))
    assert abs(sizes.mean() - mean) < 0.3


def every_exchange(size, rate):
    """Yield every result of the exchange among `size` records, with its probability."""
    for number in range(size + 1):
        for chosen in combinations(range(size), number):
            probability = rate**number * (1 - rate) ** (size - number) / math.factorial(number)
            for order in permutations(chosen):
                now = list(range(size))
                for slot, record in zip(chosen, order, strict=True):
                    now[slot] = record
                yield now, probability


@pytest.mark.parametrize(("size", "rate"), [(1, 0.3), (2, 0.3), (4, 0.2), (5, 0.7)])
def test_how_probably_another_record_takes_the_place_by_enumeration(size, rate):
    outcomes = list(every_exchange(size, rate))
    assert sum(p for _, p in outcomes) == pytest.approx(1)
    assert replaced(rate, size) == pytest.approx(sum(p for now, p in outcomes if now[0] != 0))
    for other in range(1, size):  # each of the others is equally probable
        found = sum(p for now, p in outcomes if now[0] == other)
        assert found == pytest.approx(replaced(rate, size) / (size - 1))


def test_the_exchange_follows_its_law():
    exact = tables(np.array([[2, 0, 0, 0], [0, 2, 0, 0]]))
    how = Swapping(0.5, "region")
    rng = np.random.default_rng(3)
    records = records_of(exact, how, rng)
    draws = np.array([exchanged(records, how.rate, rng) for _ in range(20_000)])
    expected = sum(p for now, p in every_exchange(4, 0.5) if now[0] in (2, 3))
    assert abs((draws[:, 0] == 1).mean() - expected) < 4 * math.sqrt(0.25 / len(draws))
    assert (np.sort(draws, axis=1) == [0, 0, 1, 1]).all()


def independent_law(block, target, rate, shares, size):
    """Return the law of a block's histogram if each record is replaced by an independent draw."""
    law = {}
    moved = replaced(rate, size)
    slots = [*block, target]
    options = []
    for number, cell in enumerate(slots):
        others = shares.copy()
        own = cell if number < len(block) else None
        if own is not None:
            others[own] -= 1
        options.append(moved * others / (size - 1) + (1 - moved) * np.eye(4)[cell])
    for outcome in product(range(4), repeat=len(slots)):
        p = math.prod(options[n][cell] for n, cell in enumerate(outcome))
        histogram = tuple(np.bincount(outcome, minlength=4))
        law[histogram] = law.get(histogram, 0.0) + p
    return law


def test_the_ends_of_the_risk_hold_what_someone_learns_from_the_whole_unit():
    histogram = np.array([[3, 0, 1, 0], [20, 9, 6, 4], [11, 3, 8, 5]])
    exact = tables(histogram)
    how, prior, size = Swapping(0.2, "region"), 0.1, int(histogram.sum())
    rng = np.random.default_rng(0)
    for targets in targets_in(exact, rng):
        if targets.attack == "presence":
            continue
        found = how.disclosure(exact, {}, targets, [prior], rng)
        for entry in np.flatnonzero(targets.unit == 0):
            own = int(targets.cell[entry])
            rest = histogram[0].copy()
            rest[own] -= 1
            block = np.repeat(np.arange(4), rest).tolist()
            shares = histogram.sum(axis=0).astype(float)
            shares[own] -= 1  # others than the target, whoever they are
            true = independent_law(block, own, how.rate, shares, size)
            worst = 0.0
            for other in targets.other[targets.entry == entry]:
                false = independent_law(block, int(other), how.rate, shares, size)
                worst = max(
                    worst,
                    sum(
                        p * prior * p / (prior * p + (1 - prior) * false.get(seen, 0.0))
                        for seen, p in true.items()
                        if p
                    ),
                )
            assert found.lower[0, entry] <= worst, targets.attack
            assert worst <= found.upper[0, entry], targets.attack
            assert prior < found.lower[0, entry] < found.upper[0, entry] < 1


def test_the_lower_end_is_what_simulated_exchanges_say():
    histogram = np.array([[4, 1, 2, 0], [60, 30, 40, 20], [55, 25, 45, 30]])
    how, prior = Swapping(0.3, "region"), 0.1
    rng = np.random.default_rng(5)

    def counts_of(some):
        exact = tables(some)
        records = records_of(exact, how, rng)
        here = records.cell == 1
        return np.bincount(
            [(exchanged(records, how.rate, rng)[here] == 0).sum() for _ in range(20_000)],
            minlength=12,
        )

    changed = histogram.copy()
    changed[0, 1], changed[0, 0] = 0, 5
    true, false = counts_of(histogram) / 20_000, counts_of(changed) / 20_000
    seen = true > 0
    simulated = (true * prior * true / (prior * true + (1 - prior) * false + 1e-300))[seen].sum()
    exact = tables(histogram)
    (own,) = CountLaw(exact, records_of(exact, how, rng), how.rate).expected(0, 1, None, [prior])
    assert own == pytest.approx(simulated, rel=0.03)
    targets = next(t for t in targets_in(exact, rng) if t.attack == "unknown attribute: SEX")
    entry = np.flatnonzero((targets.unit == 0) & (targets.cell == 1))[0]
    found = how.disclosure(exact, {}, targets, [prior], rng)
    assert own <= found.lower[0, entry] <= found.upper[0, entry]


def test_presence_is_certain_where_totals_are_kept_and_attributes_where_they_are_matched():
    exact = tables(np.array([[3, 0, 1, 0], [20, 9, 6, 4], [11, 3, 8, 5]]))
    rng = np.random.default_rng(0)
    found = {
        (targets.attack, match): Swapping(0.2, "region", match).disclosure(
            exact, {}, targets, [0.1], rng
        )
        for match in ((), ("AGE",))
        for targets in targets_in(exact, rng)
    }
    assert found["presence", ()].certain == (1, 1)
    assert found["unknown attribute: AGE", ()].certain.upper < 1
    assert found["unknown attribute: AGE", ("AGE",)].certain == (1, 1)
    assert found["unknown attribute: SEX", ("AGE",)].certain.upper < 1
    assert found["whole record", ("AGE",)].certain == (1, 1)


def test_someone_who_knows_the_larger_unit_is_certain():
    plan = PLAN.replace('knows = "area"', 'knows = "region"')
    exact = tables(np.array([[3, 0, 1, 0], [20, 9, 6, 4]]), plan=plan)
    rng = np.random.default_rng(0)
    how = read_protection("swapping:0.5", exact.plan)
    for targets in targets_in(exact, rng):
        assert how.disclosure(exact, {}, targets, [0.1], rng).certain == (1, 1)


def test_households_hide_presence_more_the_more_are_exchanged():
    exact = town()
    means = []
    for rate in (0.05, 0.5):
        rng = np.random.default_rng(0)
        (targets, *_) = targets_in(exact, rng)
        found = Swapping(rate, "region", households=True).disclosure(exact, {}, targets, [0.1], rng)
        (mean,) = found.mean
        assert 0.1 < mean.lower < mean.upper < 1
        assert mean.upper == pytest.approx((1 - rate) + rate * 0.1, abs=0.02)
        means.append(mean.lower)
    assert means[0] > means[1]
