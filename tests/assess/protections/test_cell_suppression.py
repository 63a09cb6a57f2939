"""Suppression: nothing suppressed can be computed, by brute force and by linear programs."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog
from tests.assess.protections.small_places import PLAN, THREE_LEVELS, sums_of, tables

from countveil.assess.protections.cell_suppression import (
    SmallCellSuppression,
    kept_secret,
    posterior_under_suppression,
    public_guess,
    sums,
    suppressed,
)
from countveil.assess.protections.known_others import targets_in

BELOW = 4
EXACT_TOTAL = PLAN + '[[invariants]]\nlevel = "region"\nquery = "TOTAL"\nreason = "known"\n'


def people(seed, units=3):
    rng = np.random.default_rng(seed)
    return rng.choice([0, 1, 2, 3, 6, 9], (units, 4), p=[0.2, 0.2, 0.15, 0.15, 0.2, 0.1])


def shown_and_hidden(exact, hidden):
    """Return the rows that sum people to shown counts, and those that sum them to hidden ones."""
    rows = {True: [], False: []}
    for key, matrix in sums_of(exact):
        for row, secret in zip(matrix, hidden[key].ravel(), strict=True):
            rows[bool(secret)].append(row)
    return [np.array(rows[secret]).reshape(-1, matrix.shape[1]) for secret in (False, True)]


def flat(exact):
    cells = exact.plan.schema.cells
    x = np.zeros(exact.geography.units(exact.lowest) * cells, int)
    x[exact.unit * cells + exact.cell] = exact.people
    return x


def ranges(shown, x, rows):
    """Return what a linear program finds for each row: its smallest and largest sum."""
    found = []
    for row in rows:
        ends = [
            linprog(sign * row, A_eq=shown, b_eq=shown @ x, bounds=(0, 60)).fun * sign
            for sign in (1, -1)
        ]
        found.append(ends[1] - ends[0])
    return np.array(found)


@pytest.mark.parametrize("seed", range(8))
def test_other_people_with_the_same_shown_counts_differ_in_every_hidden_one(seed):
    exact = tables(people(seed))
    hidden = suppressed(exact, BELOW)
    shown, secret = shown_and_hidden(exact, hidden)
    assert len(secret)
    x = flat(exact)
    steps = np.array(list(product((-1, 0, 1), repeat=len(x))), np.int8)
    steps = steps[((x + steps) >= 0).all(axis=1)]
    same = steps[(steps @ shown.T.astype(np.int8) == 0).all(axis=1)]
    assert ((same @ secret.T.astype(np.int8)) != 0).any(axis=0).all()


@pytest.mark.parametrize(
    ("plan", "parents"), [(PLAN, None), (EXACT_TOTAL, None), (THREE_LEVELS, [[0, 0], [0, 0, 1, 1]])]
)
def test_a_linear_program_cannot_undo_it_but_undoes_small_cells_alone(plan, parents):
    undone = 0
    for seed in range(6):
        exact = tables(people(seed, 3 if parents is None else 4), plan=plan, parents=parents)
        hidden = suppressed(exact, BELOW)
        shown, secret = shown_and_hidden(exact, hidden)
        assert (ranges(shown, flat(exact), secret) > 0.5).all()
        small = {key: (counts > 0) & (counts < BELOW) for key, counts in exact.counts.items()}
        shown, secret = shown_and_hidden(exact, small)
        undone += (ranges(shown, flat(exact), secret) < 1e-6).sum()
    assert undone > 10  # so the complementary counts are needed, and this test could fail


def test_small_counts_are_hidden_zeros_are_not_chosen_first_and_exact_tables_stay():
    exact = tables(people(1), plan=EXACT_TOTAL)
    hidden = suppressed(exact, BELOW)
    for key, counts in exact.counts.items():
        small = (counts > 0) & (counts < BELOW)
        assert hidden[key][small].all()
    assert not hidden["region", "TOTAL"].any()
    large = tables(np.full((3, 4), 20))
    assert not any(found.any() for found in suppressed(large, BELOW).values())


@pytest.mark.parametrize("seed", range(6))
def test_certainty_is_between_its_ends_when_the_tables_are_made_again_without_someone(seed):
    histogram = people(seed)
    exact = tables(histogram)
    protection = SmallCellSuppression(BELOW)
    rng = np.random.default_rng(0)
    published = protection.protect(exact, rng)

    def as_published(some):
        made = tables(some)
        hidden = suppressed(made, BELOW)
        return {
            key: np.where(hidden[key], -1, counts).tolist() for key, counts in made.counts.items()
        }

    before = as_published(histogram)
    for targets in targets_in(exact, rng):
        if targets.attack not in ("presence", "unknown attribute: SEX"):
            continue
        found = protection.disclosure(exact, published, targets, [0.1], rng)
        differs = np.zeros(len(targets.entry))
        for number, (entry, other) in enumerate(zip(targets.entry, targets.other, strict=True)):
            changed = histogram.copy()
            changed[targets.unit[entry], targets.cell[entry]] -= 1
            if other >= 0:
                changed[targets.unit[entry], other] += 1
            differs[number] = as_published(changed) != before
        exactly = targets.worst(differs)
        assert (found.certain_lower <= exactly).all()
        assert (exactly <= found.certain_upper).all()
        assert found.lower[0] == pytest.approx(0.1 + 0.9 * found.certain_lower)


def test_guesses_are_within_what_shown_counts_allow_and_sums_are_sums():
    exact = tables(people(2, 4), plan=THREE_LEVELS, parents=[[0, 0], [0, 0, 1, 1]])
    found = list(sums(exact))
    assert {(item.total, item.part) for item in found} >= {
        (("area", "TOTAL"), ("area", "AGE")),
        (("area", "AGE"), ("area", "AGE*SEX")),
        (("nation", "AGE"), ("area", "AGE")),
    }
    for item in found:
        total, part = exact.counts[item.total], exact.counts[item.part]
        added = np.bincount(item.of_part.ravel(), part.ravel(), total.size)
        assert (added == total.ravel()).all()
    hidden = suppressed(exact, BELOW)
    guess = public_guess(exact, hidden, BELOW)
    for key, counts in exact.counts.items():
        assert (guess[key][~hidden[key]] == counts[~hidden[key]]).all()
        assert (guess[key] >= 0).all()
        assert (guess[key] <= exact.people.sum()).all()


def test_a_guess_follows_the_larger_unit_and_what_is_left():
    # In area 0 both cells of AGE are hidden; the region has 3 times as many old as young people.
    histogram = np.array([[2, 0, 10, 0], [7, 11, 25, 15]])
    exact = tables(histogram)
    hidden = {key: np.zeros(counts.shape, bool) for key, counts in exact.counts.items()}
    area = ("area", "AGE")
    hidden[area][:] = True
    hidden["area", "AGE*SEX"][:] = True
    guess = public_guess(exact, hidden, BELOW)
    assert guess[area][0] == pytest.approx([12 * 20.5 / 71, 12 * 50.5 / 71])
    shown = dict(hidden)
    shown[area] = np.zeros((2, 2), bool)
    guess = public_guess(exact, shown, BELOW)
    young = np.array([9.5, 11.5]) / 21  # of the region's 9 and 11 young people
    assert guess["area", "AGE*SEX"][0, :2] == pytest.approx(2 * young)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
def test_suppression_with_several_rows_by_enumeration(rows):
    def shown(count):
        return "*" if 1 <= count <= 4 else count

    alike = [k for k in range(30) if shown(k) == shown(k + rows)]
    assert kept_secret(rows=rows) == alike
    for others in range(30):
        expected = 0.1 if others in alike else 1.0
        assert posterior_under_suppression(others, 0.1, rows=rows) == expected
