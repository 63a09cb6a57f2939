"""COUNTS THAT AGREE WITH PUBLIC TOTALS (paper 003): exact releases, their guarantee, inference."""

from countveil.congenial.guarantee.partial_privacy import (
    PartialPrivacy,
    PartialZCDP,
    Theta,
    compose,
)
from countveil.congenial.guarantee.public_information import (
    AtMost,
    Dependence,
    FixedTotal,
    FixedTotals,
    JointLaw,
    KAnonymity,
    PreviousCounts,
    TCloseness,
)
from countveil.congenial.guarantee.semantics import (
    OddsBounds,
    largest_shift,
    odds_bounds,
    posterior_to_posterior,
    printed_posterior_to_posterior,
)
from countveil.congenial.inference.count_models import (
    BetaBinomial,
    CaseRates,
    DeathRates,
    DirichletMultinomialShares,
    GammaPoisson,
    Model,
    SmallAreaRates,
)
from countveil.congenial.inference.mixture import Mixture
from countveil.congenial.inference.posterior_methods import posterior
from countveil.congenial.inference.posterior_result import Posterior
from countveil.congenial.inference.public_sums import PublicSums
from countveil.congenial.mechanism.base_measure import DirichletMultinomial
from countveil.congenial.mechanism.k_norm import KNormGradient
from countveil.congenial.mechanism.loss_sensitivity import (
    SensitivityComparison,
    compare_sensitivity,
    sensitivity,
)
from countveil.congenial.mechanism.wasserstein import Wasserstein

__all__ = [
    "AtMost",
    "BetaBinomial",
    "CaseRates",
    "DeathRates",
    "Dependence",
    "DirichletMultinomial",
    "DirichletMultinomialShares",
    "FixedTotal",
    "FixedTotals",
    "GammaPoisson",
    "JointLaw",
    "KAnonymity",
    "KNormGradient",
    "Mixture",
    "Model",
    "OddsBounds",
    "PartialPrivacy",
    "PartialZCDP",
    "Posterior",
    "PreviousCounts",
    "PublicSums",
    "SensitivityComparison",
    "SmallAreaRates",
    "TCloseness",
    "Theta",
    "Wasserstein",
    "compare_sensitivity",
    "compose",
    "largest_shift",
    "odds_bounds",
    "posterior",
    "posterior_to_posterior",
    "printed_posterior_to_posterior",
    "sensitivity",
]
