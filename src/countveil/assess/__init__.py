"""WHAT IT DISCLOSES: what an intruder can still learn from a release."""

from countveil.assess import attacks, choose, hierarchy
from countveil.assess.decision import Losses, decide
from countveil.assess.intruder import Intruder
from countveil.assess.level import Level
from countveil.assess.one_level import (
    correct_decision,
    disclosure_risk,
    exceedance,
    expected_exceedances,
    marginal_risk,
    posterior,
)
from countveil.assess.parent_prior import Exactly, Flat, Pmf, SiblingsPoisson, UpTo
from countveil.assess.plan_error import expected_error
from countveil.assess.release_error import accuracy
from countveil.assess.risk import Risk

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
    "accuracy",
    "attacks",
    "choose",
    "correct_decision",
    "decide",
    "disclosure_risk",
    "exceedance",
    "expected_error",
    "expected_exceedances",
    "hierarchy",
    "marginal_risk",
    "posterior",
]
