"""Charts: each takes a result and returns a chart with its description, caption and numbers."""

from countveil.report.charts.attack_on_groups import frontier, homogeneity_by_epsilon
from countveil.report.charts.boxes import replicates
from countveil.report.charts.budget_axis import decision_by_rho, risk_and_error, risk_by_rho
from countveil.report.charts.chart import Chart
from countveil.report.charts.decisions import decision_map, decision_map_two_levels
from countveil.report.charts.dots import two_hundred_intruders
from countveil.report.charts.error_bars import areas_with_intervals, error_by_level
from countveil.report.charts.exact_against_released import (
    error_by_size,
    exact_and_released,
    residuals,
)
from countveil.report.charts.groups_shown import uniform_groups
from countveil.report.charts.interval_coverage import coverage
from countveil.report.charts.level_charts import risk_by_level, risk_by_levels_known
from countveil.report.charts.loss_curve import loss_of_residuals
from countveil.report.charts.released_value import posterior
from countveil.report.charts.risk_by_place import places_of, risk_map
from countveil.report.charts.split_lines import two_splits
from countveil.report.charts.theme import MOST_SERIES
from countveil.report.charts.tiles import budget_allocation, expected_error

__all__ = [
    "MOST_SERIES",
    "Chart",
    "areas_with_intervals",
    "budget_allocation",
    "coverage",
    "decision_by_rho",
    "decision_map",
    "decision_map_two_levels",
    "error_by_level",
    "error_by_size",
    "exact_and_released",
    "expected_error",
    "frontier",
    "homogeneity_by_epsilon",
    "loss_of_residuals",
    "places_of",
    "posterior",
    "replicates",
    "residuals",
    "risk_and_error",
    "risk_by_level",
    "risk_by_levels_known",
    "risk_by_rho",
    "risk_map",
    "two_hundred_intruders",
    "two_splits",
    "uniform_groups",
]
