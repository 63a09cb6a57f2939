"""Whether any table meets a family's sums and bounds, decided before it is solved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse.csgraph import breadth_first_order, connected_components, maximum_flow

from countveil.errors import InfeasibleError
from countveil.numerics import FloatArray, IntArray
from countveil.postprocess.rows import Row, as_matrix, nested

_MOST = 2**31 - 1  # maximum_flow counts in int32
_NODES = 10_000  # of branch and bound; a limit in seconds would depend on the machine
_SHOWN = 5

BoolArray = NDArray[np.bool_]
Fact = tuple[Literal["total", "row", "parent", "closed"], Row]


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
    """Raise InfeasibleError unless a table of whole numbers h ≥ 0 meets all that is asked of it.

    Its columns sum to `parent`, its rows to `totals`, it is 0 where not `allowed` and within the bounds
    of `rows`. Where rows nest, tables are circulations: one exists unless a cut asks for more people
    than it lets in (Hoffman 1960), and the message names that cut. Where rows cross, HiGHS seeks the
    nearest table, and the message names what it misses. `cell_names` puts cells in words. `cells` says
    how many there are where neither `parent` nor `allowed` does; without it one cell outside all rows
    is taken to exist, so that nothing is refused that has a table.
    """
    if not rows and _plainly_feasible(parent, totals, allowed):
        return
    if cells is None:
        cells = 2 + max((int(row.cells.max(initial=-1)) for row in rows), default=-1)
    if allowed is None:
        allowed = np.ones((len(children), cells if parent is None else len(parent)), bool)
    family = _merged(parent, totals, allowed, rows)
    nest = nested([row for kind, row in family.facts if kind == "row"])
    words = _Words(children, family.cells, cell_names, parent_name)
    for fact in family.facts:
        if fact[1].upper < fact[1].lower:
            raise InfeasibleError(words.conflict([fact], [fact]))
    if nest and sum(row.lower for _, row in family.facts) < _MOST:
        if cut := _cut(family):
            raise InfeasibleError(words.conflict(*cut))
    elif missed := _missed(family, whole=not nest):
        raise InfeasibleError(words.missed(*missed))


def _plainly_feasible(
    parent: IntArray | None, totals: IntArray | None, allowed: BoolArray | None
) -> bool:
    """Whether a glance shows that a family without rows has a table."""
    if totals is None:
        if parent is None or allowed is None:
            return True
        return bool((allowed.any(axis=0) | (parent == 0)).all())
    if allowed is not None and not allowed.all():
        return False
    return parent is None or int(parent.sum()) == int(totals.sum())


@dataclass(frozen=True, eq=False, slots=True)
class _Family:
    """A family whose cells are merged where nothing tells them apart, and whose sums are rows."""

    cells: list[IntArray]
    allowed: BoolArray
    facts: list[Fact]


def _merged(
    parent: IntArray | None, totals: IntArray | None, allowed: BoolArray, rows: Sequence[Row]
) -> _Family:
    """Merge cells; a table of the merged ones always splits into one of the cells themselves."""
    groups = {row.cells.tobytes(): row.cells for row in rows}
    marks = np.zeros((len(groups), allowed.shape[1]), bool)
    for mark, group in zip(marks, groups.values(), strict=True):
        mark[group] = True
    marked = np.packbits(np.vstack((marks, allowed[~allowed.all(axis=1)])), axis=0)
    _, first, label = np.unique(marked, axis=1, return_index=True, return_inverse=True)
    cells = [np.flatnonzero(label.reshape(-1) == number) for number in range(len(first))]
    inner = {key: np.flatnonzero(mark[first]) for key, mark in zip(groups, marks, strict=True)}
    each, every = np.arange(len(first)), np.arange(len(allowed))
    facts: list[Fact] = []
    if totals is not None:
        for child, total in enumerate(totals.tolist()):
            facts.append(("total", Row(every[[child]], each, total, total)))
    for row in rows:
        group, lower = inner[row.cells.tobytes()], max(row.lower, 0)
        facts.append(("row", Row(row.children, group, lower, row.upper, row.what)))
    if parent is not None:
        for number, members in enumerate(cells):
            people = int(parent[members].sum())
            facts.append(("parent", Row(every, each[[number]], people, people)))
    return _Family(cells, allowed[:, first], facts)


@dataclass(frozen=True, eq=False, slots=True)
class _Network:
    """Arcs with bounds."""

    tail: IntArray
    head: IntArray
    lower: FloatArray
    upper: FloatArray

    def starved(self) -> list[BoolArray]:
        """Return sides of minimum cuts, the widest and the narrowest, that get too few; [] if none."""
        nodes = int(self.head.max()) + 1
        ample = self.lower.sum() + 1  # an arc so wide is in no cut that asks for too much
        room = np.minimum(self.upper, ample) - self.lower
        spare = np.bincount(self.head, self.lower, nodes)
        spare -= np.bincount(self.tail, self.lower, nodes)
        given, taken = np.flatnonzero(spare > 0), np.flatnonzero(spare < 0)
        tail = np.concatenate((self.tail, np.full(len(given), nodes), taken))
        head = np.concatenate((self.head, given, np.full(len(taken), nodes + 1)))
        capacity = np.concatenate((room, spare[given], -spare[taken])).astype(np.int32)
        graph = sp.csr_array((capacity, (tail, head)), shape=(nodes + 2, nodes + 2))
        most = maximum_flow(graph, nodes, nodes + 1)
        if most.flow_value == spare[given].sum():
            return []
        left = graph - most.flow
        left.eliminate_zeros()
        wide, narrow = np.ones(nodes + 2, bool), np.zeros(nodes + 2, bool)
        wide[breadth_first_order(left, nodes, return_predecessors=False)] = False
        narrow[breadth_first_order(left.T, nodes + 1, return_predecessors=False)] = True
        return [wide[:nodes], narrow[:nodes]]

    def crossing(self, side: BoolArray) -> tuple[BoolArray, BoolArray]:
        """Return which arcs ask a side for people, and which let people in."""
        tail, head = side[self.tail], side[self.head]
        return tail & ~head & (self.lower > 0), head & ~tail

    def gap(self, side: BoolArray) -> float:
        """Return how many more people must leave a side than may enter it."""
        leaving, entering = self.crossing(side)
        return float(self.lower[leaving].sum() - self.upper[entering].sum())

    def core(self, side: BoolArray) -> BoolArray:
        """Return the worst connected part of a side, then of the rest: gaps of parts add up."""
        side = max(self._parts(side), key=self.gap)
        return max((~part for part in self._parts(~side)), key=self.gap)

    def _parts(self, side: BoolArray) -> list[BoolArray]:
        inside = np.flatnonzero(side[self.tail] & side[self.head] & (self.upper > 0))
        links = (np.ones(len(inside)), (self.tail[inside], self.head[inside]))
        graph = sp.csr_array(links, shape=(len(side), len(side)))
        _, label = connected_components(graph, directed=False)
        return [side & (label == number) for number in np.unique(label[side])]


def _cut(family: _Family) -> tuple[list[Fact], list[Fact]] | None:
    """Return facts that ask for people and facts that leave too few; None if a table exists.

    People circulate: hub → child → its total and rows, the widest first → cell → hub.
    """
    children, cells = family.allowed.shape
    child, cell = np.arange(children) + 1, np.arange(cells) + children + 1  # the hub is node 0
    groups = [fact for fact in family.facts if fact[0] != "parent"]
    groups.sort(key=lambda fact: -len(fact[1].cells))
    group = np.arange(len(groups)) + children + cells + 1
    last = np.repeat(child[:, None], cells, axis=1)  # the last node before each entry
    above = np.zeros(len(groups), np.int64)
    for number, (_, row) in enumerate(groups):
        own = last[row.children[0]]
        above[number] = own[row.cells[0]] if len(row.cells) else child[row.children[0]]
        own[row.cells] = group[number]
    facts = [*groups, *(fact for fact in family.facts if fact[0] == "parent")]
    entries = len(groups) + cells + children
    tail = np.concatenate((above, cell, 0 * child, last.reshape(-1)))
    head = np.concatenate((group, 0 * cell, child, np.tile(cell, children)))
    lower, upper = np.zeros(len(tail)), np.full(len(tail), np.inf)
    lower[: len(facts)] = [row.lower for _, row in facts]
    upper[: len(facts)] = [row.upper for _, row in facts]
    upper[entries:][~family.allowed.reshape(-1)] = 0
    network = _Network(tail, head, lower, upper)
    cuts = [network.crossing(network.core(side)) for side in network.starved()]
    if not cuts:
        return None
    leaving, entering = min(cuts, key=np.sum)  # the fewest facts are the easiest to check
    asked = [facts[arc] for arc in np.flatnonzero(leaving)]
    left = [facts[arc] for arc in np.flatnonzero(entering[: len(facts)])]
    shut = entering[entries:].reshape(children, cells)
    for closed in np.flatnonzero(shut.any(axis=1)):
        left.append(("closed", Row(np.array([closed]), np.flatnonzero(shut[closed]), 0, 0)))
    return asked, left


def _missed(family: _Family, *, whole: bool) -> tuple[list[Fact], list[Fact], float] | None:
    """Return facts of which the nearest table has too few, or too many, by how many people."""
    rows = [row for _, row in family.facts]
    # Rows give way first: a person moved touches each of them once at the most.
    price = [1.0 if kind == "row" else 1.0 + len(rows) for kind, _ in family.facts]
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
    if result.x is None or (least or 0) < 0.5:  # met, or not decided; rounding will tell
        return None
    few, many = np.rint(result.x[len(entries) :]).reshape(2, -1)
    return (
        [family.facts[number] for number in np.flatnonzero(few)],
        [family.facts[number] for number in np.flatnonzero(many)],
        float(few.sum() + many.sum()),
    )


@dataclass(frozen=True, eq=False, slots=True)
class _Words:
    """How messages speak of facts."""

    children: Sequence[str]
    cells: list[IntArray]
    cell_names: Callable[[IntArray], str]
    parent: str

    def conflict(self, asked: list[Fact], left: list[Fact]) -> str:
        """Say which facts ask for more people than others leave."""
        short = sum(row.lower for _, row in asked) - sum(row.upper for _, row in left)
        return (
            f"{self.parent}: {self.clauses(asked, least=True)}, and "
            f"{self.clauses(left, least=False) or 'no cell is open to them'}: short by "
            f"{_people(short)}; check these constraints or widen them"
        )

    def missed(self, few: list[Fact], many: list[Fact], by: float) -> str:
        """Say which facts the nearest table does not meet."""
        clauses = [self.clauses(few, least=True), self.clauses(many, least=False)]
        return (
            f"{self.parent}: no table meets all its constraints at once, and the nearest one misses "
            f"these by {_people(by)}: {', '.join(filter(None, clauses))}; check these constraints or "
            "widen them"
        )

    def clauses(self, facts: list[Fact], *, least: bool) -> str:
        """Put facts in words, those of a kind together."""
        kinds: dict[object, list[Fact]] = {}
        for kind, row in facts:
            place = row.what or tuple(row.cells) if kind in ("row", "closed") else ""
            siblings = tuple(row.children) if len(row.children) > 1 else ()
            kinds.setdefault((kind, place, siblings), []).append((kind, row))
        return _listed([self.clause(members, least=least) for members in kinds.values()])

    def clause(self, facts: list[Fact], *, least: bool) -> str:
        """Put facts of one kind in words."""
        kind, rows = facts[0][0], [row for _, row in facts]
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
            return f"{who} admit{s} nobody in {where}"
        verb = f"need{s} at least" if least else f"take{s} at most"
        return f"{who}{both} {verb} {people} in {where}"


def _people(count: float) -> str:
    return f"{count:,.0f} {'person' if count == 1 else 'people'}"


def _listed(items: list[str]) -> str:
    """Join the first few."""
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(items[:_SHOWN]) + more
