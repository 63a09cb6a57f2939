"""sigma(Delta_z): how far the loss of a table moves when records change (003, Theorem 9).

sigma(Delta_z) = sup |L_x(y) - L_x'(y)| over tables x and x' that differ in `delta_z` records, and over
all releases y. For a norm it is the length of x - x', for any y; for its square, y must be bounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

from countveil.errors import InputError
from countveil.plan.workload import Neighbors

LossKind: TypeAlias = Literal["L1", "L2", "squared L2"]

_DIGITS = 10**18


def sensitivity(
    loss: LossKind,
    delta_z: int = 1,
    *,
    fixed_total: bool,
    deaths: bool = False,
    neighbors: Neighbors = "change-one",
    largest: int | None = None,
    cells: int = 2,
) -> Fraction:
    """Return sigma(Delta_z): the most that the loss moves when `delta_z` records change.

    A person is counted in one cell of the table, or in none. With `deaths` they are counted as a case
    in a place, and possibly as a death there.

    Suppose a people leave one cell and b others enter another; k is 2 with deaths and 1 otherwise, and
    s is the largest total. The loss moves farthest if everyone was in the first cell: L1 by k(a + b);
    L2 by √(k(a² + b²)), rounded up; squared L2 by k(a(2s - a) + b(2s - b)), for a release with everyone
    in the second cell.

    Parameters
    ----------
    loss
        "L1", "L2" or "squared L2".
    delta_z
        Delta_z: the largest number of records that change together, given public information.
    fixed_total
        Whether the total of the table is public.
    deaths
        Whether the table has a second column, such as deaths, that is part of the first.
    neighbors
        "change-one" moves a person to another cell; "add-remove" adds or removes them.
    largest
        A total that neither tables nor releases exceed; required for the squared L2 loss.
    cells
        The number of cells; in a table of one cell a person is counted or not.

    Returns
    -------
    Fraction
        The sensitivity, never too small.

    Examples
    --------
    >>> sensitivity("L1", fixed_total=True)
    Fraction(2, 1)
    >>> sensitivity("L2", 3, fixed_total=True, deaths=True)
    Fraction(6, 1)
    """
    _check(loss, delta_z, neighbors, largest, cells)
    if fixed_total and neighbors == "add-remove":
        raise InputError(
            'neighbors: "add-remove" is not possible with a fixed total, because adding or removing a '
            'person would change the total; choose "change-one"'
        )
    if fixed_total and cells == 1:
        raise InputError(
            "cells: a table of one cell with a fixed total is that total; nothing is left to "
            "release"
        )
    if loss == "squared L2" and largest is None:
        raise InputError(
            'loss: "squared L2" is unbounded unless tables and releases are bounded: give largest=, a '
            'total that neither exceeds, or choose "L1" or "L2"'
        )
    move = _farthest_move(loss, delta_z, neighbors, largest, cells)
    columns = 2 if deaths else 1
    if loss == "L1":
        return Fraction(columns * sum(move))
    if loss == "L2":
        return _root_above(columns * sum(people * people for people in move))
    assert largest is not None  # checked above
    return Fraction(columns * sum(people * (2 * largest - people) for people in move))


class _LargestMove(NamedTuple):
    """The number of people who leave one cell, and of those who enter another."""

    leaving: int
    entering: int


def _farthest_move(
    loss: LossKind, delta_z: int, neighbors: Neighbors, largest: int | None, cells: int
) -> _LargestMove:
    most = delta_z if largest is None else min(delta_z, largest)
    if cells == 1:
        return _LargestMove(most, 0)
    if neighbors == "change-one":
        return _LargestMove(most, most)
    # Each person either leaves or enters. A norm grows most if everyone leaves, as long as there is
    # someone left to leave; the squared loss, which is concave on either side, if half do each.
    if loss == "squared L2":
        most = min(most, -(-delta_z // 2))
    return _LargestMove(most, min(delta_z - most, most))


@dataclass(frozen=True, slots=True)
class SensitivityComparison:
    """sigma(Delta_z) compared with what plain differential privacy needs (003, Lemma 12).

    Parameters
    ----------
    with_public
        The sensitivity given public information.
    plain
        The sensitivity to one record when nothing is public.
    """

    with_public: Fraction
    plain: Fraction

    @property
    def ratio(self) -> Fraction:
        """How many times as much noise the dependence costs."""
        return self.with_public / self.plain

    @property
    def sentence(self) -> str:
        """What Lemma 12 says here."""
        if self.with_public == self.plain:
            return (
                "given this public information, the loss moves as far as under differential privacy"
            )
        return (
            f"given this public information, the loss moves {float(self.ratio):.4g} times as far as "
            f"under differential privacy"
        )


def compare_sensitivity(
    loss: LossKind,
    delta_z: int,
    *,
    fixed_total: bool,
    deaths: bool = False,
    neighbors: Neighbors = "change-one",
    largest: int | None = None,
    cells: int = 2,
) -> SensitivityComparison:
    """Return sigma(Delta_z) and how far one record moves the same loss when nothing is public.

    Parameters
    ----------
    loss, delta_z, fixed_total, deaths, largest, cells
        As for `sensitivity`.
    neighbors
        The neighbours of plain differential privacy; with a fixed total people always change cells.

    Returns
    -------
    SensitivityComparison
        Both sensitivities and their ratio.

    Examples
    --------
    >>> compare_sensitivity("L1", 3, fixed_total=True).sentence
    'given this public information, the loss moves 3 times as far as under differential privacy'
    """
    return SensitivityComparison(
        sensitivity(
            loss,
            delta_z,
            fixed_total=fixed_total,
            deaths=deaths,
            neighbors="change-one" if fixed_total else neighbors,
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


def _check(loss: str, delta_z: int, neighbors: str, largest: int | None, cells: int) -> None:
    if loss not in ("L1", "L2", "squared L2"):
        raise InputError(f'loss: unknown loss {loss!r}; choose "L1", "L2" or "squared L2"')
    if neighbors not in ("change-one", "add-remove"):
        raise InputError(
            f'neighbors: unknown relation {neighbors!r}; choose "change-one" or "add-remove"'
        )
    for name, value in (("delta_z", delta_z), ("largest", largest), ("cells", cells)):
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int) or value < 1
        ):
            raise InputError(f"{name}: {value!r} is not allowed; give a whole number, 1 or more")


def _root_above(square: int) -> Fraction:
    """Return the root of a whole number if it is whole, else a fraction above it by less than 1e-17."""
    root = math.isqrt(square)
    if root * root == square:
        return Fraction(root)
    return Fraction(math.isqrt(square * _DIGITS * _DIGITS) + 1, _DIGITS)
