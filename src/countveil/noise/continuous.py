"""Continuous Laplace and Gaussian noise: laws to assess and infer with; releases use integer noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from countveil.base.numerics import Array, FloatArray
from countveil.errors import InputError
from countveil.noise.law import LossLaw


@dataclass(frozen=True, slots=True, init=False)
class Laplace:
    """Noise with density (epsilon/2) exp(-epsilon |x|): a law, not a mechanism.

    Parameters
    ----------
    epsilon
        The inverse scale, above 0: the epsilon of a count that one person moves by 1.

    Examples
    --------
    >>> Laplace(0.5).variance
    8.0

    """

    epsilon: float

    def __init__(self, epsilon: float) -> None:
        object.__setattr__(self, "epsilon", _above_zero(epsilon, "epsilon"))

    @classmethod
    def calibrated_for(cls, *, epsilon: float, delta: float | None = None) -> Laplace:
        """Return the noise that spends epsilon on a count of sensitivity 1; it spends no delta."""
        return cls(epsilon)

    @property
    def variance(self) -> float:
        """2/epsilon²."""
        return 2 * (1 / self.epsilon) * (1 / self.epsilon)

    @property
    def lattice(self) -> bool:
        """False: the noise is a real number."""
        return False

    @property
    def bounded_loss(self) -> float | None:
        """The parameter epsilon."""
        return self.epsilon

    @property
    def gaussian_variance(self) -> float | None:
        """None, because the law is not Gaussian."""
        return None

    @property
    def laplace_scale(self) -> float | None:
        """1/epsilon."""
        return 1 / self.epsilon

    def log_density(self, noise: Array | float) -> FloatArray:
        """Return log(epsilon/2) - epsilon |noise|."""
        return np.asarray(math.log(self.epsilon / 2) - self.epsilon * np.abs(noise), np.float64)

    def cdf(self, at: Array | float) -> FloatArray:
        """Return P(noise <= at)."""
        return self.survival(-np.asarray(at, np.float64))

    def survival(self, at: Array | float) -> FloatArray:
        """Return P(noise > at)."""
        x = np.asarray(at, np.float64)
        tail = 0.5 * np.exp(-self.epsilon * np.abs(x))
        return np.where(x >= 0, tail, 1 - tail)

    def loss_at(self, noise: Array | float, shift: int = 1) -> FloatArray:
        """Return epsilon (|noise + shift| - |noise|)."""
        return self.epsilon * np.clip(2 * np.asarray(noise, np.float64) + shift, -shift, shift)

    def privacy_loss(self, shift: int = 1) -> LossLaw:
        """Return the loss and its weights: constant outside (-shift, 0), quadrature inside."""
        # Gauss-Legendre panels no longer than one noise scale, so that each is smooth.
        panels = max(1, math.ceil(min(self.epsilon * shift, 60.0)))
        nodes, shares = np.polynomial.legendre.leggauss(32)
        reach = min(shift, 60 / self.epsilon)  # beyond it the density is below 1e-26
        edges = np.linspace(-reach, 0, panels + 1)
        half = reach / panels / 2
        e = (edges[:-1, None] + half * (1 + nodes)).ravel()
        inner = np.tile(half * shares, panels) * np.exp(self.log_density(e))
        losses = self.loss_at(np.concatenate(([-shift], e, [0.0])), shift)
        weights = np.concatenate((self.survival(np.array([shift])), inner, [0.5]))
        return LossLaw(losses, weights)


@dataclass(frozen=True, slots=True, init=False)
class Gaussian:
    """Normal noise: a law, not a mechanism.

    Parameters
    ----------
    sigma
        The standard deviation, above 0.

    Examples
    --------
    >>> Gaussian(2).variance
    4.0

    """

    sigma: float

    def __init__(self, sigma: float) -> None:
        object.__setattr__(self, "sigma", _above_zero(sigma, "sigma"))

    @classmethod
    def calibrated(
        cls, *, epsilon: float, delta: float, kind: str, sensitivity: float = 1.0
    ) -> Gaussian:
        """Return the Gaussian noise of paper 004: its (3) for kind="DP", its (4) for kind="pDP".

        (3) sigma = sensitivity sqrt(2 log(1.25/delta))/epsilon, proved for epsilon <= 1 only;
        (4) sigma = sensitivity (sqrt(z² + 2 epsilon) - z)/(2 epsilon), z = Phi⁻¹(delta/2).
        """
        epsilon = _above_zero(epsilon, "epsilon")
        if not 0 < delta < 1:
            raise InputError(f"delta: {delta} is not allowed; it must be between 0 and 1")
        if kind == "DP":
            if epsilon > 1:
                raise InputError(
                    f'epsilon: {epsilon} is not allowed with kind="DP", which is proved up to 1 only; '
                    'choose kind="pDP"'
                )
            return cls(sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon)
        if kind == "pDP":
            from scipy.special import ndtri

            z = float(ndtri(delta / 2))
            return cls(sensitivity * (math.sqrt(z * z + 2 * epsilon) - z) / (2 * epsilon))
        raise InputError(f'unknown kind {kind!r}; choose "DP" or "pDP"')

    @classmethod
    def calibrated_for(cls, *, epsilon: float, delta: float | None = None) -> Gaussian:
        """Return the noise that spends (epsilon, delta) on a count of sensitivity 1: kind="pDP"."""
        if delta is None or not 0 < delta < 1:
            raise InputError(
                f"delta: {delta} is not allowed with Gaussian noise; give one between 0 and 1, such as "
                f"1e-6"
            )
        return cls.calibrated(epsilon=epsilon, delta=float(delta), kind="pDP")

    @property
    def variance(self) -> float:
        """sigma²."""
        return self.sigma**2

    @property
    def lattice(self) -> bool:
        """False: the noise is a real number."""
        return False

    @property
    def bounded_loss(self) -> float | None:
        """None: the loss grows with the noise."""
        return None

    @property
    def gaussian_variance(self) -> float | None:
        """sigma²."""
        return self.sigma**2

    @property
    def laplace_scale(self) -> float | None:
        """None: it is not Laplace."""
        return None

    def log_density(self, noise: Array | float) -> FloatArray:
        """Return the log of the normal density."""
        z = np.asarray(noise, np.float64) / self.sigma
        return -0.5 * z * z - math.log(self.sigma * math.sqrt(2 * math.pi))

    def cdf(self, at: Array | float) -> FloatArray:
        """Return P(noise <= at)."""
        return self.survival(-np.asarray(at, np.float64))

    def survival(self, at: Array | float) -> FloatArray:
        """Return P(noise > at)."""
        from scipy.special import ndtr

        return np.asarray(ndtr(-np.asarray(at, np.float64) / self.sigma), np.float64)

    def loss_at(self, noise: Array | float, shift: int = 1) -> FloatArray:
        """Return (2 noise shift + shift²)/(2 sigma²)."""
        return shift * (2 * np.asarray(noise, np.float64) + shift) / (2 * self.sigma**2)

    def privacy_loss(self, shift: int = 1) -> LossLaw:
        """Return the loss on a trapezoidal grid of the noise, and its weights."""
        # A sigmoid of the loss has poles pi sigma²/shift away from the real axis: the step must be
        # small compared with that distance and with sigma.
        step = min(self.sigma / 10, math.pi * self.sigma**2 / (6 * shift))
        reach = math.ceil(40 * self.sigma / step)
        e = step * np.arange(-reach, reach + 1, dtype=np.float64)
        weights = np.exp(-0.5 * (e / self.sigma) ** 2)
        return LossLaw(self.loss_at(e, shift), weights / weights.sum())

    def hockey_stick(self, epsilon: FloatArray, shift: int = 1) -> FloatArray:
        """Return the tight delta at each epsilon (Balle & Wang 2018)."""
        from scipy.special import log_ndtr, ndtr

        mu = shift / self.sigma
        return np.asarray(
            ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
        )


def _above_zero(value: float, name: str) -> float:
    number = float(value)
    if not (math.isfinite(number) and number > 0):
        raise InputError(f"{name}: {value} is not allowed; it must be a number above 0")
    return number
