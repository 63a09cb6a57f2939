"""The homogeneity attack (paper 004): cells whose people all show the same sensitive value."""

from countveil.assess.homogeneity.average_risk import MEASURES, METHODS, Measure
from countveil.assess.homogeneity.cell_risk import Scenarios, scenarios
from countveil.assess.homogeneity.dirichlet import by_likelihood, by_moments
from countveil.assess.homogeneity.epsilon_limit import largest_epsilon
from countveil.assess.homogeneity.label_splits import Dirichlet
from countveil.assess.homogeneity.measures import (
    HomogeneityRisk,
    curve,
    expected_risk,
    local_risk,
    marginal_risk,
    marginal_shrinkage_risk,
    risk_of,
    shrinkage_risk,
)
from countveil.assess.homogeneity.sensitive_table import Table, classify
from countveil.assess.homogeneity.sizes import (
    Sizes,
    fit_negative_binomial,
    fit_poisson,
    negative_binomial,
    plain_poisson,
    truncated_poisson,
)

__all__ = [
    "MEASURES",
    "METHODS",
    "Dirichlet",
    "HomogeneityRisk",
    "Measure",
    "Scenarios",
    "Sizes",
    "Table",
    "by_likelihood",
    "by_moments",
    "classify",
    "curve",
    "expected_risk",
    "fit_negative_binomial",
    "fit_poisson",
    "largest_epsilon",
    "local_risk",
    "marginal_risk",
    "marginal_shrinkage_risk",
    "negative_binomial",
    "plain_poisson",
    "risk_of",
    "scenarios",
    "shrinkage_risk",
    "truncated_poisson",
]
