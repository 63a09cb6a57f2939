"""Several releases about the same cell: the posterior of one is the prior of the next (S5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from countveil.assess.intruder.decision import sigmoid
from countveil.assess.intruder.prior_knowledge import Intruder
from countveil.assess.risk import Risk
from countveil.errors import InputError
from countveil.noise.law import Law


@dataclass(frozen=True, slots=True)
class Sequel:
    """The risk of each release given those before it, and of all together: their product (S5.8)."""

    each: tuple[float, ...]
    together: Risk


def sequential_risk(
    noises: Sequence[Law], *, observed: Sequence[int], intruder: Intruder
) -> Sequel:
    """Return the disclosure risk R' of each of several releases, and of all of them together.

    The intruder knows everyone else in the cell, at every release, and sees its noisy count each time.
    The numbers are posterior over prior, release by release.

    Parameters
    ----------
    noises : sequence of Law
        The noise of each release.
    observed : sequence of int
        The count that each release shows.
    intruder : Intruder
        Who sees them; they must know all others.

    Returns
    -------
    Sequel
        `each`, the factor by which each release changes the probability that the target is counted, and
        `together`, the risk of all releases.

    Examples
    --------
    >>> from countveil import DiscreteLaplace
    >>> law = DiscreteLaplace(epsilon=1)
    >>> sequel = sequential_risk([law, law], observed=[1, 1], intruder=Intruder(prior=0.5))
    >>> [round(factor, 3) for factor in sequel.each], round(sequel.together.value, 3)
    ([1.462, 1.205], 1.762)
    """
    if not noises or len(noises) != len(observed):
        raise InputError(
            f"observed: got {len(observed)} counts for {len(noises)} releases; give one for each"
        )
    if not intruder.certain:
        raise InputError(
            "others: several releases are only assessed for an intruder who knows everyone else; "
            "leave out others, at_least and at_most"
        )
    log_odds, before, each = intruder.log_odds, intruder.prior, []
    for noise, value in zip(noises, observed, strict=True):
        e = float(value) - intruder.known - intruder.rows
        log_odds += float(noise.loss_at(e, intruder.rows))
        after = float(sigmoid(np.asarray(log_odds)))
        each.append(after / before if before > 0 else 1.0)
        before = after
    together = Risk(
        "disclosure risk",
        before / intruder.prior,
        posterior=before,
        intruder=intruder,
        noise=tuple(noises),
    )
    return Sequel(tuple(each), together)
