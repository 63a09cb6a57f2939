"""Release counts behind a veil of noise, and measure what still shows through."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from countveil import assess, congenial, infer, measure, postprocess
    from countveil.assess.intruder import Intruder
    from countveil.engines.registry import open_engine
    from countveil.mechanisms.continuous import Gaussian, Laplace
    from countveil.mechanisms.discrete_gaussian import DiscreteGaussian
    from countveil.mechanisms.discrete_laplace import DiscreteLaplace
    from countveil.privacy.costs import ZCDP, ApproxDP, PureDP
    from countveil.privacy.ledger import Ledger
    from countveil.randomness import Secure, Seeded
    from countveil.release import Release
    from countveil.schema.plan import Plan

# Loaded when first used, so that `countveil --help` and small scripts start at once.
_HOMES = {
    "ApproxDP": "countveil.privacy.costs",
    "DiscreteGaussian": "countveil.mechanisms.discrete_gaussian",
    "DiscreteLaplace": "countveil.mechanisms.discrete_laplace",
    "Gaussian": "countveil.mechanisms.continuous",
    "Intruder": "countveil.assess.intruder",
    "Laplace": "countveil.mechanisms.continuous",
    "Ledger": "countveil.privacy.ledger",
    "Plan": "countveil.schema.plan",
    "PureDP": "countveil.privacy.costs",
    "Release": "countveil.release",
    "Secure": "countveil.randomness",
    "Seeded": "countveil.randomness",
    "ZCDP": "countveil.privacy.costs",
    "open_engine": "countveil.engines.registry",
}

__all__ = [
    "ZCDP",
    "ApproxDP",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Gaussian",
    "Intruder",
    "Laplace",
    "Ledger",
    "Plan",
    "PureDP",
    "Release",
    "Secure",
    "Seeded",
    "assess",
    "congenial",
    "infer",
    "measure",
    "open_engine",
    "postprocess",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in __all__:
        return import_module(f"countveil.{name}")
    raise AttributeError(f"module 'countveil' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
