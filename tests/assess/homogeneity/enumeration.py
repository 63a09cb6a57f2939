"""Homogeneity risks by brute force: all counts that may be, and all patterns of what is kept."""

import math
from itertools import product

import numpy as np

from countveil import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace

LAWS = (
    Laplace(0.7),
    Laplace(0.01),
    Gaussian(1.3),
    Gaussian.calibrated(epsilon=0.5, delta=1e-3, kind="DP"),
    DiscreteLaplace(epsilon="0.4"),
    DiscreteGaussian("2.5"),
)


def keeps(law, n):
    """P(n + noise >= 1/2), by the law's own survival function at 1/2 - n from below."""
    return float(law.survival(0.5 - n))


def outcomes(counts, law):
    """Yield every pattern of kept labels with its probability."""
    u = [keeps(law, n) for n in counts]
    for kept in product((False, True), repeat=len(counts)):
        yield kept, math.prod(p if k else 1 - p for p, k in zip(u, kept, strict=True))


def local(counts, law, share=False):
    total = 0.0
    for kept, chance in outcomes(counts, law):
        if sum(kept) == 1:
            n = counts[kept.index(True)]
            total += chance * (n / sum(counts) if share else n > 0)
    return total


def compositions(n, labels):
    """Yield all counts of so many labels with sum n."""
    if labels == 1:
        yield (n,)
        return
    for first in range(n + 1):
        for rest in compositions(n - first, labels - 1):
            yield (first, *rest)


def multinomial(counts, shares):
    ways = math.factorial(sum(counts))
    for n in counts:
        ways //= math.factorial(n)
    return ways * math.prod(p**n for p, n in zip(shares, counts, strict=True))


def dirichlet_multinomial(counts, alphas):
    ways = math.factorial(sum(counts))
    for n in counts:
        ways //= math.factorial(n)
    rising = [math.prod(a + j for j in range(n)) for a, n in zip(alphas, counts, strict=True)]
    return ways * math.prod(rising) / math.prod(sum(alphas) + j for j in range(sum(counts)))


def average(n, given, law, chance=multinomial, share=False):
    """The local risk averaged over the counts that a cell of size n may have."""
    return sum(
        chance(counts, given) * local(counts, law, share) for counts in compositions(n, len(given))
    )


def random_cells(rng, cells, labels, most):
    counts = np.array(
        [rng.multinomial(rng.integers(1, most), p) for p in _shares(rng, cells, labels)]
    )
    return counts[counts.sum(axis=1) > 0]


def _shares(rng, cells, labels):
    return rng.dirichlet(np.full(labels, 0.5), cells)
