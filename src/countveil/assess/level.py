"""One level of a hierarchy, as the intruder sees it."""

from __future__ import annotations

from dataclasses import dataclass

from countveil.assess.parent_prior import FLAT, ParentPrior
from countveil.errors import InputError
from countveil.mechanisms.law import Mechanism


@dataclass(frozen=True, slots=True)
class Level:
    """The noise of a level, how many siblings its unit has, and what he believes of its parent.

    `prior` is that of the parent's count given this unit's; `sibling_prior` that of one sibling's
    count, used where siblings are seen one by one. Of the highest level only the noise counts.
    """

    noise: Mechanism
    siblings: int = 0
    prior: ParentPrior = FLAT
    sibling_prior: ParentPrior = FLAT

    def __post_init__(self) -> None:
        if not isinstance(self.noise, Mechanism):
            raise InputError(
                "noise: a level is released with integer noise, such as DiscreteGaussian"
            )
        if (
            isinstance(self.siblings, bool)
            or not isinstance(self.siblings, int)
            or self.siblings < 0
        ):
            raise InputError(
                f"siblings: {self.siblings} is not allowed; it is a whole number, 0 or more"
            )
