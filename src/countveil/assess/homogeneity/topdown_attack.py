"""INTERNAL: the homogeneity attack on a TopDown release, and on average over simulated releases.

Someone who knows a person's place and identifiers looks up that cell. If everyone there shows the same
sensitive value, they believe it: rightly about people who have it, wrongly about the others.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from countveil.assess.homogeneity.single_values import attack_query, read_tables, value_count
from countveil.base.numerics import IntArray
from countveil.base.randomness import Seeded
from countveil.engines.counts import Counts, exact_answers
from countveil.errors import InputError
from countveil.measure.door import take
from countveil.plan.plans import Plan
from countveil.postprocess.estimates import Estimates
from countveil.postprocess.topdown import top_down

_VALUES = 4_000_000  # numbers in memory at a time


class AttackErrors(NamedTuple):
    """Standard errors of the shares of a `ReleasedAttack` over simulated releases."""

    disclosed: float
    misled: float
    cells_right: float
    cells_wrong: float


@dataclass(frozen=True, slots=True)
class ReleasedAttack:
    """Internal: what the attack reveals, over all occupied cells of place × identifiers.

    Attributes
    ----------
    disclosed : float
        The share of people whose value is revealed.
    misled : float
        The share of people to whom a wrong value is attributed.
    cells_right, cells_wrong : float
        The shares of cells that show a single value which someone in the cell has, and which no one
        has. Other cells show several values or none.
    before : float
        The share of people whose value the exact table reveals.
    cells : int
        How many cells are occupied.
    level, sensitive : str
        The level of the places, and the attribute that is attacked.
    identifiers : tuple of str
        The attributes that the intruder knows.
    releases : int
        How many releases were attacked.
    errors : AttackErrors or None
        The standard errors of the first four over simulated releases.
    """

    disclosed: float
    misled: float
    cells_right: float
    cells_wrong: float
    before: float
    cells: int
    level: str
    sensitive: str
    identifiers: tuple[str, ...]
    releases: int = 1
    errors: AttackErrors | None = None
    audience: ClassVar[Literal["internal"]] = "internal"


def attack(
    estimates: Estimates,
    counts: Counts,
    *,
    level: str,
    sensitive: str,
    identifiers: Sequence[str] = (),
) -> ReleasedAttack:
    """Return what the homogeneity attack on a release reveals.

    The intruder knows the target's unit of `level` and the `identifiers`; they see the estimates.

    Parameters
    ----------
    estimates : Estimates
        The released counts.
    counts : Counts
        The confidential counts they were made from.
    level : str
        The level of the unit that the intruder knows.
    sensitive : str
        The attribute or recode they want to know.
    identifiers : sequence of str
        The attributes or recodes they know.

    Returns
    -------
    ReleasedAttack
        Shares of people and cells; internal.
    """
    plan = estimates.plan
    if counts.counted_as != plan.counting_digest:
        raise InputError("the counts were tabulated for another plan; tabulate this one")
    query = attack_query(plan, level, sensitive, identifiers)
    every, units = max(1, _VALUES // query.cells), estimates.geography.units(level)
    sums = _Sums()
    for start in range(0, units, every):
        stop = min(start + every, units)
        shown = estimates.counts(level, query, start, stop)
        sums.add(exact_answers(counts, level, start, stop, query), shown, value_count(query))
    return sums.result(level, sensitive, tuple(identifiers))


def simulated(
    plan: Plan,
    counts: Counts,
    *,
    level: str,
    sensitive: str,
    identifiers: Sequence[str] = (),
    releases: int = 20,
    seed: int = 1,
    progress: Callable[[int, int], None] = lambda done, all_: None,
) -> ReleasedAttack:
    """Return what the attack reveals on average over simulated releases, with standard errors.

    Each release is measured with seeded noise and post-processed in a temporary folder; none can be
    published, and none is charged.

    Parameters
    ----------
    plan : Plan
        The plan that releases the counts.
    counts : Counts
        The confidential counts.
    level, sensitive, identifiers
        As for `attack`.
    releases : int
        How many releases are simulated.
    seed : int
        The seed of the first; each further one adds 1.
    progress : callable
        Called with the releases completed and all releases.

    Returns
    -------
    ReleasedAttack
        Means over the releases, with `errors`; internal.
    """
    if releases < 2:
        raise InputError(f"releases: {releases} is not allowed; use at least 2")
    attack_query(plan, level, sensitive, identifiers)
    each = []
    for number in range(releases):
        with tempfile.TemporaryDirectory() as folder:
            rng = Seeded(seed + number)
            to = Path(folder) / "out"
            ledger = Path(folder) / "ledger.sqlite"
            measurements = take(counts, plan, rng=rng, ledger=ledger, to=to)
            estimates = top_down(measurements, plan, rng=rng)
            each.append(
                attack(estimates, counts, level=level, sensitive=sensitive, identifiers=identifiers)
            )
        progress(number + 1, releases)
    names = AttackErrors._fields
    values = np.array([[getattr(item, name) for name in names] for item in each])
    errors = values.std(axis=0, ddof=1) / math.sqrt(releases)
    means = dict(zip(names, values.mean(axis=0).tolist(), strict=True))
    return replace(each[0], **means, releases=releases, errors=AttackErrors(*errors.tolist()))


class _Sums:
    """People and cells counted so far."""

    def __init__(self) -> None:
        self.people = self.cells = self.right = self.wrong = self.before = 0
        self.cells_right = self.cells_wrong = 0

    def add(self, exact: IntArray, shown: IntArray, values: int) -> None:
        """Add some units; the sensitive attribute is the last of the query."""
        (right,), (wrong,), (cells_right,), (cells_wrong,) = read_tables(exact, shown[None], values)
        (alike,), _, _, _ = read_tables(exact, exact[None], values)
        self.cells += int(exact.reshape(-1, values).any(axis=1).sum())
        self.people += int(exact.sum())
        self.right += int(right)
        self.wrong += int(wrong)
        self.cells_right += int(cells_right)
        self.cells_wrong += int(cells_wrong)
        self.before += int(alike)

    def result(self, level: str, sensitive: str, identifiers: tuple[str, ...]) -> ReleasedAttack:
        """Return the shares."""
        if self.people == 0:
            raise InputError("counts: every count is 0, so there is no target")
        of_people = (self.right / self.people, self.wrong / self.people)
        of_cells = (self.cells_right / self.cells, self.cells_wrong / self.cells)
        return ReleasedAttack(
            *of_people,
            *of_cells,
            before=self.before / self.people,
            cells=self.cells,
            level=level,
            sensitive=sensitive,
            identifiers=identifiers,
        )
