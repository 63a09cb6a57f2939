"""Empirical privacy loss (paper 001): estimates from residuals, with intervals, bounds and audits."""

from countveil.assess.empirical_loss.estimator_bias import Bias, bias
from countveil.assess.empirical_loss.exhaustive_search import ExactLoss, brute_force
from countveil.assess.empirical_loss.residual_groups import (
    Exchangeability,
    Tallies,
    exchangeability,
    of_columns,
    of_release,
)
from countveil.assess.empirical_loss.residual_values import Residuals
from countveil.assess.empirical_loss.smoothed_density import EmpiricalLoss, kde
from countveil.assess.empirical_loss.tail_ratios import (
    GeometricFit,
    TailRatio,
    geometric,
    tail_ratio,
)
from countveil.assess.empirical_loss.two_database_audit import Audit, audit, audit_noise

__all__ = [
    "Audit",
    "Bias",
    "EmpiricalLoss",
    "ExactLoss",
    "Exchangeability",
    "GeometricFit",
    "Residuals",
    "TailRatio",
    "Tallies",
    "audit",
    "audit_noise",
    "bias",
    "brute_force",
    "exchangeability",
    "geometric",
    "kde",
    "of_columns",
    "of_release",
    "tail_ratio",
]
