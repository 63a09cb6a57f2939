"""BESIDE PUBLIC INFORMATION (paper 003): what is public, what guarantee remains, and exact releases."""

from countveil.congenial.base_measure import DirichletMultinomial
from countveil.congenial.composition import compose
from countveil.congenial.dependence import delta_z
from countveil.congenial.enumeration import conditioned, realised_divergence, realised_loss
from countveil.congenial.gaussian_example import GaussianMean, gaussian_mean
from countveil.congenial.guarantee import PartialPrivacy, PartialZCDP, Theta
from countveil.congenial.k_norm import KNormGradient
from countveil.congenial.loss_sensitivity import (
    SensitivityComparison,
    compare_sensitivity,
    sensitivity,
)
from countveil.congenial.public_information import (
    AtMost,
    Dependence,
    FixedTotal,
    FixedTotals,
    JointLaw,
    KAnonymity,
    PreviousCounts,
    TCloseness,
)
from countveil.congenial.remaining_pairs import (
    CellPairs,
    Secret,
    SecretPairs,
    cell_pairs,
    secret_pairs,
)
from countveil.congenial.semantics import (
    largest_shift,
    odds_bounds,
    posterior_to_posterior,
    printed_posterior_to_posterior,
)
from countveil.congenial.transport import infinity_distance
from countveil.congenial.wasserstein_mechanism import Wasserstein

__all__ = [
    "AtMost",
    "CellPairs",
    "Dependence",
    "DirichletMultinomial",
    "FixedTotal",
    "FixedTotals",
    "GaussianMean",
    "JointLaw",
    "KAnonymity",
    "KNormGradient",
    "PartialPrivacy",
    "PartialZCDP",
    "PreviousCounts",
    "Secret",
    "SecretPairs",
    "SensitivityComparison",
    "TCloseness",
    "Theta",
    "Wasserstein",
    "cell_pairs",
    "compare_sensitivity",
    "compose",
    "conditioned",
    "delta_z",
    "gaussian_mean",
    "infinity_distance",
    "largest_shift",
    "odds_bounds",
    "posterior_to_posterior",
    "printed_posterior_to_posterior",
    "realised_divergence",
    "realised_loss",
    "secret_pairs",
    "sensitivity",
]
