"""The homogeneity attack (paper 004): cells whose people all show the same sensitive value."""

from countveil.assess.homogeneity.averages import MEASURES, METHODS, Measure
from countveil.assess.homogeneity.cells import Scenarios, scenarios
from countveil.assess.homogeneity.choose import largest_epsilon
from countveil.assess.homogeneity.dirichlet import by_likelihood, by_moments, printed_moments
from countveil.assess.homogeneity.losses import Loss, advanced, basic, concentrated
from countveil.assess.homogeneity.measures import (
    HomogeneityRisk,
    curve,
    expected,
    local,
    marginal,
    marginal_shrinkage,
    measured,
    shrinkage,
)
from countveil.assess.homogeneity.several import (
    Grown,
    Publication,
    Release,
    horizontal,
    mixed,
    overall,
    sequential,
    vertical,
)
from countveil.assess.homogeneity.sizes import (
    Sizes,
    fit_negative_binomial,
    fit_poisson,
    negative_binomial,
    plain_poisson,
    truncated_poisson,
)
from countveil.assess.homogeneity.splits import Dirichlet
from countveil.assess.homogeneity.table import Table, classify
from countveil.assess.homogeneity.thresholding import hard_thresholding, soft_thresholding
from countveil.assess.homogeneity.utility import Distances, distances, frontier

__all__ = [
    "MEASURES",
    "METHODS",
    "Dirichlet",
    "Distances",
    "Grown",
    "HomogeneityRisk",
    "Loss",
    "Measure",
    "Publication",
    "Release",
    "Scenarios",
    "Sizes",
    "Table",
    "advanced",
    "basic",
    "by_likelihood",
    "by_moments",
    "classify",
    "concentrated",
    "curve",
    "distances",
    "expected",
    "fit_negative_binomial",
    "fit_poisson",
    "frontier",
    "hard_thresholding",
    "horizontal",
    "largest_epsilon",
    "local",
    "marginal",
    "marginal_shrinkage",
    "measured",
    "mixed",
    "negative_binomial",
    "overall",
    "plain_poisson",
    "printed_moments",
    "scenarios",
    "sequential",
    "shrinkage",
    "soft_thresholding",
    "truncated_poisson",
    "vertical",
]
