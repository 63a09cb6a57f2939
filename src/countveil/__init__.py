"""Release counts behind a veil of noise, and measure what still shows through."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from countveil import assess, congenial, estimate, measure, postprocess
    from countveil.assess.intruder.prior_knowledge import Intruder
    from countveil.base.randomness import Secure, Seeded
    from countveil.engines.engine import open_engine
    from countveil.noise.continuous import Gaussian, Laplace
    from countveil.noise.discrete_gaussian import DiscreteGaussian
    from countveil.noise.discrete_laplace import DiscreteLaplace
    from countveil.pipeline import release
    from countveil.plan.accuracy_target import Target
    from countveil.plan.one_table_plan import OneTablePlan
    from countveil.plan.plans import Plan
    from countveil.privacy.costs import ZCDP, ApproxDP, PureDP
    from countveil.privacy.ledger import Ledger
    from countveil.publish.release_folder import Release, TableRelease, open_release

# Loaded when first used, so that `countveil --help` and small scripts start at once.
_HOMES = {
    "ApproxDP": "countveil.privacy.costs",
    "DiscreteGaussian": "countveil.noise.discrete_gaussian",
    "DiscreteLaplace": "countveil.noise.discrete_laplace",
    "Gaussian": "countveil.noise.continuous",
    "Intruder": "countveil.assess.intruder.prior_knowledge",
    "Laplace": "countveil.noise.continuous",
    "Ledger": "countveil.privacy.ledger",
    "Plan": "countveil.plan.plans",
    "PureDP": "countveil.privacy.costs",
    "OneTablePlan": "countveil.plan.one_table_plan",
    "Release": "countveil.publish",
    "Secure": "countveil.base.randomness",
    "Seeded": "countveil.base.randomness",
    "TableRelease": "countveil.publish",
    "Target": "countveil.plan.accuracy_target",
    "ZCDP": "countveil.privacy.costs",
    "open_engine": "countveil.engines.engine",
    "open_release": "countveil.publish",
    "release": "countveil.pipeline",
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
    "OneTablePlan",
    "Plan",
    "PureDP",
    "Release",
    "Secure",
    "Seeded",
    "TableRelease",
    "Target",
    "assess",
    "congenial",
    "estimate",
    "measure",
    "open_engine",
    "open_release",
    "postprocess",
    "release",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in __all__:
        return import_module(f"countveil.{name}")
    raise AttributeError(f"module 'countveil' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
