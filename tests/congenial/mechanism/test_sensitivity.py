"""How far losses move, against all small tables that people can make."""

import math
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest

from countveil.congenial import compare_sensitivity, sensitivity
from countveil.errors import InputError


@cache
def tables(cells, largest, deaths, fixed):
    """All tables, by how many people are of each kind: alive or dead in a cell."""
    kinds = cells * (2 if deaths else 1)
    return [
        people
        for people in product(range(largest + 1), repeat=kinds)
        if sum(people) == largest or (not fixed and sum(people) < largest)
    ]


def counts(people, cells, deaths):
    """The table that is published: cases, and deaths among them."""
    if not deaths:
        return people
    alive, dead = people[:cells], people[cells:]
    return (*(a + d for a, d in zip(alive, dead, strict=True)), *dead)


def apart(first, second, neighbors):
    """How many people must change, of any number of people, to get from one table to another."""
    moves = [b - a for a, b in zip(first, second, strict=True)]
    out, into = -sum(m for m in moves if m < 0), sum(m for m in moves if m > 0)
    return out + into if neighbors == "add-remove" else max(out, into)


LOSSES = {
    "L1": lambda y, x: np.abs(y - x).sum(axis=-1),
    "L2": lambda y, x: np.sqrt(((y - x) ** 2).sum(axis=-1)),
    "squared L2": lambda y, x: ((y - x) ** 2).sum(axis=-1),
}


def largest_move(loss, cells, largest, changed, deaths, fixed, neighbors):
    every = tables(cells, largest, deaths, fixed)
    published = {people: np.array(counts(people, cells, deaths)) for people in every}
    releases = np.array(sorted(map(tuple, published.values())))
    losses = {people: LOSSES[loss](releases, table) for people, table in published.items()}
    return max(
        float(np.abs(losses[x] - losses[other]).max())
        for x, other in product(every, repeat=2)
        if apart(x, other, neighbors) <= changed
    )


CASES = [  # cells, largest total, deaths, fixed total, neighbours
    (2, 3, False, True, "change-one"),
    (3, 3, False, True, "change-one"),
    (3, 3, False, False, "change-one"),
    (3, 3, False, False, "add-remove"),
    (2, 3, True, True, "change-one"),
    (2, 3, True, False, "change-one"),
    (2, 3, True, False, "add-remove"),
    (1, 4, False, False, "change-one"),
    (1, 3, True, False, "change-one"),
]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("case", CASES)
def test_every_small_table(case, loss):
    cells, largest, deaths, fixed, neighbors = case
    for changed in (1, 2, 3, 4, 5, 7):
        result = sensitivity(
            loss,
            changed,
            fixed_total=fixed,
            deaths=deaths,
            neighbors=neighbors,
            largest=largest,
            cells=cells,
        )
        expected = largest_move(loss, cells, largest, changed, deaths, fixed, neighbors)
        assert float(result) == pytest.approx(expected, rel=1e-14)


def test_what_the_errata_say():
    assert sensitivity("L1", fixed_total=True) == 2
    assert sensitivity("L1", fixed_total=True, deaths=True) == 4
    assert sensitivity("L2", fixed_total=True, deaths=True) == 2
    assert sensitivity("L1", fixed_total=False, neighbors="add-remove") == 1
    assert sensitivity("L1", fixed_total=False, cells=1) == 1
    assert sensitivity("L1", 7, fixed_total=True) == 14
    assert sensitivity("squared L2", fixed_total=True, largest=100_000) == 399_998


@pytest.mark.parametrize("people", [1, 2, 7, 10**6])
def test_roots_are_rounded_up(people):
    result = sensitivity("L2", people, fixed_total=True)
    assert result**2 > 2 * people**2
    assert (result - Fraction(1, 10**15)) ** 2 < 2 * people**2
    assert float(result) == pytest.approx(people * math.sqrt(2), rel=1e-15)


def test_the_comparison_with_plain_privacy():
    """Lemma 12: never below it."""
    same = compare_sensitivity("L1", 1, fixed_total=True)
    assert same.ratio == 1
    assert "as far as under differential privacy" in same.sentence
    dear = compare_sensitivity("L1", 3, fixed_total=True, neighbors="add-remove")
    assert (dear.with_public, dear.plain) == (6, 1)
    assert "6 times as far" in dear.sentence
    for loss in LOSSES:
        for people in (1, 2, 9):
            for deaths in (False, True):
                result = compare_sensitivity(
                    loss, people, fixed_total=True, deaths=deaths, largest=20
                )
                assert result.with_public >= result.plain


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"loss": "L3"}, "loss: unknown loss 'L3'"),
        ({"loss": "L1", "delta_z": 0}, "delta_z: 0 is not allowed"),
        ({"loss": "L1", "neighbors": "add-remove"}, "not possible with a fixed total"),
        ({"loss": "L1", "neighbors": "swap"}, "neighbors: unknown relation 'swap'"),
        ({"loss": "squared L2"}, "give largest="),
        ({"loss": "L1", "cells": 1}, "nothing is left to release"),
        ({"loss": "squared L2", "largest": 0}, "largest: 0 is not allowed"),
    ],
)
def test_bad_input_is_named(inputs, message):
    with pytest.raises(InputError, match=message):
        sensitivity(**{"fixed_total": True} | inputs)
