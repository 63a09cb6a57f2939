"""Table SA1 of paper 001, draw for draw: as printed, and with its arguments really applied.

The authors' function ignored the bandwidth and the percentile it was given: panels (b) and (c) as
printed are the same estimate again and again. Their noise is the difference of two geometric draws with
parameter epsilon/2, here from NumPy's old generator, to meet the digits: nothing of it is released.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from countveil.assess.empirical_loss.kde import kde
from countveil.errors import InputError
from countveil.numerics import IntArray

Panel = Literal["a", "b", "c"]
Arguments = Literal["ignored", "applied"]

DISTRICTS = 2_663
SEED = 123_435

EPSILONS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
BANDWIDTHS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
PERCENTILES = (75.0, 85.0, 95.0, 99.0, 99.9)


@dataclass(frozen=True, slots=True)
class Row:
    """One row: the value of its parameter, and mean and 95 % range of the loss over replicates.

    Mean and range are none where the density vanishes.
    """

    parameter: float
    mean: float | None
    low: float | None
    high: float | None


def table_sa1(
    panel: Panel, *, arguments: Arguments = "applied", replicates: int = 100
) -> list[Row]:
    """Return a panel: (a) by epsilon, (b) by bandwidth, (c) by percentile.

    "ignored" repeats the authors' slip and gives the printed digits; "applied" is what the table says
    it shows. Rows continue one stream of random numbers, so that fewer replicates give other digits.
    """
    if arguments not in ("ignored", "applied"):
        raise InputError(f'arguments: {arguments!r} is not known; choose "ignored" or "applied"')
    chosen = {"a": EPSILONS, "b": BANDWIDTHS, "c": PERCENTILES}
    if panel not in chosen:
        raise InputError(f'panel: {panel!r} is not known; choose "a", "b" or "c"')
    stream = np.random.RandomState(SEED)
    rows = []
    for parameter in chosen[panel]:
        epsilon = parameter if panel == "a" else 0.25
        bandwidth = parameter if (panel, arguments) == ("b", "applied") else 0.1
        percentile = parameter if (panel, arguments) == ("c", "applied") else 95.0
        values = [
            kde(geometric_noise(stream, epsilon), bandwidth=bandwidth, percentile=percentile).value
            for _ in range(replicates)
        ]
        rows.append(_row(parameter, np.array(values)))
    return rows


def geometric_noise(
    stream: np.random.RandomState, epsilon: float, size: int = DISTRICTS
) -> IntArray:
    """Return the authors' noise, whose loss is -log(1 - epsilon/2)."""
    first = stream.geometric(epsilon / 2, size)
    noise: IntArray = first - stream.geometric(epsilon / 2, size)
    return noise


def _row(parameter: float, values: np.ndarray) -> Row:
    if not np.isfinite(values).all():
        return Row(parameter, None, None, None)
    low, high = np.percentile(values, [2.5, 97.5])
    return Row(parameter, float(values.mean()), float(low), float(high))
