"""Any noise, as it appears in counts rounded to whole numbers: a law on the integers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from countveil.assess.homogeneity.cell_risk import refuse_other_than_laws
from countveil.base.numerics import FloatArray, IntArray
from countveil.base.randomness import BitSource
from countveil.errors import InputError
from countveil.noise.law import Law

_TAIL = 1e-17
_WIDEST = 1 << 22


@dataclass(frozen=True, eq=False, slots=True)
class RoundedNoise:
    """P(noise rounds to k) and P(it rounds to less), k = -reach … reach; halves round up."""

    reach: int
    at: FloatArray
    below: FloatArray

    def sample(self, size: int, *, rng: BitSource) -> IntArray:
        """Draw by inversion of a uniform number of 53 bits, which is enough for a simulation."""
        rng.begin(size)
        words = rng.deepen(np.arange(size), 0) >> np.uint64(11)
        uniform = words.astype(np.float64) * 2.0**-53
        return np.searchsorted(self.below, uniform, side="right") - 1 - self.reach


def round_noise(law: Law) -> RoundedNoise:
    """Tabulate a law, up to where less than 1e-17 remains on either side."""
    refuse_other_than_laws([law])
    reach = 1
    while max(float(law.survival(reach + 0.5)), float(law.cdf(-reach - 0.5))) > _TAIL:
        reach *= 2
        if reach > _WIDEST:
            raise InputError(
                f"mechanism: {law!r} is too wide; at most {_WIDEST:,} values on either side "
                f"are supported; use less noise"
            )
    edges = np.arange(-reach, reach + 1) - 0.5
    below = np.asarray(law.cdf(edges))
    below[0] = 0.0
    return RoundedNoise(reach, np.diff(below, append=1.0), below)
