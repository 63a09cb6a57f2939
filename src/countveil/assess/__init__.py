"""WHAT IT DISCLOSES: what an intruder can still learn from a release."""

from countveil.assess.intruder import Intruder
from countveil.assess.one_level import correct_decision, disclosure_risk, marginal_risk, posterior
from countveil.assess.plan_error import expected_error
from countveil.assess.release_error import accuracy
from countveil.assess.risk import Risk

__all__ = [
    "Intruder",
    "Risk",
    "accuracy",
    "correct_decision",
    "disclosure_risk",
    "expected_error",
    "marginal_risk",
    "posterior",
]
