"""Risk after post-processing, in closed form: the illustration of the supplement (S6)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from countveil.assess.decision import sigmoid
from countveil.assess.intruder import Intruder
from countveil.assess.level import Level
from countveil.assess.probability import expectation
from countveil.assess.risk import Risk
from countveil.assess.summed_noise import Addition, SummedNoise, half_width
from countveil.errors import InputError
from countveil.numerics import FloatArray

Rounding = Literal["half even", "half up"]


def illustrated_risk(
    low: Level,
    *,
    released_parent: int,
    parent: int,
    intruder: Intruder,
    siblings: Addition = "gaussian",
    rounding: Rounding = "half even",
) -> Risk:
    """Return R after the least squares of (S6.1), cut off at 0 and at the parent, and rounded.

    He knows everyone else in the unit, and the parent's true count; he sees its released count, taken
    as fixed, and his unit's post-processed count; the number is (S6.8) over his prior.
    """
    if low.siblings < 1:
        raise InputError("siblings: the illustration needs at least one")
    if released_parent < 0 or parent < intruder.known + intruder.rows:
        raise InputError("parent: counts are not negative, and the parent has the target")
    law = SummedNoise(low.noise, low.siblings, siblings)
    reach, spread = half_width(low.noise), half_width(law)
    there, away = intruder.known + intruder.rows, intruder.known
    x = np.arange(away - reach, there + reach + 1.0)
    y = np.arange(parent - there - spread, parent - away + spread + 1.0)
    rounded = _post_processed(x[:, None], y, low.siblings, released_parent, rounding)
    laws = []
    for count in (there, away):
        weights = np.exp(low.noise.log_pmf(x - count))[:, None]
        weights = weights * np.exp(law.log_pmf(y - (parent - count)))
        law_of = np.bincount(rounded.ravel().astype(np.int64), weights.ravel(), released_parent + 1)
        laws.append(law_of / law_of.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratio = np.log(laws[0]) - np.log(laws[1])
    possible = laws[0] > 0
    after = expectation(laws[0][possible], sigmoid(intruder.log_odds + log_ratio[possible]))
    return Risk("marginal risk", after / intruder.prior, posterior=after)


def _post_processed(
    x: FloatArray, y: FloatArray, siblings: int, parent: int, rounding: Rounding
) -> FloatArray:
    """Return f of (S6.3); sums of whole numbers are compared as such, so that halves are exact."""
    numerator, denominator = siblings * x + (parent - y), siblings + 1
    if rounding not in ("half even", "half up"):
        raise InputError(f'rounding: {rounding!r} is not known; choose "half even" or "half up"')
    down = np.floor_divide(numerator, denominator)
    twice = 2 * (numerator - down * denominator)
    up = twice > denominator
    if rounding == "half up":
        up |= twice == denominator
    else:
        up |= (twice == denominator) & (down % 2 == 1)
    whole = down + up
    # Beyond the ends it is the end; in between the nearest whole number may still be an end.
    whole = np.where(numerator < 0, 0, np.where(numerator > parent * denominator, parent, whole))
    return np.asarray(np.clip(whole, 0, parent), float)
