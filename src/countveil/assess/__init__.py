"""WHAT IT DISCLOSES: what an intruder can still learn from a release."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from countveil.assess import choose
from countveil.assess.intruder import attacks, composition
from countveil.assess.intruder.decision import Losses, decide
from countveil.assess.intruder.one_level import (
    correct_decision,
    disclosure_risk,
    exceedance,
    expected_exceedances,
    marginal_risk,
    posterior,
)
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.intruder.several_levels import hierarchy
from countveil.assess.intruder.several_levels.hierarchy_level import (
    Exactly,
    Flat,
    Level,
    Pmf,
    SiblingsPoisson,
    UpTo,
)
from countveil.assess.risk import Risk

if TYPE_CHECKING:
    from countveil.assess import (
        comparison,
        empirical_loss,
        homogeneity,
        pricing,
        protection_comparison,
        protections,
        published,
        reconstruction,
        remaining_guarantee,
        risk_maps,
    )
    from countveil.assess.intruder.released_unit import unit_posterior
    from countveil.assess.intruder.whole_release import whole_release_risk
    from countveil.assess.published.tables_homogeneity import published_homogeneity
    from countveil.assess.published.tables_loss import published_loss
    from countveil.assess.published.tables_risk import published_risk

# Loaded when first used: they need more than the intruder does.
_LATER = (
    "comparison",
    "empirical_loss",
    "homogeneity",
    "pricing",
    "protection_comparison",
    "protections",
    "published",
    "reconstruction",
    "remaining_guarantee",
    "risk_maps",
)
_LATER_FUNCTIONS = {
    "published_homogeneity": "countveil.assess.published.tables_homogeneity",
    "published_loss": "countveil.assess.published.tables_loss",
    "published_risk": "countveil.assess.published.tables_risk",
    "unit_posterior": "countveil.assess.intruder.released_unit",
    "whole_release_risk": "countveil.assess.intruder.whole_release",
}

__all__ = [
    "Exactly",
    "Flat",
    "Intruder",
    "Level",
    "Losses",
    "Pmf",
    "Risk",
    "SiblingsPoisson",
    "UpTo",
    "attacks",
    "choose",
    "comparison",
    "composition",
    "correct_decision",
    "decide",
    "disclosure_risk",
    "empirical_loss",
    "exceedance",
    "expected_exceedances",
    "hierarchy",
    "homogeneity",
    "marginal_risk",
    "posterior",
    "pricing",
    "protection_comparison",
    "protections",
    "published",
    "published_homogeneity",
    "published_loss",
    "published_risk",
    "reconstruction",
    "remaining_guarantee",
    "risk_maps",
    "unit_posterior",
    "whole_release_risk",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return import_module(f"countveil.assess.{name}")
    if name in _LATER_FUNCTIONS:
        return getattr(import_module(_LATER_FUNCTIONS[name]), name)
    raise AttributeError(f"module 'countveil.assess' has no attribute {name!r}")
