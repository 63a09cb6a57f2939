"""A certified (epsilon, delta) of many noisy queries: privacy losses composed in whole numbers.

Masses are whole multiples of 2**-BITS, rounded up, and losses are multiples of a step. A loss between
two of them is split so that its mass and its mass under the neighbour stay (Doroshenko et al. 2022),
which can only raise the hockey-stick curve; so can every rounding here. No float takes part.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from countveil.base.numerics import enclose_exp_minus
from countveil.errors import InputError

BITS = 128
ONE = 1 << BITS
_STEPS = 2_048
_FINE_STEPS = 2_048  # between the likely losses of one count
_DROPPED = 40  # bits below delta of what a composition may move to where it does more harm
_MOST_STEPS = 1 << 17


class LossAtom(NamedTuple):
    """A value of a privacy loss, and at least its probability in units of 2**-BITS."""

    loss: Fraction
    mass: int


@dataclass(frozen=True, slots=True)
class LossMasses:
    """The law of the privacy loss of one noisy count, as `Mechanism.loss_masses` returns it.

    Attributes
    ----------
    atoms
        The values and their probabilities, rounded up.
    infinite
        At least the probability of a loss above them all, in units of 2**-BITS.

    """

    atoms: tuple[LossAtom, ...]
    infinite: int


@dataclass(frozen=True, slots=True)
class GridLoss:
    """A law of losses that dominates another: masses at `start`, `start` + 1, … steps."""

    start: int
    masses: list[int]
    infinite: int


class CurvePoint(NamedTuple):
    """A certified pair: (epsilon, delta)-DP holds."""

    epsilon: Fraction
    delta: Fraction


def certified_curve(
    losses: Sequence[tuple[Sequence[LossMasses], int]],
    epsilon: Fraction,
    *,
    resolution: Fraction,
    eighths: Sequence[int] = (8,),
) -> tuple[CurvePoint, ...]:
    """Return pairs with (epsilon, delta)-DP for independent counts together: delta is an upper bound.

    Parameters
    ----------
    losses
        For each kind of count the law of its loss if one person's rows move it by 1, by 2, … up to
        all of them; and how many counts of that kind they can move.
    epsilon
        Above 0.
    resolution
        What need not be told apart: bounds far below it may be loose.
    eighths
        The points, in eighths of epsilon.

    Returns
    -------
    tuple of CurvePoint
        One per point. Delta is at most a hair above the true one where that is at least the resolution.

    """
    step = _step(losses, epsilon)
    tiny = max(1, (resolution.numerator << BITS) // (resolution.denominator << _DROPPED))
    grids = [power_of(worst_rows(laws, step, tiny), count, tiny) for laws, count in losses]
    together = composed(grids, tiny)
    points = [epsilon * part / 8 for part in eighths]
    return tuple(CurvePoint(point, delta_of(together, point, step)) for point in points)


def _step(losses: Sequence[tuple[Sequence[LossMasses], int]], epsilon: Fraction) -> Fraction:
    """Return the step of which all losses are multiples, or a part of epsilon if it is too short."""
    usual = epsilon / _STEPS
    every = [atom.loss for laws, _ in losses for law in laws for atom in law.atoms]
    return _common_step(every, usual / 2) or usual


def _common_step(losses: Iterable[Fraction], least: Fraction) -> Fraction | None:
    """Return the longest step of which all losses are multiples, unless it is below the least."""
    step = Fraction(0)
    for loss in losses:
        if step and (loss / step).denominator == 1:
            continue
        common = loss.denominator * step.denominator
        step = Fraction(math.gcd(int(loss * common), int(step * common)), common)
        if 0 < step < least:
            return None
    return step or None


def worst_rows(laws: Sequence[LossMasses], step: Fraction, tiny: int) -> GridLoss:
    """Return a law that dominates the loss of a person's rows, however they fall into cells.

    That is the law of all rows in one cell, if each such law dominates any two cells with as many rows
    together; more cells follow by induction. That is looked up on steps fine enough for this noise.
    """
    if len(laws) == 1:
        return on_grid(laws[0], step, tiny)
    fine = _fine_step(laws, tiny)
    dust = max(1, tiny >> 8)  # what is trimmed here, a few times per comparison
    grids: list[GridLoss] = []
    for rows, law in enumerate(laws, 1):
        grid = on_grid(law, fine, dust)
        # The law is raised by what comparisons allow: more than both parts together were raised.
        allowed = 4 * dust * (2 * rows - 1)
        for first in range(1, rows // 2 + 1):
            apart = convolved(grids[first - 1], grids[rows - first - 1], dust)
            if not _dominates(grid, apart, fine, allowed):
                raise InputError(
                    f"a person's {rows} rows in one cell do not lose the most with this noise, so the "
                    f"budget cannot be certified; state it as rho instead"
                )
        grids.append(GridLoss(grid.start, grid.masses, grid.infinite + allowed))
    worst = grids[-1]
    atoms = (LossAtom(at * fine, mass) for at, mass in enumerate(worst.masses, worst.start))
    return on_grid(LossMasses(tuple(atoms), worst.infinite), step, tiny)


def _fine_step(laws: Sequence[LossMasses], tiny: int) -> Fraction:
    """Return the step of which all losses are multiples; if it is very short, a longer one."""
    likely = _likely(laws[-1], tiny)[0]
    least = (likely[-1].loss - likely[0].loss) / _FINE_STEPS
    return _common_step((atom.loss for law in laws for atom in law.atoms), least) or least


def _dominates(one: GridLoss, other: GridLoss, step: Fraction, tolerance: int) -> bool:
    """Whether the hockey-stick curve of `one`, raised by the tolerance, is nowhere below the other's.

    Both are piecewise linear in e^epsilon with kinks on the grid, so that looking there is enough.
    """
    start = min(one.start, other.start) - 1
    end = max(one.start + len(one.masses), other.start + len(other.masses))
    curves = (_curve(grid, start, end, step) for grid in (one, other))
    return all(above + tolerance >= below for above, below in zip(*curves, strict=True))


def _curve(grid: GridLoss, start: int, end: int, step: Fraction) -> list[int]:
    """Return delta at each grid point, nearest first from the end; errors are far below a tolerance."""
    shrink = enclose_exp_minus(step, BITS)[0]
    above = discounted = 0  # the masses above a point, and the same times e^-(loss - point)
    curve = []
    for point in range(end, start - 1, -1):
        curve.append(grid.infinite + above - discounted)
        inside = 0 <= point - grid.start < len(grid.masses)
        mass = grid.masses[point - grid.start] if inside else 0
        above += mass
        discounted = (discounted + mass) * shrink >> BITS
    return curve


def on_grid(law: LossMasses, step: Fraction, tiny: int) -> GridLoss:
    """Split every loss between the two multiples of the step around it."""
    atoms, infinite = _likely(law, tiny)
    lowest = atoms[0].loss // step
    size = atoms[-1].loss // step - lowest + 2
    if size > _MOST_STEPS:
        raise InputError(
            "a single query may lose far more than epsilon; give it a smaller share, or raise epsilon"
        )
    masses = [0] * size
    # Of a loss x above its grid point, the part (1 - e^-x)/(1 - e^-step) goes to the next one.
    whole = ONE - enclose_exp_minus(step, BITS)[1]
    for loss, mass in atoms:
        below = loss // step
        up = 0
        if above := loss - below * step:
            up = min(mass, -(-mass * (ONE - _exp_minus_low(above)) // whole))
        masses[below - lowest] += mass - up
        masses[below - lowest + 1] += up
    return GridLoss(lowest, masses, infinite)


def _likely(law: LossMasses, tiny: int) -> tuple[list[LossAtom], int]:
    """Move the least likely losses up: the lowest to the lowest kept, the highest to infinity.

    Losses are rounded up to as many digits as the masses have.
    """
    atoms = sorted(law.atoms)
    low, high, moved, beyond = 0, len(atoms), 0, 0
    while low < high - 1 and moved + atoms[low].mass <= tiny:
        moved += atoms[low].mass
        low += 1
    while high > low + 1 and beyond + atoms[high - 1].mass <= tiny:
        high -= 1
        beyond += atoms[high].mass
    kept = [
        LossAtom(Fraction(-(-(loss.numerator << BITS) // loss.denominator), ONE), mass)
        for loss, mass in atoms[low:high]
    ]
    kept[0] = LossAtom(kept[0].loss, kept[0].mass + moved)
    return kept, law.infinite + beyond


def _exp_minus_low(x: Fraction) -> int:
    """Return at most 2**BITS exp(-x) for a small x >= 0, by alternating terms."""
    term, total, k = ONE, ONE, 0
    n, d = x.numerator, x.denominator
    while term:
        k += 1
        down = k % 2
        # Subtracted terms are rounded up and added ones down; the series ends on a subtracted one.
        term = -(-term * n // (d * k)) if down else term * n // (d * k)
        total += -term if down else term
        if down and term <= 1:
            break
    return total - 2


def power_of(grid: GridLoss, count: int, tiny: int) -> GridLoss:
    """Return the law of the sum of `count` independent losses."""
    result: GridLoss | None = None
    while count:
        if count % 2:
            result = grid if result is None else convolved(result, grid, tiny)
        count //= 2
        if count:
            grid = convolved(grid, grid, tiny)
    assert result is not None
    return result


def composed(grids: Iterable[GridLoss], tiny: int) -> GridLoss:
    """Return the law of the sum of independent losses, the shortest first."""
    queue = [(len(grid.masses), number, grid) for number, grid in enumerate(grids)]
    heapq.heapify(queue)
    number = len(queue)
    while len(queue) > 1:
        (_, _, left), (_, _, right) = heapq.heappop(queue), heapq.heappop(queue)
        both = convolved(left, right, tiny)
        number += 1
        heapq.heappush(queue, (len(both.masses), number, both))
    return queue[0][2]


def convolved(left: GridLoss, right: GridLoss, tiny: int) -> GridLoss:
    """Return the law of the sum of two independent losses, every mass rounded up."""
    # One product of two long integers: their digits are wide enough that no sum carries over.
    longest = min(len(left.masses), len(right.masses))
    width = (2 * (BITS + 8) + longest.bit_length()) // 8 + 1
    same = left is right
    first = _packed(left.masses, width)
    product = first * (first if same else _packed(right.masses, width))
    size = len(left.masses) + len(right.masses) - 1
    digits = product.to_bytes(size * width + width, "little")
    masses = [
        -(-int.from_bytes(digits[at : at + width], "little") >> BITS)
        for at in range(0, size * width, width)
    ]
    infinite = left.infinite + right.infinite
    return _trimmed(GridLoss(left.start + right.start, masses, infinite), tiny)


def _packed(masses: Sequence[int], width: int) -> int:
    return int.from_bytes(b"".join(mass.to_bytes(width, "little") for mass in masses), "little")


def _trimmed(grid: GridLoss, tiny: int) -> GridLoss:
    """Move what is least likely up: the lowest losses to the lowest kept, the highest to infinity."""
    masses, low, high = grid.masses, 0, len(grid.masses)
    moved = 0
    while low < high - 1 and moved + masses[low] <= tiny:
        moved += masses[low]
        low += 1
    beyond = 0
    while high > low + 1 and beyond + masses[high - 1] <= tiny:
        high -= 1
        beyond += masses[high]
    kept = masses[low:high]
    kept[0] += moved
    return GridLoss(grid.start + low, kept, grid.infinite + beyond)


def delta_of(grid: GridLoss, epsilon: Fraction, step: Fraction) -> Fraction:
    """Return delta at an epsilon: the infinite part, and the sum of m (1 - e^(epsilon - loss))."""
    shrink = enclose_exp_minus(step, BITS)[0]
    first = max(math.floor(epsilon / step) + 1, grid.start)
    total, kept = grid.infinite, enclose_exp_minus(first * step - epsilon, BITS)[0]
    for mass in grid.masses[first - grid.start :]:
        total += -(-mass * (ONE - kept) >> BITS)
        kept = kept * shrink >> BITS
    return Fraction(total, ONE)
