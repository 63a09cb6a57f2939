"""Whether any table meets a family's sums and bounds, decided before the family is solved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse.csgraph import breadth_first_order, connected_components, maximum_flow

from countveil.base.numerics import FloatArray, IntArray
from countveil.errors import InfeasibleError
from countveil.postprocess.facts.rows import Row, as_matrix, nested

_MOST = 2**31 - 1  # maximum_flow counts in int32
_NODES = 10_000  # of branch and bound; a limit in seconds would depend on the machine
_SHOWN = 5

BoolArray = NDArray[np.bool_]


class _Requirement(NamedTuple):
    """A sum that a table must have, and where it comes from."""

    kind: Literal["total", "row", "parent", "closed"]
    row: Row


def refuse_infeasible(
    parent: IntArray | None,
    totals: IntArray | None,
    allowed: BoolArray | None,
    rows: Sequence[Row],
    *,
    children: Sequence[str],
    cell_names: Callable[[IntArray], str],
    parent_name: str,
    cells: int | None = None,
) -> None:
    """Raise InfeasibleError unless a table of integers h ≥ 0 meets all requirements.

    Its columns add up to `parent` and its rows to `totals`; it is 0 where not `allowed`, and within the
    bounds of `rows`. If rows nest, tables are circulations: one exists unless a cut needs more people
    than it lets in (Hoffman 1960), and the message names that cut. If rows cross, HiGHS looks for the
    nearest table, and the message names what it misses. `cell_names` puts cells in words. `cells` is
    the number of cells if neither `parent` nor `allowed` says it; without it, one cell outside all rows
    is assumed to exist, so that nothing feasible is refused.
    """
    if not rows and _plainly_feasible(parent, totals, allowed):
        return
    if cells is None:
        cells = 2 + max((int(row.cells.max(initial=-1)) for row in rows), default=-1)
    if allowed is None:
        allowed = np.ones((len(children), cells if parent is None else len(parent)), bool)
    family = _merged(parent, totals, allowed, rows)
    nest = nested([row for kind, row in family.requirements if kind == "row"])
    words = _Words(children, family.cells, cell_names, parent_name)
    for one in family.requirements:
        if one.row.upper < one.row.lower:
            raise InfeasibleError(words.conflict([one], [one]))
    if nest and sum(row.lower for _, row in family.requirements) < _MOST:
        if cut := _cut(family):
            raise InfeasibleError(words.conflict(*cut))
    elif missed := _missed(family, whole=not nest):
        raise InfeasibleError(words.missed(*missed))


def _plainly_feasible(
    parent: IntArray | None, totals: IntArray | None, allowed: BoolArray | None
) -> bool:
    """Whether a family without rows obviously has a table."""
    if totals is None:
        if parent is None or allowed is None:
            return True
        return bool((allowed.any(axis=0) | (parent == 0)).all())
    if allowed is not None and not allowed.all():
        return False
    return parent is None or int(parent.sum()) == int(totals.sum())


@dataclass(frozen=True, eq=False, slots=True)
class _Family:
    """A family with indistinguishable cells merged, and all its sums as requirements."""

    cells: list[IntArray]
    allowed: BoolArray
    requirements: list[_Requirement]


def _merged(
    parent: IntArray | None, totals: IntArray | None, allowed: BoolArray, rows: Sequence[Row]
) -> _Family:
    """Merge cells; a table of the merged cells can always be split into one of the cells."""
    groups = {row.cells.tobytes(): row.cells for row in rows}
    marks = np.zeros((len(groups), allowed.shape[1]), bool)
    for mark, group in zip(marks, groups.values(), strict=True):
        mark[group] = True
    marked = np.packbits(np.vstack((marks, allowed[~allowed.all(axis=1)])), axis=0)
    _, first, label = np.unique(marked, axis=1, return_index=True, return_inverse=True)
    cells = [np.flatnonzero(label.reshape(-1) == number) for number in range(len(first))]
    inner = {key: np.flatnonzero(mark[first]) for key, mark in zip(groups, marks, strict=True)}
    each, every = np.arange(len(first)), np.arange(len(allowed))
    requirements: list[_Requirement] = []
    if totals is not None:
        for child, total in enumerate(totals.tolist()):
            requirements.append(_Requirement("total", Row(every[[child]], each, total, total)))
    for row in rows:
        group, lower = inner[row.cells.tobytes()], max(row.lower, 0)
        inner_row = Row(row.children, group, lower, row.upper, row.what)
        requirements.append(_Requirement("row", inner_row))
    if parent is not None:
        for number, members in enumerate(cells):
            people = int(parent[members].sum())
            requirements.append(_Requirement("parent", Row(every, each[[number]], people, people)))
    return _Family(cells, allowed[:, first], requirements)


class _Crossing(NamedTuple):
    """The arcs between a side of a cut and the rest."""

    leaving: BoolArray
    entering: BoolArray


@dataclass(frozen=True, eq=False, slots=True)
class _Network:
    """Arcs with lower and upper bounds on the people who pass."""

    tail: IntArray
    head: IntArray
    lower: FloatArray
    upper: FloatArray

    def starved(self) -> list[BoolArray]:
        """Return the widest and narrowest side of a cut that gets too few people; [] if none does."""
        nodes = int(self.head.max()) + 1
        ample = self.lower.sum() + 1  # an arc this wide is in no cut that needs too much
        room = np.minimum(self.upper, ample) - self.lower
        spare = np.bincount(self.head, self.lower, nodes)
        spare -= np.bincount(self.tail, self.lower, nodes)
        sources, sinks = np.flatnonzero(spare > 0), np.flatnonzero(spare < 0)
        tail = np.concatenate((self.tail, np.full(len(sources), nodes), sinks))
        head = np.concatenate((self.head, sources, np.full(len(sinks), nodes + 1)))
        capacity = np.concatenate((room, spare[sources], -spare[sinks])).astype(np.int32)
        graph = sp.csr_array((capacity, (tail, head)), shape=(nodes + 2, nodes + 2))
        most = maximum_flow(graph, nodes, nodes + 1)
        if most.flow_value == spare[sources].sum():
            return []
        left = graph - most.flow
        left.eliminate_zeros()
        wide, narrow = np.ones(nodes + 2, bool), np.zeros(nodes + 2, bool)
        wide[breadth_first_order(left, nodes, return_predecessors=False)] = False
        narrow[breadth_first_order(left.T, nodes + 1, return_predecessors=False)] = True
        return [wide[:nodes], narrow[:nodes]]

    def crossing(self, side: BoolArray) -> _Crossing:
        """Return which arcs need people from a side, and which let people in."""
        tail, head = side[self.tail], side[self.head]
        return _Crossing(tail & ~head & (self.lower > 0), head & ~tail)

    def gap(self, side: BoolArray) -> float:
        """Return how many more people must leave a side than may enter it."""
        leaving, entering = self.crossing(side)
        return float(self.lower[leaving].sum() - self.upper[entering].sum())

    def core(self, side: BoolArray) -> BoolArray:
        """Return the worst connected part of a side, then of the rest; the gaps of parts add up."""
        side = max(self._parts(side), key=self.gap)
        return max((~part for part in self._parts(~side)), key=self.gap)

    def _parts(self, side: BoolArray) -> list[BoolArray]:
        inside = np.flatnonzero(side[self.tail] & side[self.head] & (self.upper > 0))
        links = (np.ones(len(inside)), (self.tail[inside], self.head[inside]))
        graph = sp.csr_array(links, shape=(len(side), len(side)))
        _, label = connected_components(graph, directed=False)
        return [side & (label == number) for number in np.unique(label[side])]


class _Conflict(NamedTuple):
    """Requirements that need people, and requirements that leave too few."""

    demands: list[_Requirement]
    caps: list[_Requirement]


def _cut(family: _Family) -> _Conflict | None:
    """Return requirements that contradict each other; None if a table exists.

    People circulate: hub → child → its total and rows, the widest first → cell → hub.
    """
    children, cells = family.allowed.shape
    child, cell = np.arange(children) + 1, np.arange(cells) + children + 1  # the hub is node 0
    groups = [one for one in family.requirements if one.kind != "parent"]
    groups.sort(key=lambda one: -len(one.row.cells))
    group = np.arange(len(groups)) + children + cells + 1
    last = np.repeat(child[:, None], cells, axis=1)  # the last node before each entry
    above = np.zeros(len(groups), np.int64)
    for number, (_, row) in enumerate(groups):
        own = last[row.children[0]]
        above[number] = own[row.cells[0]] if len(row.cells) else child[row.children[0]]
        own[row.cells] = group[number]
    ordered = [*groups, *(one for one in family.requirements if one.kind == "parent")]
    entries = len(groups) + cells + children
    tail = np.concatenate((above, cell, 0 * child, last.reshape(-1)))
    head = np.concatenate((group, 0 * cell, child, np.tile(cell, children)))
    lower, upper = np.zeros(len(tail)), np.full(len(tail), np.inf)
    lower[: len(ordered)] = [row.lower for _, row in ordered]
    upper[: len(ordered)] = [row.upper for _, row in ordered]
    upper[entries:][~family.allowed.reshape(-1)] = 0
    network = _Network(tail, head, lower, upper)
    cuts = [network.crossing(network.core(side)) for side in network.starved()]
    if not cuts:
        return None
    leaving, entering = min(cuts, key=np.sum)  # the fewest requirements are the easiest to check
    demands = [ordered[arc] for arc in np.flatnonzero(leaving)]
    caps = [ordered[arc] for arc in np.flatnonzero(entering[: len(ordered)])]
    shut = entering[entries:].reshape(children, cells)
    for closed in np.flatnonzero(shut.any(axis=1)):
        row = Row(np.array([closed]), np.flatnonzero(shut[closed]), 0, 0)
        caps.append(_Requirement("closed", row))
    return _Conflict(demands, caps)


class _Missed(NamedTuple):
    """Requirements for which the nearest table has too few or too many people, and how many."""

    few: list[_Requirement]
    many: list[_Requirement]
    people: float


def _missed(family: _Family, *, whole: bool) -> _Missed | None:
    """Return what the nearest table misses; None if nothing, or if that is not decided."""
    rows = [row for _, row in family.requirements]
    # Rows give way first: moving one person changes each of them by at most one.
    price = [1.0 if kind == "row" else 1.0 + len(rows) for kind, _ in family.requirements]
    entries = np.where(family.allowed.reshape(-1), np.inf, 0.0)
    slack = sp.eye_array(len(rows))
    result = milp(
        np.concatenate((np.zeros(len(entries)), price, price)),
        integrality=np.repeat([int(whole), 0], [len(entries), 2 * len(rows)]),
        bounds=Bounds(0.0, np.concatenate((entries, np.full(2 * len(rows), np.inf)))),
        constraints=LinearConstraint(
            sp.hstack((as_matrix(rows, *family.allowed.shape), slack, -slack)),
            [row.lower for row in rows],
            [row.upper for row in rows],
        ),
        options={"node_limit": _NODES},
    )
    least = result.fun if result.status == 0 else result.mip_dual_bound
    if result.x is None or (least or 0) < 0.5:  # met, or not decided; rounding will decide
        return None
    few, many = np.rint(result.x[len(entries) :]).reshape(2, -1)
    return _Missed(
        [family.requirements[number] for number in np.flatnonzero(few)],
        [family.requirements[number] for number in np.flatnonzero(many)],
        float(few.sum() + many.sum()),
    )


@dataclass(frozen=True, eq=False, slots=True)
class _Words:
    """Puts requirements into words for messages."""

    children: Sequence[str]
    cells: list[IntArray]
    cell_names: Callable[[IntArray], str]
    parent: str

    def conflict(self, demands: list[_Requirement], caps: list[_Requirement]) -> str:
        """Say which requirements need more people than others leave."""
        short = sum(row.lower for _, row in demands) - sum(row.upper for _, row in caps)
        return (
            f"{self.parent}: {self.clauses(demands, least=True)}, and "
            f"{self.clauses(caps, least=False) or 'no cell is open to them'}: short by "
            f"{_people(short)}; check these constraints or widen them"
        )

    def missed(self, few: list[_Requirement], many: list[_Requirement], by: float) -> str:
        """Say which requirements the nearest table does not meet."""
        clauses = [self.clauses(few, least=True), self.clauses(many, least=False)]
        return (
            f"{self.parent}: no table meets all its constraints at once, and the nearest one misses "
            f"these by {_people(by)}: {', '.join(filter(None, clauses))}; check these constraints or "
            "widen them"
        )

    def clauses(self, requirements: list[_Requirement], *, least: bool) -> str:
        """Put requirements into words, those of a kind together."""
        kinds: dict[object, list[_Requirement]] = {}
        for kind, row in requirements:
            place = row.what or tuple(row.cells) if kind in ("row", "closed") else ""
            siblings = tuple(row.children) if len(row.children) > 1 else ()
            kinds.setdefault((kind, place, siblings), []).append(_Requirement(kind, row))
        return _listed([self.clause(members, least=least) for members in kinds.values()])

    def clause(self, requirements: list[_Requirement], *, least: bool) -> str:
        """Put requirements of one kind into words."""
        kind, rows = requirements[0].kind, [row for _, row in requirements]
        people = _people(sum(row.lower if least else row.upper for row in rows))
        members = sorted({int(child) for row in rows for child in row.children})
        who, s = _listed([self.children[child] for child in members]), "s" * (len(members) == 1)
        cells = {int(cell) for row in rows for cell in row.cells}
        both = "" if s else " together"
        if kind == "total":
            return f"{who}{both} total{s} {people}"
        if kind == "parent" and len(cells) == len(self.cells):
            return f"{self.parent} has {people}"
        merged = [self.cells[cell] for cell in cells] or [np.empty(0, np.int64)]
        where = rows[0].what or self.cell_names(np.sort(np.concatenate(merged)))
        if kind == "parent":
            return f"{self.parent} has {people} in {where}"
        if kind == "closed":
            return f"{who} admit{s} no one in {where}"
        verb = f"need{s} at least" if least else f"take{s} at most"
        return f"{who}{both} {verb} {people} in {where}"


def _people(count: float) -> str:
    return f"{count:,.0f} {'person' if count == 1 else 'people'}"


def _listed(items: list[str]) -> str:
    """Return the first few items joined, and how many more there are."""
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(items[:_SHOWN]) + more
