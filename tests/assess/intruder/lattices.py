"""What an intruder learns about one count where all counts are whole: sums over all noise.

They see noisy sums of unknown whole numbers, all of which are equally likely, and of the target.
Nothing here uses the tree, the laws of losses, or normal noise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_DEVIATIONS = 6.0


@dataclass(frozen=True)
class Sums:
    """Noisy sums of unknowns and of the target's move; each unknown is counted by itself as well.

    `sums` has a row per count and a column per unknown, `moves` what the target adds to each count,
    `variances` those of their noise, `alone` those of the unknowns' own counts, and `known` those of
    counts without unknowns, to which the target adds 1.
    """

    sums: Sequence[Sequence[int]]
    moves: Sequence[int]
    variances: Sequence[float]
    alone: Sequence[float]
    known: Sequence[float] = ()

    def figures(self, prior: float) -> tuple[float, float]:
        """Return the expected posterior of the truth over the prior, and how often they guess it."""
        losses, weights = self._losses()
        log_odds = math.log(prior / (1 - prior)) + losses
        tied = np.abs(log_odds) < 1e-8
        right = weights[(log_odds > 0) & ~tied].sum() + 0.5 * weights[tied].sum()
        return float((weights / (1 + np.exp(-log_odds))).sum() / prior), float(right)

    def _losses(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the law of the log-likelihood ratio of the truth."""
        away = self._law()
        there = _moved(away, self.moves)
        seen = (there > 1e-18) & (away > 0)
        losses, weights = _alike(np.log(there[seen]) - np.log(away[seen]), there[seen])
        for variance in self.known:
            law = _gaussian(variance)
            more = np.array([(2 * error + 1) / (2 * variance) for error in law])
            both = np.multiply.outer(weights, np.array(list(law.values())))
            losses, weights = _alike(np.add.outer(losses, more), both)
        return losses, weights

    def _law(self) -> np.ndarray:
        """Return the law of the counts less what the unknowns' own counts say they should be."""
        axes, laws = [], []
        for row, variance in zip(self.sums, self.variances, strict=True):
            spread = variance + sum(c * c * v for c, v in zip(row, self.alone, strict=True))
            reach = math.ceil(_DEVIATIONS * math.sqrt(spread)) + 1
            axes.append(np.arange(-reach, reach + 1))
            laws.append(np.exp(-(np.arange(-300, 301) ** 2) / (2 * variance)).sum())
        own = [_gaussian(variance) for variance in self.alone]
        total = np.zeros([len(axis) for axis in axes])
        for errors in itertools.product(*(law.items() for law in own)):
            term = np.array(math.prod(weight for _, weight in errors))
            if term < 1e-15:
                continue
            for row, axis, variance, norm in zip(
                self.sums, axes, self.variances, laws, strict=True
            ):
                shift = sum(c * e for c, (e, _) in zip(row, errors, strict=True))
                factor = np.exp(-((axis + shift) ** 2) / (2 * variance)) / norm
                term = np.multiply.outer(term, factor)
            total += term
        return total


def _alike(losses: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    heavy = weights > 1e-16
    values, where = np.unique(losses[heavy].round(9), return_inverse=True)
    return values, np.bincount(where.ravel(), weights[heavy])


def _gaussian(variance: float) -> dict[int, float]:
    reach = math.ceil(_DEVIATIONS * math.sqrt(variance)) + 1
    weights = {k: math.exp(-(k**2) / (2 * variance)) for k in range(-reach, reach + 1)}
    total = sum(weights.values())
    return {k: weight / total for k, weight in weights.items()}


def _moved(law: np.ndarray, moves: Sequence[int]) -> np.ndarray:
    result = law
    for axis, move in enumerate(moves):
        result = np.roll(result, move, axis)
        edge = [slice(None)] * law.ndim
        if move:
            edge[axis] = slice(0, move) if move > 0 else slice(move, None)
            result = result.copy()
            result[tuple(edge)] = 0.0
    return result
