"""Liu and Zhao (paper 004): the homogeneity attack on noisy tables."""

from countveil.papers.liu_zhao.marginal_distances import Distances, distances, frontier
from countveil.papers.liu_zhao.several_attributes import (
    AttributeRelease,
    CumulativeRisk,
    EpsilonDelta,
    Publication,
    advanced,
    basic,
    concentrated,
    horizontal,
    mixed,
    overall,
    sequential,
    vertical,
)
from countveil.papers.liu_zhao.thresholding import hard_thresholding, soft_thresholding

__all__ = [
    "AttributeRelease",
    "CumulativeRisk",
    "Distances",
    "EpsilonDelta",
    "Publication",
    "advanced",
    "basic",
    "concentrated",
    "distances",
    "frontier",
    "hard_thresholding",
    "horizontal",
    "mixed",
    "overall",
    "sequential",
    "soft_thresholding",
    "vertical",
]
