"""What is public about the confidential counts: sums of groups of places, and upper bounds.

That counts are 0 or more, and deaths no more than cases, is always public.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from countveil.base.numerics import IntArray
from countveil.congenial.mechanism.product_law import Group
from countveil.congenial.mechanism.wasserstein import Wasserstein
from countveil.errors import InfeasibleError, InputError


class StatedSums(TypedDict, total=False):
    """What a caller says is public: {"total": 20, "subtotals": [((0, 1), 15)], "upper": [9, 9, 9]}."""

    total: int
    subtotals: Sequence[tuple[Sequence[int], int]]
    upper: Sequence[int] | IntArray


@dataclass(frozen=True, slots=True)
class PublicSums:
    """Groups of places with a public sum of counts (of cases, if there are deaths), and upper bounds.

    Parameters
    ----------
    places
        The number of places.
    groups
        Places with their public sum; no place is in two groups.
    upper
        The largest possible count of each place, if public.
    """

    places: int
    groups: tuple[Group, ...]
    upper: tuple[int, ...] | None = None

    @property
    def free(self) -> tuple[int, ...]:
        """The places in no group, whose counts no sum ties to others."""
        tied = {place for group in self.groups for place in group.members}
        return tuple(place for place in range(self.places) if place not in tied)

    @property
    def total(self) -> int | None:
        """The sum of all counts, if it is public."""
        return None if self.free else sum(group.total for group in self.groups)

    def most(self, place: int) -> int | None:
        """Return the largest count that the facts allow a place, or None."""
        limits = [group.total for group in self.groups if place in group.members]
        limits += [] if self.upper is None else [self.upper[place]]
        return min(limits, default=None)


def read_sums(public: StatedSums | None, mechanism: Wasserstein, places: int) -> PublicSums:
    """Return what the caller states as public, checked against the mechanism's own sums."""
    stated: StatedSums = {} if public is None else public
    for name in stated:
        if name not in StatedSums.__annotations__:
            raise InputError(
                f"public: unknown fact {name!r}; choose from {', '.join(StatedSums.__annotations__)}"
            )
    known = mechanism.groups(places)
    groups = _groups(stated, places) or known
    for group in known:
        parts = [part for part in groups if set(part.members) <= set(group.members)]
        covered = sum(len(part.members) for part in parts)
        if covered != len(group.members) or sum(part.total for part in parts) != group.total:
            raise InputError(
                f"public: by the mechanism the counts of {len(group.members)} places sum to "
                f"{group.total:,}, and the facts do not say so; give the sums it was built with"
            )
    upper = None
    if "upper" in stated and stated["upper"] is not None:
        upper = tuple(_whole(value, "upper") for value in stated["upper"])
        if len(upper) != places:
            raise InputError(f"public: got {len(upper)} upper bounds for {places} places")
        for group in groups:
            if sum(upper[place] for place in group.members) < group.total:
                raise InfeasibleError(
                    f"public: the upper bounds of {len(group.members)} places sum to less than their "
                    f"total {group.total:,}; no table has both"
                )
    return PublicSums(places, groups, upper)


def _groups(stated: StatedSums, places: int) -> tuple[Group, ...]:
    subtotals = [
        Group(tuple(int(place) for place in members), _whole(value, "subtotals"))
        for members, value in stated.get("subtotals", ())
    ]
    listed = [place for group in subtotals for place in group.members]
    if len(set(listed)) != len(listed) or any(not 0 <= place < places for place in listed):
        raise InputError(
            f"public: each of the {places} places, numbered from 0, may be in only one subtotal"
        )
    total = stated.get("total")
    if total is None:
        return tuple(subtotals)
    rest = tuple(place for place in range(places) if place not in set(listed))
    left = _whole(total, "total") - sum(group.total for group in subtotals)
    if left < 0 or (left > 0 and not rest):
        raise InfeasibleError(
            f"public: the subtotals sum to {total - left:,} and the total is {total:,}; no table "
            f"has both"
        )
    return (*subtotals, *((Group(rest, left),) if rest else ()))


def _whole(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise InputError(f"public: {name} is {value!r}; it must be a whole number, 0 or more")
    return int(value)
