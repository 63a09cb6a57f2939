"""The laws and mechanisms that every law test runs over; a newcomer is tested by being listed."""

from countveil.mechanisms.continuous import Gaussian, Laplace
from countveil.mechanisms.discrete_gaussian import DiscreteGaussian
from countveil.mechanisms.discrete_laplace import DiscreteLaplace
from countveil.mechanisms.registry import MECHANISMS

EXAMPLES = {
    DiscreteGaussian.name: [
        DiscreteGaussian("1/10"),
        DiscreteGaussian("1"),
        DiscreteGaussian("500/99"),
        DiscreteGaussian("5000"),
    ],
    DiscreteLaplace.name: [
        DiscreteLaplace("1/4"),
        DiscreteLaplace("2"),
        DiscreteLaplace("20"),
        DiscreteLaplace(epsilon="1/100"),
    ],
}
assert set(EXAMPLES) == set(MECHANISMS), "a registered mechanism has no examples to be tested on"

MECHANISM_CASES = [mechanism for some in EXAMPLES.values() for mechanism in some]
LAW_CASES = [*MECHANISM_CASES, Laplace(1), Laplace(0.05), Gaussian(2), Gaussian(0.4)]


def reach(mechanism: object) -> int:
    """How far out to sum: the rest is below 1e-30."""
    return int(60 * max(1.0, mechanism.variance**0.5)) + 60  # type: ignore[attr-defined]
