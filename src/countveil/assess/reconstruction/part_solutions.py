"""Count the databases that agree with one part of a unit's tables.

Groups of cells are filled one after the other; what matters for those to come is only how many people
each line still lacks. Databases with the same lacks are counted together, so that the count is exact
without listing them. Parts with too many different lacks are bounded: the count from below, by those
databases in which a few cells differ by a few people from one that agrees; distances from above, by
integer programs, which also decide whether there is another database at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from countveil.assess.reconstruction.independent_parts import Part
from countveil.base.numerics import FloatArray

MOST_STEPS = 200_000  # of one part; about a quarter of a second
_NODES = 200  # of an integer program, a limit that does not depend on how busy the machine is
_CACHED = 200_000
_MOST_GROUPS = 60  # of an integer program for distances; more take too long
_PIECES = 10  # the effort is divided by it for a count of a few groups
_MORE = 5  # times the effort, if a count seems to be within the limit
_REACH = 8  # people by which some groups may differ from a database that agrees
_REACHES = (1, 2, 4, 8, 16)  # the same for all groups at once


@dataclass(frozen=True, slots=True)
class PartSolutions:
    """How many databases agree with a part, and how far they are apart.

    Attributes
    ----------
    count : int
        How many there are; at least how many if not `exact`.
    exact : bool
        Whether the count is exact.
    widest : int
        The largest difference between two of them in one cell; an upper bound if not `exact`.
    certain : int
        The people that are in the same cell in all of them; a lower bound if not `exact`.
    differing : float or None
        The largest number of people in another cell than in the known database; an upper bound if not
        `exact`. None if no database is known.

    """

    count: int
    exact: bool
    widest: int
    certain: int
    differing: float | None


NONE = PartSolutions(0, True, 0, 0, None)


@lru_cache(maxsize=_CACHED)
def solutions_of(part: Part, limit: int, most_steps: int = MOST_STEPS) -> PartSolutions:
    """Return how many databases agree with a part of a unit's tables.

    Parameters
    ----------
    part : Part
        The lines and their groups of cells.
    limit : int
        A count above it need not be exact.
    most_steps : int
        The effort after which a count is bounded instead.

    Returns
    -------
    PartSolutions
        The count, and how much cells differ.

    """
    low, high = _bounds(part)
    walk = _Walk.of(part, low, high, most_steps)
    if walk is None:
        one = [n for n, _ in part.known] if part.known else _some_database(part, low, high)
        if one is None:
            return NONE
        near = _count_near(part, one, low, high, limit, most_steps)
        if near <= limit:
            walk = _Walk.of(part, low, high, _MORE * most_steps)
        if walk is None:
            return _bounded(part, low, high, one, near)
    if not walk.count:
        return NONE
    ranges = walk.ranges()
    return PartSolutions(
        walk.count,
        True,
        max(_width(size, *pair) for size, pair in zip(part.sizes, ranges, strict=True)),
        _certain(part, [least for least, _ in ranges]),
        walk.farthest / 2 if part.known else None,
    )


def _width(size: int, least: int, most: int) -> int:
    """Return the range of one cell of a group whose people range from `least` to `most`."""
    return most - least if size == 1 else most


def _certain(part: Part, least: Sequence[int]) -> int:
    """Return the people who are sure to be in a cell: those of groups with one cell."""
    return sum(n for n, size in zip(least, part.sizes, strict=True) if size == 1)


def _bounds(part: Part) -> tuple[list[int], list[int]]:
    """Return the fewest and the most people of each group, from each line on its own."""
    high = [min(n for n, groups in part.lines if g in groups) for g in range(len(part.sizes))]
    low = [0] * len(high)
    for people, groups in part.lines:
        together = sum(high[g] for g in groups)
        for group in groups:
            low[group] = max(low[group], people - (together - high[group]))
    return low, high


def _distance(known: tuple[int, int], people: int) -> int:
    """Return the largest sum of differences in a group that holds `people`, from the known database.

    The farthest database has all of them in the cell that is smallest in the known one.
    """
    total, smallest = known
    return total - smallest + abs(people - smallest)


@dataclass(frozen=True, slots=True)
class _Lacks:
    """Where a state keeps what a line lacks, and what later groups add to it at least and at most."""

    shift: int
    mask: int
    least: int
    most: int


@dataclass(frozen=True, eq=False, slots=True)
class _Walk:
    """The states after each group is filled; a state packs what every line still lacks."""

    part: Part
    low: Sequence[int]
    high: Sequence[int]
    order: Sequence[int]
    lines: Sequence[Sequence[_Lacks]]
    layers: Sequence[dict[int, int]]  # state: databases that lead to it
    farthest: int

    @property
    def count(self) -> int:
        """The number of databases that agree."""
        return self.layers[-1].get(0, 0)

    @staticmethod
    def of(part: Part, low: Sequence[int], high: Sequence[int], most_steps: int) -> _Walk | None:
        """Fill the groups one after the other; return None if that takes too many steps."""
        order = _order(part, low, high)
        lines, start = _packed(part, order, low, high)
        layer, distances = {start: 1}, {start: 0}
        layers, steps = [layer], 0
        for group, own in zip(order, lines, strict=True):
            step = sum(1 << line.shift for line in own)
            size = part.sizes[group]
            following: dict[int, int] = {}
            farther: dict[int, int] = {}
            for state, count in layer.items():
                least, most = _choices(state, low[group], high[group], own)
                steps += max(0, most - least + 1)
                if steps > most_steps:
                    return None
                reached = state - least * step
                for people in range(least, most + 1):
                    ways = count if size == 1 else count * math.comb(people + size - 1, size - 1)
                    following[reached] = following.get(reached, 0) + ways
                    if part.known:
                        distance = distances[state] + _distance(part.known[group], people)
                        farther[reached] = max(farther.get(reached, 0), distance)
                    reached -= step
            layer, distances = following, farther
            layers.append(layer)
        return _Walk(part, low, high, order, lines, layers, distances.get(0, 0))

    def ranges(self) -> list[tuple[int, int]]:
        """Return the fewest and the most people of each group, over all databases that agree."""
        ranges = [(0, 0)] * len(self.order)
        alive = {0}
        for position in range(len(self.order) - 1, -1, -1):
            group, own = self.order[position], self.lines[position]
            step = sum(1 << line.shift for line in own)
            smallest, largest = math.inf, 0
            before = set()
            for state in self.layers[position]:
                least, most = _choices(state, self.low[group], self.high[group], own)
                fitting = [n for n in range(least, most + 1) if state - n * step in alive]
                if fitting:
                    before.add(state)
                    smallest, largest = min(smallest, fitting[0]), max(largest, fitting[-1])
            ranges[group] = int(smallest), largest
            alive = before
        return ranges


def _choices(state: int, low: int, high: int, lines: Sequence[_Lacks]) -> tuple[int, int]:
    """Return the fewest and the most people that a group can hold in a state."""
    for line in lines:
        lacks = state >> line.shift & line.mask
        if lacks - line.least < high:
            high = lacks - line.least
        if lacks - line.most > low:
            low = lacks - line.most
    return low, high


def _order(part: Part, low: Sequence[int], high: Sequence[int]) -> list[int]:
    """Return the groups in an order that completes lines early, so that states stay few.

    Groups with one possible count come first; they do not multiply states.
    """
    order = [group for group in range(len(part.sizes)) if low[group] >= high[group]]
    left = [set(groups).difference(order) for _, groups in part.lines]
    touched: set[int] = set()
    while any(left):
        best = min(
            (groups for groups in left if groups),
            key=lambda groups: (len(groups), -len(groups & touched)),
        )
        for group in sorted(best):
            order.append(group)
            for groups in left:
                if group in groups:
                    touched |= groups
                    groups.discard(group)
    return order


def _packed(
    part: Part, order: Sequence[int], low: Sequence[int], high: Sequence[int]
) -> tuple[list[list[_Lacks]], int]:
    """Return the lines of each group in order, and the first state."""
    shifts, start, shift = [], 0, 0
    for people, _ in part.lines:
        shifts.append(shift)
        start |= people << shift
        shift += people.bit_length()
    least = [sum(low[g] for g in groups) for _, groups in part.lines]
    most = [sum(high[g] for g in groups) for _, groups in part.lines]
    lines: list[list[_Lacks]] = []
    for group in order:
        own = []
        for number, (people, groups) in enumerate(part.lines):
            if group in groups:
                least[number] -= low[group]
                most[number] -= high[group]
                mask = (1 << people.bit_length()) - 1
                own.append(_Lacks(shifts[number], mask, least[number], most[number]))
        lines.append(own)
    return lines, start


def _bounded(
    part: Part, low: list[int], high: list[int], one: list[int], near: int
) -> PartSolutions:
    """Bound the number of databases of a part that is too large to count, `near` of them known."""
    if near == 1 and not _has_another(part, one, low, high):
        return PartSolutions(1, True, 0, _certain(part, one), 0.0 if part.known else None)
    widest = max(_width(*item) for item in zip(part.sizes, low, high, strict=True))
    differing = _farthest(part, low, high) / 2 if part.known else None
    return PartSolutions(max(near, 2), False, widest, _certain(part, low), differing)


def _count_near(
    part: Part, one: list[int], low: list[int], high: list[int], limit: int, most_steps: int
) -> int:
    """Return how many databases at least agree, from those that differ from one in a few groups.

    Databases that differ in the groups of some lines only are counted, then those that differ in the
    groups of other lines only. As changes in different groups can be combined, the counts multiply.
    """
    count = same = math.prod(_ways(part, group, people) for group, people in enumerate(one))
    free, left = set[int](), set(range(len(one)))
    for _, groups in sorted(part.lines, key=lambda line: (len(line[1]), -line[0])):
        free |= left.intersection(groups)
        walk = _walk_around(part, one, low, high, free, most_steps)
        if walk is not None and walk.count > same:
            count = count * walk.count // same  # exact: the free groups are new each time
            left -= free
        if walk is None or walk.count > same:
            free = set()
        if count > limit:
            return count
    for reach in _REACHES:
        near = [max(n - reach, least) for n, least in zip(one, low, strict=True)]
        far = [min(n + reach, most) for n, most in zip(one, high, strict=True)]
        walk = _Walk.of(part, near, far, _MORE * most_steps)
        if walk is None:
            break
        count = max(count, walk.count)
        if count > limit:
            break
    return count


def _ways(part: Part, group: int, people: int) -> int:
    """Return in how many ways people can be distributed over the cells of a group."""
    return math.comb(people + part.sizes[group] - 1, part.sizes[group] - 1)


def _walk_around(
    part: Part, one: list[int], low: list[int], high: list[int], free: set[int], most_steps: int
) -> _Walk | None:
    """Fill the groups as in one database, or nearly so in the free ones; None if it takes too long."""
    least, most = [*one], [*one]
    for group in free:
        least[group] = max(low[group], one[group] - _REACH)
        most[group] = min(high[group], one[group] + _REACH)
    return _Walk.of(part, least, most, most_steps // _PIECES)


def _matrix(part: Part, more: int = 0) -> FloatArray:
    """Return the lines as rows of a matrix, with `more` columns of zeros after the groups."""
    matrix = np.zeros((len(part.lines), len(part.sizes) + more))
    for number, (_, groups) in enumerate(part.lines):
        matrix[number, list(groups)] = 1
    return matrix


def _some_database(part: Part, low: list[int], high: list[int]) -> list[int] | None:
    """Return the people of each group in a database that agrees, or None."""
    return _best(part, np.zeros(len(part.sizes)), low, high)


def _has_another(part: Part, one: list[int], low: list[int], high: list[int]) -> bool:
    """Whether another database agrees: then some group can hold more than in this one."""
    if any(size > 1 and n for size, n in zip(part.sizes, one, strict=True)):
        return True
    for group, people in enumerate(one):
        if high[group] > people:
            least = [*low]
            least[group] = people + 1
            if _best(part, np.zeros(len(one)), least, high) is not None:
                return True
    return False


def _best(part: Part, costs: FloatArray, low: list[int], high: list[int]) -> list[int] | None:
    """Return the database of least cost; None if none agrees."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    people = [n for n, _ in part.lines]
    result = milp(
        costs,
        integrality=np.ones(len(costs)),
        bounds=Bounds(low, high),
        constraints=LinearConstraint(_matrix(part), people, people),
    )
    if result.x is None:
        return None
    database = [round(value) for value in result.x]
    assert all(sum(database[g] for g in groups) == n for n, groups in part.lines)
    return database


def _farthest(part: Part, low: list[int], high: list[int]) -> float:
    """Return an upper bound on the sum of differences from the known database.

    Each group is above its known count, at some cost, or below it: a binary variable says which. The
    bound of the program holds even if its search ends early.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    groups = len(part.sizes)
    centre = np.array([smallest for _, smallest in part.known], float)
    constant = sum(total - smallest for total, smallest in part.known)
    reach = np.maximum(np.array(high) - centre, centre - np.array(low))
    people = [n for n, _ in part.lines]
    one = np.eye(groups)
    above = np.hstack([-one, one, -2 * np.diag(reach)])  # d - n <= -c + 2 M s
    below = np.hstack([one, one, 2 * np.diag(reach)])  # d + n <= c + 2 M (1 - s)
    if groups > _MOST_GROUPS:
        return constant + float(reach.sum())
    result = milp(
        np.concatenate([np.zeros(groups), -np.ones(groups), np.zeros(groups)]),
        integrality=np.concatenate([np.ones(groups), np.zeros(groups), np.ones(groups)]),
        bounds=Bounds(
            np.concatenate([low, np.zeros(2 * groups)]),
            np.concatenate([high, reach, np.ones(groups)]),
        ),
        constraints=[
            LinearConstraint(_matrix(part, 2 * groups), people, people),
            LinearConstraint(above, -np.inf, -centre),
            LinearConstraint(below, -np.inf, centre + 2 * reach),
        ],
        options={"node_limit": _NODES},
    )
    bound = getattr(result, "mip_dual_bound", None)
    largest = float(reach.sum())
    if bound is not None and np.isfinite(bound):
        largest = min(largest, math.floor(-float(bound) + 1e-6))
    return constant + largest
