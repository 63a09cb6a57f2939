"""What an intruder learns to conclude from published counts, from simulated releases.

For each simulated release the posterior given its measurements is known. The posterior given the
published counts is the average of those over all releases that look the same: learned by groups, each
pulled towards a wider group where there are few draws of it, and in the end towards a regression.
What is learned is used as a function of the published counts alone, so a poor one costs precision,
never validity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from countveil.base.numerics import FloatArray, IntArray

_BINS = 60
_STEPS = 25
_RIDGE = 1e-3
_STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0, 1e9)  # draws that the wider group counts as
_TINY = 1e-12


@dataclass(frozen=True, eq=False, slots=True)
class LearnedPosterior:
    """A posterior for every row of published counts.

    A row that was drawn often has the average of its own draws; others that of rows with a similar
    regression.
    """

    center: FloatArray
    scale: FloatArray
    coefficients: FloatArray
    edges: FloatArray
    of_bin: FloatArray
    columns: int
    rows: dict[bytes, float]

    @classmethod
    def of(
        cls,
        published: IntArray,
        posterior: FloatArray,
        weights: FloatArray,
        *,
        narrow: int | None = None,
    ) -> LearnedPosterior:
        """Learn from draws, and choose what to learn by trying it on half of them.

        Parameters
        ----------
        published : array of int, draws × counts
            What each simulated release publishes.
        posterior : array
            The posterior given the measurements of each.
        weights : array
            How much each draw counts, so that weighted means are those of the intruder's belief.
        narrow : int, optional
            How many of the first columns to try as groups by themselves.

        Returns
        -------
        LearnedPosterior
            A function of published counts.
        """
        half = np.arange(len(posterior)) % 2 == 0
        least, choice = np.inf, (published.shape[1], _STRENGTHS[-1])
        for columns in sorted(
            {published.shape[1] if narrow is None else narrow, published.shape[1]}
        ):
            for strength in _STRENGTHS:
                tried = cls._grouped(
                    published[half], posterior[half], weights[half], columns, strength
                )
                miss = posterior[~half] - tried(published[~half])
                error = float(weights[~half] @ miss**2)
                if error < least:
                    least, choice = error, (columns, strength)
        return cls._grouped(published, posterior, weights, *choice)

    @classmethod
    def _grouped(
        cls,
        published: IntArray,
        posterior: FloatArray,
        weights: FloatArray,
        columns: int,
        strength: float,
    ) -> LearnedPosterior:
        center, scale = published.mean(axis=0), np.maximum(published.std(axis=0), _TINY)
        design = _design(published, center, scale)
        coefficients = _regression(design, posterior, weights)
        score = design @ coefficients
        edges = np.unique(np.quantile(score, np.arange(1, _BINS) / _BINS))
        bins = np.searchsorted(edges, score, side="right")
        whole = float(weights @ posterior / weights.sum())
        size = len(edges) + 1
        of_bin = _pulled(
            bins, size, posterior, weights, np.full(size, whole), min(strength, _STRENGTHS[-2])
        )
        keys, first, group = np.unique(
            published[:, :columns], axis=0, return_index=True, return_inverse=True
        )
        group = group.reshape(-1)
        values = _pulled(group, len(keys), posterior, weights, of_bin[bins[first]], strength)
        rows = {key.tobytes(): float(value) for key, value in zip(keys, values, strict=True)}
        return cls(center, scale, coefficients, edges, of_bin, columns, rows)

    def __call__(self, published: IntArray) -> FloatArray:
        """Return the posterior of each row of published counts."""
        score = _design(published, self.center, self.scale) @ self.coefficients
        guess = self.of_bin[np.searchsorted(self.edges, score, side="right")]
        rows = np.ascontiguousarray(published[:, : self.columns])
        known = [self.rows.get(row.tobytes(), -1.0) for row in rows]
        values = np.array(known)
        return np.where(values >= 0, values, guess)


def _design(published: IntArray, center: FloatArray, scale: FloatArray) -> FloatArray:
    """Return the regressors: a constant, then each count in standard deviations."""
    return np.column_stack([np.ones(len(published)), (published - center) / scale])


def _regression(design: FloatArray, posterior: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the coefficients of a logistic regression of posteriors, by damped Newton steps."""
    share = weights / weights.sum()
    ridge = _RIDGE * np.eye(design.shape[1])
    coefficients = np.zeros(design.shape[1])
    mean = float(np.clip(share @ posterior, _TINY, 1 - _TINY))
    coefficients[0] = logit(mean)
    ridge[0, 0] = _TINY
    pull = mean * (1 - mean) * ridge
    for _ in range(_STEPS):
        fit = expit(design @ coefficients)
        slope = design.T @ (share * (posterior - fit)) - pull @ (
            coefficients - np.eye(len(coefficients))[0] * coefficients[0]
        )
        curve = (design * (share * fit * (1 - fit))[:, None]).T @ design + pull
        step = np.linalg.solve(curve, slope)
        coefficients = coefficients + step * min(1.0, 2.0 / max(np.abs(step).max(), _TINY))
        if np.abs(step).max() < 1e-8:
            break
    return coefficients


def _pulled(
    group: IntArray,
    groups: int,
    posterior: FloatArray,
    weights: FloatArray,
    towards: FloatArray,
    strength: float,
) -> FloatArray:
    """Return the mean posterior of each group, pulled towards another as if by `strength` draws."""
    draws = np.bincount(group, minlength=groups)
    mass = np.bincount(group, weights, groups)
    mean = np.divide(np.bincount(group, weights * posterior, groups), np.maximum(mass, 1e-300))
    return np.asarray((draws * mean + strength * towards) / (draws + strength))
