"""How likely a noisy count is kept, that is rounds to 1 or more, and how likely it is dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from countveil.errors import InputError
from countveil.mechanisms.law import Law
from countveil.numerics import Array, FloatArray, IntArray


@dataclass(frozen=True, eq=False, slots=True)
class Keeping:
    """u(n) = P(n + noise >= ½) and 1 - u(n), both with full precision: laws × `counts`, in order."""

    counts: IntArray
    kept: FloatArray
    dropped: FloatArray

    def columns(self, counts: Array) -> IntArray:
        """Return where counts are found."""
        return np.searchsorted(self.counts, counts)

    def told(self, *, share: bool) -> FloatArray:
        """Return what a kept label tells: u(n) if anyone has it, or n u(n) with `share`."""
        return self.kept * (self.counts if share else self.counts > 0)


def keeping(laws: Sequence[Law], counts: Array) -> Keeping:
    """Evaluate every law at every count, given in rising order."""
    refuse_other_than_laws(laws)
    # An integer law has no mass between 1/2 - n and 1 - n, so this serves both kinds.
    at = 0.5 - np.asarray(counts, np.float64)
    kept, dropped = np.empty((len(laws), len(at))), np.empty((len(laws), len(at)))
    for number, law in enumerate(laws):
        kept[number], dropped[number] = law.survival(at), law.cdf(at)
    return Keeping(np.asarray(counts, np.int64), kept, dropped)


def refuse_other_than_laws(laws: Sequence[object]) -> None:
    """Refuse what is not noise."""
    if not laws:
        raise InputError("mechanisms: none came; give at least one, such as Laplace(epsilon=1)")
    for law in laws:
        if isinstance(law, type) or not isinstance(law, Law):
            raise InputError(
                f"mechanism: {law!r} is not noise; give a law, such as Laplace(epsilon=1), "
                f"Gaussian(sigma=2) or DiscreteLaplace(epsilon=1)"
            )
