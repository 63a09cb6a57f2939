"""BESIDE PUBLIC INFORMATION (paper 003): what dependence on it does to sensitivity."""

from countveil.congenial.delta_z import delta_z
from countveil.congenial.wasserstein import infinity_distance

__all__ = ["delta_z", "infinity_distance"]
