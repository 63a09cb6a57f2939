"""What other code may ask of noise: of every law, and of a mechanism that a release can use."""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np

from countveil.base.numerics import Array, FloatArray, IntArray
from countveil.base.randomness import BitSource
from countveil.privacy.certified_loss import LossMasses
from countveil.privacy.costs import Cost, Currency, Sensitivity


class LossLaw(NamedTuple):
    """The values that a privacy loss can take, and how likely each is."""

    points: FloatArray
    weights: FloatArray


@runtime_checkable
class Law(Protocol):
    """How noise is distributed: enough to assess a release and to draw conclusions from it.

    Code that works for some laws only asks (`lattice`, `bounded_loss`, `gaussian_variance`,
    `laplace_scale`) and refuses the others by their answers. It never checks types, so a new law
    works wherever its answers allow.
    """

    @property
    def lattice(self) -> bool:
        """Whether the noise is integer-valued."""
        ...

    @property
    def variance(self) -> float:
        """The variance of the noise."""
        ...

    @property
    def bounded_loss(self) -> float | None:
        """The largest privacy loss (a supremum) of a shift by one; None if it is unbounded."""
        ...

    @property
    def gaussian_variance(self) -> float | None:
        """The parameter sigma² if the law is a Gaussian or discrete Gaussian, else None.

        The losses of several such laws add up to one of the same family.
        """
        ...

    @property
    def laplace_scale(self) -> float | None:
        """The scale b if the law is ∝ exp(-|x|/b), a Laplace or discrete Laplace, else None."""
        ...

    def log_density(self, noise: Array | float) -> FloatArray:
        """Return the log of the density, or of the probability of integer noise."""
        ...

    def cdf(self, at: Array | float) -> FloatArray:
        """Return P(noise <= at)."""
        ...

    def survival(self, at: Array | float) -> FloatArray:
        """Return P(noise > at), with full relative precision in the tail."""
        ...

    def loss_at(self, noise: Array | float, shift: int = 1) -> FloatArray:
        """Return log f(noise)/f(noise + shift), without cancellation; it never decreases."""
        ...

    def privacy_loss(self, shift: int = 1) -> LossLaw:
        """Return points and weights of log f(e)/f(e + shift) under the law of e.

        Weighted sums over the points equal expectations of smooth functions of the loss to about 14
        digits. The points are integers, or quadrature nodes if the noise is continuous.
        """
        ...


@runtime_checkable
class Mechanism(Law, Protocol):
    """An integer law that a release can use: it also has a price and an exact sampler.

    `name` is what plans and manifests call it, `label` what people read. `currency` is what its
    price is exact in: "rho" (zero-concentrated) or "epsilon" (pure differential privacy). A plan can
    use it if its budget is in that currency.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    currency: ClassVar[Currency]

    @classmethod
    def for_cost(cls, cost: Cost, sensitivity: Sensitivity) -> Self:
        """Return the noise whose one run costs `cost`, which is in the mechanism's currency."""
        ...

    @property
    def parameters(self) -> dict[str, str]:
        """The exact parameters as text, for the manifest; the constructor accepts them."""
        ...

    def log_pmf(self, noise: Array | int) -> FloatArray:
        """Return log P(noise)."""
        ...

    def cost(self, sensitivity: Sensitivity) -> Cost:
        """Return the price of one run."""
        ...

    def hockey_stick(self, epsilon: FloatArray, shift: int = 1) -> FloatArray:
        """Return the smallest delta at each epsilon of a count that moves by `shift`."""
        ...

    def loss_masses(self, shift: int = 1) -> LossMasses | None:
        """Return the law of the loss for budgets in loss distributions; None refuses such budgets.

        Probabilities are whole numbers, rounded up.
        """
        ...

    def sample(self, size: int, *, rng: BitSource) -> IntArray:
        """Draw `size` independent values, exactly."""
        ...


def hockey_stick_of(losses: FloatArray, weights: FloatArray, epsilon: FloatArray) -> FloatArray:
    """Return E max(0, 1 - exp(epsilon - loss)) for a loss with finitely many values.

    It serves mechanisms whose `privacy_loss` lists the values themselves, not quadrature points.
    """
    gap = np.minimum(np.asarray(epsilon)[..., None] - losses, 0.0)
    return np.asarray(-np.expm1(gap) @ weights)


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
