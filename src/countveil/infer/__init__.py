"""INFER: what a release says of the rates behind the counts, beside public information (paper 003)."""

from countveil.infer.beta_binomial import BetaBinomial
from countveil.infer.case_rates import CaseRates
from countveil.infer.death_rates import DeathRates
from countveil.infer.gamma_poisson import GammaPoisson
from countveil.infer.methods import posterior
from countveil.infer.mixture import Mixture
from countveil.infer.model import Model
from countveil.infer.one_sided import Power, RateTest, test_at_most
from countveil.infer.public_facts import PublicFacts
from countveil.infer.result import Posterior
from countveil.infer.shares import DirichletMultinomialShares
from countveil.infer.small_areas import SmallAreaRates

__all__ = [
    "BetaBinomial",
    "CaseRates",
    "DeathRates",
    "DirichletMultinomialShares",
    "GammaPoisson",
    "Mixture",
    "Model",
    "Posterior",
    "Power",
    "PublicFacts",
    "RateTest",
    "SmallAreaRates",
    "posterior",
    "test_at_most",
]
