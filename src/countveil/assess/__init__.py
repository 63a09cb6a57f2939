"""WHAT IT DISCLOSES: what an intruder can still learn from a release."""

from countveil.assess.intruder import Intruder
from countveil.assess.one_level import correct_decision, disclosure_risk, marginal_risk, posterior
from countveil.assess.risk import Risk

__all__ = [
    "Intruder",
    "Risk",
    "correct_decision",
    "disclosure_risk",
    "marginal_risk",
    "posterior",
]
