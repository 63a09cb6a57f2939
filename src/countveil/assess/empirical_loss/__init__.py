"""Empirical privacy loss (paper 001): what residuals say of it, with intervals, bounds and audits."""

from countveil.assess.empirical_loss.audit import Audit, audit, audit_noise
from countveil.assess.empirical_loss.bias import Bias, bias
from countveil.assess.empirical_loss.brute_force import ExactLoss, brute_force
from countveil.assess.empirical_loss.demonstrations import (
    invariant_total,
    parallel,
    totals_and_strata,
)
from countveil.assess.empirical_loss.exchangeability import Exchangeability, exchangeability
from countveil.assess.empirical_loss.geometric import GeometricFit, geometric
from countveil.assess.empirical_loss.groups import Tallies, of_columns, of_release
from countveil.assess.empirical_loss.kde import EmpiricalLoss, kde
from countveil.assess.empirical_loss.paper_table import table_sa1
from countveil.assess.empirical_loss.residuals import Residuals
from countveil.assess.empirical_loss.tail_ratio import TailRatio, tail_ratio

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
    "invariant_total",
    "kde",
    "of_columns",
    "of_release",
    "parallel",
    "table_sa1",
    "tail_ratio",
    "totals_and_strata",
]
