"""What the counts around a unit reveal at most about one of its counts, given that all are whole.

In the one tree, noise is normal and counts are real numbers (`tree.outside`). Someone who knows that
counts are whole learns a little more. The bounds here hold for them, however small the noise:

1. They are also told everything about all other units, except how many times the change that they look
   for (one person more in a cell, or moved from one cell to another) took place there. That can only
   help, and it leaves one unknown whole number per unit: a tree of single counts.
2. What such a tree says about its root is an even law f on whole numbers, steepest in the middle:
   f(k-1) f(k+1) / f(k)² is least at k = 0 (Regev and Stephens-Davidowitz 2017, An inequality for
   Gaussians on lattices). Its rho is log f(0)/f(1): that of the discrete Gaussian as steep everywhere.
3. Where independent counts are of the same people, rhos add up. Where people of units are added up,
   the variances 1/(2 rho) do, less a loss because counts are whole (`loss_of_variance`).
4. Of such laws with at most this rho, a discrete Gaussian on some shifted lattice reveals most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from countveil.assess.intruder.attacks import NEVER
from countveil.base.bounded_averages import expectation
from countveil.base.numerics import FloatArray
from countveil.noise.law import LossLaw
from countveil.tree.tree_shape import Tree

SMOOTH_BELOW = 0.25
"""Below this rho, shifted lattices give the averages of the normal law: exp(-π²/rho) < 1e-17."""

NARROW = 0.62
"""From this variance on, a sum over whole numbers is the integral: 2 exp(-2π² variance) < 1e-5."""

SHIFTS = 16
"""How many shifts of the lattice are tried; an average is a short Fourier series in the shift."""

_WIDE = 3.0  # from this variance on the loss is less than 1e-17
_NARROW = 1e-3
_RATIOS = np.geomspace(1.0, 64.0, 161)
_REACH = 9.5  # standard deviations
_TIE = 1e-12
_CERTAIN = 1e9  # a rho that leaves no doubt


class Surroundings(NamedTuple):
    """What is around units, told everything but how often a change took place in other units.

    `rho` has, for each level, positions × changes: of everything but the unit and what is below it, at
    most. An only child is the same people as its parent, whose own counts are included. `narrowest`
    has the smallest variance over which a sum of whole counts is taken, for each change.
    """

    rho: list[FloatArray]
    narrowest: FloatArray


def surroundings(tree: Tree, own: FloatArray) -> Surroundings:
    """Return what surrounds the units of each level.

    Parameters
    ----------
    tree : Tree
        The places.
    own : array, levels × changes
        Twice the rho of each level's own counts about each change; infinite if it is published exactly.

    Returns
    -------
    Surroundings
        With upper bounds of rho.

    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return _surroundings(tree, own)


def _surroundings(tree: Tree, own: FloatArray) -> Surroundings:
    depth, changes = own.shape
    variances: list[FloatArray] = []  # by kind: of what is known from a unit and below
    sums: list[FloatArray] = []  # by kind: of the variances of the children, each less its loss
    whole: list[FloatArray] = []  # the same without losses
    for level in range(depth - 1, -1, -1):
        precision = np.broadcast_to(own[level], (tree.kinds[level], changes))
        if level < depth - 1:
            below = variances[0]
            sums.insert(0, tree.sums_by_kind(level, below - loss_of_variance(below)))
            whole.insert(0, tree.sums_by_kind(level, below))
            alone = _children_by_kind(tree, level) == 1
            precision = precision + 1 / np.where(alone[:, None], whole[0], sums[0])
        variances.insert(0, 1 / precision)
    around = [np.zeros((len(tree.positions[0]), changes))]
    narrowest = np.full(changes, np.inf)
    for level in range(1, depth):
        positions, parents = tree.positions[level], tree.positions[level - 1]
        family = parents.kind[positions.above]
        unit = variances[level][positions.kind]
        above = own[level - 1] + 2 * around[level - 1][positions.above]
        several = sums[level - 1][family] - (unit - loss_of_variance(unit))
        one = whole[level - 1][family] - unit
        pair = _children_by_kind(tree, level - 1)[family] == 2
        # Nothing measures a unit only if nothing measures its siblings.
        known = np.where(pair[:, None], one, several)
        siblings = np.where(np.isinf(unit), np.inf, np.maximum(known, 0.0))
        outer = 1 / above
        total = outer + siblings - _loss_of_pairs(outer, siblings)
        alone = positions.only_child[:, None]
        around.append(np.where(alone, above / 2, 1 / (2 * total)))
        for other in (unit, outer):
            both = np.where(alone, np.inf, 1 / (1 / other + 1 / one))
            both = np.where(both > 0, both, np.inf)  # nothing is summed over what is exact
            narrowest = np.minimum(narrowest, both.min(axis=0))
    return Surroundings(around, narrowest)


def _children_by_kind(tree: Tree, level: int) -> FloatArray:
    return np.asarray(tree.sums_by_kind(level, np.ones((tree.kinds[level + 1], 1)))[:, 0])


def loss_of_variance(variance: FloatArray) -> FloatArray:
    """Return by how much a sum with a wider law may have less than the sum of both variances."""
    logs, losses = _losses()
    known = np.clip(np.log(np.maximum(variance, _NARROW)), logs[0], logs[-1])
    return np.where(variance < _WIDE, np.minimum(np.interp(known, logs, losses), variance), 0.0)


@lru_cache(maxsize=1)
def _losses() -> tuple[FloatArray, FloatArray]:
    """Return logarithms of variances, and the largest loss next to any wider law."""
    logs = np.linspace(math.log(_NARROW), math.log(_WIDE), 1201)
    narrow = np.exp(logs)
    worst = np.zeros(len(narrow))
    for ratio in _RATIOS:
        worst = np.maximum(worst, _loss(narrow, ratio * narrow))
    padded = np.concatenate([worst[:1], worst, worst[-1:]])
    worst = np.maximum(np.maximum(padded[:-2], padded[2:]), worst)  # between the points, too
    return logs, np.minimum(worst * (1 + 1e-3), narrow)


def _loss_of_pairs(one: FloatArray, other: FloatArray) -> FloatArray:
    """Return the loss of variance of two laws each, entry by entry."""
    one, other = np.broadcast_arrays(one, other)
    narrow = np.minimum(one, other)
    losing = (narrow > 0) & (narrow < _WIDE) & np.isfinite(np.maximum(one, other))
    loss = np.zeros(narrow.shape)
    pairs, where = np.unique(
        np.stack([one[losing], other[losing]], axis=1), axis=0, return_inverse=True
    )
    loss[losing] = _loss(pairs[:, 0], pairs[:, 1])[where.ravel()]
    return loss


def _loss(one: FloatArray, other: FloatArray) -> FloatArray:
    """Return variance + variance - 1/(2 rho) of the sum of two discrete Gaussians."""
    k = np.arange(-20, 21)[:, None]
    middle = -0.5 * k**2 * (1 / one + 1 / other)
    next_to = -0.5 * (k**2 / one + (k - 1) ** 2 / other)
    rho = _log_sum(middle) - _log_sum(next_to)
    return np.asarray(np.maximum(one + other - 1 / (2 * rho), 0.0))


def _log_sum(logs: FloatArray) -> FloatArray:
    top = logs.max(axis=0)
    return np.asarray(top + np.log(np.exp(logs - top).sum(axis=0)))


def shifted_loss(rho: float, shift: float) -> LossLaw:
    """Return the loss of a discrete Gaussian with this rho on the whole numbers plus a shift.

    Examples
    --------
    >>> law = shifted_loss(0.5, 0.25)
    >>> bool(abs(law.weights.sum() - 1) < 1e-12)
    True

    """
    rho = min(rho, _CERTAIN)
    reach = math.ceil(_REACH / math.sqrt(2 * rho)) + 1
    error = np.arange(-reach, reach + 1) + shift
    weights = np.exp(-rho * (error**2 - (error**2).min()))
    return LossLaw(np.asarray(rho * (2 * error + 1)), np.asarray(weights / weights.sum()))


def largest_over_shifts(averages: Sequence[float]) -> float:
    """Return an upper bound of an average for every shift, from its values at `SHIFTS` equal steps."""
    series = np.fft.rfft(averages) / SHIFTS
    return min(1.0, float(series[0].real + 2 * np.abs(series[1:]).sum()))


def guesses_right_at_most(own: LossLaw, rho: float, log_odds: float) -> float:
    """Return how often the truth wins at most, next to what surrounds a unit.

    Even odds split ties. Otherwise a point of the lattice counts as right if it would be for some shift
    up to the next one that is tried: its weight falls until then.
    """
    split = log_odds == 0
    slack = _TIE if split else 2 * rho / SHIFTS + _TIE
    best = 0.0
    for number in range(SHIFTS):
        law = shifted_loss(rho, number / SHIFTS)
        from_here = np.append(np.cumsum(law.weights[::-1])[::-1], 0.0)
        needed = -log_odds - own.points
        right = from_here[np.searchsorted(law.points, needed - slack)]
        if split:
            right = (right + from_here[np.searchsorted(law.points, needed + slack)]) / 2
        best = max(best, expectation(own.weights, right))
    return best if best > NEVER else 0.0
