"""Empirical Bayes: the Dirichlet prior of label shares, fitted by moments or maximum likelihood."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import digamma, polygamma

from countveil.assess.homogeneity.label_splits import Dirichlet, log_rising
from countveil.assess.homogeneity.sensitive_table import Table
from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.errors import InputError

_ROUNDING = 1e-12
_FLAT = 1e-9  # a concentration that raises the log-likelihood by less is as good as infinite
_STEPS = 200
_LONGEST = 2.0  # longest step in log alpha
_PRECISE = 1e-10  # derivatives by log alpha, per cell, at which a fit has converged
_SMALLEST, _LARGEST = 1e-7, 1e7  # concentrations beyond which the limit is compared


def prior_of(table: Table, prior: str | Dirichlet | Array) -> Dirichlet:
    """Return the prior fitted by "moments" or "likelihood", or the one that is passed."""
    if isinstance(prior, Dirichlet):
        fitted = prior
    elif isinstance(prior, str):
        if prior not in ("moments", "likelihood"):
            raise InputError(
                f'prior: {prior!r} is not allowed; choose "moments" or "likelihood", or give alphas'
            )
        fitted = (by_moments if prior == "moments" else by_likelihood)(table.counts)
    else:
        fitted = Dirichlet.of(prior)
    if fitted.labels != len(table.labels):
        raise InputError(
            f"prior: got {fitted.labels} alphas for {len(table.labels)} labels; give one per label"
        )
    return fitted


def by_moments(counts: IntArray) -> Dirichlet:
    """Return the prior that matches the variance between cells (004, S2, corrected).

    r = Σ_ik (n_ik - n_i p_k)²/Σ_k p_k(1 - p_k); concentration = (Σ n_i² - r)/(r - n), at least 0, and
    infinite if r <= n: no more variance than equal shares would produce.

    Parameters
    ----------
    counts : array, cells × labels
        The counts of people.

    Returns
    -------
    Dirichlet
        Its shares are those of all people.
    """
    sizes = counts.sum(axis=1)
    people = float(sizes.sum())
    shares = counts.sum(axis=0) / people
    squares = float(((counts - sizes[:, None] * shares) ** 2).sum())
    binomial = float((shares * (1 - shares)).sum())
    if binomial <= 0:
        return Dirichlet(shares, math.inf, "moments")
    r = squares / binomial
    if r - people <= _ROUNDING * people:
        return Dirichlet(shares, math.inf, "moments")
    concentration = (float((sizes.astype(float) ** 2).sum()) - r) / (r - people)
    return Dirichlet(shares, max(0.0, concentration), "moments")


def by_likelihood(counts: IntArray) -> Dirichlet:
    """Return the prior with the largest Dirichlet-multinomial likelihood, by Newton's method.

    Steps are taken in log alpha. Where the likelihood rises towards concentration 0 or infinity, that
    limit is returned.

    Parameters
    ----------
    counts : array, cells × labels
        The counts of people.

    Returns
    -------
    Dirichlet
        With `score`, the largest derivative that remains.
    """
    shown = counts > 0
    if (shown.sum(axis=1) == 1).all():
        return _of_single_labels(counts)
    present = np.asarray(shown.any(axis=0))
    likelihood = _Likelihood(counts[:, present])
    start = by_moments(counts)
    size = min(max(start.concentration, 0.1), 100.0)
    alphas, score = _ascend(likelihood, size * start.shares[present])
    people = counts[:, present].sum(axis=0)
    log_alike = float(people @ np.log(people / people.sum()))
    log_best = likelihood.value(alphas)
    if log_alike >= log_best - _FLAT * abs(log_best):
        return Dirichlet(start.shares, math.inf, "likelihood")
    if score > math.sqrt(_PRECISE):
        raise InputError(
            'prior: the likelihood did not converge; use prior="moments", or give alphas'
        )
    shares = np.zeros(len(present))
    shares[present] = alphas / alphas.sum()
    return Dirichlet(shares, float(alphas.sum()), "likelihood", score)


class _Likelihood:
    """The likelihood and its derivatives, from how often each count occurs."""

    def __init__(self, counts: IntArray) -> None:
        self.cells = len(counts)
        self.sizes, self.times = np.unique(counts.sum(axis=1), return_counts=True)
        self.each = [np.unique(column[column > 0], return_counts=True) for column in counts.T]

    def value(self, alphas: FloatArray) -> float:
        total = alphas.sum()
        value = -float(self.times @ log_rising(total, self.sizes))
        for alpha, (count, times) in zip(alphas, self.each, strict=True):
            value += float(times @ log_rising(alpha, count))
        return value

    def slopes(self, alphas: FloatArray, order: int) -> tuple[FloatArray, float]:
        """Return Σ ψ(alpha_k + n_ik) - ψ(alpha_k) for each label, and the same for the total."""

        def rise(alpha: float, count: IntArray, times: IntArray) -> float:
            if order == 0:
                return float(times @ (digamma(alpha + count) - digamma(alpha)))
            return float(times @ (polygamma(order, alpha + count) - polygamma(order, alpha)))

        own = np.array([rise(a, *each) for a, each in zip(alphas, self.each, strict=True)])
        return own, rise(alphas.sum(), self.sizes, self.times)


def _ascend(likelihood: _Likelihood, alphas: FloatArray) -> tuple[FloatArray, float]:
    """Climb in log alpha until the derivatives vanish, or the concentration runs off to a limit."""
    value, score = likelihood.value(alphas), math.inf
    for _ in range(_STEPS):
        gradient, curvature = _derivatives(likelihood, alphas)
        score = float(np.abs(gradient).max()) / likelihood.cells
        if score < _PRECISE or not _SMALLEST < alphas.sum() < _LARGEST:
            break
        step = _uphill(gradient, curvature)
        better = alphas * np.exp(step)
        while likelihood.value(better) < value and np.abs(step).max() > _ROUNDING:
            step = step / 2
            better = alphas * np.exp(step)
        if likelihood.value(better) < value:
            break  # no neighbouring double is better
        alphas, value = better, likelihood.value(better)
    return alphas, score


def _derivatives(likelihood: _Likelihood, alphas: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the first and second derivatives by log alpha."""
    own, total = likelihood.slopes(alphas, 0)
    own_bend, total_bend = likelihood.slopes(alphas, 1)
    gradient = alphas * (own - total)
    curvature = np.diag(gradient + alphas**2 * own_bend) - np.outer(alphas, alphas) * total_bend
    return gradient, curvature


def _uphill(gradient: FloatArray, curvature: FloatArray) -> FloatArray:
    """Return Newton's step, turned uphill where the likelihood is convex, and kept short."""
    bends, axes = np.linalg.eigh(curvature)
    strength = np.maximum(np.abs(bends), _ROUNDING * max(1.0, float(np.abs(bends).max())))
    step = axes @ ((axes.T @ gradient) / strength)
    return np.asarray(step * min(1.0, _LONGEST / float(np.abs(step).max())))


def _of_single_labels(counts: IntArray) -> Dirichlet:
    """Return the prior with the largest likelihood for homogeneous cells: concentration 0.

    (alpha + j)/(A + j) <= 1, so no concentration does better. Where every cell has one person, nothing
    is known about it, and it is infinite.
    """
    cells = (counts > 0).sum(axis=0)
    concentration = 0.0 if counts.max() > 1 else math.inf
    return Dirichlet(cells / cells.sum(), concentration, "likelihood")
