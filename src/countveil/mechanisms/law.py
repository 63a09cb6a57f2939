"""What every noise answers for: its law, and, when it may be released, its price and sampler."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from countveil.numerics import Array, FloatArray, IntArray
from countveil.privacy.costs import Cost, Sensitivity
from countveil.randomness import BitSource


@runtime_checkable
class Law(Protocol):
    """How noise is distributed: enough to assess and infer. Laplace and Gaussian are laws."""

    @property
    def variance(self) -> float:
        """The variance of the noise."""
        ...

    def log_density(self, noise: Array | float) -> FloatArray:
        """Return the log of the density, or of the probability of integer noise."""
        ...

    def cdf(self, at: Array | float) -> FloatArray:
        """Return P(noise <= at)."""
        ...

    def survival(self, at: Array | float) -> FloatArray:
        """Return P(noise > at), with full relative precision far out."""
        ...

    def loss_at(self, noise: Array | float, shift: int = 1) -> FloatArray:
        """Return log f(noise)/f(noise + shift), without cancellation far out; it never falls."""
        ...

    def privacy_loss(self, shift: int = 1) -> tuple[FloatArray, FloatArray]:
        """Return points and weights of log f(e)/f(e + shift) under the law of e.

        Weighted sums over the points equal expectations of smooth functions of the loss to
        about 14 digits: sums over all integers, or quadrature where the noise is continuous.
        """
        ...


@runtime_checkable
class Mechanism(Law, Protocol):
    """An integer law that may be released: it also has a price and an exact sampler."""

    name: str

    @property
    def parameters(self) -> dict[str, str]:
        """The exact parameters as text, for the manifest; they build the mechanism again."""
        ...

    def log_pmf(self, noise: Array | int) -> FloatArray:
        """Return log P(noise)."""
        ...

    def cost(self, sensitivity: Sensitivity) -> Cost:
        """Return the price of one run."""
        ...

    def sample(self, size: int, *, rng: BitSource) -> IntArray:
        """Draw `size` independent values, exactly."""
        ...


def central_half_width(mechanism: Mechanism, probability: float) -> int:
    """Return the smallest h with P(-h <= noise <= h) >= probability."""
    low, high = -1, 1
    while 2 * float(mechanism.survival(high)) > 1 - probability:
        high *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if 2 * float(mechanism.survival(middle)) > 1 - probability:
            low = middle
        else:
            high = middle
    return high
