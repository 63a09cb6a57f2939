"""The mechanisms that releases are made with, by the name a manifest gives them."""

from __future__ import annotations

from collections.abc import Callable

from countveil.errors import InputError
from countveil.mechanisms.discrete_gaussian import DiscreteGaussian
from countveil.mechanisms.discrete_laplace import DiscreteLaplace
from countveil.mechanisms.law import Mechanism

MECHANISMS: dict[str, Callable[..., Mechanism]] = {
    DiscreteGaussian.name: DiscreteGaussian,
    DiscreteLaplace.name: DiscreteLaplace,
}


def from_parameters(name: str, parameters: dict[str, str]) -> Mechanism:
    """Build a mechanism from what a manifest says of it."""
    if name not in MECHANISMS:
        raise InputError(f"no mechanism {name!r}; choose from {', '.join(MECHANISMS)}")
    return MECHANISMS[name](**parameters)
