"""What is public about the confidential counts: sums of groups of places, and upper bounds.

That counts are 0 or more, and deaths not above cases, is always public.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from countveil.congenial.product import Group
from countveil.congenial.wasserstein_mechanism import Wasserstein
from countveil.errors import InfeasibleError, InputError
from countveil.numerics import IntArray

_KNOWN = ("total", "subtotals", "upper")


@dataclass(frozen=True, slots=True)
class PublicFacts:
    """Groups of places with a public sum of counts (of cases); other places are free."""

    places: int
    groups: tuple[Group, ...]
    upper: tuple[int, ...] | None = None

    @property
    def free(self) -> tuple[int, ...]:
        """Places in no group: nothing ties their count to others'."""
        tied = {place for group in self.groups for place in group.members}
        return tuple(place for place in range(self.places) if place not in tied)

    @property
    def total(self) -> int | None:
        """The sum of all counts, where it is public."""
        return None if self.free else sum(group.total for group in self.groups)

    def most(self, place: int) -> int | None:
        """Return the largest count of a place that the facts allow, or none."""
        limits = [group.total for group in self.groups if place in group.members]
        limits += [] if self.upper is None else [self.upper[place]]
        return min(limits, default=None)


def read_facts(
    public: Mapping[str, Any] | None, mechanism: Wasserstein, places: int
) -> PublicFacts:
    """Read {"total": …, "subtotals": [(places, sum), …], "upper": […]}, and the mechanism's sums."""
    given = dict(public or {})
    for name in given:
        if name not in _KNOWN:
            raise InputError(f"public: {name!r} is not known; choose from {', '.join(_KNOWN)}")
    known = mechanism.groups(places)
    groups = _groups(given, places) or known
    for group in known:
        parts = [part for part in groups if set(part.members) <= set(group.members)]
        covered = sum(len(part.members) for part in parts)
        if covered != len(group.members) or sum(part.total for part in parts) != group.total:
            raise InputError(
                f"public: the mechanism holds that the counts of {len(group.members)} places sum to "
                f"{group.total:,}, and the facts given do not say so; give the sums it was built with"
            )
    upper = given.get("upper")
    if upper is not None:
        upper = tuple(_whole(value, "upper") for value in upper)
        if len(upper) != places:
            raise InputError(f"public: {len(upper)} upper bounds came for {places} places")
        for group in groups:
            if sum(upper[place] for place in group.members) < group.total:
                raise InfeasibleError(
                    f"public: the upper bounds of {len(group.members)} places sum to less than their "
                    f"total {group.total:,}; no table has both"
                )
    return PublicFacts(places, groups, upper)


def _groups(given: Mapping[str, Any], places: int) -> tuple[Group, ...]:
    total = given.get("total")
    subtotals = [
        Group(tuple(int(place) for place in members), _whole(value, "subtotals"))
        for members, value in given.get("subtotals", ())
    ]
    listed = [place for group in subtotals for place in group.members]
    if len(set(listed)) != len(listed) or any(not 0 <= place < places for place in listed):
        raise InputError(
            f"public: each of the {places} places, from 0 on, may be in one subtotal only"
        )
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


def _whole(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise InputError(f"public: {name} is {value!r}; it is a whole number, 0 or more")
    return int(value)


def read_released(released: Any, mechanism: Wasserstein) -> IntArray:
    """Return a release as (places, 1 or 2) whole numbers."""
    found = np.asarray(released)
    if not np.issubdtype(found.dtype, np.integer):
        raise InputError(f"released: {found.dtype} came; a release is of whole numbers")
    columns = 2 if mechanism.deaths else 1
    table = found[:, None] if found.ndim == 1 and columns == 1 else found
    if table.ndim != 2 or table.shape[1] != columns or len(table) == 0:
        wanted = "(places, 2): cases and deaths" if mechanism.deaths else "(places,)"
        raise InputError(
            f"released: the shape {found.shape} came; this mechanism releases {wanted}"
        )
    return table.astype(np.int64)
