"""The laws and mechanisms that every law test runs over; a newcomer is tested by being listed."""

from countveil.noise.continuous import Gaussian, Laplace
from countveil.noise.discrete_gaussian import DiscreteGaussian
from countveil.noise.discrete_laplace import DiscreteLaplace
from countveil.noise.mechanisms import MECHANISMS
from tests.laws.documented_code import documented_mechanism

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

DOCUMENTED = documented_mechanism()  # the one that the documentation builds
MECHANISM_CASES = [
    *(mechanism for examples in EXAMPLES.values() for mechanism in examples),
    *map(DOCUMENTED, ("1", "8", "200")),
]
LAW_CASES = [*MECHANISM_CASES, Laplace(1), Laplace(0.05), Gaussian(2), Gaussian(0.4)]


def reach(mechanism: object) -> int:
    """Return how far out to sum: beyond lies less than 1e-30."""
    return int(60 * max(1.0, mechanism.variance**0.5)) + 60  # type: ignore[attr-defined]
