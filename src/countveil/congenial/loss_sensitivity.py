"""sigma(Delta): how far the loss of a table moves when a number of people change (003, Theorem 9).

sigma(Delta) = sup |L_x(y) - L_x'(y)| over tables x, x' that `people` persons set apart, and over
all releases y. For a norm it is the length of x - x', whatever y is; for its square, y must be
bounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from countveil.errors import InputError

Loss: TypeAlias = Literal["L1", "L2", "squared L2"]
Neighbors: TypeAlias = Literal["change-one", "add-remove"]

_DIGITS = 10**18


def sensitivity(
    loss: Loss,
    people: int = 1,
    *,
    fixed_total: bool,
    deaths: bool = False,
    neighbors: Neighbors = "change-one",
    largest: int | None = None,
    cells: int = 2,
) -> Fraction:
    """Return sigma(Delta), never too small, when `people` persons change.

    A person is counted in one cell of the table, or in none; `change-one` moves him to another
    cell, `add-remove` takes him out or puts him in. With deaths he is counted as a case in a place,
    and perhaps as a death there. A table of one cell only counts him or not. `largest` is a total
    that neither tables nor releases exceed, none of whose counts are negative; the squared L2 loss
    needs it.

    Let people leave one cell for good, a of them, and b others come into another; k = 2 beside
    deaths, else 1; s the largest total. Then the loss moves farthest if all were in the one: L1 by
    k(a + b); L2 by √(k(a² + b²)), rounded up; squared L2 by k(a(2s - a) + b(2s - b)), for a release
    with all in the other.
    """
    _check(loss, people, neighbors, largest, cells)
    if fixed_total and neighbors == "add-remove":
        raise InputError(
            'neighbors: "add-remove" is not possible beside a fixed total, which a person more or '
            'less would change; choose "change-one"'
        )
    if fixed_total and cells == 1:
        raise InputError(
            "cells: a table of one cell with a fixed total is that total; nothing is left to "
            "release"
        )
    if loss == "squared L2" and largest is None:
        raise InputError(
            'loss: "squared L2" moves without limit unless tables and releases are bounded: give '
            'largest=, a total that neither exceeds, or choose "L1" or "L2"'
        )
    out, into = _moves(loss, people, neighbors, largest, cells)
    kinds = 2 if deaths else 1
    if loss == "L1":
        return Fraction(kinds * (out + into))
    if loss == "L2":
        return _root_above(kinds * (out * out + into * into))
    assert largest is not None  # asked for above
    return Fraction(kinds * sum(moved * (2 * largest - moved) for moved in (out, into)))


def _moves(
    loss: Loss, people: int, neighbors: Neighbors, largest: int | None, cells: int
) -> tuple[int, int]:
    """Return how many leave one cell, and how many come into another, for the farthest move."""
    most = people if largest is None else min(people, largest)
    if cells == 1:
        return most, 0
    if neighbors == "change-one":
        return most, most
    # Each person either leaves or comes. A length grows most if all of them leave, until nobody is
    # left to; the squared loss, which grows ever more slowly on either side, if they do both.
    if loss == "squared L2":
        most = min(most, -(-people // 2))
    return most, min(people - most, most)


@dataclass(frozen=True, slots=True)
class SensitivityComparison:
    """sigma(Delta_z) beside what plain differential privacy needs (003, Lemma 12)."""

    beside: Fraction
    plain: Fraction

    @property
    def ratio(self) -> Fraction:
        """How many times as much noise the dependence costs."""
        return self.beside / self.plain

    @property
    def sentence(self) -> str:
        """What Lemma 12 says here."""
        if self.beside == self.plain:
            return (
                "beside this public information the loss moves as far as under differential privacy"
            )
        return (
            f"beside this public information the loss moves {float(self.ratio):.4g} times as far "
            f"as under differential privacy"
        )


def compare_sensitivity(
    loss: Loss,
    people: int,
    *,
    fixed_total: bool,
    deaths: bool = False,
    neighbors: Neighbors = "change-one",
    largest: int | None = None,
    cells: int = 2,
) -> SensitivityComparison:
    """Return sigma(Delta_z), and how far one person moves the same loss when nothing is public.

    `neighbors` is that of plain differential privacy; beside a fixed total people change cells.
    """
    one: Neighbors = "change-one" if fixed_total else neighbors
    return SensitivityComparison(
        sensitivity(
            loss,
            people,
            fixed_total=fixed_total,
            deaths=deaths,
            neighbors=one,
            largest=largest,
            cells=cells,
        ),
        sensitivity(
            loss,
            fixed_total=False,
            deaths=deaths,
            neighbors=neighbors,
            largest=largest,
            cells=cells,
        ),
    )


def _check(loss: str, people: int, neighbors: str, largest: int | None, cells: int) -> None:
    if loss not in ("L1", "L2", "squared L2"):
        raise InputError(f'loss: {loss!r} is not known; choose "L1", "L2" or "squared L2"')
    if neighbors not in ("change-one", "add-remove"):
        raise InputError(
            f'neighbors: {neighbors!r} is not known; choose "change-one" or "add-remove"'
        )
    for name, value in (("people", people), ("largest", largest), ("cells", cells)):
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int) or value < 1
        ):
            raise InputError(f"{name}: {value!r} is not allowed; it is a whole number, 1 or more")


def _root_above(square: int) -> Fraction:
    """Return the root of a whole number if it is whole, else a fraction above it by less than 1e-17."""
    root = math.isqrt(square)
    if root * root == square:
        return Fraction(root)
    return Fraction(math.isqrt(square * _DIGITS * _DIGITS) + 1, _DIGITS)
