"""WHAT MAY BE CONCLUDED: unbiased estimates, their errors and intervals, for units and areas."""

from countveil.estimate.area_files import NamedAreas, read_areas
from countveil.estimate.area_rates import Rates, rates
from countveil.estimate.areas import AreaEstimate, AreaEstimates
from countveil.estimate.contrasts import Contrast, difference, ratio, share
from countveil.estimate.one_cell import CellPosterior, cell_posterior
from countveil.estimate.plan_error import expected_error
from countveil.estimate.rank_intervals import Ranking, ranking
from countveil.estimate.release_error import accuracy
from countveil.estimate.replication.replicate_errors import Replicates
from countveil.estimate.replication.replicate_release import replicates
from countveil.estimate.two_releases import Change, change
from countveil.estimate.unbiased import LeastSquares, UnitEstimates, least_squares

__all__ = [
    "AreaEstimate",
    "AreaEstimates",
    "CellPosterior",
    "Change",
    "Contrast",
    "LeastSquares",
    "NamedAreas",
    "Ranking",
    "Rates",
    "Replicates",
    "UnitEstimates",
    "accuracy",
    "cell_posterior",
    "change",
    "difference",
    "expected_error",
    "least_squares",
    "ranking",
    "rates",
    "ratio",
    "read_areas",
    "replicates",
    "share",
]
