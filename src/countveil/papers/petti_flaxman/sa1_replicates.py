"""Table SA1 of paper 001, draw for draw: as printed, and with its arguments actually applied.

The authors' function ignored its arguments for bandwidth and percentile, so panels (b) and (c) as
printed repeat one estimate. Their noise is the difference of two geometric draws with parameter
epsilon/2, here from NumPy's legacy generator to match the digits; none of it is released.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from countveil.assess.empirical_loss.smoothed_density import kde
from countveil.base.numerics import IntArray
from countveil.errors import InputError

TablePanel = Literal["a", "b", "c"]
Arguments = Literal["ignored", "applied"]

DISTRICTS = 2_663
SEED = 123_435

EPSILONS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
BANDWIDTHS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
PERCENTILES = (75.0, 85.0, 95.0, 99.0, 99.9)


@dataclass(frozen=True, slots=True)
class LossRange:
    """One row of the table: mean and 95 % range of the empirical loss over replicates.

    Parameters
    ----------
    parameter
        The value of the panel's parameter.
    mean, low, high
        The mean and the range; None where the density vanishes.
    """

    parameter: float
    mean: float | None
    low: float | None
    high: float | None


def table_sa1(
    panel: TablePanel, *, arguments: Arguments = "applied", replicates: int = 100
) -> list[LossRange]:
    """Return a panel of Table SA1.

    Parameters
    ----------
    panel
        "a" varies epsilon, "b" the bandwidth, "c" the percentile.
    arguments
        "ignored" repeats the authors' mistake and gives the printed digits; "applied" is what the table
        claims to show.
    replicates
        Draws per row. Rows continue one stream of random numbers, so another number of replicates
        gives other digits.

    Returns
    -------
    list of LossRange
        The rows.
    """
    if arguments not in ("ignored", "applied"):
        raise InputError(f'arguments: unknown value {arguments!r}; choose "ignored" or "applied"')
    parameters = {"a": EPSILONS, "b": BANDWIDTHS, "c": PERCENTILES}
    if panel not in parameters:
        raise InputError(f'panel: unknown panel {panel!r}; choose "a", "b" or "c"')
    stream = np.random.RandomState(SEED)
    rows = []
    for parameter in parameters[panel]:
        epsilon = parameter if panel == "a" else 0.25
        bandwidth = parameter if (panel, arguments) == ("b", "applied") else 0.1
        percentile = parameter if (panel, arguments) == ("c", "applied") else 95.0
        values = [
            kde(geometric_noise(stream, epsilon), bandwidth=bandwidth, percentile=percentile).value
            for _ in range(replicates)
        ]
        rows.append(_loss_range(parameter, np.array(values)))
    return rows


def geometric_noise(
    stream: np.random.RandomState, epsilon: float, size: int = DISTRICTS
) -> IntArray:
    """Return the authors' noise, whose loss is -log(1 - epsilon/2)."""
    first = stream.geometric(epsilon / 2, size)
    noise: IntArray = first - stream.geometric(epsilon / 2, size)
    return noise


def _loss_range(parameter: float, values: np.ndarray) -> LossRange:
    if not np.isfinite(values).all():
        return LossRange(parameter, None, None, None)
    low, high = np.percentile(values, [2.5, 97.5])
    return LossRange(parameter, float(values.mean()), float(low), float(high))
