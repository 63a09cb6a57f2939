"""How the intruder decides: by expected loss, with a rule for ties."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from countveil.base.numerics import Array, FloatArray
from countveil.errors import InputError

IMPOSSIBLE = "prior: it leaves no count possible, with the target or without; allow more counts"

_ROUNDING = 1e-14

Ties = Literal["split", "yes", "no"]


@dataclass(frozen=True, slots=True)
class Losses:
    """What a wrong answer costs the intruder.

    Parameters
    ----------
    false_yes : float
        The loss of saying "there" about someone who is not.
    false_no : float
        The loss of saying "not there" about someone who is. Equal losses are 0-1 loss.
    """

    false_yes: float = 1.0
    false_no: float = 1.0

    def __post_init__(self) -> None:
        for name in ("false_yes", "false_no"):
            value = getattr(self, name)
            if isinstance(value, bool) or not 0 < value < math.inf:
                raise InputError(
                    f"{name}: {value} is not allowed; a loss must be above 0 and finite"
                )

    @property
    def bias(self) -> float:
        """The log-odds above which they say "there"."""
        return math.log(self.false_yes) - math.log(self.false_no)


EVEN = Losses()


def decide(posterior: float, *, losses: Losses = EVEN, ties: Ties = "split") -> float:
    """Return how often the intruder says "there" at a posterior.

    Parameters
    ----------
    posterior : float
        Their probability that the target is there.
    losses : Losses
        What wrong answers cost them.
    ties : {"split", "yes", "no"}
        What they say when both answers have the same expected loss; "split" is either, half the time.

    Returns
    -------
    float
        1 or 0, or at a tie what `ties` says.

    Examples
    --------
    >>> decide(0.6), decide(0.5), decide(0.6, losses=Losses(false_yes=2))
    (1.0, 0.5, 0.0)
    """
    if not 0 <= posterior <= 1:
        raise InputError(f"posterior: {posterior} is not allowed; it must be between 0 and 1")
    yes, no = posterior * losses.false_no, (1 - posterior) * losses.false_yes
    tied = math.isclose(yes, no, rel_tol=_ROUNDING)
    return share_of_ties(ties) if tied else float(yes > no)


def share_of_ties(ties: Ties) -> float:
    """Return how often they say "there" when both answers have the same expected loss."""
    shares = {"split": 0.5, "yes": 1.0, "no": 0.0}
    if ties not in shares:
        raise InputError(f'ties: {ties!r} is not allowed; choose "split", "yes" or "no"')
    return shares[ties]


def sigmoid(log_odds: FloatArray) -> FloatArray:
    """Return the probability that has these log-odds."""
    return np.exp(-np.logaddexp(0, -log_odds))


def sign_of_sum(
    first: Array | float, second: Array | float, *, rounding: float, least: float = 0.0
) -> FloatArray:
    """Return the sign of the sum of two log-odds; 0 where they cancel up to rounding, a tie.

    Infinite log-odds are certainty and never tie. `rounding` is relative to the size of both terms plus
    `least`.
    """
    with np.errstate(over="ignore"):
        total = np.asarray(first + second)
    refuse_impossible(total)
    near = np.isfinite(total) & (
        np.abs(total) <= rounding * (np.abs(first) + np.abs(second) + least)
    )
    return np.where(near, 0.0, np.sign(total))


def refuse_impossible(log_odds: Array | float) -> None:
    """Raise if some log-odds are undefined because neither hypothesis is possible."""
    if np.isnan(log_odds).any():
        raise InputError(IMPOSSIBLE)
