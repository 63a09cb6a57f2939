"""INFER: what a release says of the counts, and of the rates behind them (paper 003)."""

from countveil.infer.area_files import NamedAreas, read_areas
from countveil.infer.areas import AreaEstimate, AreaEstimates
from countveil.infer.beta_binomial import BetaBinomial
from countveil.infer.case_rates import CaseRates
from countveil.infer.contrasts import Contrast, difference, ratio, share
from countveil.infer.death_rates import DeathRates
from countveil.infer.gamma_poisson import GammaPoisson
from countveil.infer.methods import posterior
from countveil.infer.mixture import Mixture
from countveil.infer.model import Model
from countveil.infer.one_cell import CellPosterior, cell_posterior
from countveil.infer.one_sided import Power, RateTest, test_at_most
from countveil.infer.public_denominators import Rates, rates
from countveil.infer.public_facts import PublicFacts
from countveil.infer.rank_intervals import Ranking, ranking
from countveil.infer.replicates import replicates
from countveil.infer.result import Posterior
from countveil.infer.shares import DirichletMultinomialShares
from countveil.infer.small_areas import SmallAreaRates
from countveil.infer.spread import Replicates
from countveil.infer.two_pass import LeastSquares, UnitEstimates, least_squares
from countveil.infer.two_releases import Change, change

__all__ = [
    "AreaEstimate",
    "AreaEstimates",
    "BetaBinomial",
    "CaseRates",
    "CellPosterior",
    "Change",
    "Contrast",
    "DeathRates",
    "DirichletMultinomialShares",
    "GammaPoisson",
    "LeastSquares",
    "Mixture",
    "Model",
    "NamedAreas",
    "Posterior",
    "Power",
    "PublicFacts",
    "Ranking",
    "RateTest",
    "Rates",
    "Replicates",
    "SmallAreaRates",
    "UnitEstimates",
    "cell_posterior",
    "change",
    "difference",
    "least_squares",
    "posterior",
    "ranking",
    "rates",
    "ratio",
    "read_areas",
    "replicates",
    "share",
    "test_at_most",
]
