"""The largest budget within a limit on risk, or the smallest for an accuracy."""

from countveil.assess.choose.budget_for_risk import (
    epsilon_for_profile,
    largest_epsilon,
    largest_rho,
    safe_rho,
)
from countveil.assess.choose.plan_budget import (
    AccuracyTarget,
    ChosenPlan,
    within_accuracy,
    within_risk,
)

__all__ = [
    "AccuracyTarget",
    "ChosenPlan",
    "epsilon_for_profile",
    "largest_epsilon",
    "largest_rho",
    "safe_rho",
    "within_accuracy",
    "within_risk",
]
