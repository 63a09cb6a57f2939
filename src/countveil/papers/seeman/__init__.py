"""Seeman, Reimherr and Slavkovic (paper 003): privacy given public information."""

from countveil.papers.seeman.enumerated_loss import (
    conditioned,
    realised_divergence,
    realised_loss,
)
from countveil.papers.seeman.gaussian_example import GaussianMean, gaussian_mean
from countveil.papers.seeman.one_sided_test import Power, RateTest, test_at_most
from countveil.papers.seeman.remaining_pairs import (
    CellPair,
    CellPairs,
    SecretPair,
    SecretPairs,
    ValueSecret,
    cell_pairs,
    secret_pairs,
)
from countveil.papers.seeman.wasserstein_distance import delta_z, infinity_distance

__all__ = [
    "CellPair",
    "CellPairs",
    "GaussianMean",
    "Power",
    "RateTest",
    "SecretPair",
    "SecretPairs",
    "ValueSecret",
    "cell_pairs",
    "conditioned",
    "delta_z",
    "gaussian_mean",
    "infinity_distance",
    "realised_divergence",
    "realised_loss",
    "secret_pairs",
    "test_at_most",
]
