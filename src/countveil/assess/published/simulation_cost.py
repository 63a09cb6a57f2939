"""How long a simulated release takes, roughly, so that pages simulate only what is worth waiting for.

Measured on small trees: about a millisecond to solve a family, and two microseconds for each value that
is measured. The estimate depends on the plan and its places alone, so that what a report shows does not
depend on how busy a machine is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from countveil.assess.published.many_releases import leaves_out, needed_units, tied
from countveil.errors import InputError
from countveil.plan.geography import Geography
from countveil.plan.plans import Plan

_FAMILY, _VALUE = 1e-3, 2e-6  # seconds
_ALONE = 0.03  # seconds more for a release that is estimated alone
_LONGEST = 600.0  # seconds


def affordable_draws(
    plan: Plan,
    geography: Geography,
    units: Mapping[str, Sequence[int]],
    *,
    seconds: float,
    least: int,
    most: int,
) -> int:
    """Return how many releases can be simulated in some seconds, to read some units of each.

    Parameters
    ----------
    plan : Plan
        The plan that is simulated.
    geography : Geography
        The places of one release.
    units : mapping of str to sequence of int
        For each level that is read, the numbers of the units.
    seconds : float
        The time to spend.
    least, most : int
        The fewest that are of use, and as many as are enough.

    Returns
    -------
    int
        From `least` to `most`, or 0 if there is no time for `least`.
    """
    draws = int(seconds / seconds_of_release(plan, geography, units))
    return min(draws, most) if draws >= least else 0


def refuse_long(
    plan: Plan, geography: Geography, units: Mapping[str, Sequence[int]], draws: int
) -> None:
    """Refuse to simulate releases for more than ten minutes, and say what would take less."""
    each = seconds_of_release(plan, geography, units)
    if draws * each <= _LONGEST:
        return
    fewer = f"at most {int(_LONGEST / each):,} draws" if each <= _LONGEST else "no draws"
    raise InputError(
        f"draws: {draws:,} simulated releases would take about {_duration(draws * each)}, and ten "
        f"minutes is the limit; {fewer} fit into it, or more with a plan for fewer or smaller places"
    )


def _duration(seconds: float) -> str:
    if seconds < 7_200:
        return f"{math.ceil(seconds / 60)} minutes"
    return f"{math.ceil(seconds / 3_600):,} hours"


def seconds_of_release(
    plan: Plan, geography: Geography, units: Mapping[str, Sequence[int]]
) -> float:
    """Return about how long it takes to simulate a release and read some units."""
    visited = plan.measured_levels
    solved = {level: range(geography.units(level)) for level in visited}
    needed = needed_units(geography, units if leaves_out(plan) else solved)
    families = int(needed[visited[0]].sum())
    for above, level in pairwise(visited):
        parents = geography.ancestors(level, above)[needed[level]]
        families += len(set(parents.tolist()))
    values = sum(
        geography.units(level) * sum(item.query.cells for item in plan.at(level))
        for level in plan.levels
    )
    alone = _ALONE * len(visited) if tied(plan) else 0.0
    return alone + _FAMILY * families + _VALUE * values
