"""Several releases about the same cell: the posterior of one is the prior of the next (S5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from countveil.assess.decision import sigmoid
from countveil.assess.intruder import Intruder
from countveil.assess.risk import Risk
from countveil.errors import InputError
from countveil.mechanisms.law import Law


@dataclass(frozen=True, slots=True)
class Sequel:
    """The risk of each release given those before it, and of all together: their product (S5.8)."""

    each: tuple[float, ...]
    together: Risk


def sequential_risk(
    noises: Sequence[Law], *, observed: Sequence[int], intruder: Intruder
) -> Sequel:
    """Return R' of each release, and of all of them.

    He knows all others in the cell, at every release; he sees its noisy count each time; the numbers
    are posterior over prior, release by release.
    """
    if not noises or len(noises) != len(observed):
        raise InputError(
            f"observed: {len(observed)} counts for {len(noises)} releases; give one each"
        )
    if not intruder.certain:
        raise InputError("others: releases are composed for an intruder who knows all others")
    log_odds, before, each = intruder.log_odds, intruder.prior, []
    for noise, value in zip(noises, observed, strict=True):
        e = float(value) - intruder.known - intruder.rows
        log_odds += float(noise.loss_at(e, intruder.rows))
        after = float(sigmoid(np.asarray(log_odds)))
        each.append(after / before if before > 0 else 1.0)
        before = after
    return Sequel(tuple(each), Risk("disclosure risk", before / intruder.prior, posterior=before))
